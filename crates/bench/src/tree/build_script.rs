//! The writes of a small build: unpacks and changes files, and appends to, removes and changes
//! the mode of files of the root.

use crate::command::show;
use crate::launcher::Launcher;
use crate::walk::walk;
use crate::{Error, files};
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The directory of the script in the root.
const DIR: &str = "synconce-bench";
/// The path of the script inside the root.
pub(super) const SCRIPT: &str = "/synconce-bench/build.sh";

/// Files that are unpacked and changed, their directories, and the maximum size of a file.
const UNPACKED: usize = 300;
const DIRECTORIES: usize = 15;
const BYTES: usize = 16 << 10;
/// Numbers of files of the root that are appended to, removed, and changed in their mode.
const APPENDED: usize = 20;
const REMOVED: usize = 50;
const PRIVATE: usize = 5;

const BUILD: &str = r#"#!/bin/sh
# What a small build writes. The shell itself does what it can: no more programs are
# started than a build would start.
set -eu
here=/synconce-bench
mkdir /synconce-build
tar -xf "$here/build.tar" -C /synconce-build
while read -r file; do echo '/* changed */' >>"/synconce-build/$file"; done <"$here/unpacked"
while read -r file; do echo '# changed' >>"/$file"; done <"$here/appended"
set --
while read -r file; do set -- "$@" "/$file"; done <"$here/removed"
rm -- "$@"
set --
while read -r file; do set -- "$@" "/$file"; done <"$here/private"
chmod 0600 -- "$@"
"#;

/// The script's files in the base, and the original state of the base's own files.
pub(super) struct BuildScript {
    /// Entries of the base, without those of the script.
    pub(super) entries: u64,
    /// Bytes of its files.
    pub(super) bytes: u64,
    changed: Vec<Changed>,
}

/// A file of the base that the script changes in a clone.
struct Changed {
    path: PathBuf,
    size: u64,
    mode: u32,
}

impl BuildScript {
    /// Scans the base and puts the script with its lists into it.
    pub(super) fn install(base: &Path, seed: u64, launcher: &Launcher) -> Result<Self, Error> {
        let mut found = scan(base, launcher)?;
        let wanted = APPENDED + REMOVED + PRIVATE;
        if found.ordinary.len() < wanted {
            return Err(Error::Unsuitable {
                what: base.display().to_string(),
                reason: format!(
                    "it has {} ordinary files that a build could change, and {wanted} are needed",
                    found.ordinary.len()
                ),
            });
        }
        found.ordinary.sort();
        // Spread over the base, like the changes of a build.
        let step = found.ordinary.len() / wanted;
        let chosen: Vec<&PathBuf> = found.ordinary.iter().step_by(step).take(wanted).collect();
        let dir = base.join(DIR);
        fs::create_dir(&dir).map_err(Error::io("create", &dir))?;
        files::write(dir.join("build.sh"), BUILD)?;
        files::set_mode(&dir.join("build.sh"), 0o755)?;
        let (removed, kept) = chosen.split_at(REMOVED);
        let (appended, private) = kept.split_at(APPENDED);
        for (name, paths) in [("removed", removed), ("appended", appended), ("private", private)] {
            files::write(dir.join(name), lines(paths))?;
        }
        pack(&dir, seed, launcher)?;
        let changed = kept.iter().map(|path| Changed::new(base, path));
        let changed = changed.collect::<Result<_, _>>()?;
        Ok(Self { entries: found.entries, bytes: found.bytes, changed })
    }

    /// Returns the files of the base that have changed, and restores them.
    pub(super) fn restore(&self) -> Result<Vec<PathBuf>, Error> {
        let mut damaged = Vec::new();
        for changed in &self.changed {
            if changed.restore()? {
                damaged.push(changed.path.clone());
            }
        }
        Ok(damaged)
    }
}

impl Changed {
    fn new(base: &Path, inside: &Path) -> Result<Self, Error> {
        let path = base.join(inside);
        let metadata = fs::symlink_metadata(&path).map_err(Error::io("stat", &path))?;
        Ok(Self { size: metadata.size(), mode: metadata.mode() & 0o7777, path })
    }

    /// Restores size and mode; the script changes nothing else.
    fn restore(&self) -> Result<bool, Error> {
        let metadata = fs::symlink_metadata(&self.path).map_err(Error::io("stat", &self.path))?;
        if metadata.size() == self.size && metadata.mode() & 0o7777 == self.mode {
            return Ok(false);
        }
        OpenOptions::new()
            .write(true)
            .open(&self.path)
            .and_then(|file| file.set_len(self.size))
            .and_then(|()| fs::set_permissions(&self.path, Permissions::from_mode(self.mode)))
            .map_err(Error::io("mend", &self.path))?;
        Ok(true)
    }
}

