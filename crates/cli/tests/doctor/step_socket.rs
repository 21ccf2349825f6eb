//! The socket by which one doctor at a time watches the steps of builds.

use libtest_mimic::Trial;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{
    Need, Place, StartedCommand, children, eventually, finish, kill, trial,
};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(of_two_doctors_the_second_says_that_it_sees_no_steps, &[]),
        trial(
            of_two_doctors_that_start_at_once_one_sees_the_steps,
            &[Need::Program("strace", "strace")],
        ),
        trial(a_killed_supervisor_leaves_no_socket, &[]),
    ]
}

/// A directory in memory, of this test alone: the length of a socket's path is limited.
const RUN_FILES: &str = "/dev/shm/run";
const UNSEEN: &str = "; build steps are not seen: another `synconce doctor` watches them";

/// Returns the command `program` with words that start a doctor of steps, which writes a report.
fn doctor(place: &Place, words: &[&str], report: &str, command: &[&str]) -> Command {
    let mut doctor = place.command(words[0]);
    doctor.args(&words[1..]).args(["doctor", "--docker", &format!("--json={report}"), "--"]);
    doctor.args(command).env("SYNCONCE_RUNTIME_DIR", RUN_FILES);
    doctor
}

/// Starts a doctor that runs until the returned file is closed.
fn until_closed(place: &Place, report: &str) -> (StartedCommand, File) {
    mkfifoat(CWD, place.path("pipe"), Mode::RWXU).unwrap();
    let synconce = synconce_testkit::harness::binary();
    let started = StartedCommand::new(&mut doctor(place, &[synconce], report, &["cat", "pipe"]));
    (started, File::options().write(true).open(place.path("pipe")).unwrap())
}

fn verdict(place: &Place, report: &str) -> String {
    let report: Value = serde_json::from_str(&place.read(report)).unwrap();
    report["verdict"].as_str().unwrap().to_owned()
}

fn of_two_doctors_the_second_says_that_it_sees_no_steps(place: &Place) {
    let synconce = synconce_testkit::harness::binary();
    let (first, to_cat) = until_closed(place, "first");
    let second = || finish(&mut doctor(place, &[synconce], "second", &["true"]));
    assert!(second().status.success());
    assert!(verdict(place, "second").ends_with(UNSEEN), "{}", verdict(place, "second"));
    assert!(Path::new(RUN_FILES).join("doctor").exists(), "the first still watches");
    drop(to_cat);
    assert!(first.end().success());
    assert!(!verdict(place, "first").ends_with(UNSEEN), "{}", verdict(place, "first"));
    assert!(second().status.success());
    assert!(!verdict(place, "second").ends_with(UNSEEN), "{}", verdict(place, "second"));
    assert!(!Path::new(RUN_FILES).exists(), "a doctor has made it, and removes it");
}

/// Both find that no doctor listens. One of them is stopped before it does.
fn of_two_doctors_that_start_at_once_one_sees_the_steps(place: &Place) {
    let late = "--inject=listen:delay_enter=2000000:when=1";
    let synconce = synconce_testkit::harness::binary();
    let late = ["strace", "-f", "-o", "trace", "--trace=listen", late, synconce];
    let late = StartedCommand::new(&mut doctor(place, &late, "late", &["true"]));
    let begins = || fs::read_dir(RUN_FILES).is_ok_and(|mut names| names.next().is_some());
    eventually("the late doctor has a socket", begins);
    let (other, to_cat) = until_closed(place, "other");
    assert!(late.end().success(), "{}", late.text());
    drop(to_cat);
    assert!(other.end().success());
    // On a slow machine the other one may come later.
    let verdicts = ["late", "other"].map(|report| verdict(place, report));
    let blind = verdicts.iter().filter(|verdict| verdict.ends_with(UNSEEN)).count();
    assert_eq!(blind, 1, "{verdicts:?}");
}

fn a_killed_supervisor_leaves_no_socket(place: &Place) {
    let (started, to_cat) = until_closed(place, "report");
    let socket = Path::new(RUN_FILES).join("doctor");
    assert!(socket.exists());
    let supervisor = children(started.pid())[0].0;
    kill(supervisor, Signal::KILL);
    drop(to_cat);
    assert_eq!(started.end().code(), Some(125), "{}", started.text());
    assert!(!socket.exists());
}
