//! Random work in clones of clones: every frozen stack shows the same as the clone.

use crate::support::{directory, frozen_after, isolated, on_every_disk};
use fastrand::Rng;
use rustix::fs::{AtFlags, CWD, Gid, Timespec, Timestamps, Uid, XattrFlags, chownat, utimensat};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const SEED: u64 = 0x5_e77ed;
const STEPS: usize = 150;
const GENERATIONS: usize = 5;

#[test]
fn random_work_in_clones_of_clones_is_kept_by_every_frozen_layer() {
    isolated(|| {
        on_every_disk(|disk, place| {
            let mut random = Rng::with_seed(SEED);
            let whole = directory(place.join("whole"));
            work(&whole, &mut random);
            let mut stack = vec![whole];
            for generation in 0..GENERATIONS {
                let name = format!("{disk}-{generation}");
                stack = frozen_after(place, &name, &stack, |root| work(root, &mut random));
            }
        });
    });
}

fn work(root: &Path, random: &mut Rng) {
    for _ in 0..STEPS {
        // Many steps must fail: a link to a directory, a rename into itself.
        let _ = step(root, random);
    }
}

/// Returns a path that may exist, in a tree with few names, so that names often collide.
fn some_path(root: &Path, random: &mut Rng) -> PathBuf {
    let mut path = root.to_owned();
    for _ in 0..random.usize(1..4) {
        path.push(random.choice(["a", "b", "c", "d", "e", "f"]).unwrap());
    }
    path
}

fn step(root: &Path, random: &mut Rng) -> std::io::Result<()> {
    let (path, other) = (some_path(root, random), some_path(root, random));
    match random.u8(0..16) {
        0..3 => fs::write(&path, vec![random.u8(..); random.usize(..3000)]),
        3..6 => fs::create_dir_all(&path),
        6 => File::options().append(true).open(&path)?.write_all(b"more"),
        7 => fs::remove_file(&path),
        8 => fs::remove_dir_all(&path),
        9 | 10 => fs::rename(&path, &other),
        11 | 12 => fs::hard_link(&path, &other),
        13 => symlink("a/b", &path),
        14 => change(&path, random),
        _ => File::options().write(true).open(&path)?.set_len(random.u64(..4000)),
    }
}

fn change(path: &Path, random: &mut Rng) -> std::io::Result<()> {
    match random.u8(0..4) {
        0 => fs::set_permissions(path, PermissionsExt::from_mode(random.u32(0o400..0o10000)))?,
        1 => {
            let (uid, gid) = (random.u32(..9), random.u32(..9));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            chownat(CWD, path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), flags)?;
        }
        2 => {
            let value = [random.u8(..)];
            rustix::fs::lsetxattr(path, "user.random", &value, XattrFlags::empty())?;
        }
        _ => {
            let time = Timespec { tv_sec: random.i64(..1 << 30), tv_nsec: 5 };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(())
}
