//! What a run that commits nothing leaves behind: nothing, as in an image's build.

use super::support::{isolated, limit};
use rustix::mount::{MountFlags, mount, mount_bind};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use synconce_testkit::process;

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
        // One that commits leaves a marker in any case.
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
fn who_ends_with_a_containers_first_process_is_not_named_as_a_survivor() {
    isolated(|place| {
        let left = "sleep 1000 & exit 5";
        let held = place.held(&["--sealed", "--no-commit"], &["sh", "-c", left]);
        let mut first = Command::new("unshare");
        first.args(["--pid", "--fork", "--mount-proc"]).arg(held.get_program());
        first.args(held.get_args());
        let run = process::run(&mut first, limit()).unwrap();
        assert_eq!((run.stderr.as_str(), run.status.code()), ("", Some(5)), "{run:?}");
    });
}
