//! The configuration of a recorded run: file system, place of the marker, mode and scope.

use serde::Serialize;
use std::fmt;
use synconce_testkit::rig::{FsKind, Rig, RigBuilder};

/// A file system and how it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DiskKind {
    Ext4,
    /// ext4 with `data=writeback`: data may reach the disk after the journal that names it.
    Ext4Writeback,
    Xfs,
    Btrfs,
    /// The rig's control: the file system never flushes, so the promise cannot hold.
    Ext4NoBarrier,
}

/// Where the marker is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MarkerPlace {
    /// On the file system that the run writes.
    Same,
    /// On another disk, cut at the same instant.
    Other,
    /// In the target (`--root`). The machine's own marker is lost with the machine.
    Root,
    /// No marker: for trees, whose own record is durable.
    Nowhere,
}

/// How held calls are answered.
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
    /// The written disk (`--commit-only`).
    Only,
    /// Every mounted file system (`--commit-all`).
    All,
}

/// The configuration of one recorded run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RunConfig {
    pub disk: DiskKind,
    pub marker: MarkerPlace,
    pub mode: Mode,
    pub scope: Scope,
}

impl DiskKind {
    /// The file systems on which the promise holds.
    pub(crate) const SOUND: [Self; 4] = [Self::Ext4, Self::Ext4Writeback, Self::Xfs, Self::Btrfs];

    pub(crate) fn kind(self) -> FsKind {
        match self {
            Self::Ext4 | Self::Ext4Writeback | Self::Ext4NoBarrier => FsKind::Ext4,
            Self::Xfs => FsKind::Xfs,
            Self::Btrfs => FsKind::Btrfs,
        }
    }

    /// Returns a builder of a rig with this file system and `size` bytes.
    pub(crate) fn rig(self, size: u64) -> RigBuilder {
        let builder = Rig::builder().fs(self.kind()).size(size);
        match self.options() {
            Some(options) => builder.mount_options(options),
            None => builder,
        }
    }

    /// Returns the options for mount(8). A commit every second lets the kernel reorder more
    /// often.
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

impl RunConfig {
    /// Returns a supervised run that commits the file systems on which a call was held.
    pub(crate) const fn supervised(disk: DiskKind, marker: MarkerPlace) -> Self {
        Self { disk, marker, mode: Mode::Supervised, scope: Scope::Held }
    }

    /// Returns a sealed run. It commits one disk, because other rows mount and unmount disks
    /// beside it.
    pub(crate) const fn sealed(disk: DiskKind, marker: MarkerPlace) -> Self {
        Self { disk, marker, mode: Mode::Sealed, scope: Scope::Only }
    }

    /// Returns every combination for which the promise is made.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for disk in DiskKind::SOUND {
            for marker in [MarkerPlace::Same, MarkerPlace::Other, MarkerPlace::Root] {
                all.push(Self::supervised(disk, marker));
            }
            all.push(Self::sealed(disk, MarkerPlace::Same));
        }
        all
    }
}

impl fmt::Display for RunConfig {
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
