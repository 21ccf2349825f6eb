//! Commits and checks of snapshots: btrfs says what a look at every entry says.

use crate::support::{isolated, sh};
use fastrand::Rng;
use rustix::fs::{Mode, OFlags, open};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use synconce_fs::{Fingerprint, compare_fingerprints, threads};
use synconce_sys::btrfs;
use synconce_testkit::rig::{FsKind, Rig};
use synconce_tree::record::TreeName;
use synconce_tree::{Alteration, Compare, Error, ImportReport, Store, Strategy, Verified};

const SEED: u64 = 0xb_7f5;
const ROUNDS: usize = 24;

/// The ways to change a file `$a`, a file `$b` or their directory, as shell scripts.
const CHANGES: [&str; 25] = [
    "echo more >>$a",
    "head -c 300000 /dev/urandom >>$a",
    "printf x | dd of=$a conv=notrunc status=none",
    ": >$a",
    "truncate -s 12345 $a",
    "printf y | dd of=nocow bs=1 seek=5000 conv=notrunc status=none",
    "xfs_io -c 'mmap -rw 0 8192' -c 'mwrite 4096 9' big",
    "xfs_io -c 'mmap -rw 0 8192' -c 'mwrite 4096 9' nocow",
    "cp -p $a kept; printf z | dd of=$a conv=notrunc status=none; touch -r kept $a; rm kept",
    "cp -p --reflink=always big shared",
    "xfs_io -c 'reflink big 0 65536 4096' big",
    "fallocate --punch-hole --offset 8192 --length 4096 big",
    "chmod $(stat -c 7%a $a | tail -c 4 | tr 0246 1357) $a",
    "chown 12:34 $a",
    "touch -d 2001-02-03 $a",
    "setfattr -n user.some -v $b $a",
    "setfattr -x user.first f0",
    "ln $a linked",
    "mv $a $b",
    "mv $a directory/moved",
    "rm $a",
    "mkdir made",
    "rm -r directory",
    "mknod null c 1 3",
    "ln -s nowhere dangling",
];

/// Content without whiteouts.
struct Plain;

impl ImportReport for Plain {
    fn has_whiteouts(&self) -> bool {
        false
    }
}

/// A store with the tree `base`, a snapshot, on a btrfs.
pub struct Site {
    pub rig: Rig,
    pub store: Store,
}

pub fn name(of: &str) -> TreeName {
    of.parse().expect("a good name")
}

/// Opens for reading, because the ioctls do not accept `O_PATH`.
pub fn readable(path: &Path) -> OwnedFd {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("opened")
}

fn fill(directory: BorrowedFd<'_>) -> Result<Plain, Error> {
    let path = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let script = "for i in 0 1 2 3 4 5 6 7; do echo $i >f$i; done
        mkdir directory; echo in >directory/in; ln f1 hard; setfattr -n user.first -v 1 f0
        head -c 200000 /dev/urandom >big
        touch nocow; chattr +C nocow; head -c 200000 /dev/urandom >>nocow";
    sh(&path.expect("a path"), script);
    Ok(Plain)
}

impl Site {
    pub fn new() -> Self {
        let rig = Rig::builder().fs(FsKind::Btrfs).size(2 << 30).up().expect("a rig");
        let place = rig.path().join("store");
        fs::create_dir(&place).unwrap();
        let store = synconce_tree::init(&place).expect("a store");
        let wanted = Some(Strategy::Snapshot);
        synconce_tree::import(&store, &name("base"), wanted, &(), fill).expect("imported");
        Self { rig, store }
    }

    /// Commits a clone of `base`, in which `work` was done, as the tree `new`. Returns its layer.
    pub fn commit<T>(&self, new: &str, work: impl FnOnce(&Path) -> T) -> (PathBuf, T) {
        let open = synconce_tree::open_anonymous(&self.store, &name("base"), None);
        let (session, base) = open.expect("a session");
        let session = session.prepare(&()).expect("a snapshot");
        let sessions = fs::read_dir(self.store.path().join("sessions")).unwrap();
        let copy = sessions.map(|one| one.unwrap().path().join("tree")).next().expect("a session");
        let done = work(&copy);
        let frozen = session.freeze(&()).expect("frozen");
        let record = frozen.commit_as(&name(new), Some(base), None, &()).expect("committed");
        (self.store.path().join("layers").join(&record.layers[0].id).join("tree"), done)
    }

