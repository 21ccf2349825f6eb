//! Layers: working copies that became immutable.

use crate::record::{Content, Layer};
use crate::store::{CONTENT, LAYERS, Opened, Store, encode, open_directory, read, write_lightly};
use rustix::fs::Mode;
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::replace;
use synconce_fs::{Fingerprint, FingerprintOptions, Progress};
use synconce_sys::btrfs;

const FINGERPRINT: &str = "fingerprint.json";

/// Whether the files of a layer have hard links in other layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// All hard links are in this layer: the number of links belongs in the fingerprint.
    Own,
    /// Other layers have links to the files; the number of links changes as those layers come
    /// and go.
    Shared,
}

impl Store {
    /// Makes a layer of the directory `content`, which nothing writes to any more. The layer
    /// exists when this function returns, but is not durable.
    pub(crate) fn freeze(&self, id: &str, content: &Path, kind: Content) -> Result<Layer, Error> {
        let directory = self.layer(id);
        let frozen = directory.join(CONTENT);
        // An earlier, interrupted attempt may have moved the content already.
        if !frozen.exists() {
            let mut builder = fs::DirBuilder::new();
            builder
                .recursive(true)
                .mode(0o700)
                .create(&directory)
                .on("cannot create", &directory)?;
            fs::rename(content, &frozen).on("cannot move", content)?;
        }
        Ok(Layer { id: id.to_owned(), content: kind })
    }

    /// Takes the fingerprint of each of `layers` that has none yet. A layer that only the note
    /// of a run names may have none, because a fingerprint costs one statx(2) per entry.
    pub(crate) fn fingerprint_all(
        &self,
        layers: &[Layer],
        links: Links,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        for layer in layers {
            let path = self.layer(&layer.id).join(FINGERPRINT);
            if !path.exists() {
                let frozen = self.content(&layer.id);
                let content = open_directory(&frozen)?;
                lock_subvolume(content.as_fd(), &frozen)?;
                let ignore_links = links == Links::Shared;
                let options = FingerprintOptions { ignore_links, ..FingerprintOptions::default() };
                let fingerprint = synconce_fs::fingerprint(content.as_fd(), &options, progress)?;
                write_lightly(&path, &encode(&fingerprint, &path)?)?;
            }
        }
        Ok(())
    }

    /// Returns whether layer `id` has a fingerprint.
    pub(crate) fn has_fingerprint(&self, id: &str) -> bool {
        self.layer(id).join(FINGERPRINT).exists()
    }

    /// Returns the fingerprint that layer `id` got when it was frozen.
    ///
    /// # Errors
    /// The error names the act and the path; `ENOENT` when the layer has no fingerprint.
    pub(crate) fn fingerprint(&self, id: &str) -> Result<Fingerprint, Error> {
        let path = self.layer(id).join(FINGERPRINT);
        let missing = || Error::new("cannot open", &path, Errno::NOENT);
        read(&path)?.ok_or_else(missing)
    }

    /// Returns the directories of layer `id` that differ from its fingerprint.
    pub(crate) fn altered(&self, id: &str, progress: &dyn Progress) -> Result<Vec<PathBuf>, Error> {
        let mut fingerprinted = self.fingerprint(id)?;
        let content = open_directory(&self.content(id))?;
        loop {
            let ignore_links = fingerprinted.ignores_links;
            let options = FingerprintOptions { ignore_links, ..FingerprintOptions::default() };
            let now = synconce_fs::fingerprint(content.as_fd(), &options, progress)?;
            let altered = synconce_fs::compare_fingerprints(&fingerprinted, &now);
            // Before links are made to its files, a layer gets a fingerprint that ignores
            // links.
            let fingerprinted_now = self.fingerprint(id)?;
            if altered.is_empty() || fingerprinted_now.ignores_links == ignore_links {
                return Ok(altered
                    .into_iter()
                    .map(|path| OsString::from_vec(path).into())
                    .collect());
            }
            fingerprinted = fingerprinted_now;
        }
    }

