//! Layers of images that dockerd cannot mount.

use super::Unsure;
use super::driver::Driver;
use super::layer_db::LayerDb;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How many digits of a container's id dockerd shows.
const SHOWN: usize = 12;

/// Damaged layers, and what is above them.
#[derive(Debug)]
pub(super) struct Damage {
    /// The chains of the images' layers that are damaged or above a damaged one. No container
    /// is over any of them.
    pub lost: BTreeSet<String>,
    /// The configurations of the images that have such layers.
    pub images: BTreeSet<PathBuf>,
    /// The ids, shortened, of containers that are over another damaged layer. Without the entry
    /// of that layer dockerd would not list the container, and could not remove it.
    pub containers: Vec<String>,
}

impl Damage {
    /// Finds the damaged layers among those of images and containers.
    pub(super) fn find(db: &LayerDb, driver: &Driver) -> Result<Self, Unsure> {
        let (in_use, of_images) = (db.used_by(&db.containers), db.used_by(&db.images));
        let mut damaged = BTreeSet::new();
        for chain in in_use.union(&of_images) {
            let Some(layer) = db.layers.get(*chain) else { continue };
            if !driver.is_whole(&layer.id, layer.parent.is_some())? {
                damaged.insert(*chain);
            }
        }
        let (left, lost): (BTreeSet<_>, BTreeSet<_>) =
            damaged.into_iter().partition(|chain| in_use.contains(chain));
        let has = |top: &str, damaged: &BTreeSet<&str>| {
            db.stack(top).any(|chain| damaged.contains(chain))
        };
        let containers = db.containers.iter().filter(|user| has(&user.top, &left));
        let images = db.images.iter().filter(|user| has(&user.top, &lost));
        Ok(Self {
            containers: containers.map(|user| shown(&user.path)).collect(),
            images: images.map(|user| user.path.clone()).collect(),
            lost: of_images
                .iter()
                .filter(|top| has(top, &lost))
                .map(|top| top.to_string())
                .collect(),
        })
    }
}

/// Returns the id of a container as dockerd shows it.
fn shown(entry: &Path) -> String {
    let id = entry.file_name().unwrap_or_default().to_string_lossy();
    id.chars().take(SHOWN).collect()
}
