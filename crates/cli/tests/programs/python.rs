//! CPython's own tests. test_os checks the kernel's errors for bad descriptors, test_mmap
//! flushes maps, and test_mailbox syncs every message.

use crate::comparison::{Comparison, OneSide};
use std::os::unix::fs::chown;
use std::path::Path;
use synconce_testkit::harness::Place;
use synconce_testkit::harness::python_with;

const NOBODY: u32 = 65534;

fn words(module: &str) -> [&str; 5] {
    [python_with(module).expect("checked before"), "-m", "test", "-v", module]
}

/// Returns the verdict on every test, and the counts.
fn verdicts(side: &OneSide) -> String {
    side.lines(|line| {
        let verdict = [" ... ok", " ... FAIL", " ... ERROR", " ... expected failure"];
        let is_one = verdict.iter().any(|end| line.ends_with(end)) || line.contains(" ... skipped");
        let counts = line.starts_with("Ran ").then(|| line.split(" in ").next()).flatten();
        let total = line.starts_with("OK (") || line.starts_with("FAILED (");
        counts.or((is_one || total).then_some(line)).map(str::to_owned)
    })
}

fn agrees(place: &Place, module: &str) -> Comparison {
    let comparison = Comparison::run(place, |_| (), &words(module)).succeeds();
    comparison.same("verdicts", verdicts);
    comparison
}

pub fn test_os_agrees(place: &Place) {
    let comparison = agrees(place, "test_os");
    for call in ["fsync", "fdatasync"] {
        assert!(comparison.passed(call) > 0, "{call} on a bad descriptor");
    }
}

/// Without CAP_SYS_ADMIN a run has no_new_privs, which must not change the results of these
/// tests.
pub fn test_os_agrees_for_an_ordinary_user(place: &Place) {
    let own = |dir: &Path| {
        for name in ["", "tmp", "../state", "../runtime"] {
            let _ = std::fs::create_dir(dir.join(name));
            chown(dir.join(name), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
    };
    let above = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let comparison = Comparison::run_below(place, own, &above, &words("test_os")).succeeds();
    comparison.same("verdicts", verdicts);
    assert!(comparison.passed("fsync") > 0, "fsync on a bad descriptor");
}

pub fn test_mmap_agrees(place: &Place) {
    agrees(place, "test_mmap").holds("msync", 1);
}

pub fn test_mailbox_agrees(place: &Place) {
    agrees(place, "test_mailbox").holds("fsync", 100);
}

pub fn test_sqlite3_agrees(place: &Place) {
    agrees(place, "test_sqlite3").holds("fdatasync", 1);
}
