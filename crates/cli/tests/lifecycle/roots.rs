//! `--root DIR`: which directories are accepted, and commands that make their root anew.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use synconce_testkit::harness::{Place, SYNC, binary, eventually, finish, isolated, perl};
use synconce_testkit::rig::Rig;

/// Returns every marker below `directory`, also a marker that was moved.
fn markers_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(markers_below(&path));
        } else if path.parent().is_some_and(|above| above.ends_with("runs")) {
            found.push(path);
        }
    }
    found
}

fn assert_nothing_is_marked(place: &Place, root: &str) {
    assert_eq!(markers_below(&place.path("")), Vec::<PathBuf>::new());
    let status = place.status(&["--root", root]);
    assert!(status.status.success() && status.stdout.is_empty(), "{status:?}");
}

#[test]
fn a_root_that_is_no_directory_is_refused_by_run_before_the_command_starts_and_by_status() {
    isolated(|place| {
        place.write("file", "");
        symlink("nowhere", place.path("dangling")).unwrap();
        let missing = ": no such directory\n";
        for (root, reason) in [
            ("missing", missing),
            ("dangling", missing),
            ("file", ": not a directory\n"),
            ("file/below", ": not a directory\n"),
        ] {
            let wanted = format!("synconce: cannot use --root {root}{reason}");
            for options in [&[][..], &["--sealed"], &["--no-commit"]] {
                let options = [options, &["--root", root]].concat();
                let run = place.run(&options, &["touch", "started"]);
                assert_eq!(run.status.code(), Some(125), "{options:?}: {run:?}");
                assert!(run.stderr.starts_with(&wanted), "{run:?}");
                assert_eq!(
                    run.stderr.contains("to make the directory: mkdir --parents "),
                    reason == missing
                );
            }
            let status = place.status(&["--root", root]);
            assert_eq!(status.status.code(), Some(125), "{root}: {status:?}");
            assert!(status.stderr.starts_with(&wanted), "{status:?}");
            assert_eq!(status.stderr.contains("hint: "), reason == missing, "{status:?}");
        }
        assert!(!place.path("started").exists());
        assert!(!place.path("missing").exists() && !place.path("nowhere").exists());
    });
}

