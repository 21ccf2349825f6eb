//! `synconce doctor --context DIR --docker`: what sending costs, and that dockerd keeps nothing.

use crate::doctor::{doctor, rig};
use crate::doctor_load::files;
use crate::engines::docker::{self, Docker};
use crate::engines::{Given, Site, prepare};
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{Place, StartedCommand, eventually, finish, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial(sending_is_measured_and_dockerd_keeps_nothing, &docker::NEEDS)]
}

/// Five of these make a path that is too long for the header of an archive.
const DEEP: &str = "a-directory-with-a-long-name";

/// Makes a context of 1,000 small files, of a large one, and of odd ones.
fn make_context(at: &Path) {
    let deep = at.join([DEEP; 5].join("/"));
    fs::create_dir_all(&deep).unwrap();
    for number in 0..1_000 {
        fs::write(deep.join(number.to_string()), [b'x'; 100]).unwrap();
    }
    fs::write(at.join("large"), vec![b'x'; 32 << 20]).unwrap();
    symlink("large", at.join("link")).unwrap();
    fs::write(at.join("left-out"), vec![b'x'; 1 << 20]).unwrap();
    // The pattern also names the Dockerfile of the measurement.
    fs::write(at.join(".dockerignore"), "left-out\n.synconce*\n").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at.join("fifo"), 0o644.into()).unwrap();
}

fn of_context(place: &Place) -> Command {
    let mut command = doctor(place, "--docker");
    command.args(["--context", "files"]);
    command
}

fn sending_is_measured_and_dockerd_keeps_nothing(place: &Place) {
    prepare(place);
    make_context(&place.path("files"));
    let rig = rig();
    let site = Site::with(place, Given::Runc, rig.path());
    let engine = Docker::with_storage(&site, "overlay2");
    let root = rig.path().join("docker");
    let nothing_is_left = || {
        assert_eq!(engine.client("1", &["image", "ls", "--all", "--quiet"]).stdout, "");
        assert_eq!(engine.client("1", &["ps", "--all", "--quiet"]).stdout, "");
        assert_eq!(files(&root), Vec::<String>::new());
    };
    let (page, bundle) = (place.text("page.html"), place.text("bundle.json"));
    let mut with_all = of_context(place);
    with_all.args(["--json", "--html", &page, "--support-bundle", &bundle]);
    let ended = finish(&mut with_all);
    assert!(ended.status.success(), "{ended:?}");
    nothing_is_left();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let sending = &report["sending"];
    assert_eq!(sending["not_measured"], Value::Array(Vec::new()), "{report:#}");
    for way in ["read", "classic", "compressed"] {
        let way = &sending[way];
        assert_eq!(way["sent"], report["sent"], "{report:#}");
        assert!(way["seconds"].as_f64() > Some(0.0), "{report:#}");
        assert_eq!((&way["at_least"], &way["at_most"]), (&way["seconds"], &way["seconds"]));
    }
    let words = "BuildKit, if little has changed since the last build";
    assert!(fs::read_to_string(page).unwrap().contains(words));
    let bundle: Value = serde_json::from_str(&fs::read_to_string(bundle).unwrap()).unwrap();
    assert_eq!(&bundle["report"]["sending"], sending);

    let mut text = finish(&mut of_context(place)).stdout;
    assert!(text.contains("what sending to dockerd costs\n  look "), "{text}");
    text.retain(|letter| letter != '\n');
    assert!(text.contains("the classic builder, which gets the whole"), "{text}");

    // dockerd takes longer for many files.
    for number in 0..30_000 {
        fs::write(place.path(&format!("files/{number}")), "x").unwrap();
    }
    for signal in [Signal::INT, Signal::TERM] {
        let program = of_context(place);
        let mut command = place.command("env");
        command.arg("--default-signal=INT,TERM").arg(program.get_program());
        command.args(program.get_args());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let started = StartedCommand::new(&mut command);
        eventually("dockerd has a part of the context", || !files(&root).is_empty());
        started.signal(signal).unwrap();
        assert_eq!(started.end().signal(), Some(signal.as_raw()), "{}", started.text());
        nothing_is_left();
    }
    engine.stop();
}
