//! Runs inside runs, inside other supervisors, and where no filter can be installed.

use std::ffi::OsStr;
use synconce_testkit::harness::{
    HOLD, Place, StartedCommand, binary, daemon, finish, isolated, perl, under_a_listener,
    without_foreign_syncs, without_fuse_notice, without_seccomp,
};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::Rig;

/// Runs `synconce run OPTIONS -- WORDS` as the command of the words `around`.
fn inside(
    place: &Place,
    around: &[String],
    options: &[&str],
    words: &[impl AsRef<OsStr>],
) -> Finished {
    let mut command = place.command(&around[0]);
    command.args(&around[1..]).args([binary(), "run"]).args(options).arg("--").args(words);
    finish(&mut command)
}

#[test]
fn an_inner_run_is_transparent_and_only_the_outermost_commits() {
    isolated(|place| {
        for options in [&[][..], &["--sealed"]] {
            let barrier = without_foreign_syncs();
            let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
            let flushes = || rig.disk().stats().unwrap().flushes;
            let file = rig.path().join("data");
            let inner = perl(&format!("print sync_file('{}'); exit 9;", file.display()));
            place.write("inner", &inner[2]);
            let script = "\"$SYNCONCE\" run --stats --sealed -- \"$SYNCONCE\" run -- perl inner; \
                          echo \" $?\"; ls runtime | grep -c json; touch waiting; \
                          until [ -e stop ]; do sleep 0.01; done; exit 6";
            let before = flushes();
            let mut command = place.held(options, &["sh", "-c", script]);
            let run = StartedCommand::new(command.env("SYNCONCE", binary()));
            synconce_testkit::harness::eventually("the inner runs are over", || {
                place.path("waiting").exists()
            });
            assert_eq!(flushes(), before, "{options:?}: an inner run commits nothing");
            // The commit of a sealed run calls sync(2).
            drop(barrier);
            place.write("stop", "");
            assert_eq!(run.end().code(), Some(6));
            assert!(flushes() > before);
            let text = without_fuse_notice(&run.text());
            let notice = "synconce: no statistics: this run is inside another one, which \
                          counts its calls\n";
            assert_eq!(text.replacen(notice, "", 1), "synced 9\n1\n", "{options:?}");
            ["waiting", "stop"].iter().for_each(|name| place.remove(name));
            rig.down().unwrap();
        }
    });
}

#[test]
fn a_run_in_one_that_commits_nothing_says_so_unless_it_is_told_the_same() {
    isolated(|place| {
        let said = |outer: &[&str], inner: &[&str]| {
            let words = [&[binary(), "run"], inner, &["--", "true"]].concat();
            let run = place.run(outer, &words);
            assert!(run.status.success(), "{run:?}");
            run.stderr.matches("nothing is committed: the run around this one").count()
        };
        assert_eq!(said(&["--no-commit"], &[]), 1);
        assert_eq!(said(&["--no-commit"], &["--root", "/", "--sealed"]), 1);
        assert_eq!(said(&["--no-commit"], &["--no-commit"]), 0);
        assert_eq!(said(&[], &[]), 0);
        assert_eq!(said(&["--sealed"], &[]), 0);
    });
}

#[test]
fn an_inner_command_that_is_not_there_is_127() {
    isolated(|place| {
        for options in [&[][..], &["--sealed"]] {
            let run = place.run(options, &[binary(), "run", "--", "no-such-command"]);
            assert_eq!(run.status.code(), Some(127), "{run:?}");
            assert!(run.stderr.starts_with("synconce: cannot execute no-such-command"), "{run:?}");
        }
    });
}

#[test]
fn a_command_gets_the_given_argv0_also_in_an_inner_run() {
    isolated(|place| {
        let (option, shell) = ("--argv0=a name", ["/bin/sh", "-c", "echo \"$0\""]);
        let inner = [&[binary(), "run", option, "--"][..], &shell].concat();
        for (options, words) in
            [(&[option][..], &shell[..]), (&["--sealed", option], &shell), (&[], &inner)]
        {
            assert_eq!(place.run(options, words).stdout, "a name\n", "{options:?}");
        }
    });
}