#[test]
fn a_root_that_its_user_may_not_enter_is_refused() {
    isolated(|place| {
        let user = |words: &[&str]| {
            let mut command = place.command("setpriv");
            command.args(["--reuid", "64121", "--regid", "64121", "--clear-groups", binary()]);
            finish(command.args(words))
        };
        fs::create_dir_all(place.path("closed/root")).unwrap();
        for (name, mode) in [(".", 0o777), ("closed/root", 0o700), ("closed", 0o755)] {
            fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let root = place.text("closed/root");
        for mode in [0o755, 0o700] {
            fs::set_permissions(place.path("closed"), fs::Permissions::from_mode(mode)).unwrap();
            for words in [&["status", "--root", &root][..], &["run", "--root", &root, "true"]] {
                let refused = user(words);
                assert_eq!(refused.status.code(), Some(125), "{words:?}: {refused:?}");
                let reason = refused.stderr.to_lowercase();
                assert!(reason.contains("permission denied"), "{refused:?}");
            }
        }
    });
}

/// What root builders do first: they empty their root, or make it anew.
const REMAKES: [&str; 6] = [
    "rm -rf root/*",
    "rm -rf root && mkdir root",
    "mv root moved && mkdir root",
    "cp -a root moved && rm -rf root && mv moved root",
    "rm -rf root",
    "rm -rf state",
];

#[test]
fn a_command_that_empties_its_root_or_makes_it_anew_ends_well_and_leaves_nothing_marked() {
    isolated(|place| {
        place.write("data", "x");
        for remake in REMAKES {
            for options in [&[][..], &["--sealed"]] {
                for script in [
                    format!("sync data && {remake}"),
                    format!("{remake} && sync data"),
                    format!("sync data && {remake} && sync data"),
                ] {
                    for name in ["root", "moved"] {
                        let _ = fs::remove_dir_all(place.path(name));
                    }
                    fs::create_dir(place.path("root")).unwrap();
                    place.write("root/old", "x");
                    let options = [options, &["--root", "root"]].concat();
                    let run = place.run(&options, &["sh", "-c", &script]);
                    assert!(run.status.success(), "{options:?} {script}: {run:?}");
                    assert_eq!(run.stderr, "", "{options:?} {script}");
                    fs::create_dir_all(place.path("root")).unwrap();
                    assert_nothing_is_marked(place, "root");
                }
            }
        }
    });
}

#[test]
fn a_disk_of_the_root_that_is_full_at_the_first_sync_is_named_and_no_sync_is_held() {
    isolated(|place| {
        let rig = Rig::builder().size(16 << 20).passthrough(false).up().unwrap();
        let root = rig.path().join("root");
        fs::create_dir(&root).unwrap();
        place.write("data", "x");
        // The second file takes what the first one had reserved and not used.
        let script = "for name in one two; do dd if=/dev/zero of=$0/$name bs=1k 2>/dev/null; done; \
                      sync data; sleep 600";
        let root = root.to_str().unwrap();
        let run = place.run(&["--root", root], &["sh", "-c", script, root]);
        assert_eq!(run.status.code(), Some(125), "{run:?}");
        let (said, hint) = run.stderr.split_once("\nsynconce: hint: ").unwrap();
        assert!(said.starts_with(&format!("synconce: cannot create {root}/var")), "{run:?}");
        assert!(said.contains(": No space left on device; no sync was held"), "{run:?}");
        let wanted = "free some space on the disk of --root: a second marker is kept there\n";
        assert_eq!(hint, wanted, "{run:?}");
        assert!(place.status(&[]).status.success(), "nothing was held");
        rig.down().unwrap();
    });
}

#[test]
fn a_root_that_is_mounted_over_before_the_first_sync_has_its_marker_there() {
    isolated(|place| {
        fs::create_dir(place.path("root")).unwrap();
        place.write("data", "x");
        let script = "mount -t tmpfs none root && sync data && ls root/var/lib/synconce/runs";
        let run = place.run(&["--root", "root"], &["sh", "-c", script]);
        assert!(run.status.success(), "{run:?}");
        assert_eq!(run.stdout.matches(".json\n").count(), 1, "{run:?}");
        assert_nothing_is_marked(place, "root");
    });
}

#[test]
fn a_root_stays_empty_until_the_first_sync_for_builders_that_ask_for_an_empty_one() {
    isolated(|place| {
        fs::create_dir(place.path("root")).unwrap();
        place.write("data", "x");
        let script = "ls -A root && sync data && ls -A root";
        let run = place.run(&["--root", "root"], &["sh", "-c", script]);
        assert!(run.status.success(), "{run:?}");
        assert_eq!(run.stdout, "var\n");
        assert_eq!(fs::read_dir(place.path("root")).unwrap().count(), 0, "no trace");
    });
}

#[test]
fn directories_that_root_makes_for_a_marker_are_open_to_all_whatever_the_umask_is() {
    isolated(|place| {
        fs::create_dir(place.path("root")).unwrap();
        place.write("data", "x");
        let script = "umask 077; exec \"$0\" run --root root -- sh -c 'sync data; \
                      mkdir -p root/var/lib/dpkg; stat --format %a root/var root/var/lib'";
        let run = place.bare(&["sh", "-c", script, binary()]);
        assert!(run.status.success(), "{run:?}");
        assert_eq!(run.stdout, "755\n755\n", "the target keeps them");
        for name in ["state", "state/runs"] {
            let mode = fs::metadata(place.path(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o755, "{name}");
        }
    });
}

#[test]
fn a_relative_root_and_a_link_to_one_name_the_same_directory_to_run_and_status() {
    isolated(|place| {
        fs::create_dir(place.path("root")).unwrap();
        symlink("root", place.path("link")).unwrap();
        for root in ["root", "./root/", "link", "link/."] {
            let script = "sync_data() { sync data; }; touch data; sync_data; kill -9 $PPID";
            let run = place.run(&["--root", root], &["sh", "-c", script]);
            assert_eq!(run.status.code(), Some(125), "{run:?}");
            // The other machine has the target's disk, and a state directory of its own.
            fs::remove_dir_all(place.path("state")).unwrap();
            for same in [root, "root"] {
                let status = place.status(&["--root", same]);
                assert_eq!(status.status.code(), Some(4), "{root} {same}: {status:?}");
                assert_eq!(status.stdout.matches(" interrupted ").count(), 1, "{status:?}");
            }
            fs::remove_dir_all(place.path("root/var")).unwrap();
        }
    });
}

#[test]
fn the_root_of_the_system_itself_has_one_marker() {
    isolated(|place| {
        place.write("data", "x");
        mount("none", "/var/lib", "tmpfs", MountFlags::empty(), None).unwrap();
        let mut run = place.held(
            &["--root", "/"],
            &["sh", "-c", "sync data; ls /var/lib/synconce/runs | grep -c json"],
        );
        let run = finish(run.env_remove("SYNCONCE_STATE_DIR"));
        assert!(run.status.success(), "{run:?}");
        assert_eq!(run.stdout, "1\n");
        let status =
            finish(place.synconce(&["status", "--root", "/"]).env_remove("SYNCONCE_STATE_DIR"));
        assert!(status.status.success() && status.stdout.is_empty(), "{status:?}");
    });
}

#[test]
fn the_hint_clears_the_marker_in_the_root_and_the_marker_of_the_host() {
    isolated(|place| {
        // Types the commands that `status` prints, with and without --root.
        for with_root in [true, false] {
            fs::create_dir_all(place.path("target")).unwrap();
            let script = format!("{SYNC} kill 'KILL', getppid; exit 0;");
            let run = place.run(&["--root", "target"], &perl(&script));
            assert_eq!(run.status.code(), Some(125), "{run:?}");
            let asked: &[&str] = if with_root { &["--root", "target"] } else { &[] };
            let status = place.status(asked);
            assert_eq!(status.status.code(), Some(4), "{status:?}");
            let then = status.stdout.lines().find_map(|line| line.trim().strip_prefix("then: "));
            let typed = then.expect("a command to type").replacen("synconce", binary(), 1);
            let cleared = finish(place.command("sh").args(["-c", &typed]));
            assert!(cleared.status.success(), "{typed}: {cleared:?}");
            let left = place.status(&["--root", "target"]);
            assert_eq!((left.status.code(), left.stdout.as_str()), (Some(0), ""), "{typed}");
            assert!(!place.path("target/var/lib/synconce").exists(), "{typed}");
            fs::remove_dir_all(place.path("target")).unwrap();
        }
    });
}

#[test]
fn what_is_mounted_below_the_target_of_an_interrupted_run_is_named() {
    isolated(|place| {
        for name in ["target", "host"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        place.write("data", "");
        let script = "mkdir target/dev; for i in 1 2; do mount --bind host target/dev; done; \
                      sync data; kill -9 $PPID; exit; mmdebstrap bookworm target";
        let run = place.run(&["--root", "target"], &["sh", "-ec", script]);
        assert_eq!(run.status.code(), Some(125), "{run:?}");
        eventually("all have ended", || !place.status(&[]).stdout.contains("still running"));
        let (said, target) = (place.status(&[]).stdout, place.text("target"));
        let named =
            format!("  mounted below {target}: {target}/dev; `rm -r` would go into these\n  files");
        assert!(said.contains(&named), "{said}");
        for _ in 1..=2 {
            unmount(place.path("target/dev"), UnmountFlags::empty()).unwrap();
        }
        assert!(!place.status(&[]).stdout.contains("mounted below"));
        fs::rename(&target, place.path("moved")).unwrap();
        let said = place.status(&[]).stdout;
        let missing =
            format!("  {target} is not there: mount its disk, or make the directory\n  files");
        assert!(said.contains(&missing), "{said}");
    });
}

#[test]
fn a_clear_that_was_killed_between_two_markers_can_be_repeated() {
    isolated(|place| {
        for nth in 1.. {
            fs::create_dir_all(place.path("target")).unwrap();
            let words = perl(&format!("{SYNC} kill 'KILL', getppid; exit 0;"));
            place.run(&["--root", "target"], &words);
            let status = place.status(&[]);
            let id = status.stdout.split(' ').next().unwrap();
            let mut killed = place.command("strace");
            killed.args(["-f", "-o", "/dev/null", "-e", "trace=unlink,unlinkat", "-e"]);
            killed.arg(format!("inject=unlink,unlinkat:signal=KILL:when={nth}"));
            let killed = finish(killed.arg(binary()).args(["status", "--clear", id]));
            let left = place.status(&[]);
            if left.status.code() != Some(0) {
                let cleared = place.status(&["--clear", id]);
                assert!(cleared.status.success(), "{nth}: {cleared:?}");
            }
            for words in [&[][..], &["--root", "target"]] {
                let status = place.status(words);
                assert_eq!(status.status.code(), Some(0), "{nth}: {status:?}");
            }
            if killed.status.success() {
                assert!(nth > 2, "a kill behind each removal");
                break;
            }
        }
    });
}

#[test]
fn a_root_whose_server_is_part_of_the_run_gets_its_marker_and_no_call_hangs() {
    isolated(|place| {
        for directory in ["below", "root"] {
            fs::create_dir(place.path(directory)).unwrap();
        }
        // The server syncs for the caller, while the marker is written through the server.
        let script = "bindfs below root; echo data > root/file; sync root/file; \
                      mkdir other; echo data > other/file; sync other/file; cat root/file";
        let ended = place.run(&["--root", "root"], &["sh", "-ec", script]);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "data\n"), "{ended:?}");
        assert!(place.markers().is_empty());
        // The server renames a removed file that is still open, and removes it at its close.
        let runs = place.path("below/var/lib/synconce/runs");
        eventually("no marker is left", || {
            fs::read_dir(&runs).is_ok_and(|mut it| it.next().is_none())
        });
        assert!(finish(place.command("umount").args(["--lazy", "root"])).status.success());
    });
}

#[test]
fn fuser_finds_no_process_of_the_run_on_the_root() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).passthrough(false).up().unwrap();
        let root = rig.path().to_str().unwrap();
        // With a marker that has no name yet, and with a durable one.
        let script = "fuser -s -k -m $0 && exit 7; echo data >$0/file; sync $0/file; \
                      fuser -s -k -m $0 && exit 8; echo end";
        let ended = place.run(&["--root", root], &["sh", "-c", script, root]);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), "end\n"), "{ended:?}");
        assert!(markers_below(rig.path()).is_empty());
        rig.down().unwrap();
    });
}

