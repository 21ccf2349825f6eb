//! `synconce status --mend`: what it refuses, and where it stops. Each run is for an empty root, so
//! that no command of a step finds anything to change.

use super::exit_codes::executable;
use super::other_users::{ALICE, machine, status, synconce};
use rustix::mount::mount_bind;
use std::fs;
use synconce_testkit::harness::{
    Place, StartedCommand, binary, eventually, finish, isolated, perl,
};

/// Starts a run whose script has the command `never`, which is not reached: the script ends when
/// the file `stop` exists. Returns the run and its ID when the run is interrupted.
fn interrupt(place: &Place, options: &[&str], never: &str) -> (StartedCommand, String) {
    let words = perl("sync_file('data'); kill 'KILL', getppid; wait_for('stop');");
    let script = format!("exec \"$@\"; {never}");
    let words = ["sh", "-c", &script, "sh"].into_iter().chain(words.iter().map(String::as_str));
    let run = StartedCommand::new(&mut place.held(options, &words.collect::<Vec<_>>()));
    eventually("the run is interrupted", || place.status(&[]).status.code() == Some(4));
    let said = place.status(&[]).stdout;
    (run, said.split(' ').next().unwrap().to_owned())
}

fn end(place: &Place, run: &StartedCommand) {
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
        fs::create_dir(place.path("root")).unwrap();
        let root = place.text("root");
        let (run, id) = interrupt(place, &["--root", &root], "make apt-get");
        assert!(!place.status(&[]).stdout.contains("--mend"));
        end(place, &run);
        let neither = format!("mend {id}: nothing shows that its command installed packages");
        assert_fails(place, &["--mend", &id], 125, &neither);
        assert_fails(place, &["--mend", "x"], 125, "mend x: you have no interrupted run of this");
        assert!(place.status(&["--clear", &id]).status.success());

        fs::create_dir_all(place.path("root/var/lib/dpkg")).unwrap();
        let (run, id) = interrupt(place, &["--root", &root], "chroot /t apt-get");
        let mend = ["--mend", &id[..10]];
        assert!(
            place.status(&[]).stdout.contains(&format!("\n      synconce status --mend {id}\n"))
        );
        assert_fails(place, &mend, 125, &format!("mend {id}: its processes still run: perl (pid"));
        end(place, &run);
        let [perl, option, script] = perl(
            "use Fcntl; open(my $lock, '+<', shift);
             my $whole = pack('s s x4 q q i', F_WRLCK, 0, 0, 0, 0);
             fcntl($lock, F_SETLK, $whole) or die;
             say_to('locked', $$); wait_for('stop');",
        );
        for directory in ["lib/dpkg", "lib/apt/lists", "cache/apt/archives"] {
            let directory = format!("root/var/{directory}");
            fs::create_dir_all(place.path(&directory)).unwrap();
            let lock = place.write(&format!("{directory}/lock"), "");
            let lock = StartedCommand::new(place.command(&perl).args([&option, &script]).arg(lock));
            let holder = place.wait_for("locked");
            let holder =
                format!("mend {id}: apt or dpkg is locked by perl (pid {})", holder.trim());
            assert_fails(place, &mend, 125, &holder);
            place.write("stop", "");
            assert!(lock.end().success());
            ["locked", "stop"].iter().for_each(|name| place.remove(name));
        }
        // A FIFO that no process writes to is no lock, and is not waited for.
        place.remove("root/var/lib/dpkg/lock");
        place.bare(&["mkfifo", "root/var/lib/dpkg/lock"]);
        // The root has no programs.
        assert_fails(place, &mend, 127, "restore dpkg's lists: exit code 127");
        assert_eq!(place.status(&[]).status.code(), Some(4), "the run is not cleared");
    });
}

#[test]
fn the_commands_have_the_programs_of_root_and_no_directory_of_the_caller() {
    isolated(|place| {
        fs::create_dir_all(place.path("root/var/lib")).unwrap();
        let (run, id) = interrupt(place, &["--root", &place.text("root")], "chroot /t dpkg");
        end(place, &run);
        fs::create_dir(place.path("bin")).unwrap();
        executable(place, "bin/chroot", "#!/bin/sh\necho \"$PATH ${TMPDIR-none}\"; exit 9\n");
        let path = format!("{}:/usr/bin:/bin", place.text("bin"));
        let mut mend = place.command(binary());
        mend.args(["status", "--mend", &id]).env("PATH", &path).env("TMPDIR", "/nope");
        let ended = finish(&mut mend);
        let seen = format!("{path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin none\n");
        assert_eq!((ended.status.code(), &ended.stdout), (Some(9), &seen), "{ended:?}");
    });
}

