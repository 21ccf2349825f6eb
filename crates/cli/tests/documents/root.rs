//! A fresh Debian root on a disk of its own, with synconce installed as the package does it.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_testkit::patiently;
use synconce_testkit::process;
use synconce_testkit::rig::{FsKind, Rig};

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
mkdir -p .host
pivot_root . .host
umount --lazy /.host
cd /root
exec /usr/bin/env --ignore-environment HOME=/root TERM=dumb LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
"#;

/// A Debian root. It is in memory, so that the disk of the machine is not the limit.
pub struct Root {
    rig: Rig,
}

impl Root {
    /// Makes a root whose disk is mounted at the new directory `point`.
    pub fn new(point: &Path) -> Self {
        let base = base();
        fs::create_dir_all(point).unwrap();
        let rig = Rig::builder().fs(FsKind::Ext4).size(16 << 30).at(point).up().unwrap();
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--numeric-owner", "--same-permissions", "--file"]).arg(base);
        succeed(tar.arg("--directory").arg(rig.path()));
        let root = Self { rig };
        fs::copy(env!("CARGO_BIN_EXE_synconce"), root.path("usr/bin/synconce")).unwrap();
        symlink("synconce", root.path("usr/bin/synconce-oci")).unwrap();
        fs::copy("/etc/resolv.conf", root.path("etc/resolv.conf")).unwrap();
        // As on a machine: its user has fetched the lists of packages at some time.
        succeed(&mut root.command(&["apt-get", "update", "--quiet=2"]));
        root
    }

    /// Returns the path of `name`, which is relative, in the root.
    pub fn path(&self, name: &str) -> PathBuf {
        self.rig.path().join(name)
    }

    /// Returns the command `words` in the root, in namespaces of its own.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-ec", ENTER, "enter"]).arg(self.rig.path()).args(words);
        command
    }

    pub fn down(self) {
        let point = self.path("");
        self.rig.down().unwrap();
        fs::remove_dir(point).unwrap();
    }
}

/// Returns the tar of a minimal Debian, which is made once.
fn base() -> PathBuf {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("documents-base");
    fs::create_dir_all(&cache).unwrap();
    // Each test is a process of its own, so a lock is taken.
    let lock = File::open(&cache).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let tar = cache.join("debian.tar");
    if !tar.exists() {
        let part = cache.join("part.tar");
        let mut bootstrap = Command::new("mmdebstrap");
        bootstrap.args(["--quiet", "--mode=root", "--variant=minbase", "bookworm"]).arg(&part);
        // Without the sources of other vendors, which the machine may have beside Debian's.
        let sources = Path::new("/etc/apt/sources.list.d/debian.sources");
        bootstrap.args(sources.exists().then_some(sources)).env("TMPDIR", &cache);
        succeed(&mut bootstrap);
        fs::rename(part, &tar).unwrap();
    }
    tar
}

fn succeed(command: &mut Command) {
    let finished = process::run(command, patiently(Duration::from_secs(240))).unwrap();
    assert!(finished.status.success(), "{command:?}: {finished:?}");
}
