//! The entries of a tree, to compare the results of variants.

mod attributes;

use crate::Error;
use crate::launcher::Launcher;
use crate::walk::walk;
use attributes::{Attributes, Reader};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Paths that differ between any two runs, with the reason; two given runs may agree by
/// chance.
pub(super) const VOLATILE: [(&str, &str); 4] = [
    ("var/log", "time stamps"),
    ("var/cache/ldconfig/aux-cache", "inode numbers and change times"),
    ("var/cache/apt/pkgcache.bin", "a memory image with addresses"),
    ("var/cache/apt/srcpkgcache.bin", "a memory image with addresses"),
];

/// The compared properties of one entry. Times are left out, because an install sets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InstalledFile {
    kind: char,
    mode: u32,
    owner: (u32, u32),
    /// Size of a file; not of a directory, whose size depends on its history.
    size: u64,
    /// SHA-256 of a file, target of a link, number of a device.
    content: Vec<u8>,
    /// Extended attributes, including file capabilities and ACLs.
    attributes: Attributes,
}

/// Every entry of a tree by its path in the tree.
pub(super) type Manifest = BTreeMap<PathBuf, InstalledFile>;

/// Reads a tree.
pub(super) fn read(root: &Path, launcher: &Launcher) -> Result<Manifest, Error> {
    let mut found = Manifest::new();
    let mut reader = Reader::new();
    walk(root, launcher, |path, metadata| {
        let described = describe(&path, metadata, reader.read(&path)?)?;
        let inside = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
        found.insert(inside, described);
        Ok(())
    })?;
    Ok(found)
}

fn describe(
    path: &Path,
    metadata: &Metadata,
    attributes: Attributes,
) -> Result<InstalledFile, Error> {
    let kind = metadata.file_type();
    let (letter, size, content) = if kind.is_file() {
        ('f', metadata.size(), digest(path)?)
    } else if kind.is_symlink() {
        let target = fs::read_link(path).map_err(Error::io("read the link", path))?;
        ('l', 0, target.into_os_string().into_encoded_bytes())
    } else if kind.is_dir() {
        ('d', 0, Vec::new())
    } else if kind.is_fifo() {
        ('p', 0, Vec::new())
    } else if kind.is_socket() {
        ('s', 0, Vec::new())
    } else {
        let letter = if kind.is_char_device() { 'c' } else { 'b' };
        (letter, 0, metadata.rdev().to_le_bytes().to_vec())
    };
    Ok(InstalledFile {
        kind: letter,
        mode: metadata.mode() & 0o7777,
        owner: (metadata.uid(), metadata.gid()),
        size,
        content,
        attributes,
    })
}

fn digest(path: &Path) -> Result<Vec<u8>, Error> {
    let mut file = fs::File::open(path).map_err(Error::io("open", path))?;
    let mut digest = Sha256::new();
    std::io::copy(&mut file, &mut digest).map_err(Error::io("read", path))?;
    Ok(digest.finalize().to_vec())
}

/// Returns the paths at which two trees differ, and how.
pub(super) fn differences(ours: &Manifest, theirs: &Manifest) -> BTreeMap<PathBuf, String> {
    let paths: BTreeSet<&PathBuf> = ours.keys().chain(theirs.keys()).collect();
    paths
        .into_iter()
        .filter_map(|path| {
            let what = match (ours.get(path), theirs.get(path)) {
                (Some(ours), Some(theirs)) => compare(ours, theirs)?,
                (None, _) => "missing".to_owned(),
                (_, None) => "added".to_owned(),
            };
            Some((path.clone(), what))
        })
        .collect()
}

fn compare(ours: &InstalledFile, theirs: &InstalledFile) -> Option<String> {
    let aspects = [
        ("type", ours.kind != theirs.kind),
        ("mode", ours.mode != theirs.mode),
        ("owner", ours.owner != theirs.owner),
        ("size", ours.size != theirs.size),
        ("content", ours.content != theirs.content),
        ("extended attributes", ours.attributes != theirs.attributes),
    ];
    let differing: Vec<&str> =
        aspects.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect();
    (!differing.is_empty()).then(|| differing.join(", "))
}

/// Whether a path may differ between any two runs.
pub(super) fn is_volatile(path: &Path) -> bool {
    VOLATILE.iter().any(|(volatile, _)| path.starts_with(volatile))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let root = dir.path();
        fs::create_dir(root.join("d")).expect("a directory can be made");
        fs::write(root.join("d/file"), "text").expect("a file can be written");
        fs::write(root.join("same"), "same").expect("a file can be written");
        symlink("file", root.join("d/link")).expect("a link can be made");
        dir
    }

    fn differ(a: &Path, b: &Path) -> Vec<(String, String)> {
        let launcher = Launcher::new().expect("the launcher starts");
        let read = |path| read(path, &launcher).expect("the tree can be read");
        differences(&read(a), &read(b))
            .into_iter()
            .map(|(path, what)| (path.display().to_string(), what))
            .collect()
    }

    #[test]
    fn two_trees_made_alike_at_different_times_do_not_differ() {
        let (a, b) = (tree(), tree());
        assert_eq!(differ(a.path(), b.path()), []);
    }

    #[test]
    fn every_aspect_of_an_entry_is_compared() {
        let (a, b) = (tree(), tree());
        let root = a.path();
        fs::write(root.join("d/file"), "TEXT").expect("a file can be written");
        fs::set_permissions(root.join("same"), fs::Permissions::from_mode(0o4755))
            .expect("the mode can be changed");
        fs::remove_file(root.join("d/link")).expect("the link can be removed");
        symlink("elsewhere", root.join("d/link")).expect("a link can be made");
        fs::write(root.join("new"), "").expect("a file can be written");
        let expected =
            [("d/file", "content"), ("d/link", "content"), ("new", "added"), ("same", "mode")];
        let expected = expected.map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(differ(root, b.path()), expected);
        let back = differ(b.path(), root);
        assert_eq!(back[2], ("new".to_owned(), "missing".to_owned()));
    }

    #[test]
    fn an_emptied_file_is_seen_by_its_size() {
        let (a, b) = (tree(), tree());
        fs::write(a.path().join("same"), "").expect("a file can be written");
        assert_eq!(differ(a.path(), b.path()), [("same".to_owned(), "size, content".to_owned())]);
    }

    #[test]
    fn an_extended_attribute_counts_by_its_name_and_by_its_value() {
        let (a, b) = (tree(), tree());
        let set = |tree: &tempfile::TempDir, path: &str, name: &str, value: &[u8]| {
            let path = tree.path().join(path);
            rustix::fs::lsetxattr(&path, name, value, rustix::fs::XattrFlags::empty())
                .expect("the attribute can be set");
        };
        for (name, value) in [("user.one", "1"), ("user.two", ""), ("user.three", "3")] {
            set(&a, "same", name, value.as_bytes());
        }
        // The attributes are set in another order.
        for (name, value) in [("user.three", "3"), ("user.one", "1"), ("user.two", "")] {
            set(&b, "same", name, value.as_bytes());
        }
        assert_eq!(differ(a.path(), b.path()), []);
        set(&a, "same", "user.one", b"other");
        set(&a, "d", "user.more", b"");
        let expected =
            ["d", "same"].map(|path| (path.to_owned(), "extended attributes".to_owned()));
        assert_eq!(differ(a.path(), b.path()), expected);
    }

    #[test]
    fn logs_are_volatile_and_binaries_are_not() {
        assert!(is_volatile(Path::new("var/log/apt/history.log")));
        assert!(!is_volatile(Path::new("usr/bin/gcc")));
    }
}
