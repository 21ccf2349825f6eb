//! One test of a suite, run bare and held, each time in a directory of its own.

use crate::differences;
use crate::results::Results;
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, mount};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_testkit::harness::{Place, binary, report, tail};
use synconce_testkit::isolation::isolated_as;
use synconce_testkit::process::{self, Finished};
use synconce_testkit::{Error, patiently};

/// How often a test is run bare before a result counts as different under a hold: a result
/// that varies without a hold is no evidence about the hold.
const BARE_RUNS: usize = 4;

/// The size of a test's disk in bytes: enough for every kind of file system.
const DISK: u64 = 1 << 30;

/// The modes of a held run, with their options of `synconce run`.
const MODES: [(&str, &[&str]); 2] =
    [("supervised", &["--stats", "--json"]), ("sealed", &["--sealed"])];

/// One test of a suite.
pub struct Case {
    /// The name of its suite.
    pub suite: &'static str,
    /// Its name in the suite.
    pub name: String,
    pub words: Vec<String>,
    /// Environment variables, beside those of every test.
    pub environment: Vec<(String, String)>,
    /// Whether the test needs a disk of its own: a loop device, whose path is in LTP_DEV.
    pub device: bool,
    /// The limit of one run.
    pub limit: Duration,
    /// Reads the results of a run in the directory.
    pub results: fn(&Path, &Finished) -> Results,
}

/// Mounts a directory of `place` over `/tmp`, in this mount namespace, because some tests
/// leave files there. Does nothing if `place` is in `/tmp`.
fn cover_tmp(place: &Place) {
    let own = place.path("common-tmp");
    if own.starts_with("/tmp") {
        return;
    }
    fs::create_dir_all(&own).expect("a directory");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o1777)).expect("its mode");
    mount(&own, "/tmp", "", MountFlags::BIND, None).expect("a mount over /tmp");
}

impl Case {
    /// Returns a trial that expects the same results in every mode.
    pub fn trial(self) -> Trial {
        let name = format!("{}::{}", self.suite, self.name);
        let test = name.clone();
        Trial::test(name, move || {
            // Covers every mode and every repeated run.
            let limit = patiently(self.limit) * 8;
            isolated_as(&test, limit, || {
                let place = Place::new(&test.replace('/', "-"));
                cover_tmp(&place);
                self.compare(&place);
                place.down();
            });
            Ok(())
        })
    }

    fn compare(&self, place: &Place) {
        let began = Instant::now();
        let (bare, _) = self.run(place, "run-0", &[]);
        let mut unstable = BTreeSet::new();
        let mut runs = 1;
        let mut lines = Vec::new();
        let mut wrong = String::new();
        for (mode, options) in MODES {
            let run = [&[binary(), "run"], options, &["--"]].concat();
            let (held, finished) = self.run(place, &format!("run-{mode}")[..5], &run);
            let mut differing = bare.differing(&held);
            while !differing.is_subset(&unstable) && runs < BARE_RUNS {
                let (again, _) = self.run(place, &format!("run-{runs}"), &[]);
                unstable.extend(bare.differing(&again));
                runs += 1;
            }
            differing.retain(|key| !unstable.contains(key));
            let compared = differences::compare(self.suite, &self.name, mode, &differing);
            let word = if compared.others.is_empty() { "the same" } else { "DIFFERENT" };
            let meant = compared.meant;
            let absent = compared.absent.iter().map(|key| format!(", listed but the same: {key}"));
            let absent: String = absent.collect();
            lines.push(format!("{mode}: {word}, {meant} meant{absent}"));
            for key in &compared.others {
                wrong += &format!("{mode}: {key}: {}\n", bare.of_both(&held, key));
            }
            if !compared.others.is_empty() {
                wrong += &format!("{}\n{}\n", tail(&finished.stdout), tail(&finished.stderr));
            }
        }
        let seconds = began.elapsed().as_secs();
        let kind = if bare.skipped() { "skipped bare as well" } else { "run" };
        let unstable = if unstable.is_empty() {
            String::new()
        } else {
            format!("; not stable bare: {unstable:?}")
        };
        let Self { suite, name, .. } = self;
        let results = bare.number();
        let lines = lines.join("; ");
        report(&format!(
            "{suite} {name}: {kind}, {results} results, {seconds} s; {lines}{unstable}"
        ));
        assert!(wrong.is_empty(), "{wrong}");
    }

    /// Runs the test in the directory `name` of `place`, started by the command `above`.
    fn run(&self, place: &Place, name: &str, above: &[&str]) -> (Results, Finished) {
        let directory = place.path(name);
        fs::create_dir_all(directory.join("tmp")).expect("a directory for one run");
        let devices = Devices(&directory);
        let words: Vec<_> =
            above.iter().copied().chain(self.words.iter().map(String::as_str)).collect();
        let mut command = place.command(words[0]);
        command.args(&words[1..]).current_dir(&directory);
        command.env("TMPDIR", directory.join("tmp")).env("HOME", &directory);
        command.env("LC_ALL", "C.UTF-8").envs(self.environment.iter().cloned());
        if self.device {
            command.env("LTP_DEV", devices.attach());
        }
        let results = match process::run(&mut command, patiently(self.limit)) {
            Ok(finished) => ((self.results)(&directory, &finished), finished),
            Err(Error::Program { outcome, .. }) => unfinished(outcome),
            Err(error) => panic!("{name}: {error}"),
        };
        drop(devices);
        // A test may leave files that only rm(1) with root's rights removes. rm(1) must not
        // cross a mount.
        let mut remove = Command::new("rm");
        let _ =
            remove.args(["--recursive", "--force", "--one-file-system"]).arg(&directory).status();
        results
    }
}

/// Returns the result of a run that did not end in time.
fn unfinished(outcome: String) -> (Results, Finished) {
    let stdout = String::new();
    let (status, elapsed) = (Default::default(), Duration::MAX);
    (
        Results::endless(),
        Finished { status, stdout, stderr: outcome, elapsed, processor: Duration::ZERO },
    )
}

/// Detaches, in its drop, the loop devices on files below a directory: a killed test has not
/// detached its own.
struct Devices<'a>(&'a Path);

impl Devices<'_> {
    /// Attaches a new device. A test that searches for a free device itself may lose it to
    /// another process.
    fn attach(&self) -> String {
        let file = self.0.join("disk");
        let made = File::create(&file).and_then(|file| file.set_len(DISK));
        made.expect("a file for the loop device");
        let mut command = Command::new("losetup");
        let attached = command.args(["--find", "--show"]).arg(file).output().expect("losetup");
        assert!(attached.status.success(), "losetup: {attached:?}");
        String::from_utf8_lossy(&attached.stdout).trim().to_owned()
    }
}

impl Drop for Devices<'_> {
    fn drop(&mut self) {
        for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let file = fs::read_to_string(device.path().join("loop/backing_file"));
            if file.is_ok_and(|file| Path::new(file.trim_end()).starts_with(self.0)) {
                let path = Path::new("/dev").join(device.file_name());
                let _ =
                    Command::new("umount").args(["--quiet", "--all-targets"]).arg(&path).status();
                let _ = Command::new("losetup").arg("--detach").arg(&path).status();
            }
        }
    }
}
