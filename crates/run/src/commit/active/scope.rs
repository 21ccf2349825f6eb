//! The file systems that the commit covers.

use super::sealed_scope::SealedScope;
use crate::options::RunOptions;
use crate::report::protocol::Notice;
use std::collections::HashSet;
use synconce_durable::mutant;
use synconce_durable::pins::Pins;
use synconce_probe::mounts::DeviceId;

/// The file systems that were named, and those on which a call was held.
pub(crate) struct Scope {
    /// The only file systems on which calls are held, with `--commit-only`.
    pub(super) only: Option<HashSet<DeviceId>>,
    /// The file systems that are committed.
    pub(super) devices: HashSet<DeviceId>,
    /// Whether a sync() was held; the commit then calls sync(2).
    pub(super) holds_sync: bool,
    /// Set once the filter answers without a supervisor, or a call was held whose file system is
    /// unknown.
    pub(super) sealed: Option<SealedScope>,
}

impl Scope {
    /// Returns the scope of a run that has held nothing.
    pub(super) fn new(options: &RunOptions, named: HashSet<DeviceId>) -> Self {
        let only = (!options.commit_only.is_empty()).then(|| named.clone());
        Self { only, devices: named, holds_sync: false, sealed: None }
    }

    /// Whether calls on `device` may be held.
    pub(super) fn admits(&self, device: DeviceId) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&device))
    }

    /// Whether the commit covers more than [`Scope::devices`].
    pub(super) fn takes_all(&self) -> bool {
        self.holds_sync || self.sealed.is_some()
    }

    /// Adds the file systems `devices` of a held call; none for sync().
    pub(super) fn add_call(&mut self, devices: &[DeviceId], pins: &Pins) {
        // With --commit-only a held sync() covers only the named file systems.
        self.holds_sync |= devices.is_empty() && self.only.is_none();
        devices.iter().for_each(|device| self.add(*device, pins));
    }

    /// Adds `device`, and the upper file systems if it is an overlay.
    pub(super) fn add(&mut self, device: DeviceId, pins: &Pins) {
        self.devices.insert(device);
        self.devices.extend(pins.find(device).into_iter().flat_map(|pin| &pin.uppers));
    }

    /// Notes that a call was held whose file system is unknown: the commit covers what the
    /// commit of a sealed run covers.
    pub(crate) fn add_everything(&mut self) {
        if mutant::is("unseen-uncovered") {
            self.holds_sync = false;
            return;
        }
        self.sealed.get_or_insert_default();
    }

    /// Returns the notice about FUSE file systems whose syncs a sealed run held and did not
    /// commit.
    pub(crate) fn uncommitted_fuse(&self) -> Option<Notice> {
        self.sealed.as_ref()?.uncommitted_fuse()
    }
}
