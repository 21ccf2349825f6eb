//! `synconce bench import` with a real containerd, on a rig that counts flushes.

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::harness::{Need, Place, binary, engine};
use synconce_testkit::process;
use synconce_testkit::{patiently, rig::Rig};

pub const NEEDS: [Need; 3] =
    [Need::Engine("containerd"), Need::Engine("ctr"), Need::Program("mkfs.ext4", "e2fsprogs")];

/// The limit of a test in which ten images are imported.
const LONG: Duration = Duration::from_secs(300);

fn bench(place: &Place, rig: &Rig) -> Command {
    let containerd = engine("containerd").unwrap();
    // A mkfs.erofs that is newer than that of Debian 12 may be beside containerd.
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", containerd.parent().unwrap().display());
    let mut command = place.synconce(&["bench", "import", "--rounds", "1", "--files", "20"]);
    command.args(["--json", "--containerd"]).arg(containerd);
    command.arg("--dir").arg(rig.path()).env("PATH", path);
    command
}

pub fn held_databases_save_most_flushes_of_both_snapshotters(place: &Place) {
    let point = place.path("rig");
    std::fs::create_dir(&point).unwrap();
    let rig = Rig::builder().size(2 << 30).record(false).at(point).up().unwrap();
    let finished = process::run(&mut bench(place, &rig), patiently(LONG)).unwrap();
    assert!(finished.status.success(), "{finished:?}");
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    for left_out in report["left_out"].as_array().unwrap() {
        let [name, reason] = ["variant", "reason"].map(|field| left_out[field].as_str().unwrap());
        let is_known = ["the kernel has no erofs", "mkfs.erofs has no --tar", "not installed"];
        let is_erofs = name.starts_with("erofs/");
        assert!(is_erofs && is_known.iter().any(|it| reason.contains(it)), "{left_out}");
    }
    let results = report["results"].as_array().unwrap().iter();
    let count = |result: &Value| {
        let name = result["variant"]["name"].as_str().unwrap().to_owned();
        (name, result["samples"][0]["flushes"].as_u64().unwrap())
    };
    let flushes: BTreeMap<String, u64> = results.map(count).collect();
    for snapshotter in ["overlayfs", "erofs"] {
        let of = |way: &str| flushes.get(&format!("{snapshotter}/{way}")).copied();
        if let (Some(plain), Some(held)) = (of("plain"), of("hold")) {
            assert!(held * 2 < plain, "{snapshotter}: {flushes:?}");
        }
    }
    assert!(flushes["overlayfs/no-sync"] < flushes["overlayfs/plain"], "{flushes:?}");
    let left = std::fs::read_dir(rig.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name != "lost+found").collect::<Vec<_>>(), [""; 0]);
    let holds = place.bare(&[binary(), "hold", "status", "--json"]);
    assert_eq!(holds.stdout.trim(), "[]", "{holds:?}");
    rig.down().unwrap();
}
