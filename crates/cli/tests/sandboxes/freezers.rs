//! A cgroup freezer freezes a busy run as a whole, and the run goes on afterwards.

use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use synconce_testkit::harness::{Need, Place, StartedCommand, eventually, finish, limit, trial};

/// What mount(8) needs for the freezer of each version of control groups.
const V1: [&str; 4] = ["-t", "cgroup", "-o", "freezer"];
const V2: [&str; 2] = ["-t", "cgroup2"];

const CC: Need = Need::Program("cc", "gcc libc6-dev");

pub fn trials() -> Vec<Trial> {
    let (v1, v2) = ([CC, Need::Mount(&V1)], [CC, Need::Mount(&V2)]);
    vec![
        trial(the_freezer_of_cgroup_v2_freezes_a_run_whose_calls_are_answered, &v2),
        trial(the_freezer_of_cgroup_v2_freezes_a_run_whose_calls_are_changed, &v2),
        trial(the_freezer_of_cgroup_v1_freezes_a_run_whose_calls_are_answered, &v1),
        trial(the_freezer_of_cgroup_v1_freezes_a_run_whose_calls_are_changed, &v1),
    ]
}

/// The freezer of either version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FreezerVersion {
    V1,
    V2,
}

/// A control group, in a mount of its own; both are removed on drop.
struct Group {
    version: FreezerVersion,
    hierarchy: PathBuf,
    group: PathBuf,
}

impl Group {
    fn new(place: &Place, version: FreezerVersion) -> Self {
        let hierarchy = place.path(&format!("{version:?}"));
        fs::create_dir(&hierarchy).expect("a directory of ours");
        let kind = match version {
            FreezerVersion::V1 => V1.as_slice(),
            FreezerVersion::V2 => V2.as_slice(),
        };
        let mounted = finish(Command::new("mount").args(kind).arg("none").arg(&hierarchy));
        assert!(mounted.status.success(), "{mounted:?}");
        let unique = fs::read_to_string("/proc/sys/kernel/random/uuid").expect("/proc");
        let group = hierarchy.join(format!("synconce-{}", unique.trim()));
        fs::create_dir(&group).expect("a group below the root of the hierarchy");
        Self { version, hierarchy, group }
    }

    /// Returns `command` as a command that runs in the group.
    fn enclose(&self, place: &Place, command: &Command) -> Command {
        let mut inside = place.command("sh");
        let script = "echo $$ >\"$0\" && exec \"$@\"";
        inside.args(["-c", script]).arg(self.group.join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args());
        inside
    }

    fn kill_all(&self) {
        let text = fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for pid in text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn freeze(&self) {
        let (file, text) = match self.version {
            FreezerVersion::V1 => ("freezer.state", "FROZEN"),
            FreezerVersion::V2 => ("cgroup.freeze", "1"),
        };
        fs::write(self.group.join(file), text).expect("the group exists");
    }

    fn thaw(&self) {
        let (file, text) = match self.version {
            FreezerVersion::V1 => ("freezer.state", "THAWED"),
            FreezerVersion::V2 => ("cgroup.freeze", "0"),
        };
        fs::write(self.group.join(file), text).expect("the group exists");
    }

    fn is_frozen(&self) -> bool {
        let (file, line) = match self.version {
            FreezerVersion::V1 => ("freezer.state", "FROZEN"),
            FreezerVersion::V2 => ("cgroup.events", "frozen 1"),
        };
        let text = fs::read_to_string(self.group.join(file)).expect("the group exists");
        text.lines().any(|it| it == line)
    }

    /// Freezes the group and lets it go on.
    ///
    /// # Errors
    /// Where each thread of the group waits, if not all are frozen within [`limit`].
    fn freeze_and_thaw(&self) -> Result<(), String> {
        let end = Instant::now() + limit();
        self.freeze();
        let frozen = loop {
            if self.is_frozen() {
                break Ok(());
            }
            if Instant::now() > end {
                break Err(self.states());
            }
            std::thread::yield_now();
            if self.version == FreezerVersion::V1 {
                // A thread may have come to a ptrace stop since; runc repeats the write, too.
                self.freeze();
            }
        };
        self.thaw();
        frozen
    }

    fn states(&self) -> String {
        let mut states = String::new();
        for pid in fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default().lines() {
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
                states += &format!("{} {}\n", read("wchan"), read("stat"));
            }
        }
        states
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = Instant::now() + limit();
        while let Err(error) = fs::remove_dir(&self.group) {
            if std::thread::panicking() {
                self.kill_all();
            }
            if Instant::now() > end {
                eprintln!("cannot remove {}: {error}", self.group.display());
                break;
            }
            std::thread::yield_now();
        }
        let _ = finish(Command::new("umount").arg(&self.hierarchy));
    }
}

/// The system call that the threads make, and the word by which `busy.c` makes it.
const FSYNC: (&str, &str) = ("fsync", "fsync");
const OPEN: (&str, &str) = ("openat", "open");

/// Compiles the busy program.
fn busy(place: &Place) -> String {
    place.write("busy.c", include_str!("busy.c"));
    let built = place.bare(&["cc", "-O1", "-pthread", "-o", "busy", "busy.c"]);
    assert!(built.status.success(), "{built:?}");
    place.text("busy")
}

/// Freezes a run of eight busy threads many times. Expects that each freeze completes, that
/// calls go on after it, and that each call is counted once.
fn assert_freezes(place: &Place, version: FreezerVersion, (name, call): (&str, &str)) {
    let group = Group::new(place, version);
    let held = place.held(&["--stats", "--json"], &[&busy(place), call]);
    let run = StartedCommand::new(&mut group.enclose(place, &held));
    let calls = || fs::metadata(place.path("done")).map_or(0, |done| done.len());
    for round in 0..40 {
        let before = calls();
        eventually("calls go on", || calls() > before);
        let frozen = group.freeze_and_thaw();
        assert_eq!(frozen, Ok(()), "freeze {round}");
    }
    place.write("stop", "");
    assert_eq!(run.end().code(), Some(9), "{}", run.text());
    let text = run.text();
    let line = text.lines().find(|line| line.starts_with('{')).expect("the accounts");
    let stats: serde_json::Value = serde_json::from_str(line).expect("one JSON object");
    assert_eq!(stats["calls"][name]["held"].as_u64(), Some(calls()), "{stats}");
    assert_eq!(stats["calls"][name]["passed"].as_u64(), Some(0), "{stats}");
}

fn the_freezer_of_cgroup_v2_freezes_a_run_whose_calls_are_answered(place: &Place) {
    assert_freezes(place, FreezerVersion::V2, FSYNC);
}

fn the_freezer_of_cgroup_v2_freezes_a_run_whose_calls_are_changed(place: &Place) {
    assert_freezes(place, FreezerVersion::V2, OPEN);
}

fn the_freezer_of_cgroup_v1_freezes_a_run_whose_calls_are_answered(place: &Place) {
    assert_freezes(place, FreezerVersion::V1, FSYNC);
}

fn the_freezer_of_cgroup_v1_freezes_a_run_whose_calls_are_changed(place: &Place) {
    assert_freezes(place, FreezerVersion::V1, OPEN);
}
