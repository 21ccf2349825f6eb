//! The program `bolt.go` on the real bbolt.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_testkit::go;
use synconce_testkit::harness::{Need, Place};
use synconce_testkit::patiently;
use synconce_testkit::process::run;

pub const NEEDS: [Need; 2] = [
    Need::Program("go", "golang-go"),
    Need::File("/usr/share/gocode/src/go.etcd.io/bbolt/db.go", "golang-github-coreos-bbolt-dev"),
];

/// The directory with the databases that the program made.
pub struct Bbolt {
    pub directory: PathBuf,
}

impl Bbolt {
    /// Compiles the program with the packages that Debian installs, without a network, and
    /// makes the databases. The compiled standard library is cached between tests.
    pub fn new(place: &Place) -> Self {
        place.write("main.go", include_str!("bolt.go"));
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache");
        succeeds(&mut go::build(&place.path(""), "bbolt", &cache));
        let directory = place.path("databases");
        std::fs::create_dir(&directory).expect("a new directory");
        succeeds(Command::new(place.path("bbolt")).arg(&directory));
        Self { directory }
    }
}

fn succeeds(command: &mut Command) {
    let finished = run(command, patiently(Duration::from_secs(240))).expect("a program");
    assert!(finished.status.success(), "{command:?}: {}", finished.stderr);
}
