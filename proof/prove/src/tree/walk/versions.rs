//! The contents that trees can have, each made in a plain directory without the tool.

use super::super::fixture;
use super::alter::alter;
use crate::Result;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use synconce_testkit::manifest::{Manifest, ManifestOptions};

/// The number of a content.
pub(super) type ContentNumber = u32;
/// The content that is imported.
pub(super) const FIRST: ContentNumber = 0;

/// The contents that a tree has in at least one case.
pub(super) struct Versions {
    place: PathBuf,
    next: ContentNumber,
    made: HashMap<(ContentNumber, u64), ContentNumber>,
    known: BTreeMap<ContentNumber, Arc<Manifest>>,
}

/// Returns the manifest of `root`, with times.
pub(super) fn manifest(root: &Path) -> Result<Arc<Manifest>> {
    Ok(Arc::new(Manifest::with(root, &ManifestOptions::default().mtimes())?))
}

impl Versions {
    /// Starts with `source` as the first version.
    pub(super) fn new(place: PathBuf, source: &Path) -> Result<Self> {
        fs::create_dir(&place)?;
        let mut versions =
            Self { place, next: FIRST, made: HashMap::new(), known: BTreeMap::new() };
        fixture::copy(source, &versions.directory(FIRST))?;
        versions.add()?;
        Ok(versions)
    }

    fn directory(&self, version: ContentNumber) -> PathBuf {
        self.place.join(version.to_string())
    }

    fn add(&mut self) -> Result<ContentNumber> {
        let version = self.next;
        self.known.insert(version, manifest(&self.directory(version))?);
        self.next += 1;
        Ok(version)
    }

    /// Returns the version that the changes of `seed` make of `of`.
    pub(super) fn altered(&mut self, of: ContentNumber, seed: u64) -> Result<ContentNumber> {
        if let Some(version) = self.made.get(&(of, seed)) {
            return Ok(*version);
        }
        let directory = self.directory(self.next);
        fixture::copy(&self.directory(of), &directory)?;
        alter(&directory, seed, Duration::ZERO)?;
        let version = self.add()?;
        self.made.insert((of, seed), version);
        Ok(version)
    }

    /// Returns the content of a version.
    pub(super) fn content(&self, version: ContentNumber) -> &Arc<Manifest> {
        &self.known[&version]
    }

    /// Returns every content that a tree has in at least one case.
    pub(super) fn all(&self) -> impl Iterator<Item = (ContentNumber, &Arc<Manifest>)> {
        self.known.iter().map(|(version, content)| (*version, content))
    }

    /// Drops all versions but `wanted` and the first.
    pub(super) fn keep(&mut self, wanted: &BTreeSet<ContentNumber>) -> Result<()> {
        let is_wanted = |version: &ContentNumber| *version == FIRST || wanted.contains(version);
        let gone: Vec<ContentNumber> =
            self.known.keys().copied().filter(|version| !is_wanted(version)).collect();
        for version in gone {
            self.known.remove(&version);
            fs::remove_dir_all(self.directory(version))?;
        }
        self.made.retain(|_, version| is_wanted(version));
        Ok(())
    }
}
