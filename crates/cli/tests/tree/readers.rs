//! Commands that read a tree beside commands that replace and remove that tree.

use crate::concurrent::{point, text};
use crate::site::{Site, same, times};
use crate::verbs::{waiting, with_base};
use libtest_mimic::Trial;
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::ExitStatus;
use std::time::Duration;
use synconce_testkit::harness::{Need, trial};
use synconce_testkit::harness::{Place, StartedCommand, binary, eventually};

const NEEDS: [Need; 2] =
    [Need::File("/bin/busybox", "busybox-static"), Need::Program("strace", "strace")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(fsck_finds_a_sound_store_sound_beside_other_commands, &NEEDS),
        trial(fsck_finds_a_tree_sound_that_is_removed_meanwhile, &NEEDS),
        trial(verify_finds_a_tree_sound_that_is_replaced_meanwhile, &NEEDS),
        trial(a_layer_that_is_removed_meanwhile_is_accepted, &NEEDS),
        trial(an_export_is_whole_although_its_tree_is_replaced_meanwhile, &NEEDS),
        trial(a_diff_is_right_although_both_trees_are_removed_meanwhile, &NEEDS),
        trial(layers_that_a_killed_reader_kept_go_with_the_next_gc, &NEEDS),
        trial(a_store_that_cannot_be_written_to_is_read, &NEEDS),
        trial(a_mount_is_found_while_another_command_looks_at_its_session, &NEEDS),
        trial(a_killed_run_keeps_no_tree_in_use_while_another_command_looks_at_it, &NEEDS),
    ]
}

/// Makes, changes, commits and removes trees until the file `stop` exists.
const WORK: &str = r#"
set -e
until [ -e stop ]; do
    "$1" tree --store "$2" clone base "$3"
    "$1" tree --store "$2" run "$3" -- /bin/sh -c 'mkdir /data/new; cd /data/new; touch $(seq 200)'
    "$1" tree --store "$2" commit "$3"
    "$1" tree --store "$2" remove "$3"
    echo >>"rounds-$3"
done
"#;

fn fsck_finds_a_sound_store_sound_beside_other_commands(place: &Place) {
    const ROUNDS: usize = 12;
    let site = with_base(place);
    let workers = ["one", "two"].map(|name| {
        let mut command = place.command("sh");
        let store = site.store();
        command.args(["-c", WORK, "sh", binary(), store.to_str().unwrap(), name]);
        (name, StartedCommand::new(&mut command))
    });
    let rounds = |name: &str| place.read(&format!("rounds-{name}")).len();
    let (mut looks, mut faults) = (0, Vec::new());
    eventually("both processes have worked for some rounds", || {
        let found = site.ends(&["fsck"]);
        looks += 1;
        if !found.status.success() || !is_sound(&found.stderr) {
            faults.push(found);
        }
        workers.iter().all(|(name, _)| rounds(name) >= ROUNDS)
    });
    place.write("stop", "");
    for (name, worker) in workers {
        assert!(worker.end().success(), "{name}: {}", worker.text());
    }
    assert!(faults.is_empty(), "{} of {looks} looks: {faults:#?}", faults.len());
    let layers = fs::read_dir(site.store().join("layers")).unwrap().count();
    assert_eq!(layers, 1, "the layer of the base alone");
}

/// Returns whether `text` says that nothing is wrong, and no more.
fn is_sound(text: &str) -> bool {
    let says = |line: &str| {
        line.starts_with("synconce: no faults in ") || line.ends_with(" are as they were frozen")
    };
    text.lines().count() == 1 && says(text.trim_end())
}

/// A command that is stopped while it reads a layer.
struct StoppedReader {
    started: StartedCommand,
}

impl StoppedReader {
    /// Starts `tree WORDS`, and stops it when it has opened a few directories of layers.
    fn reading(site: &Site<'_>, words: &[&str]) -> Self {
        let inject = ["-e", "trace=openat2", "-e", "inject=openat2:signal=STOP:when=3"];
        let stopped = Self::at(site, &inject, words);
        assert!(stopped.started.wait(Duration::ZERO).unwrap().is_none(), "it has ended");
        stopped
    }

