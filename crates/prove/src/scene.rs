//! Where a run takes place.

use serde::Serialize;
use std::fmt;
use synconce_testkit::rig::{Builder, FsKind, Rig};

/// A file system as it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Disk {
    Ext4,
    /// Data may reach the disk after the journal that names it.
    Ext4Writeback,
    Xfs,
    Btrfs,
    /// The control of the rig: no flush is ever asked for, so the promise cannot hold.
    Ext4NoBarrier,
}

/// Where the marker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MarkerPlace {
    /// On the file system that is written.
    Same,
    /// On another disk, cut at the same instant.
    Other,
    /// In the target (`--root`); the machine's own marker is gone with the machine.
    Root,
    /// There is none: what lasts is a tree's record.
    Nowhere,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    Supervised,
    Sealed,
}

/// What the commit of a run covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scope {
    /// The file systems on which a call was held.
    Held,
    /// The disk that is written (`--commit-only`).
    Only,
    /// All that is mounted (`--commit-all`).
    All,
}

/// A scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Scene {
    pub disk: Disk,
    pub marker: MarkerPlace,
    pub mode: Mode,
    pub scope: Scope,
}

impl Disk {
    /// Those on which the promise holds.
    pub(crate) const SOUND: [Self; 4] = [Self::Ext4, Self::Ext4Writeback, Self::Xfs, Self::Btrfs];

    pub(crate) fn kind(self) -> FsKind {
        match self {
            Self::Ext4 | Self::Ext4Writeback | Self::Ext4NoBarrier => FsKind::Ext4,
            Self::Xfs => FsKind::Xfs,
            Self::Btrfs => FsKind::Btrfs,
        }
    }

    /// A rig with this file system, of `size` bytes.
    pub(crate) fn rig(self, size: u64) -> Builder {
        let builder = Rig::builder().fs(self.kind()).size(size);
        match self.options() {
            Some(options) => builder.mount_options(options),
            None => builder,
        }
    }

    /// Options for mount(8). A commit every second gives the kernel chances to reorder.
    pub(crate) fn options(self) -> Option<&'static str> {
        match self {
            Self::Ext4 => Some("commit=1"),
            Self::Ext4Writeback => Some("commit=1,data=writeback"),
            Self::Ext4NoBarrier => Some("commit=1,nobarrier"),
            Self::Btrfs => Some("commit=1"),
            Self::Xfs => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Ext4Writeback => "ext4 data=writeback",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Ext4NoBarrier => "ext4 nobarrier",
        }
    }
}

impl Scene {
    /// A supervised run that commits what it held.
    pub(crate) const fn supervised(disk: Disk, marker: MarkerPlace) -> Self {
        Self { disk, marker, mode: Mode::Supervised, scope: Scope::Held }
    }

    /// A sealed run. It commits one disk, because others are mounted and unmounted beside it.
    pub(crate) const fn sealed(disk: Disk, marker: MarkerPlace) -> Self {
        Self { disk, marker, mode: Mode::Sealed, scope: Scope::Only }
    }

    /// Every combination that the promise is made for.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for disk in Disk::SOUND {
            for marker in [MarkerPlace::Same, MarkerPlace::Other, MarkerPlace::Root] {
                all.push(Self::supervised(disk, marker));
            }
            all.push(Self::sealed(disk, MarkerPlace::Same));
        }
        all
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marker = match self.marker {
            MarkerPlace::Same => ", marker beside",
            MarkerPlace::Other => ", marker elsewhere",
            MarkerPlace::Root => ", marker in the root",
            MarkerPlace::Nowhere => "",
        };
        let sealed = if self.mode == Mode::Sealed { ", sealed" } else { "" };
        let all = if self.scope == Scope::All { ", --commit-all" } else { "" };
        write!(f, "{}{marker}{sealed}{all}", self.disk.name())
    }
}
