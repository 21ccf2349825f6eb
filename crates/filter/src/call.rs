//! The system calls that a hold must see.

/// A system call that a filter program may stop.
///
/// Two calls are absent because they cannot turn syncing on: creat(2) takes no flags, and fcntl(2)
/// ignores `O_SYNC` and `O_DSYNC` in `F_SETFL` (`SETFL_MASK` in fs/fcntl.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// fsync(2)
    Fsync,
    /// fdatasync(2)
    Fdatasync,
    /// sync(2)
    Sync,
    /// syncfs(2)
    Syncfs,
    /// msync(2)
    Msync,
    /// sync_file_range(2); arm_sync_file_range(2) on arm
    SyncFileRange,
    /// open(2); absent on aarch64
    Open,
    /// openat(2)
    Openat,
    /// openat2(2)
    Openat2,
    /// open_by_handle_at(2)
    OpenByHandleAt,
    /// preadv2(2)
    Preadv2,
    /// pwritev2(2)
    Pwritev2,
    /// io_submit(2)
    IoSubmit,
    /// io_uring_setup(2)
    IoUringSetup,
    /// ioctl(2)
    Ioctl,
    /// quotactl(2)
    Quotactl,
    /// quotactl_fd(2)
    QuotactlFd,
    /// umount2(2) and, on i386, the older umount(2) as well
    Umount,
    /// seccomp(2)
    Seccomp,
    /// prctl(2)
    Prctl,
    /// reboot(2)
    Reboot,
}

impl Call {
    /// Every call.
    pub const ALL: &'static [Self] = &[
        Self::Fsync,
        Self::Fdatasync,
        Self::Sync,
        Self::Syncfs,
        Self::Msync,
        Self::SyncFileRange,
        Self::Open,
        Self::Openat,
        Self::Openat2,
        Self::OpenByHandleAt,
        Self::Preadv2,
        Self::Pwritev2,
        Self::IoSubmit,
        Self::IoUringSetup,
        Self::Ioctl,
        Self::Quotactl,
        Self::QuotactlFd,
        Self::Umount,
        Self::Seccomp,
        Self::Prctl,
        Self::Reboot,
    ];

    /// Returns the call's name in the kernel headers (`__NR_*`). [`Call::Umount`] is `umount2`,
    /// which every ABI has. [`Call::SyncFileRange`] is `sync_file_range`, also on arm.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.description().0
    }

    /// Whether the call has `property`.
    #[must_use]
    pub fn is(self, property: CallProperty) -> bool {
        self.description().1.contains(&property)
    }

    const fn description(self) -> (&'static str, &'static [CallProperty]) {
        use CallProperty::{AtOnce, ByDescriptor, OneFile, OnlySyncs, Waits};
        match self {
            Self::Fsync => ("fsync", &[AtOnce, OnlySyncs, ByDescriptor, OneFile, Waits]),
            Self::Fdatasync => ("fdatasync", &[AtOnce, OnlySyncs, ByDescriptor, OneFile, Waits]),
            Self::Sync => ("sync", &[AtOnce, OnlySyncs, Waits]),
            Self::Syncfs => ("syncfs", &[AtOnce, OnlySyncs, ByDescriptor, Waits]),
            Self::Msync => ("msync", &[OnlySyncs, Waits]),
            Self::SyncFileRange => ("sync_file_range", &[AtOnce, ByDescriptor, OneFile]),
            Self::Open => ("open", &[]),
            Self::Openat => ("openat", &[]),
            Self::Openat2 => ("openat2", &[]),
            Self::OpenByHandleAt => ("open_by_handle_at", &[]),
            Self::Preadv2 => ("preadv2", &[OneFile]),
            Self::Pwritev2 => ("pwritev2", &[OneFile, Waits]),
            Self::IoSubmit => ("io_submit", &[Waits]),
            Self::IoUringSetup => ("io_uring_setup", &[AtOnce]),
            Self::Ioctl => ("ioctl", &[AtOnce]),
            Self::Quotactl => ("quotactl", &[AtOnce]),
            Self::QuotactlFd => ("quotactl_fd", &[AtOnce]),
            Self::Umount => ("umount2", &[]),
            Self::Seccomp => ("seccomp", &[]),
            Self::Prctl => ("prctl", &[]),
            Self::Reboot => ("reboot", &[]),
        }
    }
}

/// A property of a call that a supervised hold stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallProperty {
    /// A supervisor needs no memory, path or tracer of the caller for it, which may block, and
    /// commits nothing.
    AtOnce,
    /// Does nothing but sync, and waits for the disk.
    OnlySyncs,
    /// Syncs what its first argument, a descriptor, leads to.
    ByDescriptor,
    /// Returns the write-back errors of one file, to which its first argument leads.
    OneFile,
    /// Waits until the disk has flushed its cache, or submits work that does.
    Waits,
}