    fn verify(&self, tree: &str) -> Verified<'_> {
        synconce_tree::verify(&self.store, &name(tree), Compare::Attributes, &()).expect("verified")
    }

    /// Returns how the layer of `tree` differs from its fingerprint.
    pub fn alteration(&self, tree: &str) -> Option<Alteration> {
        self.verify(tree).altered.first()?.alteration.clone()
    }

    pub fn is_altered(&self, tree: &str) -> bool {
        self.alteration(tree).is_some()
    }
}

/// Whether the fingerprint of `layer` is the one that btrfs takes.
pub fn is_of_snapshot(layer: &Path) -> bool {
    let text = fs::read_to_string(layer.with_file_name("fingerprint.json")).expect("a fingerprint");
    assert_ne!(text.contains("last_change"), text.contains("directories"), "{text}");
    text.contains("last_change")
}

/// Looks at every entry.
fn walked(layer: &Path) -> Fingerprint {
    synconce_fs::fingerprint(readable(layer).as_fd(), threads(), &()).expect("a fingerprint")
}

/// Makes `layer` writable while `change` is done.
fn altered_by(layer: &Path, change: impl FnOnce()) {
    let content = readable(layer);
    btrfs::make_writable(content.as_fd()).expect("writable");
    change();
    btrfs::make_read_only(content.as_fd()).expect("read-only");
}

fn script(change: &str, (a, b): (usize, usize)) -> String {
    format!("a=f{a}; b=f{b}; {change}")
}

#[test]
fn each_change_of_a_committed_snapshot_is_found() {
    isolated(|| {
        let site = Site::new();
        for (number, change) in CHANGES.iter().enumerate() {
            let tree = format!("t{number}");
            let (layer, ()) = site.commit(&tree, |copy| sh(copy, "echo x >>f7; echo y >new"));
            assert!(is_of_snapshot(&layer), "{change}");
            let before = walked(&layer);
            altered_by(&layer, || sh(&layer, &script(change, (2, 3))));
            let differs = compare_fingerprints(&before, &walked(&layer));
            assert!(!differs.is_empty(), "a look at every entry does not find: {change}");
            assert!(site.is_altered(&tree), "{change}");
            assert!(is_of_snapshot(&layer), "no fingerprint of altered entries is kept: {change}");
        }
    });
}

#[test]
fn random_changes_of_committed_snapshots_are_found_and_no_others() {
    isolated(|| {
        let (site, mut random) = (Site::new(), Rng::with_seed(SEED));
        let some = |random: &mut Rng| {
            let files = (random.usize(..8), random.usize(..8));
            script(random.choice(CHANGES).expect("one"), files)
        };
        // Many scripts fail: their file is gone.
        let attempt = |place: &Path, script: &str| {
            let mut shell = Command::new("sh");
            let shell = shell.args(["-c", script]).current_dir(place).stderr(Stdio::null());
            shell.status().expect("a shell");
        };
        let mut found = 0;
        for round in 0..ROUNDS {
            let tree = format!("t{round}");
            let (layer, ()) = site.commit(&tree, |copy| {
                for _ in 0..random.usize(..6) {
                    attempt(copy, &some(&mut random));
                }
            });
            assert!(is_of_snapshot(&layer));
            let (before, changes) = (walked(&layer), random.usize(..3));
            let all: Vec<_> = (0..changes).map(|_| some(&mut random)).collect();
            if changes > 0 {
                altered_by(&layer, || all.iter().for_each(|script| attempt(&layer, script)));
            }
            let differs = !compare_fingerprints(&before, &walked(&layer)).is_empty();
            assert_eq!(site.is_altered(&tree), differs, "round {round}: {all:?}");
            found += usize::from(differs);
        }
        assert!((ROUNDS / 3..ROUNDS).contains(&found), "{found} of {ROUNDS}");
    });
}

