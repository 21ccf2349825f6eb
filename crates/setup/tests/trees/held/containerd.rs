//! The hold of containerd.

use super::{CONTAINERD, KINDS, held, set_aside};
use crate::support::{TestSystem, refusal, there_and_back};
use std::fs;
use synconce_setup::undo::Edits;

const FIRST_SERIES: &str = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1";
const SECOND_SERIES: &str = "containerd github.com/containerd/containerd/v2 v2.4.2 c787fb98";

#[test]
fn containerd_holds_its_metadata_and_the_snapshotters_in_use() {
    let kind = &KINDS[0];
    let snapshotter =
        |root: &str, name: &str| format!("{root}/io.containerd.snapshotter.v1.{name}");
    for (config, root) in [
        ("", "/var/lib/containerd"),
        ("version = 2\nroot = \"/srv/c\"\n", "/srv/c"),
        ("version = 3\nroot = \"/no\"\nimports = [\"conf.d/*.toml\"]\n", "/srv/later"),
    ] {
        let erofs = format!("{}/x", snapshotter(root, "erofs"));
        let tree = kind
            .tree()
            .with(kind.config, config)
            .with("/etc/containerd/conf.d/a.toml", "version = 3\nroot = \"/srv/later\"\n")
            .with(&erofs, "");
        there_and_back(&tree, CONTAINERD, FIRST_SERIES);
        tree.set_up(CONTAINERD, FIRST_SERIES).unwrap();
        let expected = [
            format!("{root}/io.containerd.metadata.v1.bolt/meta.db"),
            format!("{}/metadata.db", snapshotter(root, "overlayfs")),
            format!("{}/metadata.db", snapshotter(root, "erofs")),
        ];
        assert_eq!(held(&tree, "containerd"), expected);
        let aside = set_aside(&tree, "containerd");
        for name in ["metadata.v1.bolt", "content.v1.content", "snapshotter.v1.erofs"] {
            assert!(aside.contains(&format!("{root}/io.containerd.{name}")), "{name}: {aside:?}");
        }
        // One that is not in use yet is not held, but may be in use when the machine crashes.
        assert!(aside.contains(&snapshotter(root, "btrfs")), "{aside:?}");
    }
}

#[test]
fn a_snapshotter_elsewhere_and_a_state_on_a_disk_are_held_where_they_are() {
    let plugin = "io.containerd.snapshotter.v1.overlayfs";
    let config = format!(
        "version = 3\nstate = \"/srv/state\"\n[plugins.'{plugin}']\nroot_path = \"/data/overlay\"\n"
    );
    let tree = KINDS[0].tree().with(KINDS[0].config, &config).link("/srv/real", "/data");
    there_and_back(&tree, CONTAINERD, SECOND_SERIES);
    tree.set_up(CONTAINERD, SECOND_SERIES).unwrap();
    let mounts = "/srv/state/io.containerd.mount-manager.v1.bolt";
    let held = held(&tree, "containerd");
    assert_eq!(
        held[1..],
        ["/srv/real/overlay/metadata.db".to_owned(), format!("{mounts}/mounts.db")]
    );
    let aside = set_aside(&tree, "containerd");
    assert!(aside.contains(&"/srv/real/overlay".to_owned()), "{aside:?}");
    assert!(aside.contains(&mounts.to_owned()), "{aside:?}");
    let unit = tree.read("/etc/systemd/system/synconce-hold-containerd.service");
    let wanted = "RequiresMountsFor=/var/lib/containerd /srv/real/overlay /srv/state /var/lib";
    assert!(unit.contains(wanted), "{unit}");
    // Before 2.2 there is no mount manager, and /run is in memory.
    let older = KINDS[0].tree().with(KINDS[0].config, "version = 2\nstate = \"/srv/state\"\n");
    older.set_up(CONTAINERD, FIRST_SERIES).unwrap();
    assert!(!older.read("/etc/synconce/hold.d/containerd.toml").contains("mounts.db"));
    let usual = KINDS[0].tree();
    usual.set_up(CONTAINERD, SECOND_SERIES).unwrap();
    assert!(!usual.read("/etc/synconce/hold.d/containerd.toml").contains("mounts.db"));
}

