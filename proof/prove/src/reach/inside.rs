//! Disks that a run mounts or unmounts itself.

use super::fixture::ReachFixture;
use std::path::Path;

/// What becomes of a mount before the run ends. The run has made the mount, unless the variant says
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountEnd {
    Stays,
    Unmounted,
    /// Mounted before the run, which unmounts it.
    UnmountedFromBefore,
    /// Ends with its mount namespace.
    WithNamespace,
    /// Ends with its mount namespace, because the only process in the namespace is killed.
    WithKilledNamespace,
    UnmountedLazily,
    /// Unmounted by `MNT_EXPIRE`.
    Expired,
    /// Unmounted by `MNT_FORCE`.
    Forced,
    Covered,
    /// Only the mount is read-only. The file system is not, so the kernel writes nothing out.
    ReadOnly,
    /// The file system was frozen after the first held call, and thawed before the others.
    Thawed,
}

/// Defines `take_image`, which copies the disk after its mount has ended. A mount namespace ends a
/// moment after its last process. A disk that stays in use is copied after five seconds.
const TAKE_IMAGE: &str = r#"take_image() {
    perl -MFcntl -MTime::HiRes=sleep -e '
        for (1 .. 100) { exit if sysopen(my $disk, $ARGV[0], O_RDONLY | O_EXCL); sleep 0.05 }' "$disk"
    cp --sparse=always "$disk" "$image"
}
"#;

/// Unmounts by umount2(2) with `MNT_EXPIRE`, which is not in umount(8): the first call marks the
/// mount and fails, the second unmounts it. A path lookup of any process removes the mark.
const EXPIRE: &str = r#"perl -e '
    for (1 .. 100) { exit if syscall($ENV{umount2} + 0, $ENV{point}, 4) == 0 } exit 1'"#;

impl MountEnd {
    /// Returns the name of the row.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stays => "mounted inside",
            Self::Unmounted => "mounted inside, umount",
            Self::UnmountedFromBefore => "mounted before, umount",
            Self::WithNamespace => "mounted inside, namespace",
            Self::WithKilledNamespace => "mounted inside, killed",
            Self::UnmountedLazily => "mounted inside, lazy umount",
            Self::Expired => "mounted inside, expired",
            Self::Forced => "mounted inside, forced",
            Self::Covered => "mounted inside, covered",
            Self::ReadOnly => "mounted inside, read-only",
            Self::Thawed => "mounted inside, thawed",
        }
    }

    /// Whether the file system ends in the run. The run then takes an image of the disk, which must
    /// be whole.
    pub(super) fn is_over(self) -> bool {
        match self {
            Self::Stays | Self::Covered | Self::ReadOnly | Self::Thawed => false,
            Self::Unmounted
            | Self::UnmountedFromBefore
            | Self::WithNamespace
            | Self::WithKilledNamespace
            | Self::UnmountedLazily
            | Self::Expired
            | Self::Forced => true,
        }
    }

    /// Whether the disk is mounted when the run begins.
    pub(super) fn is_from_before(self) -> bool {
        self == Self::UnmountedFromBefore
    }

    /// Returns the command that mounts the disk, runs `work` and ends the mount.
    pub(super) fn words(
        self,
        fixture: &ReachFixture,
        image: &Path,
        work: Vec<String>,
    ) -> Vec<String> {
        let disk = fixture.rig().device().display();
        let point = fixture.rig().path().display();
        let mount = format!("mount -o {} {disk} {point}", fixture.mount_options());
        let worked = format!("{mount}; \"$@\"");
        // If an unmount fails, there is no image.
        let imaged = |end: &str| format!("{worked}; if {end}; then take_image; fi");
        let apart = |end| format!("unshare --mount sh -ec '{worked}{end}' sh \"$@\"");
        let script = match self {
            Self::Stays => worked,
            Self::Unmounted => imaged("umount $point"),
            Self::UnmountedFromBefore => "\"$@\"; if umount $point; then take_image; fi".to_owned(),
            Self::WithNamespace => format!("{}; take_image", apart("")),
            Self::WithKilledNamespace => {
                format!("{} || [ $? = 137 ]; take_image", apart("; kill -KILL $$"))
            }
            Self::UnmountedLazily => imaged("umount --lazy $point"),
            Self::Expired => imaged(EXPIRE),
            Self::Forced => imaged("umount --force $point"),
            Self::Covered => format!("{worked}; mount -t tmpfs over $point"),
            Self::ReadOnly => format!("{worked}; mount -o remount,bind,ro $point"),
            Self::Thawed => {
                format!("{mount}; sync $point; fsfreeze -f $point; fsfreeze -u $point; \"$@\"")
            }
        };
        let variables = format!(
            "disk={disk} point={point} image={} umount2={}; export point umount2",
            image.display(),
            libc::SYS_umount2
        );
        let script = format!("{TAKE_IMAGE}{variables}\n{script}");
        let shell = ["sh", "-ec", &script, "sh"].map(str::to_owned);
        shell.into_iter().chain(work).collect()
    }
}
