//! The variants as data: a snapshotter, containerd's own options, and a hold or none.

use crate::command::words;
use crate::scenario::{Need, Promise, Variant};

/// The name of the way without any option, with which all others are compared.
pub(super) const PLAIN: &str = "plain";
/// The name of the way with containerd's own option to leave out syncs.
pub(super) const NO_SYNC: &str = "no-sync";

/// The name of the way with all options of containerd that leave out syncs.
pub(super) const ALL_OPTIONS: &str = "all-options";

/// One variant: what differs from the others.
#[derive(Clone, Copy)]
pub(super) struct ImportVariant {
    pub(super) snapshotter: &'static str,
    name: &'static str,
    about: &'static str,
    /// Whether containerd syncs the file system after it has unpacked a layer.
    pub(super) sync_fs: bool,
    /// Whether containerd leaves out the syncs of its metadata.
    pub(super) no_sync: bool,
    /// Options with which the snapshotter's overlays are mounted.
    pub(super) mount_options: &'static [&'static str],
    /// Whether containerd's databases are held.
    pub(super) held: bool,
}

const BARE: ImportVariant = ImportVariant {
    snapshotter: "overlayfs",
    name: PLAIN,
    about: "containerd's defaults",
    sync_fs: false,
    no_sync: false,
    mount_options: &[],
    held: false,
};

const WAYS: [ImportVariant; 6] = [
    BARE,
    ImportVariant {
        name: "sync-fs",
        about: "a sync of the disk after each layer",
        sync_fs: true,
        ..BARE
    },
    ImportVariant {
        name: NO_SYNC,
        about: "no_sync for the metadata database",
        no_sync: true,
        ..BARE
    },
    ImportVariant {
        name: ALL_OPTIONS,
        about: "no_sync for the metadata database, and volatile overlays",
        no_sync: true,
        mount_options: &["volatile"],
        ..BARE
    },
    ImportVariant { name: "hold", about: "its databases are held", held: true, ..BARE },
    ImportVariant {
        name: "hold-sync-fs",
        about: "its databases are held, and a sync of the disk after each layer",
        held: true,
        sync_fs: true,
        ..BARE
    },
];

/// Returns the ways of both snapshotters. The differ of erofs never syncs the file system and
/// mounts no overlay, so the options of these two change nothing there.
pub(super) fn ways() -> impl Iterator<Item = ImportVariant> {
    let of = |snapshotter| WAYS.iter().map(move |way| ImportVariant { snapshotter, ..*way });
    of("overlayfs").chain(of("erofs").filter(|way| !way.sync_fs && way.mount_options.is_empty()))
}

/// Returns the variants of all ways, the baseline of each snapshotter first.
pub(super) fn all() -> Vec<Variant> {
    ways().map(|way| way.variant()).collect()
}

impl ImportVariant {
    /// Returns the name of the variant.
    pub(super) fn variant_name(&self) -> String {
        format!("{}/{}", self.snapshotter, self.name)
    }

    fn variant(&self) -> Variant {
        let command = ["{ctr}", "--address", "{socket}", "images", "import", "--local"];
        let command = [&command[..], &["--snapshotter", self.snapshotter, "{image}"]].concat();
        let mut variant = Variant {
            about: format!("{}, {}", self.snapshotter, self.about),
            // Even with all its syncs, containerd unpacks layers without one.
            promise: Promise::Nothing,
            against: format!("{}/{PLAIN}", self.snapshotter),
            ..Variant::new(&self.variant_name(), words(&command))
        };
        if self.snapshotter == "erofs" {
            variant.needs.push(Need::new("mkfs.erofs", "erofs-utils"));
            // containerd pipes each layer into `mkfs.erofs --tar`, an option since 1.7.
            let line = "grep -qw erofs /proc/filesystems || modprobe erofs || \
                { echo 'error: the kernel has no erofs'; exit 1; }; \
                mkfs.erofs --help | grep -q -e --tar || \
                { echo 'error: mkfs.erofs has no --tar, which came with 1.7'; exit 1; }";
            variant.trial = Some(crate::command::shell(line));
        }
        variant
    }
}
