//! All ways of the C program under `synconce doctor`: each result is that of the bare program,
//! and each call is in the record.

use crate::builds::{Build, dynamic, go, ways};
use crate::support::{Place, SYNCONCE, isolated};
use crate::ways::ExpectedCounts;
use std::fs;
use std::path::Path;
use synconce_testkit::process::Finished;

/// Runs `words` in `directory` under doctor. Returns the lines of the record.
fn watched(place: &Place, directory: &Path, words: &[&str]) -> (Finished, Vec<String>) {
    let record = place.text("record");
    // So wide that no line of the report is broken.
    let doctor = ["env", "COLUMNS=100000", SYNCONCE, "doctor", "-o", &record, "--"];
    let finished = place.bare(directory, &[&doctor, words].concat());
    let record = fs::read_to_string(record).unwrap_or_else(|error| panic!("{error}: {finished:?}"));
    let lines: Vec<_> = record.lines().map(str::to_owned).collect();
    assert!(lines.last().is_some_and(|line| line.starts_with("{\"end\":")), "{finished:?}");
    (finished, lines)
}

fn count(record: &[String], call: &str) -> u64 {
    let begin = format!("{{\"call\":\"{call}\",");
    record.iter().filter(|line| line.starts_with(&begin)).count() as u64
}

fn compare(place: &Place, build: Build) {
    let program = ways(build);
    let program = program.to_str().expect("a path of ours is UTF-8");
    let bare = place.bare(&place.directory("bare"), &[program, "all"]);
    let (ended, record) = watched(place, &place.directory("watched"), &[program, "all"]);
    for (one, other) in bare.stdout.lines().zip(ended.stdout.lines()) {
        assert_eq!(one, other);
    }
    assert_eq!((bare.stdout, bare.status), (ended.stdout, ended.status), "{}", ended.stderr);
    let expected = ExpectedCounts::of(place, program);
    for call in ["fsync", "fdatasync", "sync", "syncfs", "sync_file_range"] {
        expected.assert_total(call, count(&record, call));
    }
    // The report names each way that was not timed.
    for (call, what) in [
        ("openat", "opened with O_SYNC"),
        ("pwritev2", "RWF_SYNC"),
        ("io_submit", "requests of aio"),
        ("msync", "mapped memory"),
    ] {
        let line = ended.stderr.lines().find(|line| {
            line.starts_with("  not timed") && line.contains(what) && line.contains(call)
        });
        assert!(line.is_some(), "{call}: {}", ended.stderr);
    }
}

#[test]
fn every_way_of_a_static_program_looks_to_doctor_as_it_does_bare() {
    isolated(|place: &Place| compare(place, Build::Static));
}

#[test]
fn every_way_of_a_32_bit_program_looks_to_doctor_as_it_does_bare() {
    isolated(|place: &Place| compare(place, Build::Compat));
}

#[test]
fn io_uring_is_there_and_the_report_says_that_its_syncs_have_no_time() {
    isolated(|place: &Place| {
        let program = dynamic();
        let bare = place.bare(&place.directory("bare"), &[&program, "ring", "file"]);
        let here = place.directory("watched");
        let (ended, record) = watched(place, &here, &[&program, "ring", "file"]);
        assert_eq!((bare.stdout, bare.status), (ended.stdout, ended.status));
        assert_eq!(count(&record, "io_uring_setup"), 1);
        assert!(
            ended.stderr.contains("not timed    syncs through io_uring: 1 "),
            "{}",
            ended.stderr
        );
    });
}

#[test]
fn a_go_program_with_many_goroutines_has_each_sync_timed() {
    isolated(|place: &Place| {
        let program = go();
        let words = [program.to_str().unwrap()];
        let (ended, record) = watched(place, &place.directory("here"), &words);
        assert_eq!(ended.stdout, "1000 rounds, 1000 bytes\n");
        assert_eq!(["openat", "fsync", "sync"].map(|call| count(&record, call)), [1000, 1000, 1]);
        let timed = record.iter().filter(|line| line.contains("\"wait\":")).count();
        assert_eq!(timed, 1001);
    });
}

#[test]
fn a_chroot_and_a_pid_namespace_hide_neither_the_program_nor_the_file() {
    isolated(|place: &Place| {
        let root = place.directory("root");
        fs::copy(ways(Build::Static), root.join("ways")).expect("the program in the root");
        let root = root.to_str().unwrap();
        let words = ["unshare", "--pid", "--fork", "chroot", root, "/ways", "sync-file"];
        let (ended, record) = watched(place, Path::new("/"), &words);
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(count(&record, "fsync"), 1, "{record:#?}");
        let fsync = record.iter().find(|line| line.contains("\"fsync\"")).unwrap();
        assert!(fsync.contains("\"program\":\"sync-file\"") && fsync.contains(root), "{fsync}");
        assert!(fsync.contains("\"ancestry\":[\"ways\",\"unshare\"]"), "{fsync}");
    });
}
