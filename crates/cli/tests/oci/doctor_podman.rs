//! `synconce doctor --podman`: the planted cause is named first.

use crate::doctor::{archive, first, latency, report, rig};
use crate::engines::{SHORT, daemonless, prepare};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::path::Path;
use synconce_testkit::harness::{Need, Place, finish, trial};

pub fn trials() -> Vec<Trial> {
    let program = Need::File(FUSE, "fuse-overlayfs");
    let needs = [daemonless::PODMAN[0], daemonless::PODMAN[2], program];
    vec![trial(causes_of_podman_are_named_first, &needs)]
}

/// The program that mounts overlays by FUSE, and the setting that names it.
const FUSE: &str = "/usr/bin/fuse-overlayfs";
const BY_FUSE: &str = "[storage.options.overlay]\nmount_program = \"/usr/bin/fuse-overlayfs\"\n";

/// Runs `podman WORDS` on the store of the test. Returns what it printed.
fn podman(place: &Place, words: &[&str]) -> String {
    let mut podman = place.command("podman");
    podman.env("CONTAINERS_STORAGE_CONF", place.path("storage.conf")).args(words);
    let ended = finish(&mut podman);
    assert!(ended.status.success(), "{words:?}: {ended:?}");
    ended.stdout
}

/// Asserts that the root of a container is mounted by the program.
fn assert_mounted_by_fuse(place: &Place, archive: &str, root: &Path) {
    podman(place, &["import", archive, "base"]);
    podman(place, &["create", "--name", "one", "base", "/none"]);
    podman(place, &["mount", "one"]);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let own = format!("fuse-overlayfs {}/overlay/", root.display());
    assert!(mounts.lines().any(|line| line.starts_with(&own)), "{mounts}");
    podman(place, &["unmount", "one"]);
}

/// Asserts that a finding names the program, with a remedy that keeps volumes.
fn assert_names_the_mount_program(report: &Value) {
    let findings = report["findings"].as_array().unwrap();
    let finding = findings.iter().find(|it| it["name"] == "fuse-overlayfs");
    let finding = finding.unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(finding["cause"], "each access to a file of a container goes through a program");
    let remedy = finding["remedy"].as_str().unwrap();
    assert!(remedy.starts_with("take mount_program out of "), "{remedy}");
    assert!(remedy.contains("volume export"), "{remedy}");
}

fn causes_of_podman_are_named_first(place: &Place) {
    prepare(place);
    let archive = archive(place);
    for (driver, program, flush, cause) in [
        ("vfs", false, 8, "slow-sync"),
        ("vfs", false, 0, "vfs"),
        ("overlay", false, 8, "nothing"),
        ("overlay", false, 0, "no-native-diff"),
        ("overlay", true, 8, "slow-sync"),
        ("overlay", true, 0, "fuse-overlayfs"),
    ] {
        let rig = rig();
        let root = rig.path().join("storage");
        let options = if program { BY_FUSE } else { "" };
        let text = format!(
            "[storage]\ndriver = \"{driver}\"\ngraphroot = \"{}\"\nrunroot = \
             \"{SHORT}/{program}-{cause}\"\n{options}",
            root.display()
        );
        place.write("storage.conf", &text);
        if cause == "no-native-diff" {
            // Podman still uses a mount program that was configured once, and no longer is.
            fs::create_dir_all(root.join("overlay")).unwrap();
            fs::write(root.join("overlay/.has-mount-program"), "true").unwrap();
        }
        // Podman makes its storage when it is first used.
        podman(place, &["info"]);
        if program {
            assert_mounted_by_fuse(place, &archive, &root);
        }
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
        } else if program {
            assert_eq!(report["engine"]["mount_program"], FUSE, "{report:#}");
            assert_names_the_mount_program(&report);
        } else if driver == "overlay" {
            let why = "nothing to change: the engine mounts the roots of build steps volatile";
            assert!(verdict.ends_with(why), "{verdict}");
        }
    }
}