#[test]
fn a_link_in_a_target_takes_the_marker_to_no_directory_of_the_host() {
    isolated(|place| {
        for name in ["host", "target/var", "target/srv", "dangling/var"] {
            fs::create_dir_all(place.path(name)).unwrap();
        }
        // A link of the host's root is a link within the target.
        symlink("/srv", place.path("target/var/lib")).unwrap();
        let script =
            "sync_data() { sync data; }; touch data; sync_data; ls target/srv/synconce/runs";
        let run = place.run(&["--root", "target"], &["sh", "-ec", script]);
        assert!(run.status.success() && run.stdout.contains(".json"), "{run:?}");
        assert!(!place.path("target/srv/synconce").exists());

        symlink(place.path("host"), place.path("dangling/var/lib")).unwrap();
        let run =
            place.run(&["--root", "dangling"], &["sh", "-ec", "touch data; sync data; ls host"]);
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(125), ""), "{run:?}");
        let error = format!("cannot write a marker in {}/var/lib/", place.text("dangling"));
        assert!(run.stderr.contains(&error), "{run:?}");

        // The last directory, and a link that the command itself unpacks before its first sync.
        fs::create_dir_all(place.path("last/var/lib/synconce")).unwrap();
        symlink(place.path("host"), place.path("last/var/lib/synconce/runs")).unwrap();
        fs::create_dir_all(place.path("unpacked/var")).unwrap();
        let script =
            "test -e $0/var/lib || ln -s \"$PWD/host\" $0/var/lib; touch data; sync data; ls host";
        for target in ["last", "unpacked"] {
            let run = place.run(&["--root", target], &["sh", "-c", script, target]);
            assert_eq!(run.stdout, "", "{target}: {run:?}");
            assert_eq!(fs::read_dir(place.path("host")).unwrap().count(), 0, "{target}");
        }
    });
}