#[test]
fn an_inner_run_is_held_by_the_outer_one_in_a_chroot_without_anything() {
    isolated(|place| {
        std::fs::create_dir(place.path("root")).unwrap();
        std::fs::copy(binary(), place.path("root/synconce")).unwrap();
        let words = [
            "env",
            "-i",
            "/usr/sbin/chroot",
            "root",
            "/synconce",
            "run",
            "--",
            "/synconce",
            "--version",
        ];
        let run = place.run(&[], &words);
        assert!(run.status.success() && run.stdout.starts_with("synconce "), "{run:?}");
        assert_eq!(run.stderr, "");
    });
}

#[test]
fn an_inner_run_of_a_sealed_one_needs_no_sight_of_the_supervisor() {
    isolated(|place| {
        let synconce = binary();
        std::fs::create_dir(place.path("root")).unwrap();
        std::fs::copy(binary(), place.path("root/synconce")).unwrap();
        std::fs::write(place.path("status"), "exit 9").unwrap();
        let hidden = format!(
            "mount -t proc -o hidepid=2 proc /proc && \
             setpriv --reuid 64122 --regid 64122 --clear-groups {synconce} run -- sh status"
        );
        let inner = [binary(), "run", "--", "sh", "status"];
        let processes = [&["unshare", "--pid", "--fork", "--mount-proc"], &inner[..]].concat();
        let empty = ["env", "-i", "/usr/bin/unshare", "--pid", "--fork", "/usr/sbin/chroot"];
        let version = ["root", "/synconce", "run", "--", "/synconce", "--version"];
        let cases = [
            (processes, 9),
            (["unshare", "--net"].into_iter().chain(inner).collect(), 9),
            (vec!["unshare", "--mount", "sh", "-c", &hidden], 9),
            (empty.into_iter().chain(version).collect(), 0),
        ];
        for (words, status) in cases {
            let run = place.run(&["--sealed"], &words);
            assert_eq!((run.status.code(), run.stderr.as_str()), (Some(status), ""), "{words:?}");
        }
    });
}

#[test]
fn a_survivor_of_a_sealed_run_cannot_make_a_run_that_commits() {
    isolated(|place| {
        let synconce = binary();
        let then = format!(
            "wait_for('go'); my $said = `'{synconce}' run -- true 2>&1`; \
             say_to('after', $said . ($? >> 8));"
        );
        assert!(place.run(&["--sealed"], &perl(&daemon(&then))).status.success());
        place.write("go", "");
        let after = place.wait_for("after");
        let after = after.trim_end();
        assert!(
            after.starts_with("synconce: cannot commit: ") && after.ends_with("125"),
            "{after}"
        );
    });
}

#[test]
fn under_a_foreign_listener_a_run_is_sealed_with_one_notice() {
    isolated(|place| {
        let words = perl(&format!("{HOLD} sync_file('data'); exit 5;"));
        let run = inside(place, &under_a_listener(), &[], &words);
        assert_eq!((run.stdout.as_str(), run.status.code()), ("sealed\n", Some(5)), "{run:?}");
        assert_eq!(
            run.stderr,
            "synconce: another supervisor listens to this process: the run is sealed\n"
        );
        assert!(place.markers().is_empty() && place.run_files().is_empty());
        let asked_for = inside(place, &under_a_listener(), &["--sealed"], &words);
        assert_eq!((asked_for.stdout.as_str(), asked_for.stderr.as_str()), ("sealed\n", ""));
    });
}

#[test]
fn a_survivor_of_a_run_that_is_over_can_make_a_run_of_its_own() {
    isolated(|place| {
        let synconce = binary();
        let inner = perl(&format!("{HOLD} sync_file('data'); exit 5;"));
        place.write("inner", &inner[2]);
        let then = format!(
            "wait_for('go'); my $said = `'{synconce}' run -- perl inner 2>&1`; \
             say_to('after', $said . ($? >> 8));"
        );
        assert!(place.run(&[], &perl(&daemon(&then))).status.success());
        place.write("go", "");
        let after = place.wait_for("after");
        let notice = "synconce: another supervisor listens to this process: the run is sealed\n";
        assert_eq!(after.replace(notice, ""), "sealed\n5\n", "{after}");
        assert_eq!(after.matches(notice).count(), 1);
        assert!(place.markers().is_empty());
    });
}

