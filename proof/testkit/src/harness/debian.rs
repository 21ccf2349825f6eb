//! A Debian root, and commands in it.

use super::binary;
use crate::patiently;
use crate::process::{self, Finished};
use crate::rig::{FsKind, Rig};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Enters the root `$1` as on a machine of its own, and executes the other arguments.
///
/// It changes the root by pivot_root(2): in a chroot no user namespace can be created.
const ENTER: &str = r#"
cd "$1"
shift
mount --types proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount --types tmpfs run run
mkdir run/lock
mkdir -p .host
pivot_root . .host
umount --lazy /.host
cd /root
exec /usr/bin/env --ignore-environment HOME=/root TERM=dumb LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
"#;

/// The time that a download or an install may take.
const LIMIT: Duration = Duration::from_secs(240);

/// How long lists of packages are used.
const LISTS_AGE: Duration = Duration::from_secs(6 * 60 * 60);

/// Configuration of apt, as in many container images: no translated descriptions, which are 40%
/// of the lists; no recommended packages, so that no document needs one without saying so.
const SMALL: &str = "Acquire::Languages \"none\";\nAPT::Install-Recommends \"false\";\n";

/// A fresh Debian root, with synconce installed as the package does it. It is in memory, so that
/// the disk of the machine is not the limit.
pub struct Debian {
    /// The disk.
    pub rig: Rig,
}

impl Debian {
    /// Makes a root whose disk is mounted at the new directory `point`.
    pub fn new(point: &Path) -> Self {
        let base = base();
        fs::create_dir_all(point).unwrap();
        let rig = Rig::builder().fs(FsKind::Ext4).size(16 << 30).at(point).up().unwrap();
        unpack(&base, rig.path());
        let root = Self { rig };
        fs::copy(binary(), root.path("usr/bin/synconce")).unwrap();
        symlink("synconce", root.path("usr/bin/synconce-oci")).unwrap();
        fs::copy("/etc/resolv.conf", root.path("etc/resolv.conf")).unwrap();
        fs::write(root.path("etc/apt/apt.conf.d/small"), SMALL).unwrap();
        root.add_lists();
        root
    }

    /// Adds the lists of packages: on a machine its user has fetched them at some time. They are
    /// fetched once for a few hours, as those of a day before may name files that are gone.
    fn add_lists(&self) {
        let cache = cache();
        let _lock = lock(&cache);
        let tar = cache.join("lists.tar");
        let age = fs::metadata(&tar).ok().and_then(|tar| tar.modified().ok()?.elapsed().ok());
        if age.is_some_and(|age| age < LISTS_AGE) {
            return unpack(&tar, self.rig.path());
        }
        succeed(&mut self.command(&["apt-get", "update", "--quiet=2"]));
        let part = cache.join("lists.part");
        let mut pack = Command::new("tar");
        // apt compares times to the nanosecond.
        pack.args(["--create", "--format=posix", "--numeric-owner", "--file"]).arg(&part);
        pack.arg("--directory").arg(self.rig.path());
        succeed(pack.args(["--exclude=lists/lock", "var/lib/apt/lists"]));
        fs::rename(part, tar).unwrap();
    }

    /// Returns the path of `name`, which is relative, in the root.
    pub fn path(&self, name: &str) -> PathBuf {
        self.rig.path().join(name)
    }

    /// Returns the command `words` in the root, in namespaces of its own.
    pub fn command(&self, words: &[&str]) -> Command {
        enter(self.rig.path(), words)
    }

    /// Runs the command `words` in the root to its end.
    pub fn run(&self, words: &[&str]) -> Finished {
        process::run(&mut self.command(words), patiently(LIMIT)).unwrap()
    }

    /// Runs `script` in the root, which succeeds. Returns what it prints.
    pub fn sh(&self, script: &str) -> String {
        let finished = self.run(&["sh", "-ec", script]);
        assert!(finished.status.success(), "{script}: {finished:?}");
        finished.stdout
    }

    /// Takes the disk down, and removes the directory.
    pub fn down(self) {
        let point = self.path("");
        self.rig.down().unwrap();
        fs::remove_dir(point).unwrap();
    }
}

/// Returns the command `words` in the root at `root`, a mount point, in namespaces of its own.
/// All processes of the pid namespace end with the command.
fn enter(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    // Unmounts of the caller also reach the copies in the new namespace.
    command.args(["--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child"]);
    command.args(["sh", "-ec", ENTER, "enter"]).arg(root).args(words);
    command
}

/// Returns the tar of a minimal Debian, which is made once for a build directory. Its apt has
/// downloaded `manpages-dev` and what that needs.
///
/// # Panics
/// The tar cannot be made.
#[must_use]
pub fn base() -> PathBuf {
    let cache = cache();
    let _lock = lock(&cache);
    let tar = cache.join("debian.tar");
    if !tar.exists() {
        let part = cache.join("part.tar");
        // It ends with the caller, also by Ctrl-C.
        let mut bootstrap = Command::new("setpriv");
        bootstrap.args(["--pdeathsig", "TERM", "mmdebstrap"]);
        bootstrap.args(["--quiet", "--mode=root", "--variant=minbase"]);
        // With `usrmerge` in its place come perl and its modules: a third of the files.
        bootstrap.args([MERGED, "--include=usr-is-merged"]);
        // More than half of the files: what Debian's slim images leave out, time zones, and
        // character sets. They only cost time here.
        bootstrap.args(LEFT_OUT.map(|path| format!("--dpkgopt=path-exclude={path}")));
        bootstrap.args(["--skip=cleanup/apt/cache", "--customize-hook", LATER, "bookworm"]);
        // Without the sources of other vendors, which the machine may have beside Debian's.
        let sources = Path::new("/etc/apt/sources.list.d/debian.sources");
        bootstrap.arg(&part).args(sources.exists().then_some(sources)).env("TMPDIR", &cache);
        succeed(&mut bootstrap);
        fs::rename(part, &tar).unwrap();
    }
    tar
}

/// Returns the directory of what is made once for a build directory.
fn cache() -> PathBuf {
    let cache = Path::new(binary()).with_file_name("debian-base");
    fs::create_dir_all(&cache).unwrap();
    cache
}

/// Locks `cache` until the value is dropped: each test is a process of its own.
fn lock(cache: &Path) -> File {
    let lock = File::open(cache).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    lock
}

/// Unpacks `tar` into the directory `to`.
fn unpack(tar: &Path, to: &Path) {
    let mut command = Command::new("tar");
    command.args(["--extract", "--numeric-owner", "--same-permissions", "--file"]).arg(tar);
    succeed(command.arg("--directory").arg(to));
}

/// Files of packages that the minimal Debian does not have.
const LEFT_OUT: [&str; 6] = [
    "/usr/share/doc/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/man/*",
    "/usr/share/zoneinfo/*",
    "/usr/lib/*/gconv/*",
];

/// Option of mmdebstrap: `/bin` and others are links into `/usr` from the start.
const MERGED: &str = "--hook-directory=/usr/share/mmdebstrap/hooks/merged-usr";

/// Hook of mmdebstrap at the end, with the root as `$1`: downloads packages, and lets what is
/// installed later have its manual pages.
const LATER: &str = r#"
chroot "$1" apt-get clean
chroot "$1" apt-get --yes --quiet=2 -o APT::Keep-Downloaded-Packages=true \
    install --no-install-recommends --download-only manpages-dev
rm -f "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap
"#;

fn succeed(command: &mut Command) {
    let finished = process::run(command, patiently(LIMIT)).unwrap();
    assert!(finished.status.success(), "{command:?}: {finished:?}");
}
