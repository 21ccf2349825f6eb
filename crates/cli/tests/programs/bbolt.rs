//! A Go program: static, many threads, SIGURG in the middle of calls.

use crate::comparison::{Comparison, OneSide, sh};
use synconce_testkit::harness::Need;
use synconce_testkit::harness::Place;

pub const NEEDS: [Need; 2] = [
    Need::Program("go", "golang-go"),
    Need::File("/usr/share/gocode/src/go.etcd.io/bbolt/db.go", "golang-github-coreos-bbolt-dev"),
];

/// Runs `go WORDS` with the packages that Debian installs, without a network. The compiled
/// standard library is cached between tests. Takes long where the cache is empty.
fn go(place: &Place, words: &str) {
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/go-cache");
    let script = format!(
        "GO111MODULE=off GOFLAGS= GOTOOLCHAIN=local GOPATH=/usr/share/gocode GOCACHE={cache} go {words}"
    );
    sh(&place.path(""), &script);
}

pub fn a_program_on_bbolt_finds_what_it_wrote(place: &Place) {
    place.write("main.go", include_str!("bbolt.go"));
    go(place, "build -o program main.go");
    let comparison = Comparison::run(place, |_| (), &[&place.text("program")]).succeeds();
    comparison.same("contents", OneSide::out);
    // For each of 200 transactions, one sync of the data and one of the meta page.
    comparison.holds("fdatasync", 400);
}

pub fn its_own_tests_agree(place: &Place) {
    go(place, "test -vet=off -c -o tests go.etcd.io/bbolt");
    let words = [&place.text("tests"), "-test.short", "-test.v", "-test.timeout=80s"];
    let comparison = Comparison::run(place, |_| (), &words).succeeds();
    comparison.same("verdicts", |side| {
        side.lines(|line| {
            let verdict = line.trim_start().strip_prefix("--- ")?;
            verdict.split(" (").next().map(str::to_owned)
        })
    });
    comparison.holds("fdatasync", 500);
    comparison.holds("fsync", 50);
}
