//! Images that are set aside with their layers.

use super::{At, Unsure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The file `repositories.json`: dockerd's list of names. By repository, the image by its name.
#[derive(Default, Deserialize)]
struct Names {
    #[serde(default, rename = "Repositories")]
    repositories: BTreeMap<String, BTreeMap<String, String>>,
}

/// Returns the files of the images with the configurations `configs`: these files, and the
/// directories with what dockerd notes beside.
pub(super) fn files(directory: &Path, configs: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>, Unsure> {
    let mut files: Vec<_> = configs.iter().cloned().collect();
    for name in configs.iter().filter_map(|config| config.file_name()) {
        let metadata = directory.join("imagedb/metadata/sha256").join(name);
        if metadata.try_exists().at("cannot look at", &metadata)? {
            files.push(metadata);
        }
    }
    Ok(files)
}

/// Returns the tags of the images with the configurations `configs`, sorted. They are only for
/// a message: without the list an image has no name.
pub(super) fn names(directory: &Path, configs: &BTreeSet<PathBuf>) -> Vec<String> {
    let text = fs::read(directory.join("repositories.json")).unwrap_or_default();
    let all: Names = serde_json::from_slice(&text).unwrap_or_default();
    let ids: BTreeSet<_> =
        configs.iter().filter_map(|config| config.file_name()?.to_str()).collect();
    let is_meant = |image: &str| image.strip_prefix("sha256:").is_some_and(|id| ids.contains(id));
    let names = all.repositories.into_values().flatten();
    let names = names.filter(|(name, image)| is_meant(image) && !name.contains('@'));
    let names: BTreeSet<_> = names.map(|(name, _)| name).collect();
    names.into_iter().collect()
}
