//! The hold of buildkitd.

use super::{BUILDKIT, KINDS, held, set_aside};
use crate::support::there_and_back;

#[test]
fn buildkitd_holds_the_databases_of_its_workers() {
    let kind = &KINDS[2];
    let names = |root: &str, workers: &[&str]| -> Vec<String> {
        let own = ["cache.db", "history.db"].map(str::to_owned).to_vec();
        let of = |worker: &&str| {
            ["containerdmeta.db", "metadata_v2.db", "snapshots/metadata.db"]
                .map(|name| format!("runc-{worker}/{name}"))
        };
        let all = own.into_iter().chain(workers.iter().flat_map(of));
        all.map(|name| format!("{root}/{name}")).collect()
    };
    for (config, root, snapshotter) in [
        ("", "/var/lib/buildkit", "overlayfs"),
        ("root = \"/srv/b\"\nworker.oci.snapshotter = \"auto\"\n", "/srv/b", "overlayfs"),
        ("[worker.oci]\nsnapshotter = \"native\"\n", "/var/lib/buildkit", "native"),
    ] {
        let tree = kind.tree().with(kind.config, config);
        there_and_back(&tree, BUILDKIT, "");
        tree.set_up(BUILDKIT, "").unwrap();
        assert_eq!(held(&tree, "buildkit"), names(root, &[snapshotter]));
        let aside = ["*.db", "runc-*", "containerd-*"].map(|name| format!("{root}/{name}"));
        assert_eq!(set_aside(&tree, "buildkit"), aside);
    }
    // The directories that exist count.
    let root = "/var/lib/buildkit";
    let tree = kind
        .tree()
        .with(&format!("{root}/runc-native/workerid"), "")
        .with(&format!("{root}/runc-overlayfs/workerid"), "")
        .with(&format!("{root}/containerd-overlayfs/workerid"), "");
    there_and_back(&tree, BUILDKIT, "");
    tree.set_up(BUILDKIT, "").unwrap();
    let mut expected = names(root, &["native", "overlayfs"]);
    expected.push(format!("{root}/containerd-overlayfs/metadata_v2.db"));
    assert_eq!(held(&tree, "buildkit"), expected);
}
