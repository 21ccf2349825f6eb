//! What the verbs say of a hold that is not as it should be, and the commands of their hints.

use crate::crashes::crash_at;
use crate::support::{HoldOnRig, configure, end, hold, refused, sh, with_hold};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use synconce_testkit::harness::{
    StartedCommand, Terminal, binary, children, eventually, finish, isolated, kill, process_status,
};
use synconce_testkit::rig::Rig;

/// Returns the commands of the lines of `text` that begin with `mark`.
fn commands<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.strip_prefix("synconce: ")?.strip_prefix(mark))
}

#[test]
fn a_narrow_terminal_does_not_cut_what_a_crash_costs() {
    isolated(|place| {
        let cost = "images are pulled again, and containers are made again";
        let fixture = HoldOnRig::new(place, &format!("after_crash = \"wipe\"\ncost = \"{cost}\""));
        fixture.ok("start");
        let status = "$SYNCONCE hold status ./t.toml";
        let mut terminal = Terminal::shell(place);
        terminal.line(&format!("COLUMNS=70 {status}"));
        let lines = terminal.prompt();
        let words = lines.split_whitespace().collect::<Vec<_>>().join(" ");
        let whole = format!("after a crash: the files are set aside: {cost}");
        assert!(words.contains(&whole), "{lines}");
        assert!(lines.lines().all(|line| line.chars().count() <= 70), "{lines}");
        terminal.line(&format!("COLUMNS=200 {status}"));
        let lines = terminal.prompt();
        assert!(lines.contains(cost) && !lines.contains("after a crash:"), "{lines}");
        assert!(lines.contains("  AFTER CRASH\r\n"), "{lines}");
        terminal.line("exit 0");
        assert!(terminal.end().success());
        fixture.ok("stop");
        let off = fixture.hold("status").stdout;
        assert!(off.ends_with("  as without a hold\n"), "{off}");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn the_hint_for_a_path_with_a_quote_is_a_command() {
    with_hold("", |place, fixture| {
        let at = fixture.rig.path().join("with 'quote\tand tab");
        let (held, copy) = (at.join("db"), at.join("copy"));
        fs::create_dir_all(&held).unwrap();
        fs::create_dir_all(&copy).unwrap();
        configure(place, "t", "", &held);
        fixture.ok("start");
        let mount = ["mount", "--bind", held.to_str().unwrap(), copy.to_str().unwrap()];
        assert_eq!(place.bare(&mount).status.code(), Some(0));
        let said = fixture.fails("stop", &["it is mounted on"]);
        commands(&said, "hint: ").for_each(|command| drop(sh(place, command)));
        fixture.ok("stop");
    });
}

#[test]
fn the_commands_that_put_back_a_name_with_a_tab_can_be_typed() {
    with_hold("", |place, fixture| {
        let held = fixture.rig.path().join("a\tb\nc\u{202e}d");
        fs::create_dir_all(&held).unwrap();
        configure(place, "t", "after_crash = \"wipe\"", &held);
        for by_hand in [true, false] {
            fixture.ok("start");
            fs::write(held.join("data"), "old").unwrap();
            crash_at(place, std::slice::from_ref(&held));
            let recovered = fixture.hold("recover");
            assert_eq!(recovered.status.code(), Some(0), "{}", recovered.stderr);
            assert!(!held.exists());
            if by_hand {
                let readme = fixture.rig.path().join(".synconce-aside-t-1/README");
                let readme = fs::read_to_string(readme).unwrap();
                let command = readme.lines().find(|line| line.starts_with("(cd "));
                sh(place, command.expect("a command"));
            } else {
                let restore: Vec<_> = commands(&recovered.stderr, "  ").collect();
                assert_eq!(restore, ["synconce hold restore t"]);
                let said = fixture.ok("restore");
                assert!(said.contains("hold t: put back ") && said.lines().count() == 2, "{said}");
            }
            assert_eq!(fs::read_to_string(held.join("data")).unwrap(), "old");
        }
    });
}

#[test]
fn a_file_system_that_aborted_its_journal_has_failed() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).mount_options("commit=1").passthrough(false);
        let fixture = HoldOnRig::on(place, rig.up().unwrap(), "");
        fixture.ok("start");
        let made = fixture.directory().join("made");
        fixture.rig.abort_journal(|| fs::create_dir(made).unwrap()).unwrap();
        fixture.rig.disk().recover().unwrap();
        let write = || fs::write(fixture.directory().join("new"), "");
        eventually("the kernel has aborted the journal", || write().is_err());
        // The kernel counts the error in a work queue of its own.
        eventually("the kernel counts the error", || fixture.state() != "held");
        let (status, code) = fixture.status();
        assert_eq!((status["state"].as_str(), code), (Some("failed"), Some(4)), "{status}");
        assert_eq!(status["advice"], "synconce hold stop t");
        fixture.fails("stop", &["the disk lost writes", "hint: synconce hold recover t\n"]);
        fixture.rig.unmount().unwrap();
        assert_eq!(fixture.state(), "interrupted");
        fixture.rig.down().unwrap();
    });
}

