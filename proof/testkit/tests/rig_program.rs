//! The `rig` program on the command line.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use synconce_testkit::harness::without_foreign_syncs;
use tempfile::TempDir;

/// Runs `rig` and returns exit code, stdout and stderr.
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

/// Takes the rig down even if an assertion fails.
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
    // The process that set the rig up is dead. The rig must not count as stale.
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
fn a_rig_whose_mount_namespace_has_ended_is_taken_down_all_the_same() {
    // A separate record directory: any other test that sets up a rig would reap this one.
    let (place, records) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).arg(place.path()).env("SYNCONCE_RIG_DIR", records.path());
        command.output().unwrap()
    };
    // Written data is flushed when the namespace ends, which is when the shell exits.
    let script = "\"$0\" up --fs ext4 --size 64M --passthrough off \"$1\" && echo x >\"$1\"/file";
    let rig = env!("CARGO_BIN_EXE_rig");
    let up = run("unshare", &["--mount", "sh", "-c", script, rig]);
    assert!(up.status.success(), "{up:?}");
    let down = run(rig, &["down"]);
    assert!(down.status.success() && down.stderr.is_empty(), "{down:?}");
    assert_eq!(fs::read_dir(records.path()).unwrap().count(), 0, "the record is left");
}

#[test]
fn the_disk_is_commanded_by_set() {
    let _barrier = without_foreign_syncs();
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
fn faults_come_and_go_by_command() {
    let mounted = Mounted::new(&["up", "--size", "64M", "--passthrough", "off"]);
    let path = mounted.path();
    let point = path.to_str().unwrap();
    let sync = || {
        fs::write(path.join("file"), "some poison")
            .and_then(|()| File::open(path.join("file"))?.sync_all())
    };
    assert_eq!(rig(&["fail", point, "writes", "--holding", "poison", "--times", "9"], None).0, 0);
    assert_eq!(sync().expect_err("the write failed").raw_os_error(), Some(libc::EIO));
    quiet(&["recover"], path);
    sync().unwrap();
    assert_eq!(rig(&["fail", point, "everything", "--after", "1000", "--for", "5s"], None).0, 0);
    sync().unwrap();
    assert_eq!(rig(&["fail", point, "sometimes"], None).0, 2);
}

#[test]
fn the_power_is_cut_by_command() {
    let _barrier = without_foreign_syncs();
    let mounted = Mounted::new(&["up", "--size", "64M", "--record"]);
    let cut_disk = Mounted(tempfile::tempdir().unwrap());
    let (path, point) = (mounted.path(), mounted.path().to_str().unwrap());
    let to = cut_disk.path().to_str().unwrap();
    fs::write(path.join("file"), "synced").unwrap();
    File::open(path.join("file")).unwrap().sync_all().unwrap();
    let (code, place, _) = rig(&["mark", point, "synced"], None);
    assert_eq!(code, 0);
    let (_, log, _) = rig(&["log"], Some(path));
    assert_eq!(log.lines().count().to_string(), place.trim());
    assert!(log.contains("flush begins") && log.ends_with(" mark synced\n"), "{log}");

    let cut = |at: &str| rig(&["cut", point, "--to", to, "--at", at, "--survivors", "7:0.5"], None);
    let (code, stdout, stderr) = cut("mark:synced");
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with(&format!("cut after event {}, ", place.trim())), "{stdout}");
    assert_eq!(fs::read_to_string(cut_disk.path().join("file")).unwrap(), "synced");
    // Cuts again, at another place and the same mount point.
    assert_eq!(cut("0").0, 0);
    assert!(!cut_disk.path().join("file").exists());
    let (code, _, stderr) = cut("mark:elsewhere");
    assert_eq!(code, 1);
    assert!(stderr.starts_with("rig: no place mark:elsewhere in the log"), "{stderr}");
    let onto_itself = rig(&["cut", point, "--to", point], None);
    assert!(onto_itself.2.contains("it is not a replay of that rig"), "{}", onto_itself.2);
}

#[test]
fn presets_are_listed_with_their_sources_and_can_be_set_up() {
    let (code, stdout, _) = rig(&["presets"], None);
    assert_eq!(code, 0);
    assert!(stdout.contains("hdd-7200: ") && stdout.contains("two flushes"), "{stdout}");
    let mounted = Mounted::new(&["up", "--size", "64M", "--preset", "sd-card"]);
    quiet(&["set", "--flush", "1us..9us", "--write-rate", "100M"], mounted.path());
    quiet(&["set", "--flush", "1us~9us"], mounted.path());
    assert_eq!(rig(&["up", "--preset", "floppy"], Some(mounted.path())).0, 2);
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