#[test]
fn where_no_filter_can_be_had_the_command_does_not_start() {
    isolated(|place| {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
            for options in [&[][..], &["--sealed"], &["--no-commit"]] {
                let run = inside(place, &without_seccomp(errno), options, &["touch", "started"]);
                assert_eq!(run.status.code(), Some(125), "{run:?}");
                let named = "synconce: cannot install the seccomp filter: ";
                assert!(run.stderr.starts_with(named), "{run:?}");
                assert!(!place.path("started").exists());
                assert!(place.markers().is_empty() && place.run_files().is_empty());
            }
        }
    });
}

/// Root needs no setuid program, also without CAP_SYS_ADMIN, as in a container of Docker.
#[test]
fn a_failed_run_of_root_does_not_name_su_which_works() {
    isolated(|place| {
        let container = ["setpriv", "--bounding-set=-sys_admin"].map(str::to_owned);
        let run = |script: &str| inside(place, &container, &[], &["sh", "-c", script]);
        let failed = run("su -s /bin/sh -c 'id -un' nobody; exit 3");
        assert_eq!((&*failed.stdout, failed.status.code()), ("nobody\n", Some(3)), "{failed:?}");
        assert!(!failed.stderr.contains("/su was started"), "{failed:?}");
        let user = run("setpriv --reuid 64122 newuidmap 1 0 0 1; exit 3");
        assert!(user.stderr.contains("/newuidmap was started, perhaps by this run"), "{user:?}");
        assert!(user.stderr.contains("hint: start the run with CAP_SYS_ADMIN"), "{user:?}");
    });
}

#[test]
fn an_unprivileged_user_is_held_and_gets_notices_only_of_rights_that_are_not_gained() {
    isolated(|place| {
        use std::os::unix::fs::PermissionsExt;
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.path("."), mode(0o777)).unwrap();
        let run = |words: &[&str]| {
            let user = ["setpriv", "--reuid", "64122", "--regid", "64122", "--clear-groups"];
            inside(place, &user.map(str::to_owned), &[], words)
        };
        for code in [0, 5] {
            let words = perl(&format!("{HOLD} print sync_file('data'), \"\\n\"; exit {code};"));
            let plain = run(&words.each_ref().map(String::as_str));
            assert_eq!((&*plain.stdout, plain.status.code()), ("held\nsynced\n", Some(code)));
            // A run that fails names a setuid program that another process starts meanwhile.
            assert!(code != 0 || plain.stderr.is_empty(), "{plain:?}");
        }
        assert_eq!(run(&["/no/such/command"]).status.code(), Some(127));

        std::fs::copy("/usr/bin/id", place.path("setuid-id")).unwrap();
        std::fs::set_permissions(place.path("setuid-id"), mode(0o4755)).unwrap();
        let noticed = run(&["./setuid-id", "-u"]);
        assert!(noticed.stdout.starts_with("64122\n"), "{noticed:?}");
        assert_eq!(noticed.stderr.matches("gains no privileges").count(), 1, "{noticed:?}");
        assert!(noticed.stderr.contains("./setuid-id gains no privileges"), "{noticed:?}");
        // Programs of the run are named if the run fails.
        for (code, count) in [("0", 0), ("3", 1)] {
            let script = format!("su -c true; su -c true; exit {code}");
            let noticed = run(&["sh", "-c", &script]);
            // Another process may have started sudo, newuidmap, schroot or fusermount3 before.
            let lines = noticed.stderr.lines().filter(|line| line.contains("perhaps by this run"));
            let others = ["idmap was", "schroot was", "fusermount3 was"];
            let named = lines.filter(|line| !others.iter().any(|other| line.contains(other)));
            assert_eq!(named.count(), count, "{noticed:?}");
        }
    });
}
