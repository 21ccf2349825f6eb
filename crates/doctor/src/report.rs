//! The result of an examination.

use crate::cgroup::Limit;
use crate::engine::ContainerEngine;
use crate::finding::{self, Finding};
use crate::host::Host;
use crate::in_force::InForce;
use crate::measure::Measured;
use crate::not_measured::NotMeasured;
use crate::place::ExaminedPlace;
use serde::Serialize;

/// What was found at a place.
#[derive(Clone, Debug, Serialize)]
pub struct PlaceReport {
    /// One sentence.
    pub verdict: String,
    /// The engine whose data are there.
    pub engine: Option<ContainerEngine>,
    /// The file system.
    pub place: ExaminedPlace,
    /// The machine.
    pub host: Host,
    /// Limits of control groups.
    pub limits: Vec<Limit>,
    /// What skips syncs already.
    pub in_force: Vec<InForce>,
    /// The figures.
    pub measured: Measured,
    /// What has no figure.
    pub not_measured: Vec<NotMeasured>,
    /// Causes, the most costly first.
    pub findings: Vec<Finding>,
    /// Names of findings that were left out, as asked.
    pub ignored: Vec<&'static str>,
}

impl PlaceReport {
    /// Returns the least seconds that the remedy of the first finding saves.
    pub fn most_seconds(&self) -> f64 {
        finding::most_seconds(&self.findings)
    }
}
