//! What a run leaves on the disk that commits nothing, as in an image's build, or whose program is
//! removed: nothing.

use rustix::mount::{MountFlags, mount, mount_bind};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{Place, binary, isolated, limit};
use synconce_testkit::process::{self, Finished};

const MODES: [&[&str]; 2] = [&["--no-commit"], &["--no-commit", "--sealed"]];
const NAMED: &str = "[ -n \"$SYNCONCE_RUN\" ] && ls -R /run";

#[test]
fn a_run_that_commits_nothing_writes_no_run_file_on_a_disk() {
    isolated(|place| {
        fs::create_dir(place.path("disk")).unwrap();
        mount_bind(place.path("disk"), "/run").unwrap();
        let touched = || {
            let metadata = fs::metadata("/run").unwrap();
            (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec())
        };
        let before = touched();
        for options in MODES {
            let mut run = place.held(options, &["sh", "-c", NAMED]);
            let run = process::run(run.env_remove("SYNCONCE_RUNTIME_DIR"), limit()).unwrap();
            assert_eq!((run.stdout.as_str(), run.status.code()), ("/run:\n", Some(0)), "{run:?}");
            assert_eq!(touched(), before, "{options:?}");
        }
        // A run that commits has a marker in any case.
        let mut run = place.held(&[], &["sh", "-c", "ls /run/synconce/$SYNCONCE_RUN.json"]);
        let run = process::run(run.env_remove("SYNCONCE_RUNTIME_DIR"), limit()).unwrap();
        assert!(run.status.success(), "{run:?}");
    });
}

#[test]
fn a_run_that_commits_nothing_has_a_run_file_in_memory() {
    isolated(|place| {
        mount("test", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
        for options in MODES {
            let mut run = place.held(options, &["sh", "-c", "ls /run/synconce/$SYNCONCE_RUN.json"]);
            let run = process::run(run.env_remove("SYNCONCE_RUNTIME_DIR"), limit()).unwrap();
            assert!(run.status.success(), "{run:?}");
        }
    });
}

#[test]
fn a_process_that_ends_with_the_first_process_of_a_container_is_no_survivor() {
    isolated(|place| {
        let run = first_process(place, "sleep 1000 & exit 5");
        assert_eq!((run.stderr.as_str(), run.status.code()), ("", Some(5)), "{run:?}");
    });
}

/// Runs `synconce run --sealed --no-commit -- sh -c SCRIPT` as the first process of a
/// container.
fn first_process(place: &Place, script: &str) -> Finished {
    let held = place.held(&["--sealed", "--no-commit"], &["sh", "-c", script]);
    let mut first = Command::new("unshare");
    first.args(["--pid", "--fork", "--mount-proc"]).arg(held.get_program());
    process::run(first.args(held.get_args()), limit()).unwrap()
}

#[test]
fn a_signal_that_ends_the_command_is_an_exit_code_where_it_cannot_end_the_first_process() {
    isolated(|place| {
        for (signal, code) in [("KILL", 137), ("SEGV", 139), ("TERM", 143)] {
            let run = first_process(place, &format!("kill -{signal} $$"));
            assert_eq!((run.stderr.as_str(), run.status.code()), ("", Some(code)), "{run:?}");
        }
    });
}

#[test]
fn a_run_that_commits_nothing_needs_nothing_of_the_root_that_it_is_in() {
    isolated(|place| {
        let root = place.path("root");
        fs::create_dir(&root).unwrap();
        fs::copy(binary(), root.join("synconce")).unwrap();
        for options in MODES {
            let mut run = place.command("chroot");
            run.arg(&root).args(["/synconce", "run"]).args(options);
            run.args(["--", "/synconce", "--version"]);
            for name in ["SYNCONCE_RUNTIME_DIR", "SYNCONCE_STATE_DIR", "HOME"] {
                run.env_remove(name);
            }
            let run = process::run(&mut run, limit()).unwrap();
            assert_eq!((run.stderr.as_str(), run.status.code()), ("", Some(0)), "{run:?}");
            assert!(run.stdout.starts_with("synconce "), "{run:?}");
            let names: Vec<_> =
                fs::read_dir(&root).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(names, ["synconce"], "{options:?}");
        }
    });
}

/// As in `apt purge synconce` after `synconce setup apt`.
#[test]
fn a_run_that_removes_its_program_leaves_no_directories() {
    isolated(|place| {
        mount("test", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
        for options in [&[][..], &["--sealed"]] {
            let program = place.path("program");
            let again = "sync . && cp program new && mv new program";
            for (script, leaves) in [(again, true), ("sync . && rm program", false)] {
                fs::copy(binary(), &program).unwrap();
                let mut run = place.command(program.to_str().unwrap());
                run.arg("run").args(options).args(["--", "sh", "-c", script]);
                let run = process::run(run.env_remove("SYNCONCE_RUNTIME_DIR"), limit()).unwrap();
                assert_eq!((run.stderr.as_str(), run.status.code()), ("", Some(0)), "{run:?}");
                assert_eq!(place.path("state/runs").exists(), leaves, "{options:?} {script}");
                assert_eq!(
                    Path::new("/run/synconce/counts").exists(),
                    leaves,
                    "{options:?} {script}"
                );
                let _ = fs::remove_dir_all("/run/synconce/counts");
            }
            assert!(!place.path("state").exists(), "{options:?}");
        }
    });
}
