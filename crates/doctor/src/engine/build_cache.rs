//! The build cache of dockerd: how large it is, and how much of it nothing uses.

use serde::{Deserialize, Serialize};
use synconce_durable::record;

/// The API that can list the build cache alone (Docker 23), and the last that we know.
const WITH_TYPE: u32 = 42;
const LAST: u32 = 51;
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

/// Returns the path that lists the build cache and no more, if the API `version` has one.
pub(super) fn disk_usage_path(version: &str) -> Option<String> {
    let minor: u32 = version.strip_prefix("1.")?.parse().ok()?;
    (minor >= WITH_TYPE).then(|| format!("/v1.{}/system/df?type=build-cache", minor.min(LAST)))
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
    fn the_build_cache_is_asked_for_only_where_that_walks_no_volumes() {
        let path = |minor: u32| Some(format!("/v1.{minor}/system/df?type=build-cache"));
        assert_eq!(disk_usage_path("1.41"), None);
        assert_eq!(disk_usage_path("1.42"), path(42));
        assert_eq!(disk_usage_path("1.47"), path(47));
        assert_eq!(disk_usage_path("1.60"), path(51));
        assert_eq!(disk_usage_path("2.0"), None);
    }

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