/// Another mount namespace has the disk by another mount.
#[test]
fn an_aborted_journal_that_the_kernel_has_not_noticed_is_found_in_another_mount_namespace() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).mount_options("commit=1,errors=continue");
        let fixture = HoldOnRig::on(place, rig.passthrough(false).up().unwrap(), "");
        fixture.ok("start");
        let point = fixture.rig.path().display();
        let error = "echo 1 >/sys/fs/ext4/$(basename $(findmnt -no SOURCE ";
        sh(place, &format!("{error}{point}))/trigger_fs_error; sync -f {point}"));
        assert_eq!(fixture.state(), "held");
        let made = fixture.directory().join("made");
        fixture.rig.abort_journal(|| fs::create_dir(made).unwrap()).unwrap();
        fixture.rig.disk().recover().unwrap();
        let status = ["--mount", binary(), "hold", "status", "--json", "./t.toml"];
        let elsewhere = || finish(place.command("unshare").args(status)).stdout;
        eventually("the abort is found", || elsewhere().contains("\"failed\""));
        fixture.fails("stop", &["the disk lost writes", "hint: synconce hold recover t\n"]);
        fixture.rig.unmount().unwrap();
        fixture.rig.down().unwrap();
    });
}

#[test]
fn an_error_that_ext4_counted_before_the_hold_is_none_of_the_hold() {
    with_hold("", |place, fixture| {
        configure(place, "t", "", &fixture.directory());
        let point = fixture.rig.path().display().to_string();
        let error = format!(
            "d=/sys/fs/ext4/$(basename $(findmnt -no SOURCE {point})); \
             echo 1 >$d/trigger_fs_error; sync -f {point}; cat $d/errors_count"
        );
        assert_eq!(sh(place, &error), "1\n");
        // Until e2fsck(8).
        fixture.rig.unmount().unwrap();
        fixture.rig.mount().unwrap();
        fixture.ok("start");
        let remount = |how| sh(place, &format!("mount -o remount,{how} {point}"));
        remount("ro");
        assert_eq!(fixture.state(), "held");
        remount("rw");
        fixture.ok("stop");
        fixture.ok("start");
        assert_eq!(sh(place, &error), "2\n");
        assert_eq!(fixture.state(), "held");
        remount("ro");
        assert_eq!(fixture.state(), "failed");
        remount("rw");
        fixture.ok("stop");
    });
}

