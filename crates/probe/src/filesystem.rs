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
    /// Everything else: memory, kernel interfaces, networks, FUSE. Their sync
    /// calls go to the kernel, because one `syncfs` is not known to equal them.
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
            _ => Self::Other,
        }
    }

    /// Whether sync calls on this kind are held: a commit can stand for them.
    pub fn is_held(self) -> bool {
        self != Self::Other
    }
}
