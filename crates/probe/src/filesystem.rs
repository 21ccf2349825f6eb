//! What a sync means on each kind of file system.

/// What one `syncfs` does for a kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On a disk: `syncfs` writes everything back. When `flushes` is false it
    /// does not empty the drive's cache, and an `fsync` must follow.
    Disk {
        /// Whether `syncfs` ends with a cache flush or a journal commit.
        flushes: bool,
    },
    /// Stacked on others (overlay): `syncfs` reaches the upper file system, but
    /// does not report what it lost; the upper must be synced by itself.
    Stacked,
    /// On another machine, or the host of this one: `syncfs` sends everything to the
    /// server and reports what was lost.
    Network,
    /// Served by a process (`fuse(4)`), which `syncfs` and `sync(2)` do not ask to
    /// write anything (Linux 6.18, `fuse_sync_fs` in fs/fuse/inode.c).
    Fuse {
        /// Whether the server keeps its data on the block device that is the mount's
        /// source (`fuseblk`).
        on_device: bool,
    },
    /// Everything else: memory, kernel interfaces, and types that are not listed.
    Other,
}

impl Kind {
    /// The kind of the file system type `name`, as mountinfo gives it.
    ///
    /// Only types are listed whose `syncfs` writes back every file (Linux 6.18,
    /// `fs/*/super.c`). FAT, ext2 and the others without a flush of their own in
    /// `sync_fs` leave the data in the drive's cache.
    pub fn of(name: &str) -> Self {
        match name {
            "ext3" | "ext4" | "xfs" | "btrfs" | "f2fs" | "bcachefs" | "zfs" => {
                Self::Disk { flushes: true }
            }
            "ext2" | "vfat" | "msdos" | "exfat" | "ntfs3" | "jfs" | "nilfs2" | "reiserfs"
            | "udf" | "ubifs" | "hfs" | "hfsplus" => Self::Disk { flushes: false },
            "overlay" => Self::Stacked,
            "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" | "ceph" | "afs" | "coda"
            | "orangefs" | "lustre" | "vboxsf" => Self::Network,
            // What containers see of /proc; it stores nothing.
            "fuse.lxcfs" => Self::Other,
            // A subtype follows a dot: "fuse.sshfs", "fuseblk.ntfs".
            _ => match name.split('.').next() {
                Some("fuse") => Self::Fuse { on_device: false },
                Some("fuseblk") => Self::Fuse { on_device: true },
                _ => Self::Other,
            },
        }
    }

    /// Whether a supervisor holds sync calls on this kind: one `syncfs` does the
    /// work of all of them.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Disk { .. } | Self::Stacked)
    }
}

/// Whether the file system type `name` keeps everything in memory.
pub fn is_memory(name: &str) -> bool {
    matches!(name, "tmpfs" | "ramfs" | "rootfs" | "devtmpfs")
}

/// Whether a file system keeps everything in memory, by its magic number:
/// `TMPFS_MAGIC` or `RAMFS_MAGIC` (`linux/magic.h`).
pub fn is_memory_magic(magic: u64) -> bool {
    matches!(magic, 0x0102_1994 | 0x8584_58F6)
}

/// The type of a file system by the magic number that `statfs(2)` gives
/// (`linux/magic.h` and the file systems' own headers); `None` for those that
/// are not held. ext2 and ext3 share ext4's number and are taken for it.
pub fn name_of_magic(magic: u64) -> Option<&'static str> {
    Some(match magic {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0xF2F5_2010 => "f2fs",
        0xCA45_1A4E => "bcachefs",
        0x2FC1_2FC1 => "zfs",
        0x4D44 => "vfat",
        0x2011_BAB0 => "exfat",
        0x7366_746E => "ntfs3",
        0x3153_464A => "jfs",
        0x3434 => "nilfs2",
        0x5265_4973 => "reiserfs",
        0x1501_3346 => "udf",
        0x2405_1905 => "ubifs",
        0x4244 => "hfs",
        0x482B => "hfsplus",
        0x794C_7630 => "overlay",
        _ => return None,
    })
}
