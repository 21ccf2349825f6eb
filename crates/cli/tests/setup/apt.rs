//! `synconce setup apt` on a directory that stands for a system, with the machine's dpkg-divert:
//! a kill or a failure at each call, and what is in the way.

use super::crashes::{CALLS, killed};
use super::place::{EndedCommand, SYNCONCE, TestRoot};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use synconce_testkit::harness::eventually;

const REAL: &str = "usr/lib/synconce/diverted";

/// Makes a system with dpkg and apt-get; apt, aptitude and tasksel are not there.
pub fn place(name: &str) -> TestRoot {
    let place = TestRoot::new(name);
    for program in ["usr/bin/synconce", "usr/bin/dpkg", "usr/bin/apt-get"] {
        place.program(program);
        place.write(program, &format!("the real {program}\n"));
    }
    place.write("usr/lib/os-release", "ID=debian\n");
    place.write("var/lib/dpkg/status", "");
    place.write("var/lib/dpkg/lock", "");
    place.write("var/lib/dpkg/diversions", "/bin/sh\n/bin/sh.distrib\ndash\n");
    place
}

/// Returns the diversions, sorted by dpkg-divert.
fn diversions(place: &TestRoot) -> String {
    let mut list = Command::new("dpkg-divert");
    let ended =
        EndedCommand::run(list.arg("--root").arg(&place.root).arg("--list").env("LC_ALL", "C"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Everything that a set-up changes.
pub type SetUpState = (std::collections::BTreeMap<std::path::PathBuf, (u32, Vec<u8>)>, String);

pub fn state(place: &TestRoot) -> SetUpState {
    (place.snapshot(), diversions(place))
}

/// Checks that each program can be started: it is the wrapper with the program beside it, or the
/// program.
fn assert_works(place: &TestRoot, when: &str) {
    for name in ["dpkg", "apt-get"] {
        let text = place.read(&format!("usr/bin/{name}"));
        let real = format!("the real usr/bin/{name}\n");
        if text != real {
            assert!(text.starts_with("#!/bin/sh\n# Written by"), "{when}: {text}");
            assert_eq!(place.read(&format!("{REAL}/{name}")), real, "{when}");
        }
    }
}

#[test]
fn an_undo_leaves_the_files_and_the_diversions_as_they_were() {
    let place = place("apt");
    let before = state(&place);
    let inode = |path: &str| fs::metadata(place.root.join(path)).unwrap().ino();
    let program = inode("usr/bin/dpkg");
    let check = place.setup(&["apt", "--check"]);
    assert_eq!(check.code, Some(1), "{check:?}");
    assert!(check.stdout.contains("divert "), "{check:?}");
    let dry = place.setup(&["apt", "--dry-run"]);
    assert_eq!((dry.code, dry.stdout), (Some(0), check.stdout));
    assert_eq!(before, state(&place));

    let ended = place.setup(&["apt"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("left out: apt, aptitude, tasksel; after"), "{ended:?}");
    let after = state(&place);
    assert!(after.1.contains("usr/bin/dpkg to /usr/lib/synconce/diverted/dpkg"), "{}", after.1);
    assert_eq!(place.setup(&["apt", "--check"]).code, Some(0));
    let again = place.setup(&["apt"]);
    assert!(again.code == Some(0) && again.stderr.contains("nothing was changed"), "{again:?}");
    assert_eq!(after, state(&place));

    assert_eq!(place.setup(&["apt", "--undo"]).code, Some(0));
    assert_eq!(before, state(&place));
    assert_eq!(inode("usr/bin/dpkg"), program, "the file itself is back");
    let again = place.setup(&["apt", "--undo"]);
    assert!(again.code == Some(0) && again.stderr.contains("nothing to undo"), "{again:?}");
    assert_eq!(before, state(&place));
}

/// Takes long: the set-up begins anew, below strace, for each of its calls that changes a file.
#[test]
fn a_kill_at_any_call_leaves_programs_that_work_and_the_next_set_up_or_undo_goes_on() {
    let place = place("apt-killed");
    let before = state(&place);
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    let after = state(&place);
    let mut kills = 0;
    for (words, next, wanted) in [
        (&["apt", "--undo"][..], &["apt"][..], &after),
        (&["apt", "--undo"], &["apt", "--undo"], &before),
        (&["apt"], &["apt"], &after),
        (&["apt"], &["apt", "--undo"], &before),
    ] {
        for call in CALLS.into_iter().chain(["linkat", "mkdirat"]) {
            for nth in 1.. {
                let start = if words.len() == 1 { &["apt", "--undo"][..] } else { &["apt"] };
                assert_eq!(place.setup(start).code, Some(0));
                if !killed(&place, words, call, nth) {
                    break;
                }
                kills += 1;
                let when = format!("{words:?}, {next:?}: {call} {nth}");
                assert_works(&place, &when);
                let ended = place.setup(next);
                assert_eq!(ended.code, Some(0), "{when}: {ended:?}");
                assert_eq!(*wanted, state(&place), "{when}");
            }
        }
    }
    assert!(kills > 60, "only {kills} kills");
}

#[test]
fn a_failure_at_any_call_of_the_first_set_up_changes_nothing() {
    let place = place("apt-full");
    let before = state(&place);
    let mut failures = 0;
    for call in ["mkdirat", "write", "fsync", "renameat", "linkat"] {
        for nth in 1.. {
            let inject = format!("inject={call}:error=ENOSPC:when={nth}");
            let mut command = Command::new("strace");
            command.args(["-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
            let ended = EndedCommand::run(command.arg(SYNCONCE).args(place.arguments(&["apt"])));
            if ended.code == Some(0) {
                place.setup(&["apt", "--undo"]);
                break;
            }
            let when = format!("{call} {nth}: {ended:?}");
            assert_eq!(ended.code, Some(125), "{when}");
            // The last writes are the notices.
            if ended.stderr.contains("No space left on device") {
                assert!(ended.stderr.contains("hint: free space on that disk"), "{when}");
                assert_eq!(before, state(&place), "{when}");
                failures += 1;
            }
            place.setup(&["apt", "--undo"]);
        }
    }
    assert!(failures > 10, "only {failures} failures");
}

#[test]
fn a_set_up_and_an_undo_at_once_do_not_act_on_what_the_other_has_changed() {
    for words in [&["apt", "--undo"][..], &["apt"]] {
        let place = place("apt-at-once");
        let before = state(&place);
        // What a set-up that was killed leaves.
        fs::create_dir_all(place.root.join(REAL)).unwrap();
        fs::hard_link(place.root.join("usr/bin/dpkg"), place.root.join(REAL).join("dpkg")).unwrap();
        let lock = place.root.join("var/lib/dpkg/lock");
        let log = place.root.with_extension("strace");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "trace=openat", "-e", "inject=openat:signal=STOP", "-P"]);
        strace.arg(lock).arg("-o").arg(&log).arg(SYNCONCE).args(place.arguments(words));
        let mut strace = strace.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let text = || fs::read_to_string(&log).unwrap_or_default();
        eventually("it stops before it locks", || text().contains("stopped by SIGSTOP"));
        assert_eq!(place.setup(&["apt"]).code, Some(0));
        let after = state(&place);
        let stopped = text().split(' ').next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(stopped).unwrap(), Signal::CONT).unwrap();
        assert!(strace.wait().unwrap().success(), "{}", text());
        fs::remove_file(&log).unwrap();
        assert_eq!(state(&place), if words.len() == 1 { after } else { before });
    }
}

#[test]
fn a_program_that_dpkg_upgraded_while_a_set_up_was_half_done_is_the_one_that_stays() {
    let place = place("apt-upgraded");
    let program = place.root.join("usr/bin/dpkg");
    // Before the diversion, dpkg writes to the name of its own.
    fs::create_dir_all(place.root.join(REAL)).unwrap();
    fs::hard_link(&program, place.root.join(REAL).join("dpkg")).unwrap();
    fs::remove_file(&program).unwrap();
    place.program("usr/bin/dpkg");
    place.write("usr/bin/dpkg", "the real usr/bin/dpkg\n");
    place.write(&format!("{REAL}/dpkg"), "the old one\n");
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    assert_works(&place, "set up");
    // After it, to the other name.
    place.write(&format!("{REAL}/dpkg"), "upgraded\n");
    assert_eq!(place.setup(&["apt", "--undo"]).code, Some(0));
    assert_eq!(place.read("usr/bin/dpkg"), "upgraded\n");
    assert!(!place.root.join("usr/lib/synconce").exists());
}

#[test]
fn the_wrapper_of_a_program_that_was_removed_is_taken_away() {
    let place = place("apt-removed");
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    fs::remove_file(place.root.join(REAL).join("apt-get")).unwrap();
    let ended = place.setup(&["apt"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!place.root.join("usr/bin/apt-get").exists());
    assert!(ended.stderr.contains("apt-get was a wrapper whose program is gone\n"), "{ended:?}");
    assert!(!diversions(&place).contains("apt-get"));
    assert!(place.setup(&["apt", "--undo"]).code == Some(0) && !place.root.join(REAL).exists());
}

#[test]
fn a_link_of_update_alternatives_stays_and_its_target_is_diverted() {
    let place = place("apt-alternative");
    place.program("usr/bin/aptitude-curses");
    let link = |path: &str, target: &str| {
        let path = place.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    };
    link("usr/bin/aptitude", "/etc/alternatives/aptitude");
    link("etc/alternatives/aptitude", "/usr/bin/aptitude-curses");
    let before = state(&place);
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    assert!(diversions(&place).contains("of /usr/bin/aptitude-curses to"));
    assert!(place.root.join("usr/bin/aptitude").is_symlink());
    assert_eq!(place.setup(&["apt", "--undo"]).code, Some(0));
    assert_eq!(before, state(&place));
}

#[test]
fn a_link_to_another_program_is_refused_and_that_program_stays() {
    let place = place("apt-links");
    let link = |name: &str, target: &str| {
        let path = place.root.join("usr/bin").join(name);
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(target, path).unwrap();
    };
    place.program("usr/bin/busybox");
    for (name, target) in [
        ("dpkg", "busybox"),
        ("tasksel", "eatmydata"),
        ("apt", "/usr/bin/synconce"),
        ("aptitude", "/nowhere/dpkg"),
    ] {
        link("eatmydata", "synconce");
        link(name, target);
        let before = state(&place);
        let ended = place.setup(&["apt"]);
        assert_eq!(ended.code, Some(125), "{ended:?}");
        let path = format!("{name}: is a link to another program");
        assert!(ended.stderr.contains(&path), "{ended:?}");
        assert_eq!(place.setup(&["apt", "--undo"]).code, Some(0));
        assert_eq!(before, state(&place));
        fs::remove_file(place.root.join("usr/bin").join(name)).unwrap();
        place.program(&format!("usr/bin/{name}"));
    }
}

#[test]
fn a_diversion_of_another_tool_stops_the_set_up_but_no_undo_and_the_printed_command_takes_it_away()
{
    let place = place("apt-diverted");
    let before = state(&place);
    for way in ["--rename", "--no-rename"] {
        let mut divert = Command::new("dpkg-divert");
        divert.arg("--root").arg(&place.root).args([
            "--quiet",
            "--package",
            "other",
            way,
            "--divert",
        ]);
        divert.args(["/usr/bin/apt-get.distrib", "--add", "/usr/bin/apt-get"]);
        assert_eq!(EndedCommand::run(&mut divert).code, Some(0));
        // eatmydata's hooks for Debian's installer write such a script.
        if way == "--rename" {
            place.program("usr/bin/apt-get");
            place.write("usr/bin/apt-get", "exec eatmydata apt-get.distrib\n");
        }
        let diverted = state(&place);
        let undone = place.setup(&["apt", "--undo"]);
        assert!(undone.stderr.contains("nothing to undo"), "{undone:?}");
        let ended = place.setup(&["apt"]);
        assert_eq!(ended.code, Some(125), "{ended:?}");
        assert!(
            ended.stderr.contains("is diverted to /usr/bin/apt-get.distrib already"),
            "{ended:?}"
        );
        assert_eq!(diverted, state(&place));
        let (_, command) = ended.stderr.split_once("hint: take that away, by: ").unwrap();
        let typed = EndedCommand::run(Command::new("sh").args(["-ec", command]));
        assert_eq!(typed.code, Some(0), "{command}: {typed:?}");
        assert_eq!(before, state(&place));
    }
    assert_eq!(place.setup(&["apt"]).code, Some(0));
}

#[test]
fn what_is_in_the_way_is_named_with_a_hint_and_nothing_is_changed() {
    let place = place("apt-in-the-way");
    let refused = |words: &[&str], parts: [&str; 2]| {
        let before = state(&place);
        let ended = place.setup(words);
        assert_eq!(ended.code, Some(125), "{ended:?}");
        for part in parts {
            assert!(ended.stderr.contains(part), "{part}: {ended:?}");
        }
        assert_eq!(before, state(&place));
    };
    refused(&["apt", "--runtime", "/x"], ["cannot use --runtime for apt", "hint: leave it out"]);
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    let wrapper = place.read("usr/bin/dpkg");
    place.write("usr/bin/dpkg", "the operator's\n");
    for words in [&["apt"][..], &["apt", "--undo"]] {
        refused(words, ["dpkg: is neither synconce's wrapper nor", "hint: move it away"]);
    }
    assert_eq!(place.setup(&["apt", "--undo", "--force"]).code, Some(0));
    assert_eq!(place.read("usr/bin/dpkg"), "the real usr/bin/dpkg\n");

    // dpkg at work has the lock, by fcntl(2).
    let lock = "use Fcntl; open(my $f, '+<', $ARGV[0]) or die; \
                my $all = pack('s s l! l! i', F_WRLCK, 0, 0, 0, 0); \
                fcntl($f, F_SETLK, $all) or die; \
                system(@ARGV[1 .. $#ARGV]); exit($? >> 8)";
    let mut command = Command::new("perl");
    command.args(["-e", lock]).arg(place.root.join("var/lib/dpkg/lock")).arg(SYNCONCE);
    let before = state(&place);
    let ended = EndedCommand::run(command.args(place.arguments(&["apt"])));
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(
        ended.stderr.contains("lock: is locked: dpkg or another set-up is at work\n"),
        "{ended:?}"
    );
    assert_eq!(before, state(&place));
    // The script of a package runs while dpkg waits for the script.
    let ended = EndedCommand::run(command.env("DPKG_MAINTSCRIPT_PACKAGE", "synconce"));
    assert_eq!(ended.code, Some(0), "{ended:?}");

    // A synconce that went, and another copy of it.
    fs::remove_file(place.root.join("usr/bin/synconce")).unwrap();
    refused(&["apt"], ["synconce: is no executable file", "hint: install synconce"]);
    let check = place.setup(&["apt", "--check"]);
    let said = "synconce: is no executable file; install synconce";
    assert!(check.code == Some(1) && check.stderr.contains(said), "{check:?}");
    place.program("usr/local/bin/synconce");
    assert_eq!(place.setup(&["apt", "--check"]).code, Some(1));
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    let moved = place.read("usr/bin/dpkg");
    assert!(moved.contains("\nsynconce_program=/usr/local/bin/synconce\n"), "{moved}");
    assert_eq!(moved.lines().count(), wrapper.lines().count());
    // The wrapper of an earlier synconce.
    place.write("usr/bin/dpkg", &format!("{moved}# as it was once\n"));
    assert_eq!(place.setup(&["apt", "--check"]).code, Some(1));
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    assert_eq!(place.read("usr/bin/dpkg"), moved);
    place.program("usr/bin/synconce");
    assert_eq!(place.setup(&["apt", "--check"]).code, Some(0));
}

#[test]
fn a_system_without_dpkg_a_read_only_and_an_immutable_one_are_refused_as_they_are() {
    let place = place("apt-read-only");
    let before = state(&place);
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(&place.root).arg(SYNCONCE);
    let ended = EndedCommand::run(command.args(place.arguments(&["apt"])));
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(ended.stderr.contains(": Read-only file system\n"), "{ended:?}");
    assert!(ended.stderr.contains("hint: make the file system writable"), "{ended:?}");
    assert_eq!(before, state(&place));
    // An undo would first change dpkg's list, which is on another disk.
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    let set_up = state(&place);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(place.root.join("usr")).arg(SYNCONCE);
    let ended = EndedCommand::run(command.args(place.arguments(&["apt", "--undo"])));
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(ended.stderr.contains("/usr/bin: Read-only file system\n"), "{ended:?}");
    assert!(ended.stderr.contains("hint: make the file system writable"), "{ended:?}");
    assert_eq!(set_up, state(&place));
    assert_eq!(place.setup(&["apt", "--undo"]).code, Some(0));
    let attribute = |sign: &str| {
        let mut change = Command::new("chattr");
        change.arg(sign).arg(place.root.join("usr/bin/dpkg"));
        assert_eq!(EndedCommand::run(&mut change).code, Some(0));
    };
    attribute("+i");
    let ended = place.setup(&["apt"]);
    attribute("-i");
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(ended.stderr.contains("hint: look for files that are immutable"), "{ended:?}");
    assert_eq!(before, state(&place));
    fs::remove_file(place.root.join("usr/bin/dpkg")).unwrap();
    let ended = place.setup(&["apt"]);
    assert_eq!(ended.code, Some(125), "{ended:?}");
    assert!(ended.stderr.contains("holds no dpkg\n"), "{ended:?}");
    assert!(!Path::new(&place.root).join("usr/lib/synconce").exists());
}
