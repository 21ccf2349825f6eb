//! LMDB writes its meta pages through a descriptor that it opens with O_DSYNC.

use crate::comparison::{Comparison, OneSide, compile};
use synconce_testkit::harness::Place;
use synconce_testkit::harness::{Need, upstream};

pub const NEEDS: [Need; 2] =
    [Need::Program("cc", "gcc libc6-dev"), Need::File("/usr/include/lmdb.h", "liblmdb-dev")];
pub const NEEDS_UPSTREAM: [Need; 1] = [Need::Upstream("lmdb/libraries/liblmdb/mtest")];
pub const NEEDS_PYTHON: [Need; 3] = [
    Need::Upstream("py-lmdb/tests"),
    Need::File("/usr/lib/python3/dist-packages/lmdb", "python3-lmdb"),
    Need::File("/usr/lib/python3/dist-packages/pytest", "python3-pytest"),
];

pub fn every_kind_of_environment_holds_the_same(place: &Place) {
    let program = compile(place, include_str!("lmdb.c"), "-llmdb");
    let comparison = Comparison::run(place, |_| (), &[&program]).succeeds();
    comparison.same("contents", OneSide::out);
    comparison.holds("fdatasync", 100);
    comparison.holds("msync", 100);
    comparison.holds("openat", 5);
}

/// The programs write data that depends on the clock. Only their exit codes are compared, and
/// that their databases can be read.
pub fn its_own_tests_agree(place: &Place) {
    let programs = upstream("lmdb/libraries/liblmdb").expect("checked before");
    let script = format!(
        "for n in '' 2 3 4 5; do mkdir testdb; {0}/mtest$n >log; echo mtest$n: $?; \
         {0}/mdb_stat -a -e -f -r testdb >stat; {0}/mdb_copy -c testdb >copy; rm -r testdb; done",
        programs.display()
    );
    let comparison = Comparison::run(place, |_| (), &["sh", "-ec", &script]).succeeds();
    comparison.same("results", OneSide::out);
    // All programs but the first open the database with MDB_NOSYNC.
    comparison.holds("fdatasync", 10);
    comparison.holds("openat", 5);
}

/// Leaves out the test that counts page faults, which fails on many machines.
pub fn py_lmdbs_own_tests_agree(place: &Place) {
    let tests = upstream("py-lmdb/tests").expect("checked before");
    let tests = tests.to_str().expect("a path of ours is UTF-8");
    let python = ["env", "PYTHONDONTWRITEBYTECODE=1", "/usr/bin/python3", "-m"];
    let pytest = ["pytest", "-v", "-p", "no:cacheprovider", "-k", "not test_preload", tests];
    let comparison = Comparison::run(place, |_| (), &[&python[..], &pytest].concat()).succeeds();
    comparison.same("verdicts", |side| side.lines(verdict));
    comparison.holds("openat", 50);
    comparison.holds("fdatasync", 50);
    comparison.holds("msync", 1);
}

/// Returns the verdict on one test, or the counts, without times and percentages.
fn verdict(line: &str) -> Option<String> {
    if line.contains(" passed") {
        return line.split(" in ").next().map(str::to_owned);
    }
    let (test, rest) = line.split_once(' ').filter(|(test, _)| test.contains("::"))?;
    Some(format!("{test} {}", rest.split_whitespace().next()?))
}
