//! `synconce doctor --docker --full`: the image that dockerd loads is removed.

use crate::doctor::{doctor, report_by, rig};
use crate::engines::docker::{self, Docker};
use crate::engines::{Given, Site, prepare};
use libtest_mimic::Trial;
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Instant;
use synconce_testkit::harness::{Place, StartedCommand, eventually, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_load_is_measured_and_leaves_nothing, &docker::NEEDS),
        trial(a_signal_during_a_load_leaves_nothing, &docker::NEEDS),
    ]
}

/// Returns the files of images, layers and temporary files below the directory of dockerd.
pub fn files(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let directories = [
        "tmp",
        "overlay2",
        "image/overlay2/imagedb/content/sha256",
        "image/overlay2/layerdb/sha256",
    ];
    for directory in directories {
        // dockerd makes some of them when it has the first image.
        for entry in fs::read_dir(root.join(directory)).into_iter().flatten() {
            files.push(format!("{directory}/{}", entry.unwrap().file_name().display()));
        }
    }
    // A directory for links of layers.
    files.retain(|file| file != "overlay2/l");
    files
}

fn a_load_is_measured_and_leaves_nothing(place: &Place) {
    prepare(place);
    let rig = rig();
    let site = Site::with(place, Given::Runc, rig.path());
    let engine = Docker::with_storage(&site, "overlay2");
    let root = rig.path().join("docker");
    let began = Instant::now();
    let report = report_by(doctor(place, "--docker").arg("--full"), &root);
    let load = &report["measured"]["load"];
    let bytes = load["bytes"].as_u64().unwrap();
    assert!(bytes > 64 << 20, "{report:#}");
    // The load is a part of the measurement.
    let least = bytes as f64 / began.elapsed().as_secs_f64();
    assert!(load["bytes_per_second"].as_f64() > Some(least), "{report:#}");
    assert_eq!(engine.client("1", &["image", "ls", "--all", "--quiet"]).stdout, "");
    assert_eq!(files(&root), Vec::<String>::new());
    engine.stop();
}

fn a_signal_during_a_load_leaves_nothing(place: &Place) {
    prepare(place);
    let rig = rig();
    let site = Site::with(place, Given::Runc, rig.path());
    let engine = Docker::with_storage(&site, "overlay2");
    let root = rig.path().join("docker");
    // While the image is sent, and after that.
    for (signal, directory) in [(Signal::INT, "tmp/"), (Signal::TERM, "overlay2/")] {
        let program = doctor(place, "--docker");
        // The caller of the tests may ignore signals: a shell's `&` does.
        let mut command = place.command("env");
        command.arg("--default-signal=INT,TERM").arg(program.get_program());
        command.args(program.get_args()).arg("--full");
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let started = StartedCommand::new(&mut command);
        let is_there = || files(&root).iter().any(|file| file.starts_with(directory));
        eventually(&format!("an image is in {directory}"), is_there);
        started.signal(signal).unwrap();
        let status = started.end();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{}", started.text());
        assert_eq!(engine.client("1", &["image", "ls", "--all", "--quiet"]).stdout, "");
        assert_eq!(files(&root), Vec::<String>::new());
    }
    engine.stop();
}
