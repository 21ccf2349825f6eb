//! `synconce doctor -- docker build`: the report has the steps of the build, and none is held.

use crate::bundles::{BARE, Runtime, config, with_profile};
use crate::engines::buildkit::{self, BuildKit, ON_CONTAINERD, Worker};
use crate::engines::containerd::Containerd;
use crate::engines::daemonless::{PODMAN, Podman};
use crate::engines::docker::{self, Docker};
use crate::engines::{
    ImageBuilder, RUN_FILES, Site, assert_steps_bare, assert_steps_held, prepare,
};
use crate::runtimes;
use libtest_mimic::Trial;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{File, remove_file};
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_testkit::harness::{Place, binary, eventually, finish, limit, process_status, trial};
use synconce_testkit::process::{Finished, Group};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(the_steps_of_a_build_are_told_apart_and_are_not_held, &docker::NEEDS),
        trial(buildkits_steps_are_told_apart_with_each_worker, &buildkit::NEEDS_CONTAINERD),
        trial(a_step_that_outlives_doctor_keeps_its_syncs, &docker::NEEDS),
        trial(runc_hands_its_listener_over, &runtimes::RUNC),
        trial(crun_hands_its_listener_over, &runtimes::CRUN),
        trial(podmans_steps_are_seen_as_those_of_the_command, &PODMAN),
    ]
}

/// A step that syncs, one that does not, and one of another user that prints whether it is held.
const THREE: &str = "FROM scratch\nCOPY probe step /\nRUN [\"/step\", \"syncs\", \"/file\", \"7\"]\n\
                     RUN [\"/step\", \"chown\", \"/step\"]\nUSER 1000:1000\nRUN [\"/probe\", \"well\"]\n";

const REPORT: &str = "report.json";

/// Runs `command` under doctor with `options`. Returns its output and doctor's report.
pub fn watched(place: &Place, options: &[&str], command: &Command) -> (Finished, Value) {
    let mut doctor = place.synconce(&["doctor", "--json=report.json"]);
    doctor.args(options).arg("--").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        value.map(|value| doctor.env(name, value));
    }
    let built = finish(&mut doctor);
    (built, serde_json::from_str(&place.read(REPORT)).unwrap())
}

/// Returns a build of the directory `context` by the client `docker`.
pub fn build(docker: &Docker<'_>, buildkit: &str) -> Command {
    let mut client = docker.command(buildkit);
    client.args(["build", "--network", "none", "--no-cache", "--tag", "probed", "context"]);
    client
}

fn the_steps_of_a_build_are_told_apart_and_are_not_held(place: &Place) {
    prepare(place);
    let site = Site::new(place).with_short_run_files();
    let docker = Docker::start(&site);
    place.write("context/Dockerfile", THREE);
    for buildkit in ["1", "0"] {
        let (built, report) = watched(place, &[], &build(&docker, buildkit));
        assert_steps_bare(buildkit, &built, 1);
        assert_told_apart("docker", &report);
    }
    // A script is no client by its name, so the option says that it builds.
    let mut script = Command::new("env");
    let client = build(&docker, "0");
    let words = client.get_envs().filter_map(|(name, value)| Some((name, value?)));
    script.envs(words).args(["env", "env"]).arg(client.get_program()).args(client.get_args());
    let (held, report) = watched(place, &[], &script);
    assert_steps_held("a script", &held, 1);
    assert_eq!(report["build"], Value::Null, "{report:#}");
    let (built, report) = watched(place, &["--docker"], &script);
    assert_steps_bare("a script with --docker", &built, 1);
    assert_told_apart("docker", &report);
    // Without doctor the steps are held as before.
    assert_steps_held("afterwards", &docker.classic().build(&[]), 1);
    docker.stop();
}

fn buildkits_steps_are_told_apart_with_each_worker(place: &Place) {
    prepare(place);
    let site = Site::new(place).with_short_run_files();
    place.write("context/Dockerfile", THREE);
    let containerd = Containerd::start(&site);
    for worker in [Worker::Oci, ON_CONTAINERD] {
        let engine = BuildKit::start(&site, worker);
        let (built, report) = watched(place, &[], &engine.command(&[]));
        assert_steps_bare(&format!("{worker:?}"), &built, 1);
        assert_told_apart("buildkit", &report);
        engine.stop();
    }
    containerd.stop();
}

