//! Makes and mounts layers.

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_testkit::manifest::{Manifest, ManifestOptions, diff};
use synconce_testkit::rig::{FsKind, Rig};
use synconce_tree::overlay::{self, DetachedMount, Features, XattrNamespace};

/// Runs a test's closure in a process and namespaces of its own.
pub fn isolated<T: Fn()>(test: T) {
    synconce_testkit::isolation::isolated(test, |_, test| test());
}

/// Runs `test` on a disk with each file system.
pub fn on_every_disk(test: impl Fn(FsKind, &Path)) {
    for fs in FsKind::ALL {
        let rig = Rig::builder().fs(fs).up().expect("a rig");
        test(fs, rig.path());
    }
}

/// Runs `test` on a disk with ext4.
pub fn on_a_disk(test: impl Fn(&Path)) {
    let rig = Rig::builder().up().expect("a rig");
    test(rig.path());
}

/// Runs a script in a directory, and asserts that it succeeds.
pub fn sh(directory: &Path, script: &str) {
    let status = Command::new("sh")
        .args(["-e", "-u", "-c", script])
        .current_dir(directory)
        .status()
        .expect("a shell");
    assert!(status.success(), "{script}: {status}");
}

pub fn directory(path: PathBuf) -> PathBuf {
    fs::create_dir(&path).expect("a new directory");
    path
}

/// Opens a directory as a layer is opened.
pub fn opened(path: &Path) -> OwnedFd {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()))
}

/// Opens layers, topmost first.
pub fn all_opened(paths: &[PathBuf]) -> Vec<OwnedFd> {
    paths.iter().map(|path| opened(path)).collect()
}

pub fn borrowed(descriptors: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    descriptors.iter().map(AsFd::as_fd).collect()
}

/// Returns a path below a mount that need not be attached.
pub fn path_of(mount: &DetachedMount) -> PathBuf {
    format!("/proc/self/fd/{}", mount.as_fd().as_raw_fd()).into()
}

pub fn manifest(path: &Path) -> Manifest {
    Manifest::with(path, &ManifestOptions::default().mtimes()).expect("a manifest")
}

pub fn assert_same(one: &Manifest, other: &Manifest, what: &str) {
    let differences = diff(one, other);
    assert!(differences.is_empty(), "{what}: {differences:#?}");
}

/// An attached writable overlay.
pub struct AttachedOverlay {
    pub upper: PathBuf,
    pub work: PathBuf,
    pub root: PathBuf,
    pub mount: DetachedMount,
}

impl AttachedOverlay {
    /// Begins a session over `layers`, topmost first, in directories of `place` whose names
    /// begin with `name`.
    pub fn begin(place: &Path, name: &str, layers: &[PathBuf], features: Features) -> Self {
        let [upper, work, root] =
            ["upper", "work", "root"].map(|kind| directory(place.join(format!("{name}-{kind}"))));
        let lowers = all_opened(layers);
        overlay::prepare_upper(opened(&upper).as_fd(), lowers[0].as_fd()).expect("an upper");
        let mount = overlay::writable(
            &borrowed(&lowers),
            opened(&upper).as_fd(),
            opened(&work).as_fd(),
            features,
        );
        let mount = mount.unwrap_or_else(|error| panic!("{error}"));
        mount.attach(opened(&root).as_fd()).expect("an attached mount");
        Self { upper, work, root, mount }
    }

    /// Freezes and unmounts the overlay, and removes its work directory. Returns the upper,
    /// which is then a layer.
    pub fn freeze(self) -> PathBuf {
        let frozen = overlay::freeze(
            self.mount.as_fd(),
            opened(&self.upper).as_fd(),
            opened(&self.work).as_fd(),
        );
        frozen.unwrap_or_else(|error| panic!("{error}"));
        self.end();
        fs::remove_dir_all(&self.work).expect("a work directory");
        self.upper
    }

    pub fn unmount(self) {
        self.end();
    }

    fn end(&self) {
        unmount(&self.root, UnmountFlags::DETACH).expect("an unmount");
    }
}

/// Makes a layer from what `script` does in a clone of `layers`, and asserts that the kernel
/// shows the same with that layer on top as in the clone. Returns the new stack.
pub fn frozen_is_the_same(
    place: &Path,
    name: &str,
    layers: &[PathBuf],
    script: &str,
) -> Vec<PathBuf> {
    frozen_after(place, name, layers, |root| sh(root, script))
}

pub fn frozen_after(
    place: &Path,
    name: &str,
    layers: &[PathBuf],
    write: impl FnOnce(&Path),
) -> Vec<PathBuf> {
    let session = AttachedOverlay::begin(place, name, layers, Features::PRIVILEGED);
    write(&session.root);
    let live = manifest(&session.root);
    let root = session.root.clone();
    let upper = session.freeze();
    let _ = fs::remove_dir(root);
    let stack = [&[upper][..], layers].concat();
    let lowers = all_opened(&stack);
    let mount = overlay::read_only(&borrowed(&lowers), XattrNamespace::Trusted).expect("a stack");
    assert_same(&live, &manifest(&path_of(&mount)), name);
    stack
}