/// The content of a base.
#[derive(Default)]
struct BaseContent {
    entries: u64,
    bytes: u64,
    /// Files that no program needs to run: data, headers, documentation.
    ordinary: Vec<PathBuf>,
}

fn scan(base: &Path, launcher: &Launcher) -> Result<BaseContent, Error> {
    let mut found = BaseContent::default();
    walk(base, launcher, |path, metadata| {
        found.entries += 1;
        if metadata.is_file() {
            found.bytes += metadata.size();
            let inside = path.strip_prefix(base).unwrap_or(&path);
            if is_ordinary(inside) && metadata.nlink() == 1 && metadata.mode() & 0o111 == 0 {
                found.ordinary.push(inside.to_path_buf());
            }
        }
        Ok(())
    })?;
    Ok(found)
}

fn is_ordinary(inside: &Path) -> bool {
    // The shell reads the lists, which contain one path per line.
    let plain = |text: &str| !text.contains(['\n', '\\']) && text.trim() == text;
    let within = ["usr/share", "usr/include", "usr/src", "usr/lib/rustlib"];
    inside.to_str().is_some_and(plain) && within.iter().any(|dir| inside.starts_with(dir))
}

/// Creates the files of the build and packs them.
fn pack(dir: &Path, seed: u64, launcher: &Launcher) -> Result<(), Error> {
    let source = dir.join("source");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut names = Vec::new();
    for number in 0..UNPACKED {
        let inside = PathBuf::from(format!("{}/file-{number}.c", number % DIRECTORIES));
        let path = source.join(&inside);
        let parent = path.parent().unwrap_or(&source);
        files::create_dir(parent)?;
        let length = random.usize(64..BYTES);
        let text: String = std::iter::repeat_with(|| random.alphanumeric()).take(length).collect();
        files::write(&path, &text)?;
        names.push(inside);
    }
    files::write(dir.join("unpacked"), lines(&names.iter().collect::<Vec<_>>()))?;
    let (tar, from) = (show(&dir.join("build.tar")), show(&source));
    let command = ["tar", "-cf", &tar, "-C", &from, "."];
    launcher.run_helper("pack the files of the build", &command)?;
    fs::remove_dir_all(&source).map_err(Error::io("remove", &source))
}

fn lines(paths: &[&PathBuf]) -> String {
    paths.iter().map(|path| format!("{}\n", path.display())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a base with some ordinary files.
    fn base(files: usize) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let share = dir.path().join("usr/share");
        fs::create_dir_all(&share).expect("a directory can be made");
        for number in 0..files {
            fs::write(share.join(format!("{number}")), "text").expect("a file can be made");
        }
        dir
    }

    fn list(base: &Path, name: &str) -> Vec<String> {
        let text = fs::read_to_string(base.join(DIR).join(name)).expect("the list is there");
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_lists_name_different_files_that_are_there() {
        let (dir, launcher) = (base(200), Launcher::new().expect("signals can be watched"));
        let script = BuildScript::install(dir.path(), 1, &launcher).expect("it is installed");
        assert_eq!(script.entries, 202);
        let mut all = Vec::new();
        for (name, count) in [("appended", APPENDED), ("removed", REMOVED), ("private", PRIVATE)] {
            assert_eq!(list(dir.path(), name).len(), count);
            all.extend(list(dir.path(), name));
        }
        assert!(all.iter().all(|path| dir.path().join(path).is_file()));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), APPENDED + REMOVED + PRIVATE);
        assert_eq!(list(dir.path(), "unpacked").len(), UNPACKED);
    }

    #[test]
    fn a_base_that_a_clone_wrote_to_is_named_and_restored() {
        let (dir, launcher) = (base(75), Launcher::new().expect("signals can be watched"));
        let script = BuildScript::install(dir.path(), 1, &launcher).expect("it is installed");
        assert_eq!(script.restore().expect("it is checked"), Vec::<PathBuf>::new());
        let appended = dir.path().join(&list(dir.path(), "appended")[0]);
        let private = dir.path().join(&list(dir.path(), "private")[0]);
        fs::write(&appended, "text and more").expect("a file can be written");
        fs::set_permissions(&private, Permissions::from_mode(0o600)).expect("it has a mode");
        let mut damaged = script.restore().expect("it is restored");
        damaged.sort();
        let mut expected = vec![appended.clone(), private];
        expected.sort();
        assert_eq!(damaged, expected);
        assert_eq!(fs::read_to_string(&appended).expect("it is there"), "text");
        assert_eq!(script.restore().expect("it is checked"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_base_of_few_files_is_refused_with_their_number() {
        let (dir, launcher) = (base(74), Launcher::new().expect("signals can be watched"));
        let refused = BuildScript::install(dir.path(), 1, &launcher).err().expect("it is refused");
        assert!(refused.to_string().contains("has 74 ordinary files"), "{refused}");
    }
}
