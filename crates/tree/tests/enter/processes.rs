//! The processes inside a tree, and those that wait for them.

use crate::support::{entered, entering, isolated, limit, output, root, script, spec, verb, write};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_testkit::process::Group;

/// Waits until `is_so` returns true.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + limit();
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not in {:?}", limit());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the pids of visible processes that have `word` among their arguments.
fn processes(word: &str) -> Vec<i32> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |number: &i32| {
        let words = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|one| one == word.as_bytes())
    };
    numbers.filter(has).collect()
}

fn state(number: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    text.rsplit(") ").next().unwrap_or_default().chars().take(1).collect()
}

pub fn the_exit_status_of_the_command_is_passed_on() {
    isolated(|place| {
        let root = root(place, "root");
        for code in [0, 1, 42, 125, 255] {
            let finished = entered(&script(&root, &format!("exit {code}")));
            assert_eq!(finished.status.code(), Some(code), "{finished:?}");
            assert_eq!(finished.stderr, "");
        }
        for signal in [Signal::INT, Signal::KILL, Signal::TERM].map(Signal::as_raw) {
            let finished = entered(&script(&root, &format!("kill -{signal} $$")));
            assert_eq!(finished.status.signal(), Some(signal), "{finished:?}");
        }
    });
}

pub fn what_cannot_be_executed_is_named() {
    isolated(|place| {
        let root = root(place, "root");
        write(&root.join("bin/denied"), "");
        fs::set_permissions(root.join("bin/denied"), PermissionsExt::from_mode(0o644)).unwrap();
        write(&root.join("bin/script"), "echo no header\n");
        fs::set_permissions(root.join("bin/script"), PermissionsExt::from_mode(0o755)).unwrap();
        for (command, code) in
            [("nowhere", 127), ("/bin/nowhere", 127), ("denied", 126), ("/", 126)]
        {
            let finished = entered(&spec(&root, &[command]));
            assert_eq!(finished.status.code(), Some(code), "{finished:?}");
            assert!(finished.stderr.starts_with(&format!("{command}: ")), "{finished:?}");
        }
        assert_eq!(output(&spec(&root, &["script"])), "no header\n");
        let mut elsewhere = script(&root, "true");
        elsewhere.directory = Some("/nowhere".into());
        let finished = entered(&elsewhere);
        assert_eq!(finished.status.code(), Some(125));
        assert!(finished.stderr.contains("/nowhere: No such file"), "{finished:?}");
    });
}

pub fn what_the_command_leaves_running_ends_with_it() {
    isolated(|place| {
        let root = root(place, "root");
        let inside = "(while :; do echo x >>/tmp/written; done) & sleep 0.1 8642 & \
                      until [ -s /tmp/written ]; do :; done";
        output(&script(&root, inside));
        let size = || fs::metadata(root.join("tmp/written")).unwrap().len();
        let at_the_end = size();
        assert_eq!(processes("8642"), Vec::<i32>::new());
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(size(), at_the_end, "something still writes");
    });
}

pub fn orphans_are_reaped() {
    isolated(|place| {
        let root = root(place, "root");
        let inside = "for i in 1 2 3 4 5; do (true &) ; done; i=0
            until ! grep -q 'State:.Z' /proc/[0-9]*/status 2>/dev/null; do i=$((i+1)); done; echo none";
        let inside =
            inside.replace("grep -q 'State:.Z' /proc/[0-9]*/status 2>/dev/null", "zombies");
        let zombies = "zombies() { for s in /proc/[0-9]*/status; do case \"$(cat $s 2>/dev/null)\" in \
                       *'(zombie)'*) return 0 ;; esac; done; return 1; }; ";
        assert_eq!(output(&script(&root, &format!("{zombies}{inside}"))), "none\n");
    });
}

pub fn signals_to_the_parent_reach_the_command() {
    isolated(|place| {
        let root = root(place, "root");
        for (signal, name) in [
            (Signal::TERM, "TERM"),
            (Signal::HUP, "HUP"),
            (Signal::INT, "INT"),
            (Signal::USR1, "USR1"),
        ] {
            let ready = root.join("tmp/ready");
            let _ = fs::remove_file(&ready);
            let inside = format!(
                "trap 'echo {name}; exit 7' {name}; echo x >/tmp/ready; while :; do sleep 0.05; done"
            );
            let group = Group::spawn(&mut entering(&script(&root, &inside))).unwrap();
            eventually("the command is ready", || ready.exists());
            let pid = Pid::from_raw(group.pid() as i32).unwrap();
            kill_process(pid, signal).unwrap();
            let status = group.wait(limit()).unwrap().expect("an end");
            assert_eq!(status.code(), Some(7), "{name}");
            assert_eq!(group.stdout().unwrap(), format!("{name}\n"), "once");
        }
    });
}

pub fn when_the_parent_is_killed_everything_inside_ends() {
    isolated(|place| {
        let root = root(place, "root");
        let inside = "sleep 97531 & echo x >/tmp/ready; wait";
        let spec = serde_json::to_string(&script(&root, inside)).unwrap();
        let mut parent = Command::new("sh");
        parent.args(["-c", "\"$0\" enter \"$1\"; :"]);
        parent.arg(verb(&[]).get_program()).arg(spec);
        let group = Group::spawn(&mut parent).unwrap();
        eventually("the command is ready", || root.join("tmp/ready").exists());
        // The child was forked by then, but may not have executed yet.
        eventually("its child is there", || processes("97531").len() == 1);
        kill_process(Pid::from_raw(group.pid() as i32).unwrap(), Signal::KILL).unwrap();
        eventually("everything ends", || processes("97531").is_empty());
    });
}

pub fn a_stop_of_the_command_stops_its_parents() {
    isolated(|place| {
        let root = root(place, "root");
        let inside = "echo x >/tmp/ready; kill -STOP $$; echo again";
        let group = Group::spawn(&mut entering(&script(&root, inside))).unwrap();
        let pid = group.pid() as i32;
        eventually("it stops", || state(pid) == "T");
        kill_process(Pid::from_raw(pid).unwrap(), Signal::CONT).unwrap();
        let status = group.wait(limit()).unwrap().expect("an end");
        assert!(status.success(), "{status}");
        assert_eq!(group.stdout().unwrap(), "again\n");
    });
}

/// Runs a command as `tree run` does: the filter is outside, the namespaces inside.
pub fn it_runs_under_a_hold() {
    isolated(|place| {
        let synconce = synconce_testkit::build::program("synconce").expect("the tool");
        let root = root(place, "root");
        let inside = "echo x >/tmp/f; sync; exit 9";
        let spec = serde_json::to_string(&script(&root, inside)).unwrap();
        let mut command = Command::new(synconce);
        command.args(["run", "--no-commit", "--stats", "--json", "--"]);
        command.arg(verb(&[]).get_program()).args(["enter", &spec]);
        let finished = synconce_testkit::process::run(&mut command, limit()).unwrap();
        assert_eq!(finished.status.code(), Some(9), "{finished:?}");
        assert!(finished.stderr.contains(r#""sync":{"held":1"#), "{finished:?}");
    });
}
