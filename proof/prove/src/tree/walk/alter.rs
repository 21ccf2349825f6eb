//! Random changes of a tree: the hidden command `prove alter`, which runs in a clone. The same
//! seed and the same initial content always give the same content, times included.

use super::super::fixture::{self, PROGRAM, filler};
use crate::Result;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags,
    fallocate, lsetxattr, renameat_with, utimensat,
};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Names in the root that a run needs or uses as mount points.
const SYSTEM: [&str; 5] = ["bin", "dev", "etc", "proc", "sys"];
/// An entry with a time after this (2020) was changed just now.
const SETTLED: i64 = 1_577_836_800;
/// Start of the times that changed entries get (2001).
const EPOCH: i64 = 1_000_000_000;

const NOW: Timestamps = {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Timestamps { last_access: now, last_modification: now }
};

/// Change a tree at random
#[derive(Debug, clap::Args)]
pub(crate) struct Alter {
    /// Seed the random choices with N
    #[arg(long, value_name = "N")]
    seed: u64,
    /// Take at least MILLIS milliseconds
    #[arg(long, value_name = "MILLIS", default_value_t = 0)]
    millis: u64,
    /// Change the tree with this root
    #[arg(value_name = "TREE")]
    tree: PathBuf,
}

pub(crate) fn perform(arguments: &Alter) -> Result<()> {
    alter(&arguments.tree, arguments.seed, Duration::from_millis(arguments.millis))
}

/// Returns the command line that makes the changes of `seed` in a clone.
pub(super) fn words(seed: u64, millis: u64) -> Vec<String> {
    let (seed, millis) = (seed.to_string(), millis.to_string());
    [PROGRAM, "alter", "--seed", &seed, "--millis", &millis, "/"].map(str::to_owned).to_vec()
}

/// Makes the tree that is imported, with times that are the same in every run.
pub(super) fn make(root: &Path) -> Result<()> {
    fs::write(root.join("etc/log"), "made\n")?;
    settle(root, 0)
}

/// Changes the tree at `root`, and takes at least `spread`.
pub(super) fn alter(root: &Path, seed: u64, spread: Duration) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let steps = random.u32(3..9);
    for step in 0..steps {
        let mut all = Entries::default();
        all.list(root, Path::new(""))?;
        Alteration { root, all: &all, random: &mut random, seed, step }.make()?;
        std::thread::sleep(spread / steps);
    }
    // The line makes every content unique, and every alteration a change.
    let mut log = File::options().append(true).open(root.join("etc/log"))?;
    writeln!(log, "changed by {seed}")?;
    // The sync is held, so the file is no more durable than any other.
    log.sync_all()?;
    // Count `etc` as changed in every case: a run creates a mount point there.
    utimensat(CWD, root.join("etc"), &NOW, AtFlags::SYMLINK_NOFOLLOW)?;
    settle(root, seed)
}

/// Gives every entry that was changed just now a time that depends on `seed` alone.
fn settle(root: &Path, seed: u64) -> Result<()> {
    let time = Timespec {
        tv_sec: EPOCH + i64::try_from(seed % 100_000_000)?,
        tv_nsec: i64::try_from(seed % 1_000_000_000)?,
    };
    let times = Timestamps { last_access: time, last_modification: time };
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        if fs::symlink_metadata(&directory)?.mtime() > SETTLED {
            utimensat(CWD, &directory, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path.strip_prefix(root)?;
            let is_mounted = ["dev", "proc", "sys", "etc/hosts", "etc/resolv.conf"]
                .map(Path::new)
                .contains(&name)
                || name == Path::new(PROGRAM.trim_start_matches('/'));
            let data = fs::symlink_metadata(&path)?;
            if is_mounted {
                continue;
            }
            if data.is_dir() {
                directories.push(path);
            } else if data.mtime() > SETTLED {
                utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
    }
    Ok(())
}

/// What can be changed; each list is sorted by name.
#[derive(Default)]
struct Entries {
    files: Vec<PathBuf>,
    /// The directories below the root.
    directories: Vec<PathBuf>,
    /// Symbolic links, pipes and other special files.
    others: Vec<PathBuf>,
}

impl Entries {
    fn list(&mut self, root: &Path, below: &Path) -> Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(root.join(below))? {
            names.push(entry?.file_name());
        }
        names.sort();
        for name in names {
            let path = below.join(&name);
            if SYSTEM.iter().any(|system| path == Path::new(system)) {
                continue;
            }
            let kind = fs::symlink_metadata(root.join(&path))?.file_type();
            if kind.is_dir() {
                self.directories.push(path.clone());
                self.list(root, &path)?;
            } else if kind.is_file() {
                self.files.push(path);
            } else {
                self.others.push(path);
            }
        }
        Ok(())
    }
}

/// A single change.
struct Alteration<'a> {
    root: &'a Path,
    all: &'a Entries,
    random: &'a mut fastrand::Rng,
    seed: u64,
    step: u32,
}