#[test]
fn a_snapshot_that_was_verified_once_has_the_fingerprint_of_its_entries() {
    isolated(|| {
        let site = Site::new();
        let (layer, ()) = site.commit("new", |copy| sh(copy, "echo x >directory/in"));
        let size = || {
            let (listed, _) = synconce_tree::list(&site.store).expect("listed");
            listed.into_iter().find(|one| one.record.name == name("new")).unwrap().own
        };
        assert!(is_of_snapshot(&layer));
        assert_eq!(size(), None);
        assert!(!site.is_altered("new"));
        assert!(!is_of_snapshot(&layer));
        assert!(size() > Some(400_000), "{:?}", size());
        altered_by(&layer, || sh(&layer, "echo z >directory/in"));
        assert_eq!(site.alteration("new"), Some(Alteration::Entries(vec!["directory".into()])));
    });
}

#[test]
fn what_writes_to_a_snapshot_past_its_being_read_only_is_found() {
    isolated(|| {
        let site = Site::new();
        // A descriptor from before the freeze still writes.
        let open = |copy: &Path| File::options().write(true).open(copy.join("big")).unwrap();
        let (layer, file) = site.commit("descriptor", open);
        file.write_all_at(b"stray", 4096).expect("written");
        assert_eq!(site.alteration("descriptor"), Some(Alteration::Counted));
        drop(file);
        // The replay of a log after a crash changes files without a number.
        let (writable, ()) = site.commit("writable", |_| ());
        btrfs::make_writable(readable(&writable).as_fd()).unwrap();
        assert_eq!(site.alteration("writable"), Some(Alteration::Writable));
        // Another snapshot of the same content in its place.
        let (other, ()) = site.commit("replaced", |_| ());
        let above = readable(other.parent().unwrap());
        btrfs::delete_subvolume(above.as_fd(), "tree".as_ref()).unwrap();
        btrfs::snapshot(readable(&layer).as_fd(), above.as_fd(), "tree".as_ref()).unwrap();
        btrfs::make_read_only(readable(&other).as_fd()).unwrap();
        assert_eq!(site.alteration("replaced"), Some(Alteration::Replaced));
        // A copy in its place, which is no subvolume.
        let (other, ()) = site.commit("copied", |_| ());
        btrfs::delete_subvolume(readable(other.parent().unwrap()).as_fd(), "tree".as_ref())
            .unwrap();
        sh(&layer, &format!("cp -a . {}", other.display()));
        assert_eq!(site.alteration("copied"), Some(Alteration::Replaced));
    });
}

#[test]
fn deduplication_counts_as_a_change_until_the_first_verify_and_can_be_accepted() {
    isolated(|| {
        let site = Site::new();
        let twins = |copy: &Path| sh(copy, "head -c 65536 /dev/zero | tr '\\0' x | tee one >two");
        let dedupe = |layer: &Path| {
            let before = walked(layer);
            sh(layer, "xfs_io -r -c 'dedupe one 0 0 65536' two | grep -q '^deduped 65536'");
            assert!(compare_fingerprints(&before, &walked(layer)).is_empty(), "no entry changes");
        };
        let (first, ()) = site.commit("first", twins);
        let (late, ()) = site.commit("late", twins);
        assert!(!site.is_altered("late"));
        for layer in [&first, &late] {
            dedupe(layer);
        }
        assert_eq!(site.alteration("first"), Some(Alteration::Counted));
        assert_eq!(site.alteration("late"), None, "its entries are compared");
        site.verify("first").accept(&()).expect("accepted");
        assert_eq!(site.alteration("first"), None);
        altered_by(&first, || sh(&first, "echo z >directory/in"));
        assert_eq!(site.alteration("first"), Some(Alteration::Entries(vec!["directory".into()])));
    });
}

#[test]
fn what_was_accepted_is_read_only_again_and_its_next_change_is_found() {
    isolated(|| {
        let site = Site::new();
        let (layer, ()) = site.commit("new", |_| ());
        btrfs::make_writable(readable(&layer).as_fd()).unwrap();
        sh(&layer, "echo accepted >f1");
        site.verify("new").accept(&()).expect("accepted");
        assert!(btrfs::is_read_only(readable(&layer).as_fd()).unwrap());
        altered_by(&layer, || sh(&layer, "echo more >f1"));
        assert_eq!(site.alteration("new"), Some(Alteration::Counted));
    });
}

