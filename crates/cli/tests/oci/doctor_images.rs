//! `synconce doctor --docker` and `--podman`: images of another architecture, and an export.

use crate::doctor::{archive, doctor, first, report_by, rig};
use crate::engines::docker::{self, Docker};
use crate::engines::{Given, SHORT, Site, daemonless, prepare};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::path::Path;
use synconce_testkit::harness::{Need, Place, finish, trial};

pub fn trials() -> Vec<Trial> {
    // A user namespace has handlers of its own since then.
    let own_handlers = Need::Linux(6, 7, "binfmt_misc of a user namespace");
    let needs = [&docker::NEEDS[..], &[daemonless::PODMAN[0], own_handlers]].concat();
    vec![
        trial(an_image_that_an_emulator_runs_is_named_first, &needs),
        trial(an_export_is_measured_and_leaves_nothing, &docker::NEEDS),
    ]
}

/// Executes `$@` on a machine that starts an emulator for programs of arm64.
const EMULATING: &str = r#"
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf %s ':qemu-aarch64:M:18:\xb7\x00::/usr/bin/qemu-aarch64:' >/proc/sys/fs/binfmt_misc/register
exec "$@"
"#;

fn an_image_that_an_emulator_runs_is_named_first(place: &Place) {
    prepare(place);
    let rig = rig();
    let site = Site::with(place, Given::Runc, rig.path());
    let engine = Docker::with_storage(&site, "overlay2");
    let (tar, root) = (archive(place), rig.path().join("storage"));
    engine.import(&tar, "native");
    let text = "[storage]\ndriver = \"overlay\"\ngraphroot = \"ROOT\"\nrunroot = \"RUN\"\n";
    let text = text.replace("ROOT", root.to_str().unwrap()).replace("RUN", SHORT);
    place.write("storage.conf", &text);
    let podman = |words: &[&str]| {
        let mut podman = place.command("podman");
        podman.env("CONTAINERS_STORAGE_CONF", place.path("storage.conf"));
        assert!(finish(podman.args(words)).status.success(), "{words:?}");
    };
    podman(&["import", &tar, "native"]);
    let report = |flag: &str, root: &Path| {
        let doctor = doctor(place, flag);
        let mut command = place.command("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-ec", EMULATING, "sh"]);
        command.arg(doctor.get_program()).args(doctor.get_args());
        command.envs(doctor.get_envs().filter_map(|(name, value)| Some((name, value?))));
        report_by(&mut command, root)
    };
    let of_docker = rig.path().join("docker");
    for (flag, root) in [("--docker", &of_docker), ("--podman", &root)] {
        let report = report(flag, root);
        assert_eq!(report["engine"]["emulated_images"], Value::Null, "{report:#}");
        assert_ne!(first(&report), "emulated", "{report:#}");
    }
    // The classic builder takes no platform without its experiments, and import ignores it.
    fs::create_dir(place.path("foreign")).unwrap();
    place.write("foreign/Dockerfile", "FROM scratch\nCOPY Dockerfile /\n");
    let build = ["build", "--platform", "linux/arm64", "--tag", "foreign:1", "foreign"];
    let built = engine.client("1", &build);
    assert!(built.status.success(), "{built:?}");
    podman(&["import", "--arch", "arm64", &tar, "foreign:1"]);
    for (flag, root) in [("--docker", &of_docker), ("--podman", &root)] {
        let report = report(flag, root);
        assert_eq!(first(&report), "emulated", "{report:#}");
        let found = &report["engine"]["emulated_images"];
        assert_eq!((&found["images"], &found["emulated"]), (&2.into(), &1.into()), "{found:#}");
        assert_eq!(found["by"], "/usr/bin/qemu-aarch64");
        assert!(found["first"].as_str().unwrap().ends_with("foreign:1"), "{found:#}");
    }
    engine.stop();
}

fn an_export_is_measured_and_leaves_nothing(place: &Place) {
    prepare(place);
    let rig = rig();
    let site = Site::with(place, Given::Runc, rig.path());
    let engine = Docker::with_storage(&site, "overlay2");
    let root = rig.path().join("docker");
    // More than 64 MiB.
    let text = "a line that can be compressed\n".repeat(9 << 18);
    place.write("context/text", &text);
    let tar = place.text("text.tar");
    let made = finish(place.command("tar").args(["-cf", &tar, "-C", "context", "text"]));
    assert!(made.status.success(), "{made:?}");
    engine.import(&archive(place), "small");
    let name = "registry7.example:5000/alice/app:1";
    engine.import(&tar, name);
    let bundle = place.text("bundle.json");
    let mut doctor = doctor(place, "--docker");
    let report = report_by(doctor.args(["--full", "--support-bundle", &bundle]), &root);
    let export = &report["measured"]["export"];
    assert_eq!(export["image"], name, "{report:#}");
    let written = fs::read_to_string(&bundle).unwrap();
    assert!(["registry7", "example", "alice"].iter().all(|it| !written.contains(it)), "{written}");
    let bundle: Value = serde_json::from_str(&written).unwrap();
    let (whole, known) = (&report["engine"], &bundle["report"]["engine"]);
    for field in ["name", "version", "storage_driver", "backing", "native_diff", "layers"] {
        assert_eq!(known[field], whole[field], "{written}");
    }
    assert_eq!(bundle["report"]["measured"]["export"]["bytes"], export["bytes"], "{written}");
    assert!(export["bytes"].as_u64() >= Some(text.len() as u64), "{export:#}");
    for rate in ["bytes_per_second", "gzip"] {
        assert!(export[rate].as_f64() > Some(1e3), "{export:#}");
    }
    let left: Vec<_> = fs::read_dir(root.join("tmp")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    engine.stop();
}
