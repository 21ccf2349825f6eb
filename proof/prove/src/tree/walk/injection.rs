//! The control of the walk: injects a fault into a store.

use super::verbs::{NAMES, Name};
use crate::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// A fault that is injected into the store without the tool: the walk must find the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tree) enum Injection {
    None,
    /// Gives a tree the content of another tree.
    SwapContent,
}

/// Gives a tree the layers of another tree, in a way that no command does. Returns the tree,
/// or `None` if there are fewer than two.
pub(super) fn swap(store: &Path) -> Result<Option<Name>> {
    let mut records = Vec::new();
    for entry in fs::read_dir(store.join("trees"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = fs::read(&path).unwrap_or_default();
            records.extend(serde_json::from_slice(&text).ok().map(|record| (path, record)));
        }
    }
    let Some((_, first)): Option<&(PathBuf, serde_json::Value)> = records.first() else {
        return Ok(None);
    };
    let other = records.iter().find(|(_, record)| record["layers"] != first["layers"]);
    let Some((path, record)) = other else { return Ok(None) };
    let mut record = record.clone();
    record["layers"] = first["layers"].clone();
    let new = path.with_file_name(".swapped");
    fs::write(&new, serde_json::to_vec(&record)?)?;
    fs::rename(&new, path)?;
    Ok(NAMES.into_iter().find(|name| record["name"] == *name))
}
