//! Rivals: other tools that drop syncs, each used as its manual describes.

use super::Paths;
use crate::Result;
use crate::work::is_installed;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns why a rival cannot run here.
pub(super) fn missing(program: &str) -> Option<String> {
    (!is_installed(program)).then(|| format!("{program} is not installed"))
}

/// Paths inside a container, where the directories are mounted.
pub(super) mod inside {
    pub(in crate::tool) const TREE: &str = "/srv/tree";
    pub(in crate::tool) const CONTROL: &str = "/srv/control";
    pub(in crate::tool) const DAEMON: &str = "/srv/daemon";
}

/// Returns the command that runs `words` in a container whose syncs are suppressed. The
/// container's root is almost empty, with /usr of this machine; the tree is on the disk under
/// test.
pub(super) fn nspawn(paths: &Paths, words: &[String]) -> Result<Command> {
    let root = paths.control.join("root");
    for directory in ["usr", "etc", "proc", "dev", "sys", "run", "tmp"] {
        fs::create_dir_all(root.join(directory))?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name))?;
    }
    // systemd-nspawn refuses a second machine of the same name.
    let name = paths.control.file_name().and_then(OsStr::to_str).unwrap_or("prove");
    let mut command = Command::new("systemd-nspawn");
    command.args(["--quiet", "--suppress-sync=yes", "--register=no", "--keep-unit", "--as-pid2"]);
    command.arg(format!("--machine={}", name.replace('.', "")));
    // With --suppress-sync every open(2) with O_SYNC fails with EINVAL (systemd 252).
    command.arg("--setenv=PROVE_NO_O_SYNC=1");
    command.arg("--directory").arg(root).arg("--bind-ro=/usr");
    let pairs = [
        (paths.tree(), inside::TREE),
        (paths.control.clone(), inside::CONTROL),
        (paths.daemon(), inside::DAEMON),
    ];
    for (path, there) in pairs {
        command.arg(format!("--bind={}:{there}", path.display()));
    }
    command.arg("--").args(words);
    Ok(command)
}

/// Returns where the overlay is mounted, in a mount namespace of the command.
pub(super) fn merged(paths: &Paths) -> PathBuf {
    paths.control.join("merged")
}

/// Returns the overlay's upper directory. The upper is compared, because a volatile overlay
/// cannot be mounted again (Documentation/filesystems/overlayfs.rst).
pub(super) fn upper(disk: &Path) -> PathBuf {
    disk.join("upper")
}

const OVERLAY: &str = "mount -t overlay -o volatile,lowerdir=\"$1\",upperdir=\"$2\",workdir=\"$3\" \
    overlay \"$4\" || exit; merged=$4; shift 4; \"$@\"; status=$?; umount \"$merged\" || exit; exit $status";

/// Returns the command that runs `words` on a volatile overlay; the lower is the tree and the
/// upper is on the same disk.
pub(super) fn volatile(paths: &Paths, words: &[String]) -> Result<Command> {
    let paths = [paths.tree(), upper(&paths.disk), paths.disk.join("upper-work"), merged(paths)];
    for path in &paths {
        fs::create_dir_all(path)?;
    }
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "slave", "sh", "-c", OVERLAY, "overlay"])
        .args(paths)
        .args(words);
    Ok(command)
}