/// Asserts that `report` has each step of [`THREE`], which `engine` executed.
fn assert_told_apart(engine: &str, report: &Value) {
    let steps = report["build"]["steps"].as_array();
    let steps = steps.unwrap_or_else(|| panic!("{engine}: {report:#}"));
    let of = |key: &str| steps.iter().map(|step| step[key].clone()).collect::<Vec<_>>();
    let commands = ["/step syncs /file 7", "/step chown /step", "/probe well"];
    assert_eq!(of("command"), commands, "{engine}: {report:#}");
    assert_eq!(of("engine"), [engine; 3], "{engine}: {report:#}");
    // Of the probe: fsync, fdatasync, syncfs and sync_file_range of a closed descriptor.
    assert_eq!(of("calls"), [7, 0, 4], "{engine}: {report:#}");
    for (waits, seconds) in of("waits").iter().zip(of("seconds")) {
        assert!(waits.as_f64() <= seconds.as_f64(), "{engine}: {report:#}");
    }
    let all = &report["build"]["waits"];
    assert_eq!((&all["calls"], &all["failed"]), (&11.into(), &4.into()), "{engine}: {report:#}");
    let longest = &all["slowest"][0];
    let known = [&longest["program"], &longest["file"], &longest["bytes"]];
    assert_eq!(
        known,
        [&Value::from("step"), &"/file".into(), &4096.into()],
        "{engine}: {report:#}"
    );
    // The daemon's shim and its ancestors are no part of the build.
    assert_eq!(longest["ancestry"], Value::Array(Vec::new()), "{engine}: {report:#}");
    let not_timed = &report["build"]["not_covered"];
    let not_timed = not_timed.as_array().unwrap().iter().map(|kind| &kind["call"]);
    // The profiles of some engines have no io_uring.
    let not_timed = not_timed.filter(|call| *call != "io_uring_setup");
    assert_eq!(not_timed.collect::<Vec<_>>(), ["msync"], "{engine}: {report:#}");
    let verdict = report["verdict"].as_str().unwrap();
    assert!(verdict.contains(": 11 syncs of 3 build steps were waited for, "), "{verdict}");
}

/// A call whose filter has no listener fails with ENOSYS.
fn a_step_that_outlives_doctor_keeps_its_syncs(place: &Place) {
    prepare(place);
    let site = Site::new(place).with_short_run_files();
    let docker = Docker::start(&site);
    let on = "FROM scratch\nCOPY step /\nRUN [\"/step\", \"until\", \"/file\", \"/end\"]\n";
    place.write("context/Dockerfile", on);
    // Doctor's command ends once the test closes the pipe.
    mkfifoat(CWD, place.path("pipe"), Mode::RWXU).unwrap();
    for (end, buildkit) in [("end", "1"), ("kill", "1"), ("kill", "0")] {
        let mut doctor = site.command(binary());
        doctor.args(["doctor", "--docker", "-o", "record", "--", "cat", "pipe"]);
        let doctor = Group::spawn(&mut doctor).unwrap();
        let to_cat = File::options().write(true).open(place.path("pipe")).unwrap();
        let socket = Path::new(RUN_FILES).join("doctor");
        assert!(socket.exists(), "doctor listens before its command starts");
        let built = std::thread::scope(|scope| {
            let built = scope.spawn(|| finish(&mut build(&docker, buildkit)));
            eventually("a step syncs", || place.read("record").contains("\"fsync\""));
            if end == "kill" {
                let pid = Pid::from_raw(doctor.pid().cast_signed()).unwrap();
                kill_process(pid, Signal::KILL).unwrap();
            }
            drop(to_cat);
            assert!(doctor.wait(limit()).unwrap().is_some(), "{end}: doctor does not end");
            let root = root_of_step();
            let length = || root.join("file").metadata().map_or(0, |meta| meta.len());
            let before = length();
            let goes_on = || length() > before + 1 || built.is_finished();
            eventually("the step syncs without doctor, or fails", goes_on);
            let _ = File::create(root.join("end"));
            built.join().unwrap()
        });
        assert!(built.status.success(), "{end}, {buildkit}: {built:?}");
        eventually("the socket is removed", || !socket.exists());
        remove_file(place.path("record")).unwrap();
    }
    docker.stop();
}

