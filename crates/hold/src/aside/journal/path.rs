//! Paths in JSON: a string, or an array of bytes if the path is not UTF-8.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
#[serde(untagged)]
enum Either {
    Text(String),
    Bytes(Vec<u8>),
}

pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    let name: &OsStr = path.as_os_str();
    match name.to_str() {
        Some(text) => to.serialize_str(text),
        None => name.as_bytes().serialize(to),
    }
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    Ok(match Either::deserialize(from)? {
        Either::Text(text) => PathBuf::from(text),
        Either::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
    })
}