    /// Starts `tree WORDS`, and stops the process after its attempt to lock the only session. A
    /// process that makes no attempt ends.
    fn locking(site: &Site<'_>, words: &[&str]) -> Self {
        let session = fs::read_dir(site.store().join("sessions")).unwrap().next().unwrap();
        let session = fs::canonicalize(session.unwrap().path()).unwrap();
        let inject = "inject=flock:signal=STOP:when=1";
        Self::at(site, &["-P", text(&session), "-e", "trace=flock", "-e", inject], words)
    }

    fn at(site: &Site<'_>, inject: &[&str], words: &[&str]) -> Self {
        let tree = site.tree(words);
        let mut command = site.place.command("strace");
        command.args(["-f", "-qq", "-o", "trace"]).args(inject);
        command.arg(tree.get_program()).args(tree.get_args());
        let started = StartedCommand::new(&mut command);
        eventually("it is stopped", || {
            let has_ended = started.wait(Duration::ZERO).unwrap().is_some();
            has_ended || site.place.read("trace").contains("stopped by SIGSTOP")
        });
        Self { started }
    }

    /// Continues the command; returns its exit status and its output.
    fn goes_on(self, site: &Site<'_>) -> (ExitStatus, String) {
        eventually("it has ended", || {
            // strace counts the calls of each thread and of the process that empties the trash
            // separately, and stops each of them.
            for line in site.place.read("trace").lines() {
                let pid = line.split_whitespace().next().and_then(|pid| pid.parse().ok());
                if let Some(pid) = pid.and_then(Pid::from_raw) {
                    // The thread may have ended.
                    let _ = kill_process(pid, Signal::CONT);
                }
            }
            self.started.wait(Duration::from_millis(10)).unwrap().is_some()
        });
        (self.started.end(), self.started.text())
    }
}

/// Makes a store with the tree `base`, and with `work`, a clone that has a committed layer of
/// its own.
fn with_work(place: &Place) -> Site<'_> {
    let site = with_base(place);
    site.clone_of("base", "work");
    let script = "mkdir /data/new; cd /data/new; for n in $(seq 40); do mkdir $n; echo $n >$n/file; \
                  done; rm /data/file";
    site.sh("work", script);
    site.well(&["commit", "work"]);
    site
}

/// Removes `work`, and its layers if no command needs them.
fn remove_work(site: &Site<'_>) {
    site.well(&["remove", "work", "--wait"]);
    site.well(&["gc", "--wait"]);
}

fn count_layers(site: &Site<'_>) -> usize {
    fs::read_dir(site.store().join("layers")).unwrap().count()
}

fn fsck_finds_a_tree_sound_that_is_removed_meanwhile(place: &Place) {
    let site = with_work(place);
    // Only `work` remains, and its two layers are read one after the other.
    site.well(&["remove", "base"]);
    let fsck = StoppedReader::reading(&site, &["fsck"]);
    remove_work(&site);
    site.import("other", &place.path("source"));
    let (status, text) = fsck.goes_on(&site);
    assert!(status.success() && is_sound(&text), "{status}: {text}");
    assert_eq!(count_layers(&site), 1, "what fsck alone still needed is gone");
    site.well(&["gc", "--wait"]);
    assert_eq!(fs::read_dir(site.store().join("trash")).unwrap().count(), 0);
}

fn verify_finds_a_tree_sound_that_is_replaced_meanwhile(place: &Place) {
    let site = with_work(place);
    let verify = StoppedReader::reading(&site, &["verify", "work"]);
    site.well(&["squash", "work"]);
    site.well(&["remove", "base", "--wait"]);
    site.well(&["gc", "--wait"]);
    let (status, text) = verify.goes_on(&site);
    assert!(status.success() && is_sound(&text), "{status}: {text}");
    assert_eq!(count_layers(&site), 1, "what verify alone still needed is gone");
}

fn a_layer_that_is_removed_meanwhile_is_accepted(place: &Place) {
    let site = with_work(place);
    let altered = site.newest_layer("work").join("data/new/7/file");
    fs::write(&altered, "changed").unwrap();
    // The first write says what differs.
    let inject = ["-e", "trace=write", "-e", "inject=write:signal=STOP:when=1"];
    let accept = StoppedReader::at(&site, &inject, &["verify", "--accept", "work"]);
    remove_work(&site);
    let (status, text) = accept.goes_on(&site);
    assert!(status.success() && text.contains("accepted 1 layer of work"), "{status}: {text}");
    assert_eq!(count_layers(&site), 1, "what accept alone still needed is gone");
}

