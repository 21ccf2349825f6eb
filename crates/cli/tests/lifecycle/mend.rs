//! `synconce status --mend`: what it refuses, and where it stops. Each run is for an empty root, so
//! that no command of a step finds anything to change.

use std::fs;
use synconce_testkit::harness::{Place, Started, eventually, isolated, perl};

/// Starts a run for the directory `root`, which has no dpkg, and whose command ends when the file
/// `stop` exists. Returns the run and its ID when the run is interrupted.
fn interrupt(place: &Place, word: &str) -> (Started, String) {
    let script = "sync_file('data'); kill 'KILL', getppid; wait_for('stop');";
    let [words @ .., script] = perl(script);
    let words = words.iter().map(String::as_str).chain([&*script, word]).collect::<Vec<_>>();
    let run = Started::new(&mut place.held(&["--root", &place.text("root")], &words));
    eventually("the run is interrupted", || place.status(&[]).status.code() == Some(4));
    let said = place.status(&[]).stdout;
    (run, said.split(' ').next().unwrap().to_owned())
}

fn end(place: &Place, run: &Started) {
    place.write("stop", "");
    assert_eq!(run.end().code(), Some(125), "{}", run.text());
    eventually("all have ended", || !place.status(&[]).stdout.contains("still running"));
    place.remove("stop");
}

/// Asserts that `status --mend` fails with `code` and `error`, and whether it ran a command.
fn assert_fails(place: &Place, words: &[&str], code: i32, error: &str) {
    let failed = place.status(words);
    assert_eq!(failed.status.code(), Some(code), "{failed:?}");
    assert!(failed.stderr.contains(&format!("synconce: cannot {error}")), "{failed:?}");
    assert!(failed.stderr.contains("\nsynconce: hint: "), "{failed:?}");
    assert_eq!(failed.stderr.contains("+ "), code != 125, "{failed:?}");
}

#[test]
fn it_refuses_what_it_cannot_mend_and_stops_at_the_first_command_that_fails() {
    isolated(|place| {
        fs::create_dir_all(place.path("root/var/lib/dpkg")).unwrap();
        let (run, id) = interrupt(place, "make");
        assert!(!place.status(&[]).stdout.contains("--mend"));
        end(place, &run);
        let neither = format!("mend {id}: its command ran neither apt nor dpkg");
        assert_fails(place, &["--mend", &id], 125, &neither);
        assert_fails(place, &["--mend", "x"], 125, "mend x: you have no interrupted run of this");
        assert!(place.status(&["--clear", &id]).status.success());

        let (run, id) = interrupt(place, "/usr/bin/apt-get");
        let mend = ["--mend", &id[..10]];
        assert!(
            place.status(&[]).stdout.contains(&format!("\n      synconce status --mend {id}\n"))
        );
        assert_fails(place, &mend, 125, &format!("mend {id}: its processes still run: perl (pid"));
        end(place, &run);
        let lock = place.write("root/var/lib/dpkg/lock", "");
        let [perl, option, script] = perl(
            "use Fcntl; open(my $lock, '+<', shift);
             my $whole = pack('s s x4 q q i', F_WRLCK, 0, 0, 0, 0);
             fcntl($lock, F_SETLK, $whole) or die;
             say_to('locked', $$); wait_for('stop');",
        );
        let lock = Started::new(place.command(&perl).args([&option, &script]).arg(lock));
        let holder = place.wait_for("locked");
        let holder = format!("mend {id}: dpkg is locked by perl (pid {})", holder.trim());
        assert_fails(place, &mend, 125, &holder);
        place.write("stop", "");
        assert!(lock.end().success());
        assert_fails(place, &mend, 1, "restore dpkg's list of packages: exit code 1");
        assert_eq!(place.status(&[]).status.code(), Some(4), "the run is not cleared");
    });
}

#[test]
fn a_dry_run_prints_the_commands_for_the_root_of_the_run_or_where_its_disk_is_now() {
    isolated(|place| {
        fs::create_dir_all(place.path("root/var/lib")).unwrap();
        fs::create_dir(place.path("other")).unwrap();
        let (run, id) = interrupt(place, "dpkg");
        end(place, &run);
        let printed = place.status(&["--mend", &id, "--dry-run"]);
        assert!(printed.status.success() && printed.stderr.is_empty(), "{printed:?}");
        let enter = |root: &str| format!("\nchroot {} dpkg --audit\n", place.text(root));
        assert!(printed.stdout.ends_with(&enter("root")), "{printed:?}");
        fs::rename(place.path("root"), place.path("moved")).unwrap();
        let moved = place.text("moved");
        let printed = place.status(&["--root", &moved, "--mend", &id, "--dry-run"]);
        assert!(printed.stdout.ends_with(&enter("moved")), "{printed:?}");
        let other = place.text("other");
        let unmarked = format!("mend {other}: it has no marker of the run {id}");
        assert_fails(place, &["--root", &other, "--mend", &id, "-n"], 125, &unmarked);
    });
}