#[test]
fn a_disk_that_was_made_read_only_is_named_with_the_command_that_helps() {
    with_hold("", |place, fixture| {
        // The guard has files of bbolt open.
        configure(place, "t", "", &fixture.directory());
        fixture.ok("start");
        let point = fixture.rig.path().display().to_string();
        sh(place, &format!("mount -o remount,ro {point}"));
        assert_eq!(fixture.state(), "held");
        let hint = format!("mount -o remount,rw {point}");
        fixture.fails("stop", &[&format!("hint: {hint}\n")]);
        sh(place, &hint);
        fixture.ok("stop");
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn files_that_are_held_under_another_name_are_not_said_to_be_synced() {
    with_hold("", |place, fixture| {
        let (first, second) = (fixture.rig.path().join("p"), fixture.rig.path().join("q"));
        fs::create_dir_all(first.join("db")).unwrap();
        configure(place, "t", "", &first.join("db"));
        fixture.ok("start");
        fs::rename(&first, &second).unwrap();
        let status = fixture.status().0;
        assert_eq!(status["state"], "incomplete");
        assert_eq!(status["missing"].as_array().map(Vec::len), Some(0), "{status}");
        let reason = status["reason"].as_str().expect("a reason");
        let said = format!("is still held: it is mounted on {}/db now", second.display());
        assert!(reason.contains(&said), "{reason}");
        assert_eq!(status["advice"], "synconce hold stop t");
        refused(fixture, &["hint: move the directory back"]);
        fs::rename(&second, &first).unwrap();
        fixture.ok("stop");
    });
}

#[test]
fn a_directory_is_held_once_whatever_its_name() {
    with_hold("", |place, fixture| {
        let at = |name: &str| -> PathBuf { fixture.rig.path().join(name) };
        for name in ["a/db/inner", "bound", "inside"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        let root = fixture.rig.path().display().to_string();
        sh(place, &format!("cd {root}; mount --bind a bound; ln -s a to"));
        let names = ["a/db", "bound/db", "to/db"];
        for (name, other) in [("first", "a/db"), ("second", "bound/db"), ("third", "inside/inner")]
        {
            if other == "inside/inner" {
                sh(place, &format!("cd {root}; mount --bind a/db inside"));
            }
            configure(place, name, "", &at(other));
            let first = format!("./{name}.toml");
            let started = hold(place, &["start", &first]);
            assert_eq!(started.status.code(), Some(0), "{}", started.stderr);
            for alias in names.iter().filter(|alias| **alias != other) {
                configure(place, "t", "", &at(alias));
                let said = format!("it is in the hold {name}, too");
                fixture.fails("start", &[&said, &format!("hint: synconce hold stop {name}\n")]);
            }
            let stopped = hold(place, &["stop", &first]);
            assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
        }
        sh(place, &format!("cd {root}; umount bound inside"));
    });
}

#[test]
fn a_start_that_has_to_end_a_part_of_the_hold_first_says_so() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let process = fixture.open(&fixture.directory().join("new"));
        sh(place, &format!("umount {}", fixture.file().display()));
        fixture.fails("start", &["cannot start the hold t, which is partly in force: "]);
        end(process);
        fixture.ok("start");
        fixture.ok("stop");
    });
}

#[test]
fn the_guard_has_a_command_line_of_its_own() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let guard: serde_json::Value =
            serde_json::from_str(&place.read("runtime/holds/t.guard")).expect("JSON");
        let words = fs::read_to_string(format!("/proc/{}/cmdline", guard["pid"])).unwrap();
        assert_eq!(words.trim_end_matches('\0'), "synconce-guard t");
        fixture.ok("stop");
    });
}

/// Freezes or thaws the disk of `fixture`.
fn fsfreeze(fixture: &HoldOnRig<'_>, act: &str) {
    sh(fixture.place, &format!("fsfreeze {act} {}", fixture.rig.path().display()));
}

/// Types the verb while the disk is frozen.
fn waiting(fixture: &HoldOnRig<'_>, verb: &str) -> StartedCommand {
    let place = fixture.place;
    fsfreeze(fixture, "--freeze");
    let typed = StartedCommand::new(&mut place.synconce(&["hold", verb, "./t.toml"]));
    eventually("a thread waits for the file system", || {
        let processes = children(typed.pid()).into_iter().map(|(pid, _)| pid);
        processes.chain([typed.pid()]).any(|pid| {
            let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
            threads.flatten().any(|thread| {
                let stat = fs::read_to_string(thread.path().join("stat"));
                stat.is_ok_and(|stat| stat.contains(") D "))
            })
        })
    });
    typed
}

/// Types the verb while the disk is frozen, and interrupts it.
fn interrupted(fixture: &HoldOnRig<'_>, verb: &str) {
    let typed = waiting(fixture, verb);
    kill(typed.pid(), Signal::INT);
    let has_ended =
        || process_status(typed.pid()).get("State").is_none_or(|state| state.starts_with('Z'));
    eventually(&format!("{verb} has ended"), has_ended);
    assert_eq!(typed.end().signal(), Some(Signal::INT.as_raw()), "{verb}");
    fsfreeze(fixture, "--unfreeze");
    fixture.ok(verb);
}