    /// Takes a new fingerprint of layer `id` that ignores links, after checking the layer
    /// against the old one. Hard links that clones make to the layer's files then do not count
    /// as changes.
    pub(crate) fn allow_links(&self, id: &str, progress: &dyn Progress) -> Result<(), Error> {
        let was_fingerprinted = self.has_fingerprint(id);
        if was_fingerprinted {
            if self.fingerprint(id)?.ignores_links {
                return Ok(());
            }
            if let Some(first) = self.altered(id, progress)?.first() {
                let path = self.content(id).join(first);
                let why = io::Error::other("it is not as it was frozen");
                return Err(Error::new("cannot make links to the files in", &path, why));
            }
        }
        let content = open_directory(&self.content(id))?;
        let options = FingerprintOptions { ignore_links: true, ..FingerprintOptions::default() };
        let fingerprint = synconce_fs::fingerprint(content.as_fd(), &options, progress)?;
        let path = self.layer(id).join(FINGERPRINT);
        let text = encode(&fingerprint, &path)?;
        match was_fingerprinted {
            // The layer may be durable already, and then no later commit would sync the
            // fingerprint.
            true => replace::replace(&path, &text),
            // The layer is not committed; its commit makes the fingerprint durable.
            false => write_lightly(&path, &text),
        }
    }

    /// Returns the ids of all layers.
    pub(crate) fn layers(&self) -> Result<Vec<String>, Error> {
        names_in(&self.path().join(LAYERS))
    }

    /// Moves the layers of `candidates` that nothing refers to and no process reads to the
    /// trash. Returns their number.
    pub(crate) fn drop_unreferenced(&self, candidates: &[String]) -> Result<u64, Error> {
        let referenced = self.referenced()?;
        let mut dropped = 0;
        for id in candidates.iter().filter(|id| !referenced.contains(*id)) {
            let layer = self.layer(id);
            if let Some(_lock) = self.take_from_readers(&layer)? {
                dropped += u64::from(self.discard(&layer)?);
            }
        }
        Ok(dropped)
    }

    /// Returns the ids of all layers that a tree, its uncommitted changes or a session needs.
    ///
    /// # Errors
    /// Also when a record cannot be read: the layers that the record needs are then unknown.
    fn referenced(&self) -> Result<HashSet<String>, Error> {
        let (records, broken) = self.records()?;
        if let Some(error) = broken.into_iter().next() {
            return Err(error);
        }
        let mut referenced = HashSet::new();
        let add = |referenced: &mut HashSet<String>, layers: &[Layer]| {
            referenced.extend(layers.iter().map(|layer| layer.id.clone()));
        };
        for record in &records {
            add(&mut referenced, &record.layers);
            if let Opened::Yes(layers) = self.opened(record)? {
                add(&mut referenced, &layers);
            }
        }
        for (id, session) in self.sessions()? {
            if session.is_none() && self.is_foreign(&id) {
                let path = self.session(&id);
                let why = io::Error::other("another version of synconce uses it");
                return Err(Error::new("cannot say what is needed by", &path, why));
            }
            add(&mut referenced, &session.map(|session| session.layers).unwrap_or_default());
            // The layer that the session becomes has the session's id.
            referenced.insert(id);
        }
        Ok(referenced)
    }
}

/// Makes a subvolume read-only. btrfs commits the kernel's transaction for this, so the call
/// is left to the tree's commit.
fn lock_subvolume(content: BorrowedFd<'_>, path: &Path) -> Result<(), Error> {
    if !btrfs::is_subvolume(content).on("cannot look at", path)? {
        return Ok(());
    }
    // An earlier, interrupted commit may have made the subvolume read-only already.
    if btrfs::is_read_only(content).on("cannot look at", path)? {
        return Ok(());
    }
    // The rename changed the root's ctime in memory only: btrfs writes the inode of a
    // subvolume's root only when the inode itself is changed.
    let mode = rustix::fs::fstat(content).on("cannot look at", path)?.st_mode;
    let same = Mode::from_raw_mode(mode & 0o7777);
    rustix::fs::fchmod(content, same).on("cannot freeze", path)?;
    btrfs::set_read_only(content, true).on("cannot freeze", path)
}

/// Returns the names in `directory` that do not begin with a dot.
pub(crate) fn names_in(directory: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(directory).on("cannot read", directory)?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().into_string()));
    let names: Result<Vec<_>, _> = names.collect();
    let names = names.on("cannot read", directory)?;
    Ok(names.into_iter().flatten().filter(|name| !name.starts_with('.')).collect())
}
