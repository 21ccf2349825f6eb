//! Objects of a configuration, as every runtime understands them.

use indexmap::IndexMap;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::fmt;

/// The keys that synconce reads. runc ignores the case of keys, and would merge a key of another
/// spelling with the one that synconce writes.
const KNOWN: [&str; 21] = [
    "annotations",
    "args",
    "defaultAction",
    "destination",
    "devices",
    "errnoRet",
    "linux",
    "listenerMetadata",
    "listenerPath",
    "mounts",
    "names",
    "namespaces",
    "options",
    "path",
    "process",
    "readonly",
    "root",
    "seccomp",
    "source",
    "syscalls",
    "type",
];

/// An object. A duplicate key is an error, even if the two differ in upper and lower case:
/// runtimes merge such objects in different ways.
#[derive(Debug, Default)]
pub(super) struct Fields<'a>(pub(super) IndexMap<String, &'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = IndexMap::new();
        let mut seen = HashSet::new();
        while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
            let folded = folded(&key);
            let known = KNOWN.iter().find(|known| folded.eq_ignore_ascii_case(known));
            if !seen.insert(folded) {
                return Err(A::Error::custom(format!("the key \"{key}\" is there twice")));
            }
            if known.is_some_and(|known| key != *known) {
                return Err(A::Error::custom(format!("the key \"{key}\" is spelled otherwise")));
            }
            fields.insert(key, value);
        }
        Ok(Fields(fields))
    }
}

/// Folds the case of a key as Go's encoding/json does for comparison.
pub(crate) fn folded(key: &str) -> String {
    key.to_uppercase().to_lowercase()
}
