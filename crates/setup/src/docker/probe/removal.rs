//! Removes the container, the images and the build cache records that a probe made in dockerd.

use super::records::{self, CacheRecord, DiskUsage, OwnRecords};
use super::{DockerProbe, NOTHING, now};
use crate::probe::requests::{Removed, after_grace, until_gone};
use serde_json::{Value, json};
use synconce_probe::docker::disk_usage_path;

const NOT_FOUND: u16 = 404;
/// What happens to records of the build cache that are not removed.
pub(super) const STAYS: &str = "a record of a few kB stays in the build cache until dockerd's own garbage \
                     collection removes it";

impl DockerProbe<'_> {
    /// Removes everything that the probe made. A cancellation takes effect only after a grace period
    /// ([`after_grace`]).
    pub(super) fn remove(&self) -> Removed {
        let is_cancelled = after_grace(self.requests.is_cancelled);
        let (container, step, image) = (self.container(), self.step(), self.image());
        let things = [
            (format!("/containers/{container}?force=1&v=1"), "docker rm --force", container),
            (format!("/images/{step}"), "docker image rm", step),
            (format!("/images/{image}"), "docker image rm", image),
        ];
        let failed = things.iter().filter_map(|(path, command, name)| {
            let why = self.remove_thing(path, name, &is_cancelled).err()?;
            Some(format!("{why}; remove it: {command} {name}"))
        });
        let mut removed = Removed { left: failed.collect(), notes: Vec::new() };
        self.remove_records(&mut removed, &is_cancelled);
        removed
    }

    /// Removes `name`. If the request that creates `name` was cut, dockerd may still create it:
    /// then waits until `name` appears, with the time limit of [`until_gone`].
    fn remove_thing(
        &self,
        path: &str,
        name: &str,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let is_cut = self.requests.cut.borrow().as_deref() == Some(name);
        let expected =
            until_gone(false, || match self.send("DELETE", path, NOTHING, is_cancelled)? {
                (NOT_FOUND, _) => Ok(Vec::from_iter(is_cut.then_some(name))),
                (status, body) => self.success(status, body).map(|_| Vec::new()),
            })?;
        let Some(name) = expected.first() else { return Ok(()) };
        Err(format!("dockerd may still make {name}: its request was cut"))
    }

    /// Removes the probe's records of the build cache, and adds to `removed` what stays.
    fn remove_records(&self, removed: &mut Removed, is_cancelled: &dyn Fn() -> bool) {
        let list = || self.records(is_cancelled).map_err(|why| format!("{why}; {STAYS}"));
        let records = match list() {
            Ok(records) => records,
            Err(why) => return removed.left.push(why),
        };
        let dockerfile = self.dockerfile().len();
        let times = self.begin..=now();
        let probed = records::Probed { name: &self.name, dockerfile, times, store: self.store };
        let OwnRecords { mut ids, is_in_doubt } = probed.records(&records);
        if is_in_doubt {
            removed.notes.push(format!("another build ran beside the probe; {STAYS}"));
        }
        let remedy = |id: &str| format!("remove it: docker builder prune --all --filter id={id}");
        let removal = until_gone(false, || {
            ids.retain(|id| match self.prune(id, is_cancelled) {
                Ok(is_removed) => !is_removed,
                Err(why) => {
                    removed.left.push(format!("{why}; {}", remedy(id)));
                    false
                }
            });
            Ok(ids.clone())
        });
        if removal.is_ok_and(|left| left.is_empty()) {
            return;
        }
        match list() {
            Ok(now) => ids.retain(|id| now.iter().any(|record| record.id == **id)),
            Err(why) => return removed.left.push(why),
        }
        let in_use = |id| format!("the record {id} of the build cache is in use; {}", remedy(id));
        removed.left.extend(ids.into_iter().map(in_use));
    }

    /// Removes the record `id` of the build cache. Returns whether dockerd removed the record:
    /// dockerd keeps a record in use.
    fn prune(&self, id: &str, is_cancelled: &dyn Fn() -> bool) -> Result<bool, String> {
        // {"id":["ID"]}, percent-encoded.
        let filter = format!("%7B%22id%22%3A%5B%22{id}%22%5D%7D");
        let path = format!("/build/prune?all=1&filters={filter}");
        let (status, body) = self.send("POST", &path, NOTHING, is_cancelled)?;
        let pruned: Value = serde_json::from_str(&self.success(status, body)?).unwrap_or_default();
        let mut ids = pruned["CachesDeleted"].as_array().into_iter().flatten();
        Ok(ids.any(|pruned| *pruned == json!(id)))
    }

    /// Returns all records of the build cache.
    fn records(&self, is_cancelled: &dyn Fn() -> bool) -> Result<Vec<CacheRecord>, String> {
        let get = |path: &str| {
            let (status, body) = self.send("GET", path, NOTHING, is_cancelled)?;
            self.success(status, body)
        };
        let version: Value = serde_json::from_str(&get("/version")?).unwrap_or_default();
        let version = version["ApiVersion"].as_str().unwrap_or_default();
        // Before Docker 23 the list cannot be limited to the build cache.
        let path = disk_usage_path(version).unwrap_or_else(|| "/system/df".to_owned());
        let usage: DiskUsage = serde_json::from_str(&get(&path)?)
            .map_err(|error| self.failed(&format!("{path} lists no build cache: {error}")))?;
        Ok(usage.build_cache.unwrap_or_default())
    }
}
