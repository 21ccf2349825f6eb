//! The records of dockerd's build cache that a probe has made.

use super::ImageStore;
use serde::Deserialize;
use std::ops::RangeInclusive;
use synconce_durable::record;

/// The answer to `/system/df`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DiskUsage {
    // `null` without records. If it is missing, that is an error.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(super) build_cache: Option<Vec<CacheRecord>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CacheRecord {
    #[serde(rename = "ID")]
    pub(super) id: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    shared: bool,
    #[serde(default)]
    size: i64,
    /// RFC 3339, in UTC.
    #[serde(default)]
    created_at: String,
    /// Since version 1.42 of the API (Docker 23); before, `parent`. The key of dockerd 26.1 and 28.5
    /// begins with a space.
    #[serde(default, alias = " Parents")]
    parents: Option<Vec<String>>,
    #[serde(default)]
    parent: Option<String>,
}

impl CacheRecord {
    fn is_based_on(&self, id: &str) -> bool {
        let mut parents = self.parents.iter().flatten().chain(&self.parent);
        parents.any(|parent| parent == id)
    }
}

/// The largest size of a probe's layer, in bytes: a directory, and a file smaller than a block.
const LARGEST_LAYER: i64 = 16 << 10;

/// The signs by which the records of a probe are recognised.
pub(super) struct Probed<'a> {
    /// A word of its step.
    pub(super) name: &'a str,
    /// The bytes of its Dockerfile.
    pub(super) dockerfile: usize,
    pub(super) store: ImageStore,
    /// From the start of the probe to now, in seconds since 1970.
    pub(super) times: RangeInclusive<i64>,
}

/// The records of a probe.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OwnRecords<'r> {
    /// Their IDs, each before the record that it is based on.
    pub(super) ids: Vec<&'r str>,
    /// Whether several records look like the same record of the probe, so that one may be of a
    /// user's build. `ids` has none of these.
    pub(super) is_in_doubt: bool,
}

