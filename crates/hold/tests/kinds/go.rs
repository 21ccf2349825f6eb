//! The program `bolt.go` on the real bbolt.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use synconce_testkit::harness::{Need, Place};
use synconce_testkit::patiently;
use synconce_testkit::process::{Finished, run};

pub const NEEDS: [Need; 2] = [
    Need::Program("go", "golang-go"),
    Need::File("/usr/share/gocode/src/go.etcd.io/bbolt/db.go", "golang-github-coreos-bbolt-dev"),
];

/// The compiled program, and the directory with the databases that it made.
pub struct Bbolt {
    program: PathBuf,
    pub directory: PathBuf,
}

impl Bbolt {
    /// Compiles the program with the packages that Debian installs, without a network, and
    /// makes the databases. The compiled standard library is cached between tests.
    pub fn new(place: &Place) -> Self {
        place.write("main.go", include_str!("bolt.go"));
        let mut build = Command::new("go");
        build
            .current_dir(place.path(""))
            .args(["build", "-o", "bbolt", "main.go"])
            .env("GO111MODULE", "off")
            .env("GOFLAGS", "")
            .env("GOTOOLCHAIN", "local")
            .env("GOPATH", "/usr/share/gocode")
            .env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go-cache"));
        succeeds(&mut build);
        let bbolt = Self { program: place.path("bbolt"), directory: place.path("databases") };
        std::fs::create_dir(&bbolt.directory).expect("a new directory");
        succeeds(Command::new(&bbolt.program).arg("make").arg(&bbolt.directory));
        bbolt
    }

    /// Returns the paths of the databases, sorted.
    pub fn databases(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.directory).expect("a directory");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        assert!(paths.len() > 20, "{paths:?}");
        paths
    }

    /// Whether bbolt's own check finds no error in the database, and does not crash.
    pub fn accepts(&self, path: &Path) -> bool {
        let mut judge = Command::new(&self.program);
        judge.arg("judge").arg(path).stdout(Stdio::null()).stderr(Stdio::null());
        // A check without an end is no verdict that the database is whole.
        let finished = run(&mut judge, patiently(Duration::from_secs(30)));
        finished.is_ok_and(|finished| finished.status.success())
    }

    /// Returns the ranges of bytes of the database that bbolt does not use.
    pub fn unused(&self, path: &Path) -> Vec<(usize, usize)> {
        let finished = succeeds(Command::new(&self.program).arg("unused").arg(path));
        let number = |word: &str| word.parse().expect("a number");
        let ranges = finished.stdout.lines().filter_map(|line| line.split_once(' '));
        ranges.map(|(from, to)| (number(from), number(to))).collect()
    }
}

fn succeeds(command: &mut Command) -> Finished {
    let finished = run(command, patiently(Duration::from_secs(240))).expect("a program");
    assert!(finished.status.success(), "{command:?}: {}", finished.stderr);
    finished
}
