//! The control of the walk: a store that is altered as no command does.

use super::verbs::{NAMES, Name};
use crate::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// What is done to a store behind the tool's back, so that it is known that the walk would see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tree) enum Sabotage {
    Nothing,
    /// A tree gets the content of another one.
    Swap,
}

/// Gives a tree the layers of another one, as no command does; which tree, if there are two.
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
