//! The `rig` program, as people use it.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Exit code, stdout and stderr.
fn rig(arguments: &[&str], mount_point: Option<&Path>) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rig"));
    let output = command.args(arguments).args(mount_point).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn quiet(arguments: &[&str], mount_point: &Path) {
    assert_eq!(
        rig(arguments, Some(mount_point)),
        (0, String::new(), String::new()),
        "{arguments:?}"
    );
}

/// Takes the rig down even if an assertion fails in between.
struct Mounted(TempDir);

impl Mounted {
    fn new(arguments: &[&str]) -> Self {
        let mounted = Self(tempfile::tempdir().unwrap());
        quiet(arguments, mounted.path());
        mounted
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn flushes(&self) -> u64 {
        let (_, stdout, _) = rig(&["stats", "--json"], Some(self.path()));
        serde_json::from_str::<Value>(&stdout).unwrap()["flushes"].as_u64().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        rig(&["down", "--force"], Some(self.path()));
    }
}

fn listed(path: &Path) -> bool {
    let (_, stdout, _) = rig(&["list"], None);
    stdout.contains(&format!("{} ", path.display()))
}

#[test]
fn a_rig_stands_after_up_has_returned_and_goes_with_down() {
    let mounted = Mounted::new(&["up", "--fs", "ext4", "--size", "64M", "--flush", "8ms"]);
    assert!(listed(mounted.path()));
    // The process that set it up is dead; the rig is not taken for a dead owner's.
    assert_eq!(rig(&["reap"], None).0, 0);
    assert!(listed(mounted.path()));

    let before = mounted.flushes();
    let start = Instant::now();
    let file = File::create(mounted.path().join("file")).unwrap();
    file.sync_all().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(16));
    assert!(mounted.flushes() >= before + 2);

    let (code, _, stderr) = rig(&["down"], Some(mounted.path()));
    assert_eq!(code, 1);
    assert!(
        stderr.contains("in use by") && stderr.contains(&std::process::id().to_string()),
        "{stderr}"
    );
    drop(file);
    quiet(&["down"], mounted.path());
    assert!(!listed(mounted.path()));
    assert!(fs::read_dir(mounted.path()).unwrap().next().is_none());
}

#[test]
fn the_disk_is_commanded_by_set() {
    let mounted = Mounted::new(&["up", "--size", "64M", "--passthrough", "off"]);
    quiet(&["set", "--fail-flushes", "1"], mounted.path());
    let error = File::create(mounted.path().join("file"))
        .unwrap()
        .sync_all()
        .expect_err("the flush failed");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    quiet(&["set", "--fsync", "4ms", "--fail-writes", "on"], mounted.path());
    let (code, stdout, _) = rig(&["stats"], Some(mounted.path()));
    assert_eq!(code, 0);
    assert!(stdout.contains("failed 1"), "{stdout}");
}

#[test]
fn mistakes_are_named() {
    let (code, _, stderr) = rig(&["up"], Some(Path::new("/no/such")));
    assert_eq!(
        (code, stderr.as_str()),
        (1, "rig: cannot mount a rig at /no/such: No such file or directory (os error 2)\n")
    );
    let (code, _, stderr) = rig(&["down"], Some(Path::new("/tmp")));
    assert_eq!((code, stderr.as_str()), (1, "rig: no rig is mounted at /tmp\n"));
    assert_eq!(rig(&["up", "--flush", "8"], Some(Path::new("/tmp"))).0, 2);
    assert_eq!(rig(&["up", "--flush", "8ms", "--fsync", "8ms"], Some(Path::new("/tmp"))).0, 2);
}