#[test]
fn a_snapshotter_whose_snapshots_a_wipe_does_not_reach_is_refused_with_its_place() {
    let proxy = "version = 2\n[proxy_plugins.stargz]\n  type = \"snapshot\"\n  address = \"/x\"\n";
    let pool =
        "version = 2\n[plugins.'io.containerd.snapshotter.v1.devmapper']\npool_name = \"p\"\n";
    for (config, part) in [(proxy, "line 3: shows that"), (pool, "line 3: shows that")] {
        let tree = KINDS[0].tree().with(KINDS[0].config, config);
        let before = tree.snapshot();
        let printed = refusal(tree.set_up(CONTAINERD, ""));
        assert!(printed.contains(part), "{printed}");
        assert_eq!(before, tree.snapshot());
    }
    for name in ["devmapper", "zfs"] {
        let path = format!("/var/lib/containerd/io.containerd.snapshotter.v1.{name}/metadata.db");
        let printed = refusal(KINDS[0].tree().with(&path, "").set_up(CONTAINERD, ""));
        assert!(printed.contains(&path) && printed.contains(name), "{printed}");
    }
}

#[test]
fn what_a_wipe_costs_other_users_of_containerd_is_noted() {
    let notes = |tree: TestSystem| tree.plan(CONTAINERD, "").unwrap().notes.join("\n");
    let alone = notes(KINDS[0].tree());
    for word in ["kubelet", "dockerd", "namespaces"] {
        assert!(!alone.contains(word), "{alone}");
    }
    let kubelet = "[Service]\nExecStart=/usr/bin/kubelet\n";
    let unit = "/usr/lib/systemd/system/kubelet.service";
    assert!(notes(KINDS[0].tree().with(unit, kubelet)).contains("a kubelet uses"));
    assert!(notes(KINDS[0].tree().with("/var/lib/kubelet/x", "")).contains("a kubelet uses"));
    let masked = KINDS[0].tree().link("/dev/null", "/etc/systemd/system/docker.service");
    // Not a regular file, as the device is not.
    assert!(!notes(masked.with("/dev/null/x", "")).contains("dockerd"));
    let docker = || KINDS[0].tree().program("/usr/bin/dockerd");
    assert!(notes(docker()).contains("keeps its images itself"));
    let broken = docker().with("/etc/docker/daemon.json", "{");
    assert!(notes(broken).contains("keeps its images itself"));
    let worker = "/var/lib/docker/buildkit/containerd-overlayfs/workerid";
    assert!(notes(docker().with(worker, "")).contains("keeps its images in this containerd"));
    let task = |namespace: &str| {
        format!("/run/containerd/io.containerd.runtime.v2.task/{namespace}/0123/init.pid")
    };
    let tree = KINDS[0].tree().with(&task("k8s.io"), "").with(&task("buildkit"), "");
    assert!(notes(tree).contains("other than buildkit: k8s.io; "));
    assert!(!notes(KINDS[0].tree().with(&task("buildkit"), "")).contains("namespaces"));
}

#[test]
fn a_hold_that_is_set_up_again_takes_a_new_snapshotter_and_is_undone_whole() {
    let tree = KINDS[0].tree();
    let before = tree.snapshot();
    tree.set_up(CONTAINERD, "").unwrap();
    let btrfs = "/var/lib/containerd/io.containerd.snapshotter.v1.btrfs";
    fs::create_dir_all(tree.real(btrfs)).unwrap();
    assert_eq!(tree.set_up(CONTAINERD, "").unwrap(), 1);
    assert!(held(&tree, "containerd").contains(&format!("{btrfs}/metadata.db")));
    fs::remove_dir_all(tree.real("/var/lib/containerd")).unwrap();
    tree.undo(CONTAINERD, Edits::Refuse).unwrap().unwrap();
    assert_eq!(before, tree.snapshot());
}