#[test]
fn a_stop_that_goes_on_is_not_shown_as_one_that_was_cut_short() {
    with_hold("", |_, fixture| {
        fixture.ok("start");
        let typed = waiting(fixture, "stop");
        // A thread can be in that state before, for a moment.
        eventually("the overlays are read-only", || fixture.state() != "held");
        let (status, code) = fixture.status();
        fsfreeze(fixture, "--unfreeze");
        assert_eq!((status["state"].as_str(), code), (Some("incomplete"), Some(0)), "{status}");
        assert_eq!(status["reason"], "another command starts or stops the hold now");
        assert_eq!(status["advice"], serde_json::Value::Null);
        assert_eq!(typed.end().code(), Some(0), "{}", typed.text());
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn a_verb_on_a_frozen_file_system_can_be_interrupted() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        interrupted(fixture, "start");
        assert_eq!(fixture.state(), "held");
        interrupted(fixture, "stop");
        assert_eq!(fixture.state(), "off");
        fixture.ok("start");
        crash_at(place, &[fixture.directory(), fixture.file()]);
        interrupted(fixture, "recover");
        assert_eq!(fixture.state(), "off");
        fs::create_dir(fixture.directory()).unwrap();
        fs::write(fixture.file(), "").unwrap();
        fixture.ok("start");
        fixture.ok("stop");
        fs::write(fixture.directory().join("data"), "new").unwrap();
        interrupted(fixture, "settle");
    });
}

#[test]
fn what_a_crash_costs_is_shown_as_the_file_says_it_now() {
    with_hold("after_crash = \"wipe\"\n", |_, fixture| {
        fixture.ok("start");
        fixture.configure("t", "after_crash = \"refuse\"\ncost = \"new words\"\n");
        let (status, _) = fixture.status();
        assert_eq!((&status["state"], &status["after_crash"]), (&"held".into(), &"refuse".into()));
        assert_eq!(status["cost"], "new words");
        fixture.ok("stop");
    });
}

#[test]
fn the_states_of_many_holds_need_one_look_at_the_processes() {
    with_hold("", |place, fixture| {
        let names: Vec<_> = (0..12).map(|number| format!("h{number}")).collect();
        for name in &names {
            configure(place, name, "", &fixture.rig.path().join(name));
            let start = ["hold", "start", &format!("./{name}.toml")];
            assert_eq!(finish(&mut place.synconce(&start)).status.code(), Some(0));
        }
        let script = "strace -f -e trace=openat -o trace \"$0\" hold status --json";
        let shown = place.bare(&["sh", "-c", script, binary()]);
        let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
        let states: Vec<_> =
            shown.as_array().expect("holds").iter().map(|it| &it["state"]).collect();
        assert_eq!(states, vec!["held"; names.len()]);
        let looks = place.read("trace").matches("\"/proc/1/task\"").count();
        assert!(looks <= 2, "{looks} looks");
        for name in &names {
            let stop = ["hold", "stop", &format!("./{name}.toml")];
            assert_eq!(finish(&mut place.synconce(&stop)).status.code(), Some(0));
        }
    });
}

#[test]
fn a_stop_and_a_recovery_need_no_space_for_the_marker() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        let data = fixture.directory().join("data");
        sh(place, "mkdir -p state; mount -t tmpfs -o size=64k other state");
        let fill = || sh(place, "cat /dev/zero >state/fill 2>other || grep 'No space' other");
        fixture.ok("start");
        fs::write(&data, "data").unwrap();
        fill();
        fixture.ok("stop");
        assert_eq!(fixture.state(), "off");
        place.remove("state/fill");
        fixture.ok("start");
        crash_at(place, &[fixture.directory(), fixture.file()]);
        fill();
        fixture.ok("recover --keep");
        assert_eq!(fixture.state(), "off");
        assert_eq!(fs::read_to_string(&data).unwrap(), "data");
        sh(place, "umount state");
    });
}