impl Alteration<'_> {
    fn make(&mut self) -> Result<()> {
        match self.random.u8(..8) {
            0 | 1 => self.new_entry(),
            2 | 3 => self.content(),
            4 => self.attributes(),
            5 => self.rename(),
            6 => self.remove(),
            _ => self.replace(),
        }
    }

    fn one_of(&mut self, all: &[PathBuf]) -> Option<PathBuf> {
        (!all.is_empty()).then(|| self.root.join(&all[self.random.usize(..all.len())]))
    }

    fn file(&mut self) -> Option<PathBuf> {
        self.one_of(&self.all.files)
    }

    /// Returns an unused name in a random directory.
    fn fresh(&mut self) -> PathBuf {
        let at = self.random.usize(..=self.all.directories.len());
        let directory = self.all.directories.get(at).cloned().unwrap_or_default();
        self.root.join(directory).join(format!("new-{}-{}", self.seed, self.step))
    }

    fn text(&mut self, most: usize) -> Vec<u8> {
        let length = self.random.usize(1..most);
        filler(self.seed, self.step as usize, length)
    }

    fn new_entry(&mut self) -> Result<()> {
        let path = self.fresh();
        match self.random.u8(..6) {
            0 => Ok(fs::create_dir(path)?),
            1 => Ok(symlink(format!("to-{}", self.seed), path)?),
            2 => fixture::fifo(&path),
            3 => match self.file() {
                Some(file) => Ok(fs::hard_link(file, path)?),
                None => Ok(()),
            },
            _ => {
                let mut file = File::create(path)?;
                file.write_all(&self.text(20_000))?;
                Ok(file.sync_all()?)
            }
        }
    }

    fn content(&mut self) -> Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        let length = fs::metadata(&path)?.len();
        let file = File::options().write(true).open(path)?;
        let text = self.text(6000);
        match self.random.u8(..5) {
            0 if length > 0 => file.set_len(self.random.u64(..length))?,
            1 => file.write_all_at(&text, length)?,
            // Write beyond the end, which leaves a hole.
            2 => file.write_all_at(&text, length + 9000)?,
            3 if length > 0 => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, flags, 0, self.random.u64(1..=length))?;
            }
            _ => file.write_all_at(&text, self.random.u64(..=length))?,
        }
        // Not every file system counts each of these operations as a modification.
        Ok(file.set_modified(SystemTime::now())?)
    }

    fn attributes(&mut self) -> Result<()> {
        let all = [&self.all.files[..], &self.all.directories].concat();
        let Some(path) = self.one_of(&all) else { return Ok(()) };
        match self.random.u8(..3) {
            0 => {
                let mode = [0o644, 0o600, 0o755, 0o2750, 0o4711, 0o1777][self.random.usize(..6)];
                Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
            }
            1 => Ok(lchown(path, Some(self.random.u32(..3000)), Some(self.random.u32(..9)))?),
            _ => {
                let value = format!("{} {}", self.seed, self.step);
                Ok(lsetxattr(path, "user.walk", value.as_bytes(), XattrFlags::empty())?)
            }
        }
    }

    fn rename(&mut self) -> Result<()> {
        let to = self.fresh();
        let two = (self.file(), self.file());
        match self.random.u8(..4) {
            0 => match two {
                (Some(one), Some(other)) if one != other => {
                    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
                }
                _ => Ok(()),
            },
            1 => match self.one_of(&self.all.directories) {
                Some(directory) if !to.starts_with(&directory) => Ok(fs::rename(directory, to)?),
                _ => Ok(()),
            },
            2 => match two {
                // Replaces another file.
                (Some(one), Some(other)) => Ok(fs::rename(one, other)?),
                _ => Ok(()),
            },
            _ => match two.0 {
                Some(file) => Ok(fs::rename(file, to)?),
                None => Ok(()),
            },
        }
    }

    fn remove(&mut self) -> Result<()> {
        if self.random.u8(..4) == 0 {
            let small = |path: &&PathBuf| path.components().count() > 1;
            let deep: Vec<PathBuf> = self.all.directories.iter().filter(small).cloned().collect();
            return self.one_of(&deep).map_or(Ok(()), |path| Ok(fs::remove_dir_all(path)?));
        }
        let all = [&self.all.files[..], &self.all.others].concat();
        self.one_of(&all).map_or(Ok(()), |path| Ok(fs::remove_file(path)?))
    }

    /// Replaces an entry by an entry of another type.
    fn replace(&mut self) -> Result<()> {
        let all = [&self.all.files[..], &self.all.others].concat();
        let Some(path) = self.one_of(&all) else { return Ok(()) };
        fs::remove_file(&path)?;
        match self.random.u8(..3) {
            0 => {
                fs::create_dir(&path)?;
                Ok(fs::write(path.join("inner"), self.text(5000))?)
            }
            1 => Ok(symlink("replaced", path)?),
            _ => Ok(fs::write(path, self.text(5000))?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use synconce_testkit::manifest::{Manifest, ManifestOptions, diff};

    fn content(root: &Path) -> Manifest {
        Manifest::with(root, &ManifestOptions::default().mtimes()).unwrap()
    }

    #[test]
    fn equal_seeds_give_equal_trees_and_other_seeds_other_trees() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().join("base");
        fixture::make(&base).unwrap();
        make(&base).unwrap();
        let copies = ["one", "two", "three"].map(|name| place.path().join(name));
        copies.iter().for_each(|copy| fixture::copy(&base, copy).unwrap());
        for seed in 0..50 {
            for (copy, seed) in copies.iter().zip([seed, seed, seed + 1000]) {
                alter(copy, seed, Duration::ZERO).unwrap();
            }
            let [one, two, three] = copies.each_ref().map(|copy| content(copy));
            let differences = diff(&one, &two);
            assert!(differences.is_empty(), "{seed}: {differences:?}");
            assert!(!diff(&one, &three).is_empty(), "{seed}");
        }
    }
}