fn an_export_is_whole_although_its_tree_is_replaced_meanwhile(place: &Place) {
    let site = with_work(place);
    let before = site.exported("work");
    let to = place.path("to");
    let export = StoppedReader::reading(&site, &["export", "work", to.to_str().unwrap()]);
    site.well(&["squash", "work"]);
    site.well(&["remove", "base", "--wait"]);
    remove_work(&site);
    let (status, text) = export.goes_on(&site);
    assert!(status.success(), "{status}: {text}");
    same("the export", &before, &times(&to));
    assert_eq!(count_layers(&site), 0, "what the export alone still needed is gone");
}

fn a_diff_is_right_although_both_trees_are_removed_meanwhile(place: &Place) {
    let site = with_work(place);
    let before = site.ends(&["diff", "base", "work"]).stdout;
    assert!(before.lines().count() > 40, "{before}");
    let diff = StoppedReader::reading(&site, &["diff", "base", "work"]);
    site.well(&["remove", "base"]);
    remove_work(&site);
    let (status, text) = diff.goes_on(&site);
    assert_eq!((status.code(), text), (Some(1), before));
    assert_eq!(count_layers(&site), 0, "what diff alone still needed is gone");
}

fn layers_that_a_killed_reader_kept_go_with_the_next_gc(place: &Place) {
    let site = with_work(place);
    let verify = StoppedReader::reading(&site, &["verify", "work"]);
    remove_work(&site);
    assert_eq!(count_layers(&site), 2);
    verify.started.signal(Signal::KILL).unwrap();
    verify.started.end();
    eventually("the kernel has let go of the lock", || {
        site.well(&["gc", "--wait"]);
        count_layers(&site) == 1
    });
}

fn a_store_that_cannot_be_written_to_is_read(place: &Place) {
    let site = with_work(place);
    let store = site.store();
    // What a killed command left cannot be removed now, and is reported when it is.
    let left = store.join("sessions/.left");
    fs::create_dir(&left).unwrap();
    mount_bind(&store, &store).unwrap();
    mount_remount(&store, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
    for words in [&["fsck", "-q"][..], &["verify", "-q", "work"], &["list"]] {
        let finished = site.well(words);
        assert_eq!(finished.stderr, "", "{words:?}");
    }
    let compared = site.ends(&["diff", "base", "work"]);
    assert_eq!(compared.status.code(), Some(1), "{compared:?}");
    site.exported("work");
    site.refused(125, &["clone", "base", "new"], &["read-only file system"]);
    unmount(&store, UnmountFlags::empty()).unwrap();
    site.well(&["list"]);
    assert!(!left.exists());
}

/// Every command first looks for sessions that were cut short.
fn a_mount_is_found_while_another_command_looks_at_its_session(place: &Place) {
    let site = with_work(place);
    let at = point(&site, "point");
    site.well(&["mount", "work", text(&at)]);
    let list = StoppedReader::locking(&site, &["list"]);
    site.well(&["umount", "work"]);
    let (status, messages) = list.goes_on(&site);
    assert!(status.success(), "{status}: {messages}");
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
}

fn a_killed_run_keeps_no_tree_in_use_while_another_command_looks_at_it(place: &Place) {
    let site = with_work(place);
    let run = waiting(&site, &["work"], "true");
    run.signal(Signal::KILL).unwrap();
    run.end();
    drop(run);
    eventually("no process has the session", || {
        let sessions = fs::read_dir(site.store().join("sessions")).unwrap().flatten();
        sessions.into_iter().all(|session| {
            let directory = fs::File::open(session.path()).unwrap();
            flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
        })
    });
    let list = StoppedReader::locking(&site, &["list"]);
    site.well(&["run", "work", "--", "/bin/true"]);
    let (status, messages) = list.goes_on(&site);
    assert!(status.success(), "{status}: {messages}");
}
