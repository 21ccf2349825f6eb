//! `synconce doctor --podman`: the planted cause is named first.

use crate::doctor::{first, latency, report, rig};
use crate::engines::{SHORT, daemonless, prepare};
use libtest_mimic::Trial;
use std::fs;
use synconce_testkit::harness::{Need, Place, finish, trial};

pub fn trials() -> Vec<Trial> {
    let program = Need::Program("fuse-overlayfs", "fuse-overlayfs");
    let needs = [daemonless::PODMAN[0], daemonless::PODMAN[2], program];
    vec![trial(causes_of_podman_are_named_first, &needs)]
}

fn causes_of_podman_are_named_first(place: &Place) {
    prepare(place);
    for (driver, flush, cause) in [
        ("vfs", 8, "slow-sync"),
        ("vfs", 0, "vfs"),
        ("overlay", 8, "nothing"),
        ("overlay", 0, "no-native-diff"),
    ] {
        let rig = rig();
        let root = rig.path().join("storage");
        let text = format!(
            "[storage]\ndriver = \"{driver}\"\ngraphroot = \"{}\"\nrunroot = \"{SHORT}/{cause}\"\n",
            root.display()
        );
        place.write("storage.conf", &text);
        if cause == "no-native-diff" {
            // As after the use of a mount program that is no longer configured: Podman still uses it.
            fs::create_dir_all(root.join("overlay")).unwrap();
            fs::write(root.join("overlay/.has-mount-program"), "true").unwrap();
        }
        // Podman makes its storage when it is first used.
        let mut podman = place.command("podman");
        podman.env("CONTAINERS_STORAGE_CONF", place.path("storage.conf")).arg("info");
        assert!(finish(&mut podman).status.success());
        rig.disk().set_latency(latency(flush)).unwrap();
        let report = report(place, "--podman", &root);
        rig.disk().set_latency(latency(0)).unwrap();
        assert_eq!(first(&report), cause, "{report:#}");
        assert_eq!(report["engine"]["storage_driver"], driver);
        let verdict = report["verdict"].as_str().unwrap();
        assert!(verdict.starts_with(&format!("podman ({}): ", root.display())), "{verdict}");
        if cause == "no-native-diff" {
            // Volumes are saved before the store is removed.
            let remedy = report["findings"][0]["remedy"].as_str().unwrap();
            let (save, reset) = (remedy.find("volume export"), remedy.find("system reset"));
            assert!(save.is_some() && save < reset, "{remedy}");
        } else if driver == "overlay" {
            let why = "nothing to change: the engine mounts the roots of build steps volatile";
            assert!(verdict.ends_with(why), "{verdict}");
        }
    }
}