#[test]
fn a_dry_run_prints_the_commands_for_the_root_of_the_run_or_where_its_disk_is_now() {
    isolated(|place| {
        fs::create_dir_all(place.path("root/var/lib")).unwrap();
        fs::create_dir(place.path("other")).unwrap();
        let root = place.text("root");
        let (run, id) = interrupt(place, &["--root", &root], "chroot /t dpkg");
        end(place, &run);
        let printed = place.status(&["--mend", &id, "--dry-run"]);
        assert!(printed.status.success() && printed.stderr.is_empty(), "{printed:?}");
        let enter = |root: &str| {
            format!(
                "\nchroot {} env UCF_FORCE_CONFFOLD=1 dpkg --force-confold --configure \
                 --pending\nchroot ",
                place.text(root)
            )
        };
        assert!(printed.stdout.contains(&enter("root")), "{printed:?}");
        fs::rename(place.path("root"), place.path("moved")).unwrap();
        fs::create_dir(place.path("root")).unwrap();
        let unmarked = format!("mend {root}: it has no marker of the run {id}");
        assert_fails(place, &["--mend", &id], 125, &unmarked);
        let moved = place.text("moved");
        let shown = place.status(&["--root", &moved]).stdout;
        assert!(shown.contains(&format!(" status --root {moved} --mend {id}\n")), "{shown}");
        let printed = place.status(&["--root", &moved, "--mend", &id, "--dry-run"]);
        assert!(printed.stdout.contains(&enter("moved")), "{printed:?}");
        let other = place.text("other");
        let unmarked = format!("mend {other}: it has no marker of the run {id}");
        assert_fails(place, &["--root", &other, "--mend", &id, "-n"], 125, &unmarked);
        // On another machine.
        fs::remove_dir_all(place.path("state")).unwrap();
        let only = format!("mend {id}: only {moved} has its marker, which anyone may have written");
        assert_fails(place, &["--root", &moved, "--mend", &id[..4]], 125, &only);
    });
}

#[test]
fn a_target_is_mended_from_inside_by_the_command_that_status_prints_there() {
    isolated(|place| {
        fs::create_dir_all(place.path("root/var/lib")).unwrap();
        let root = place.text("root");
        let (run, id) = interrupt(place, &["--root", &root], "chroot /t apt-get; apt-get update");
        end(place, &run);
        // The target becomes the system, as by chroot or by a boot. Its former path leads nowhere.
        mount_bind(place.path("root/var/lib"), "/var/lib").unwrap();
        fs::rename(place.path("root"), place.path("moved")).unwrap();
        let status = |words: &[&str]| {
            let mut status = place.synconce(&[&["status"], words].concat());
            status.env_remove("SYNCONCE_STATE_DIR");
            finish(status.env("SYNCONCE_REGISTRY_DIR", place.path("none")))
        };
        let said = status(&[]).stdout;
        let anew = "if you can make this system anew, do so where the run was started:\n      synconce run --root ";
        assert!(said.contains(anew), "{said}");
        let mend = format!(
            "\n      synconce status --mend {id}\n      (repeat here what the command did in {root})\n  then: "
        );
        assert!(said.contains(&mend), "{said}");
        for words in [&["--mend", &id, "--dry-run"][..], &["--root", "/", "--mend", &id, "-n"]] {
            let printed = status(words);
            assert!(printed.status.success(), "{printed:?}");
            assert!(
                printed.stdout.contains("\nchroot / env UCF_FORCE_CONFFOLD=1 dpkg "),
                "{printed:?}"
            );
        }
        // A state directory that only has a copy of the marker does not make the host the target.
        rustix::mount::unmount("/var/lib", rustix::mount::UnmountFlags::empty()).unwrap();
        let copy = place.path("moved/var/lib/synconce");
        let mut copied = place.synconce(&["status", "--mend", &id, "-n"]);
        let refused = finish(copied.env("SYNCONCE_STATE_DIR", copy));
        let wanted = format!("synconce: cannot mend /: it has no marker of the run {id}\n");
        assert!(refused.stderr.starts_with(&wanted), "{refused:?}");
    });
}

#[test]
fn a_run_of_a_script_is_mended_if_files_of_dpkg_changed_meanwhile() {
    isolated(|place| {
        fs::create_dir_all(place.path("root/var/lib/dpkg/info")).unwrap();
        let root = place.text("root");
        let (run, id) = interrupt(place, &["--root", &root], "./provision.sh");
        place.write("root/var/lib/dpkg/info/x.list", "");
        end(place, &run);
        let said = place.status(&[]).stdout;
        let both = format!(
            "  in {root}, install every package again, first:\n      \
             synconce status --mend {id}\n  files that it wrote"
        );
        assert!(said.contains(&both), "{said}");
        assert!(said.contains("; throw the result away and run it again:\n      syn"), "{said}");
        assert!(place.status(&["--mend", &id, "--dry-run"]).status.success());
    });
}

