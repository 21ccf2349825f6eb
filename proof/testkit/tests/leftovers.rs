//! `scripts/leftovers` names what tests leave on the machine, and nothing of other test runs.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

const VARIABLE: &str = "SYNCONCE_TEST_RUN";

/// A rig of the test run `mark` that stays until it is taken down.
struct Standing(TempDir);

impl Standing {
    fn new(mark: &str) -> Self {
        let standing = Self(tempfile::tempdir().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_rig"));
        command.args(["up", "--size", "64M"]).arg(standing.path()).env(VARIABLE, mark);
        assert!(command.status().unwrap().success());
        standing
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn listed_in(&self, output: &Output) -> bool {
        text(&output.stdout).contains(&format!("mount {} of /dev/loop", self.path().display()))
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rig"));
        let down = command.args(["down", "--force"]).arg(self.path()).status().unwrap();
        // A second panic would leave the other rig.
        assert!(down.success() || std::thread::panicking());
    }
}

/// A process of the test run `mark`.
struct Sleeper(Child);

impl Sleeper {
    fn new(mark: &str) -> Self {
        let mut command = Command::new("sleep");
        Self(command.arg("600").env(VARIABLE, mark).stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn leftovers(arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/leftovers");
    Command::new(script).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a mark that no other test run has.
fn mark(name: &str) -> String {
    format!("{name}.{}", std::process::id())
}

#[test]
fn the_rig_of_a_test_run_is_listed_and_that_of_another_run_is_not() {
    let (ours, theirs) = (mark("ours"), mark("theirs"));
    let (our_rig, their_rig) = (Standing::new(&ours), Standing::new(&theirs));
    let listed = leftovers(&[&ours]);
    assert!(our_rig.listed_in(&listed) && !their_rig.listed_in(&listed), "{listed:?}");
    let all = leftovers(&[]);
    assert!(our_rig.listed_in(&all) && their_rig.listed_in(&all), "{all:?}");
    let point = our_rig.path().display().to_string();
    drop(our_rig);
    assert!(!text(&leftovers(&[&ours]).stdout).contains(&point));
}

#[test]
fn what_was_not_there_before_fails_and_what_was_there_does_not() {
    let mark = mark("process");
    let place = tempfile::tempdir().unwrap();
    let before = place.path().join("before");
    let list = || std::fs::write(&before, leftovers(&[&mark]).stdout).unwrap();
    let left = |sleeper: &Sleeper, output: &Output| {
        text(&output.stderr).contains(&format!("process {}: sleep 600", sleeper.0.id()))
    };
    list();
    let sleeper = Sleeper::new(&mark);
    let after = leftovers(&[&mark, before.to_str().unwrap()]);
    assert!(after.status.code() == Some(1) && left(&sleeper, &after), "{after:?}");
    list();
    let after = leftovers(&[&mark, before.to_str().unwrap()]);
    assert!(!left(&sleeper, &after), "{after:?}");
    drop(sleeper);
    assert!(!left(&Sleeper::new("another run"), &leftovers(&[&mark, before.to_str().unwrap()])));
}
