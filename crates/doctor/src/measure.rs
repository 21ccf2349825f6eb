//! The measurements. Each is bounded by a time and by a number of samples, and looks for
//! signals between two samples.

mod at_once;
mod clock;
pub(crate) mod export;
mod layers;
pub(crate) mod load;
mod names;
mod syncs;
mod transaction;
mod writes;

pub use at_once::AtOnce;
pub use export::Export;
pub use layers::Layers;
pub use load::Load;
pub(crate) use names::LEAST_CREATES;
pub use names::NameRates;
pub use syncs::{DeviceFlushes, Times};
pub use transaction::Transaction;
pub use writes::Writes;

use crate::engine::ContainerEngine;
use crate::error::Error;
use crate::not_measured::NotMeasured;
use crate::observer::Observer;
use crate::place::ExaminedPlace;
use crate::scratch::Scratch;
use clock::Bound;
use layers::LayersBudget;
use serde::Serialize;
use std::time::Duration;
use transaction::TransactionBudget;

/// The figures; `None` for what was not measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measured {
    /// fsync after an append of 2,300 bytes.
    pub fsync: Option<Times>,
    /// fdatasync after an append of 2,300 bytes, which is etcd's check of a disk.
    pub fdatasync: Option<Times>,
    /// fdatasync after 4 KiB were written again in place, which needs the least work of the file
    /// system.
    pub overwrite: Option<Times>,
    /// A transaction of the engine's databases; none where they sync nothing.
    pub transaction: Option<Transaction>,
    /// What the devices did meanwhile, by the kernel's counts.
    pub flushes: Option<DeviceFlushes>,
    /// fsync after an append of 2,300 bytes by 1, 2 and 3 writers at once; empty where not measured.
    pub at_once: Vec<AtOnce>,
    /// Creates, links and unlinks.
    pub names: Option<NameRates>,
    /// An overlay whose layers are at the place; of engines that mount overlays.
    pub layers: Option<Layers>,
    /// An export of an image by the engine.
    pub export: Option<Export>,
    /// A load of an image by dockerd.
    pub load: Option<Load>,
    /// Random writes of 4 KiB past the page cache.
    pub random: Option<Writes>,
    /// Sequential writes of 1 MiB past the page cache.
    pub sequential: Option<Writes>,
}

/// How long the measurements take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Syncs and names, within some ten seconds.
    Quick,
    /// Also random and sequential writes, and more samples, within a minute.
    Full,
}

/// The bounds of the measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// For each kind of sync.
    syncs: Bound,
    /// For each number of writers at once; `None` leaves them out.
    at_once: Option<Bound>,
    /// For a transaction of the engine's databases; `None` leaves it out.
    transaction: Option<TransactionBudget>,
    /// For each kind of name.
    names: Bound,
    /// For an overlay; `None` leaves it out.
    layers: Option<LayersBudget>,
    /// For each kind of write; `None` leaves them out.
    writes: Option<Duration>,
}

impl Budget {
    /// Returns the bounds of `depth`, with an overlay if `engine` mounts overlays.
    pub(crate) fn for_depth(depth: Depth, engine: Option<&ContainerEngine>) -> Self {
        let bound =
            |milliseconds, samples| Bound { time: Duration::from_millis(milliseconds), samples };
        let at_once = (depth == Depth::Full).then(|| bound(1_000, 1_000));
        let (syncs, names, copies, writes) = match depth {
            Depth::Quick => (bound(2_000, 400), bound(300, 3_000), bound(500, 25), None),
            Depth::Full => (
                bound(4_000, 1_000),
                bound(1_000, 10_000),
                bound(2_000, 100),
                Some(Duration::from_secs(5)),
            ),
        };
        let mounts_overlays = engine.is_some_and(ContainerEngine::mounts_overlays);
        let layers = mounts_overlays.then_some(LayersBudget { copies, writes });
        let transaction = engine.and_then(|it| TransactionBudget::for_engine(it, copies));
        Self { syncs, at_once, transaction, names, layers, writes }
    }

    /// Returns the most that the temporary files of syncs and names occupy. Writes take a part
    /// of what is free.
    pub(crate) fn bytes(&self) -> u64 {
        let writers = self.at_once.map_or(0, |bound| bound.samples * at_once::FILES);
        let appended = (2 * self.syncs.samples + writers) as u64 * syncs::APPENDED as u64;
        let copied = self.layers.map_or(0, |layers| layers.bytes());
        let list = self.transaction.map_or(0, |transaction| transaction.bytes());
        // A new file takes an inode and an entry.
        appended + copied + list + self.names.samples as u64 * 1024 + (1 << 20)
    }
}

/// Runs the measurements. Syncs are left out where `no_syncs` says why they mean nothing.
///
/// # Errors
/// The place cannot be written, or a signal has arrived.
pub(crate) fn measure(
    place: &ExaminedPlace,
    budget: &Budget,
    no_syncs: Option<&str>,
    observer: &mut dyn Observer,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<Measured, Error> {
    let file = budget.writes.map_or(0, |_| writes::size(place));
    let scratch = Scratch::new(&place.path)?;
    observer.will_write(budget.bytes() + file, &place.path);
    let mut measured = Measured::default();
    match no_syncs {
        Some(why) => not_measured.push(NotMeasured::new("fsync and fdatasync", why)),
        None => {
            syncs::measure(place, &scratch, budget.syncs, observer, &mut measured)?;
            if let Some(bound) = budget.at_once {
                measured.at_once = at_once::measure(&scratch, bound, observer)?;
            }
            if let Some(budget) = budget.transaction {
                transaction::measure(&scratch, budget, observer, &mut measured)?;
            }
            if measured.flushes.is_none() {
                not_measured.push(NotMeasured::new("flushes of the device", no_flushes(place)));
            }
        }
    }
    measured.names = Some(names::measure(&scratch, budget.names, observer)?);
    if let Some(layers) = &budget.layers {
        measured.layers = layers::measure(&scratch, layers, file, observer, not_measured)?;
    }
    match budget.writes {
        Some(time) => writes::measure(&scratch, file, time, observer, &mut measured, not_measured)?,
        None => {
            let why = "they take --full";
            not_measured.push(NotMeasured::new("random writes and bandwidth", why));
        }
    }
    scratch.remove()?;
    Ok(measured)
}

/// Returns why the kernel has no counts of flushes.
fn no_flushes(place: &ExaminedPlace) -> &'static str {
    if place.devices.is_empty() {
        return "no block device of the file system is visible here";
    }
    let flushed = place.devices.iter().any(|device| device.is_write_back());
    if flushed {
        "the kernel counted none (it counts since Linux 5.5, and none below some drivers)"
    } else {
        "the device says that it has no volatile write cache, so none is sent"
    }
}

#[cfg(test)]
mod tests;
