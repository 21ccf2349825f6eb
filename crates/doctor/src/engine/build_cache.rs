//! The build cache of dockerd: how large it is, and how much of it nothing uses.

use serde::{Deserialize, Serialize};
use synconce_durable::record;

/// Seconds for which `docker builder prune --filter until=168h` keeps unused records.
const WEEK: i64 = 168 * 3_600;

/// The cache of BuildKit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BuildCache {
    /// How many records it has.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of those that nothing has used for a week and nothing uses now: what the command that
    /// removes old records removes at most.
    pub unused: u64,
}

/// The answer to `/system/df`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DiskUsage {
    // `null` without records. If it is missing, that is an error.
    #[serde(deserialize_with = "Option::deserialize")]
    build_cache: Option<Vec<CacheRecord>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CacheRecord {
    size: i64,
    #[serde(default)]
    in_use: bool,
    #[serde(default)]
    created_at: Option<String>,
    /// `None`: never since it was made.
    #[serde(default)]
    last_used_at: Option<String>,
}

impl CacheRecord {
    fn bytes(&self) -> u64 {
        u64::try_from(self.size).unwrap_or(0)
    }

    /// Whether nothing has used it since the time `since`, in seconds since 1970.
    fn is_unused(&self, since: i64) -> bool {
        let used = self.last_used_at.as_deref().or(self.created_at.as_deref());
        !self.in_use && used.and_then(record::seconds).is_some_and(|used| used < since)
    }
}

impl BuildCache {
    /// Counts the records at the time `now`, RFC 3339.
    pub(super) fn from_usage(usage: &DiskUsage, now: &str) -> Self {
        let records = usage.build_cache.as_deref().unwrap_or_default();
        let bytes = records.iter().map(CacheRecord::bytes).sum();
        let since = record::seconds(now).map_or(i64::MIN, |now| now - WEEK);
        let unused = records.iter().filter(|record| record.is_unused(since));
        Self { entries: records.len() as u64, bytes, unused: unused.map(CacheRecord::bytes).sum() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_build_cache_are_counted() {
        let cache = |text| {
            let usage: DiskUsage = serde_json::from_str(text).unwrap();
            let BuildCache { entries, bytes, unused } =
                BuildCache::from_usage(&usage, "2026-11-28T12:00:00Z");
            (entries, bytes, unused)
        };
        let text = r#"{"BuildCache": [{"ID": "a", "Size": 5, "Shared": true}, {"Size": -1}]}"#;
        assert_eq!(cache(text), (2, 5, 0));
        assert_eq!(cache(r#"{"BuildCache": null}"#), (0, 0, 0));
        let missing = serde_json::from_str::<DiskUsage>("{}").err().unwrap();
        assert!(missing.to_string().starts_with("missing field `BuildCache`"), "{missing}");
        let text = r#"{"BuildCache": [
            {"Size": 1, "CreatedAt": "2026-01-01T00:00:00Z",
             "LastUsedAt": "2026-11-21T12:00:01.123456789Z"},
            {"Size": 2, "CreatedAt": "2026-01-01T00:00:00Z",
             "LastUsedAt": "2026-11-21T11:59:59.123456789Z"},
            {"Size": 4, "CreatedAt": "2026-11-01T00:00:00Z", "LastUsedAt": null},
            {"Size": 8, "CreatedAt": "2026-01-01T00:00:00Z", "InUse": true}]}"#;
        assert_eq!(cache(text), (4, 15, 6));
    }
}
