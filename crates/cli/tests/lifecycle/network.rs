//! Syncs on a network file system: 9p, which `scripts/kernels` gives its machines.

use serde_json::Value;
use std::fs;
use std::io::Write;
use synconce_testkit::harness::{Place, binary, finish, isolated, perl, without_fuse_notice};

/// The name of the directory that `scripts/kernels` shares with its machine.
const SHARE: &str = "synconce";

/// Whether the machine has that directory. Prints that `test` is skipped if not.
fn has_share(test: &str) -> bool {
    let drivers =
        fs::read_dir("/sys/bus/virtio/drivers/9pnet_virtio").into_iter().flatten().flatten();
    let mut tags =
        drivers.filter_map(|device| fs::read_to_string(device.path().join("mount_tag")).ok());
    let has_any = tags.any(|tag| tag.trim_end_matches('\0') == SHARE);
    if !has_any {
        let why = "this machine has no directory of another one; scripts/kernels makes one";
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
    }
    has_any
}

fn mount(place: &Place) {
    fs::create_dir(place.path("network")).unwrap();
    let mut mount = place.command("mount");
    mount.args(["-t", "9p", "-o", "trans=virtio,version=9p2000.L", SHARE, "network"]);
    let mounted = finish(&mut mount);
    assert!(mounted.status.success(), "{mounted:?}");
}

#[test]
fn syncs_on_a_network_file_system_pass_and_a_notice_says_so_with_its_remedy() {
    if !has_share("syncs on a network file system") {
        return;
    }
    isolated(|place| {
        mount(place);
        let script = "sync_file('network/data') eq 'synced' or die for 1..12; sync_file('data');";
        let ran = place.run(&["--stats"], &perl(script));
        assert!(ran.status.success(), "{ran:?}");
        assert!(ran.stderr.contains("\npassed 12 fsync: on a network file system\n"), "{ran:?}");
        let said = format!(
            "synconce: 12 syncs on a network file system were done, not held (held: 1)\n\
             synconce: hint: {} run --sealed --stats -- ",
            binary()
        );
        assert!(ran.stderr.contains(&said), "{ran:?}");
        let counted = place.run(&["--json", "--quiet"], &perl(script)).stderr;
        let counted: Value = serde_json::from_str(&counted).unwrap();
        let reasons = &counted["calls"]["fsync"]["reasons"];
        assert_eq!(*reasons, serde_json::json!({ "network": 12 }), "{counted}");
        // The hint's own run holds them, and its commit covers the file system.
        let sealed = place.run(&["--sealed", "--stats"], &perl(script));
        assert!(sealed.status.success(), "{sealed:?}");
        let point = format!("commit {} (9p) ", place.text("network"));
        assert!(without_fuse_notice(&sealed.stderr).contains(&point), "{sealed:?}");
    });
}