#[test]
fn lists_that_apt_had_fetched_are_removed_and_no_package_is_installed() {
    isolated(|place| {
        let (run, id) = interrupt(place, &[], "apt-get -q update");
        end(place, &run);
        let said = place.status(&[]).stdout;
        let lines = " throw the result away and run it again:\n      rm -rf /var/lib/apt/lists/*\n";
        assert!(said.contains(&format!("{lines}      synconce run -- sh ")), "{said}");
        assert!(!said.contains(&format!("--mend {id}")), "{said}");
    });
}

#[test]
fn the_host_is_not_mended_after_an_install_into_another_root() {
    isolated(|place| {
        for never in ["chroot /t apt-get install x", "mmdebstrap bookworm /t"] {
            let (run, id) = interrupt(place, &[], never);
            end(place, &run);
            let said = place.status(&[]).stdout;
            assert!(!said.contains(&format!("--mend {id}")), "{said}");
            assert!(said.contains("; throw the result away and run it again:\n"), "{said}");
            let hint = "  with `synconce run --root DIR`, --mend could have mended DIR\n";
            assert_eq!(said.contains(hint), never.starts_with("chroot"), "{said}");
            let refused = format!("mend {id}: make the root anew in which it installed packages");
            assert_fails(place, &["--mend", &id], 125, &refused);
            assert!(place.status(&["--clear", &id]).status.success());
        }
        // The root of a run does not confine its command.
        fs::create_dir(place.path("root")).unwrap();
        let (run, id) = interrupt(place, &["--root", &place.text("root")], "apt-get install x");
        end(place, &run);
        let said = place.status(&[]).stdout;
        assert!(!said.contains(&format!("status --mend {id}")), "{said}");
        let host =
            format!("every package again, first:\n      synconce status --root / --mend {id}\n");
        assert!(said.contains(&host), "{said}");
        let refused = format!("mend {id}: nothing shows that its command installed packages");
        assert_fails(place, &["--mend", &id], 125, &refused);
        assert!(place.status(&["--clear", &id]).status.success());
        let both = "apt-get install debootstrap; debootstrap x /t";
        let (run, id) = interrupt(place, &[], both);
        end(place, &run);
        let said = place.status(&[]).stdout;
        assert!(said.contains(&format!("\n      synconce status --mend {id}\n")), "{said}");
        assert!(said.contains("  make the other roots anew in which it installed "), "{said}");
    });
}

#[test]
fn only_root_mends_and_only_runs_of_its_own() {
    isolated(|place| {
        machine(place);
        let script =
            "sync data; kill -9 $PPID; until test -e stop; do :; done; exit; apt-get install x";
        let mut run = synconce(place, ALICE, &["run", "--", "sh", "-c", script]);
        place.write("alice/data", "x");
        run.env("SYNCONCE_RUNTIME_DIR", place.path("runtime").join("alice"));
        let run = StartedCommand::new(&mut run);
        let alice = || status(place, ALICE, &[]);
        eventually("the run is interrupted", || alice().status.code() == Some(4));
        let said = alice().stdout;
        let id = said.split(' ').next().unwrap();
        let mend = ["--mend", id];
        let refused = status(place, ALICE, &mend).stderr;
        let running = format!("synconce: cannot mend {id}: its processes still run: sh (pid ");
        assert!(refused.starts_with(&running), "{refused}");
        place.write("alice/stop", "");
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        eventually("all have ended", || !alice().stdout.contains("still running"));
        let refused = status(place, ALICE, &mend);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        assert_eq!(
            refused.stderr,
            format!(
                "synconce: cannot mend {id}: only root can install packages\n\
                 synconce: hint: commands=$(synconce status --mend {id} --dry-run) && \
                 sudo sh -exc \"$commands\"\n"
            )
        );
        let printed = status(place, ALICE, &["--mend", id, "--dry-run"]);
        assert!(
            printed.stdout.contains("\nenv UCF_FORCE_CONFFOLD=1 dpkg --force-confold --configure "),
            "{printed:?}"
        );
        let foreign =
            format!("synconce: cannot mend {id}: you have no interrupted run of this ID\n");
        let refused = status(place, 0, &mend);
        assert!(refused.stderr.starts_with(&foreign), "{refused:?}");
        let mut by_sudo = synconce(place, 0, &["status", "--mend", id, "--dry-run"]);
        let refused =
            finish(by_sudo.env("SYNCONCE_STATE_DIR", place.path("alice/.local/state/synconce")));
        assert!(refused.stderr.starts_with(&foreign), "{refused:?}");
    });
}
