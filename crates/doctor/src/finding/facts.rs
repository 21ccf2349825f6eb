//! What findings are derived from, beside the figures.

use crate::cgroup::Limit;
use crate::engine::ContainerEngine;
use crate::host::Host;
use crate::place::{ExaminedPlace, Space};
use synconce_durable::text::printable;

/// The workload of figures about syncs: build-essential, ca-certificates and libssl-dev into a
/// Debian 12 root (docs/benchmarks.md).
pub(super) const INSTALL: &str = "an install of 55 packages";
/// Its fsync calls, each of which waits for at least one flush.
pub(super) const INSTALL_SYNCS: f64 = 5_210.0;

/// What findings are derived from, beside the figures.
pub(crate) struct Facts<'a> {
    pub place: &'a ExaminedPlace,
    pub host: &'a Host,
    pub limits: &'a [Limit],
    /// Whether the place had space for temporary files.
    pub space: Space,
    /// The engine whose data are at the place.
    pub engine: Option<&'a ContainerEngine>,
}

impl Facts<'_> {
    /// Returns what the verdict is about.
    pub(super) fn subject(&self) -> String {
        let path = printable(&self.place.path.to_string_lossy());
        let Some(engine) = self.engine else { return path };
        format!("{} ({path})", engine.name)
    }

    /// Returns why the syncs of build steps wait for no disk, if they do not.
    pub(super) fn held_builds(&self) -> Option<&'static str> {
        self.engine.and_then(ContainerEngine::builds_are_held)
    }
}