#[test]
fn a_snapshot_that_was_made_writable_is_found_before_and_after_the_first_verify() {
    isolated(|| {
        let site = Site::new();
        let (layer, ()) = site.commit("new", |_| ());
        for is_first in [true, false] {
            assert_eq!(is_of_snapshot(&layer), is_first);
            btrfs::make_writable(readable(&layer).as_fd()).unwrap();
            assert_eq!(site.alteration("new"), Some(Alteration::Writable));
            site.verify("new").accept(&()).expect("accepted");
            assert!(btrfs::is_read_only(readable(&layer).as_fd()).unwrap());
            assert_eq!(site.alteration("new"), None);
        }
    });
}

#[test]
fn a_committed_layer_of_an_open_tree_is_verified_too() {
    isolated(|| {
        let site = Site::new();
        let (layer, ()) = site.commit("new", |_| ());
        let session = synconce_tree::open_session(&site.store, &name("new"), None).expect("opened");
        let session = session.prepare(&()).expect("a snapshot").freeze(&()).expect("frozen");
        session.keep(&()).expect("kept");
        altered_by(&layer, || sh(&layer, "echo z >directory/in"));
        assert_eq!(site.alteration("new"), Some(Alteration::Counted));
    });
}

#[test]
fn a_snapshot_is_verified_on_a_read_only_mount() {
    isolated(|| {
        let site = Site::new();
        let (layer, ()) = site.commit("new", |_| ());
        let (changed, ()) = site.commit("changed", |_| ());
        altered_by(&changed, || sh(&changed, "echo more >>f1"));
        let disk = site.rig.path();
        // The file system itself stays writable: what was appended is not written yet.
        sh(disk, "mount --bind . . && mount -o remount,bind,ro .");
        let store = Store::open(&disk.join("store")).expect("opened");
        let altered = |tree| {
            let verified = synconce_tree::verify(&store, &name(tree), Compare::Attributes, &());
            verified.unwrap().altered.clone()
        };
        assert!(altered("new").is_empty());
        assert!(is_of_snapshot(&layer), "a store without writes keeps its fingerprints");
        assert_eq!(altered("changed")[0].alteration, Some(Alteration::Counted));
        drop(store);
        sh(Path::new("/"), &format!("umount {}", disk.display()));
    });
}

#[test]
fn a_fingerprint_of_the_transaction_before_or_after_or_of_another_snapshot_is_no_match() {
    isolated(|| {
        let site = Site::new();
        let (layer, ()) = site.commit("new", |_| ());
        let path = layer.with_file_name("fingerprint.json");
        let frozen: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let change = frozen["last_change"].as_u64().expect("a number");
        let with = |key: &str, value: Value| {
            let mut other = frozen.clone();
            other[key] = value;
            fs::write(&path, other.to_string()).unwrap();
            site.is_altered("new")
        };
        assert!(with("last_change", (change - 1).into()), "changed since");
        assert!(with("last_change", (change + 1).into()), "the disk lost a change");
        assert!(with("uuid", "0".repeat(32).into()));
        assert!(!with("last_change", change.into()));
    });
}

#[test]
fn a_snapshot_that_nothing_has_changed_is_as_it_was_frozen() {
    isolated(|| {
        let site = Site::new();
        let (layer, deleted) = site.commit("new", |copy| {
            let mut file = File::create(copy.join("deleted")).unwrap();
            file.write_all(&[1; 70000]).unwrap();
            fs::remove_file(copy.join("deleted")).unwrap();
            file
        });
        drop(deleted);
        // Each of these writes the tree of the snapshot anew, and none of them a file.
        let clone = "btrfs -q subvolume snapshot $layer clone; echo x >clone/f1; sync -f .";
        let balance = "btrfs -q balance start --full-balance . >/dev/null; cat $layer/f1";
        let Site { rig, store } = site;
        sh(rig.path(), &format!("layer={}; {clone}; {balance}", layer.display()));
        drop(store);
        rig.unmount().expect("unmounted");
        rig.mount().expect("mounted");
        let store = Store::open(&rig.path().join("store")).expect("opened");
        assert!(is_of_snapshot(&layer));
        assert!(!Site { rig, store }.is_altered("new"));
    });
}