impl Probed<'_> {
    pub(super) fn records<'r>(&self, records: &'r [CacheRecord]) -> OwnRecords<'r> {
        let steps = records.iter().filter(|record| record.description.ends_with(self.name));
        let steps: Vec<_> = steps.collect();
        let is_new = |record: &&CacheRecord| {
            record::seconds(&record.created_at).is_some_and(|time| self.times.contains(&time))
        };
        let new = || records.iter().filter(is_new);
        // The Dockerfile: each upload has a URL of its own, so no other build uses the record.
        // containerd counts the blocks of a record, and not its bytes.
        let has_size = |record: &CacheRecord| {
            self.store == ImageStore::OfContainerd || record.size == self.dockerfile as i64
        };
        let is_context = |record: &&CacheRecord| {
            record.description.starts_with("http url http://build-context-") && has_size(record)
        };
        let contexts: Vec<_> = new().filter(is_context).collect();
        // The layer of the image.
        let is_base = |record: &&CacheRecord| match self.store {
            ImageStore::OfDockerd => record.description.starts_with("from local") && !record.shared,
            // No layer in this store has a description. containerd shares the layer with the removed
            // image until its garbage collection.
            ImageStore::OfContainerd => {
                record.description.is_empty() && record.size <= LARGEST_LAYER
            }
        };
        let mut bases: Vec<_> = new().filter(is_base).collect();
        if steps.is_empty() && contexts.is_empty() {
            // No build of the probe began.
            bases.clear();
        } else if !steps.is_empty() {
            bases.retain(|base| steps.iter().any(|step| step.is_based_on(&base.id)));
        }
        let likely = [bases, contexts];
        let is_in_doubt = likely.iter().any(|likely| likely.len() > 1);
        let sure = likely.into_iter().filter(|likely| likely.len() == 1).flatten();
        let ids = steps.into_iter().chain(sure).map(|record| record.id.as_str()).collect();
        OwnRecords { ids, is_in_doubt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NAME: &str = "00c0ffee00c0ffee";
    const CONTEXT: &str = "http url http://build-context-ab";
    const BASE: &str = "from local ";

    /// Asserts which of the records in `list` are of a probe from 12:00:10 to 12:00:30.
    fn assert_own(list: &[&Value], ids: &[&str], is_in_doubt: bool) {
        let records: Vec<CacheRecord> = serde_json::from_value(json!(list)).unwrap();
        let second = |second| record::seconds(&format!("2026-11-30T12:00:{second}Z")).unwrap();
        let times = second(10)..=second(30);
        let store = ImageStore::OfDockerd;
        let own = Probed { name: NAME, dockerfile: 66, times, store }.records(&records);
        assert_eq!(own, OwnRecords { ids: ids.to_vec(), is_in_doubt });
    }

    /// Returns a record that is made at the second `second` of a minute.
    fn record(id: &str, description: &str, size: u32, second: u32) -> Value {
        json!({
            "ID": id, "Description": description, "Size": size, "Shared": false,
            "CreatedAt": format!("2026-11-30T12:00:{second:02}.123456789Z"), "InUse": false,
        })
    }

    /// Returns the step of the probe, with the parents `parents` under the key `key`.
    fn step(key: &str, parents: Value) -> Value {
        let mut step = record("step", &format!("mount / from exec /probe {NAME}"), 0, 22);
        step[key] = parents;
        step
    }

    #[test]
    fn only_records_of_a_probe_are_removed() {
        let other = record("other", "mount / from exec /bin/sh -c make", 9, 21);
        let old = record("old", BASE, 0, 9);
        let mut shared = record("shared", BASE, 0, 22);
        shared["Shared"] = json!(true);
        let theirs = record("theirs", CONTEXT, 10_240, 21);
        let context = record("context", CONTEXT, 66, 20);
        let base = record("base", BASE, 0, 21);
        let others = [&other, &old, &shared, &theirs];
        let with = |own: &[&'static str], new: &[&Value]| {
            assert_own(&[&others[..], new].concat(), own, false);
        };
        for (key, parents) in
            [("Parents", json!(["base"])), (" Parents", json!(["base"])), ("Parent", json!("base"))]
        {
            let step = step(key, parents);
            with(&["step", "base", "context"], &[&context, &base, &step]);
        }
        // The step failed.
        with(&["base", "context"], &[&context, &base]);
        with(&[], &[]);
    }

    #[test]
    fn a_record_that_may_be_of_another_build_is_left() {
        let [old, context, theirs] = [("old", 9), ("context", 20), ("theirs", 25)]
            .map(|(id, second)| record(id, CONTEXT, 66, second));
        let [base, their_base] =
            [("base", 21), ("their base", 24)].map(|(id, second)| record(id, BASE, 0, second));
        assert_own(&[&old], &[], false);
        // No build of the probe began.
        assert_own(&[&base], &[], false);
        assert_own(&[&context, &theirs], &[], true);
        assert_own(&[&context, &base, &their_base], &["context"], true);
        // The step names its base.
        let step = step("Parents", json!(["base"]));
        assert_own(&[&context, &base, &their_base, &step], &["step", "base", "context"], false);
    }

    #[test]
    fn containerds_store_names_no_base_and_counts_blocks() {
        let mut step = step("Parents", json!(["base"]));
        step["Size"] = json!(16_506);
        let mut base = record("base", "", 150, 21);
        base["Shared"] = json!(true);
        let theirs = record("theirs", "", 1_064_322, 21);
        let list = [&record("context", CONTEXT, 8192, 20), &base, &theirs, &step];
        let records: Vec<CacheRecord> = serde_json::from_value(json!(list)).unwrap();
        let begin = record::seconds("2026-11-30T12:00:10Z").unwrap();
        let probed =
            |store| Probed { name: NAME, dockerfile: 66, times: begin..=begin + 20, store };
        let own = probed(ImageStore::OfContainerd).records(&records);
        assert_eq!(own, OwnRecords { ids: vec!["step", "base", "context"], is_in_doubt: false });
        let own = probed(ImageStore::OfDockerd).records(&records);
        assert_eq!(own, OwnRecords { ids: vec!["step"], is_in_doubt: false });
    }

    #[test]
    fn an_answer_without_a_build_cache_is_no_empty_one() {
        let read = |text| serde_json::from_str::<DiskUsage>(text);
        assert!(read(r#"{"BuildCache":null}"#).unwrap().build_cache.is_none());
        let missing = read("{}").err().unwrap().to_string();
        assert!(missing.starts_with("missing field `BuildCache`"), "{missing}");
    }
}