/// Returns the root of the process `step`, which is in a container.
fn root_of_step() -> PathBuf {
    let is_step = |pid: &u32| process_status(*pid).get("Name").is_some_and(|name| name == "step");
    let numbers = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let step: u32 = pids.find(is_step).expect("the step runs");
    PathBuf::from(format!("/proc/{step}/root"))
}

fn runc_hands_its_listener_over(place: &Place) {
    hands_its_listener_over("runc", place);
}

fn crun_hands_its_listener_over(place: &Place) {
    hands_its_listener_over("crun", place);
}

fn hands_its_listener_over(name: &'static str, place: &Place) {
    prepare(place);
    let runtime = Runtime::new(place, name);
    let run_files = Path::new(RUN_FILES);
    mkfifoat(CWD, place.path("pipe"), Mode::RWXU).unwrap();
    let mut doctor = place.synconce(&["doctor", "--json=report.json", "--buildkit", "--"]);
    doctor.args(["cat", "pipe"]).env("SYNCONCE_RUNTIME_DIR", run_files);
    let doctor = Group::spawn(&mut doctor).unwrap();
    let to_cat = File::options().write(true).open(place.path("pipe")).unwrap();
    let step = |config: &Value| {
        let mut step = runtime.step_command(config);
        finish(step.env("SYNCONCE_RUNTIME_DIR", run_files)).stdout
    };
    assert_eq!(step(&config()), BARE, "without a profile");
    // crun waits for a process of its own after it has loaded the filter.
    let waits = json!({"names": ["wait4"], "action": "SCMP_ACT_ALLOW"});
    let logged = json!({"names": ["syncfs"], "action": "SCMP_ACT_LOG"});
    let with_both = with_profile(&[logged.clone(), waits.clone()]);
    for config in [&with_both, &with_profile(&[logged])] {
        assert!(step(config).starts_with("fsync EBADF\n"), "syncfs is left to the profile");
    }
    let theirs = json!({"names": ["syncfs"], "action": "SCMP_ACT_NOTIFY"});
    let mut config = with_profile(&[theirs, waits]);
    config["linux"]["seccomp"]["listenerPath"] = "/nothing".into();
    step(&config);
    drop(to_cat);
    assert!(doctor.wait(limit()).unwrap().is_some_and(|ended| ended.success()));
    let report: Value = serde_json::from_str(&place.read(REPORT)).unwrap();
    let steps = report["build"]["steps"].as_array().unwrap();
    let refuses = "its profile refuses wait4, by which crun hands a listener over";
    let has_own = "its profile has a listener of its own";
    let (of_strict, unseen) = match name {
        "crun" => (json!([0, refuses]), 2),
        _ => (json!([3, null]), 1),
    };
    let seen = [json!([4, null]), json!([3, null]), of_strict, json!([0, has_own])];
    assert_eq!(steps.iter().map(|it| json!([it["calls"], it["unseen"]])).collect::<Vec<_>>(), seen);
    let verdict = report["verdict"].as_str().unwrap();
    assert!(verdict.ends_with(&format!("; {unseen} not seen")), "{report:#}");
    assert!(!run_files.exists(), "doctor has made it, and removes it");
}

/// Podman has no daemon: its steps descend from the command, whose filter has a listener already.
fn podmans_steps_are_seen_as_those_of_the_command(place: &Place) {
    prepare(place);
    let site = Site::new(place).with_short_run_files();
    let podman = Podman(&site);
    let mut command = podman.command();
    command.args(podman.building(&[]));
    let (built, report) = watched(place, &[], &command);
    assert_steps_bare("podman", &built, 2);
    assert_eq!(report["build"], Value::Null, "{report:#}");
    let programs = report["waits"]["by_program"].as_array().unwrap();
    let probe = programs.iter().find(|program| program["name"] == "probe");
    assert_eq!(probe.map(|probe| &probe["calls"]), Some(&8.into()), "{report:#}");
}
