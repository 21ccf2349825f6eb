//! The directory of the storage driver: `ROOT/overlay2`.
//!
//! `ID/diff` is the content of a layer, `ID/link` its short name, and `ID/lower` the list of the
//! layers below by their short names. `l/NAME` is a link to the content of the layer of that
//! short name.

use super::{At, Unsure, names, unsure};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The directory with a link of a short name to each layer's content.
const LINKS: &str = "l";
/// The content of a layer, in its directory.
const CONTENT: &str = "diff";
/// The list of the layers below, in a layer's directory. The lowest layer has no list.
const LOWER: &str = "lower";

/// What is in the driver's directory.
#[derive(Debug)]
pub(super) struct Driver {
    path: PathBuf,
    /// The names of the layers' directories.
    pub ids: BTreeSet<OsString>,
    /// The layer to which each link leads, by the name of the link.
    links: BTreeMap<OsString, OsString>,
}

impl Driver {
    /// Reads the directory `path`.
    pub(super) fn read(path: PathBuf) -> Result<Self, Unsure> {
        let (ids, links) = (ids(&path)?, links(&path.join(LINKS))?);
        Ok(Self { path, ids, links })
    }

    /// Whether dockerd can mount the layer `id`: its content is there, its short name leads to
    /// it, and the layers below are listed, if it `has_parent`, and are there. Files in the
    /// content may be damaged all the same.
    pub(super) fn is_whole(&self, id: &OsStr, has_parent: bool) -> Result<bool, Unsure> {
        if !self.has_content(id)? {
            return Ok(false);
        }
        let directory = self.path.join(id);
        // dockerd takes a line break as part of the name, too.
        let link = content(&directory.join("link"))?.unwrap_or_default();
        if self.links.get(OsStr::from_bytes(&link)).is_none_or(|to| to != id) {
            return Ok(false);
        }
        let Some(list) = content(&directory.join(LOWER))? else { return Ok(!has_parent) };
        for link in String::from_utf8_lossy(&list).split(':') {
            match self.lower(link) {
                Some(lower) if self.has_content(lower)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    fn has_content(&self, id: &OsStr) -> Result<bool, Unsure> {
        let content = self.path.join(id).join(CONTENT);
        let found = found(content.symlink_metadata()).at("cannot look at", &content)?;
        Ok(found.is_some_and(|found| found.is_dir()))
    }

    /// Returns the layer to which an entry of a list of layers leads.
    fn lower(&self, entry: &str) -> Option<&OsString> {
        self.links.get(OsStr::new(entry.strip_prefix("l/")?))
    }

    /// Adds the layers below those in `referenced`, by the driver's own lists: a layer of an
    /// image may be over a layer that only BuildKit knew by name.
    pub(super) fn add_lower(&self, referenced: &mut BTreeSet<OsString>) -> Result<(), Unsure> {
        let mut open: Vec<_> = referenced.iter().cloned().collect();
        while let Some(id) = open.pop() {
            if !self.ids.contains(&id) {
                continue;
            }
            let path = self.path.join(&id).join(LOWER);
            let Some(text) = content(&path)? else { continue };
            for link in String::from_utf8_lossy(&text).trim_end().split(':') {
                let Some(lower) = self.lower(link) else {
                    return unsure(&path, format_args!("no layer is at {link:?}"));
                };
                if referenced.insert(lower.clone()) {
                    open.push(lower.clone());
                }
            }
        }
        Ok(())
    }

    /// Returns the directories of the layers `ids` that are there, and the links that lead to
    /// the layers.
    pub(super) fn paths(&self, ids: &BTreeSet<OsString>) -> Vec<PathBuf> {
        let directories = ids.intersection(&self.ids).map(|id| self.path.join(id));
        let links = self.links.iter().filter(|(_, id)| ids.contains(*id));
        directories.chain(links.map(|(name, _)| self.path.join(LINKS).join(name))).collect()
    }
}

fn ids(layers: &Path) -> Result<BTreeSet<OsString>, Unsure> {
    let mut ids = BTreeSet::new();
    for entry in fs::read_dir(layers).at("cannot read", layers)? {
        let entry = entry.at("cannot read", layers)?;
        let name = entry.file_name();
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        let kind = entry.file_type().at("cannot look at", &entry.path())?;
        if kind.is_dir() && !is_hidden && name != LINKS {
            ids.insert(name);
        }
    }
    Ok(ids)
}

fn links(directory: &Path) -> Result<BTreeMap<OsString, OsString>, Unsure> {
    let mut links = BTreeMap::new();
    for name in names(directory).at("cannot read", directory)? {
        let path = directory.join(&name);
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let target = fs::read_link(&path).at("cannot read", &path)?;
        let parts: Vec<_> = target.components().collect();
        match parts[..] {
            [Component::ParentDir, Component::Normal(id), Component::Normal(last)]
                if last == CONTENT =>
            {
                links.insert(name, id.to_owned());
            }
            _ => return unsure(&path, format_args!("it leads to {}", target.display())),
        }
    }
    Ok(links)
}

/// Reads a file; `None` if it is missing.
fn content(path: &Path) -> Result<Option<Vec<u8>>, Unsure> {
    found(fs::read(path)).at("cannot read", path)
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
