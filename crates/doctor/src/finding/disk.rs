//! Findings about file systems that are slow without a sync.

use super::{Action, Finding, WORTH};
use crate::measure::Measured;
use crate::place::ExaminedPlace;
use crate::text::bytes;

/// Bytes of the workload of figures about bandwidth, and what a build host should write in a
/// second.
pub(super) const WRITTEN: f64 = 1e9;
pub(super) const USUAL_BANDWIDTH: f64 = 200e6;
/// Files of the workload of figures about names, and what a build host should create in a second.
const CREATED: f64 = 10_000.0;
const USUAL_CREATES: f64 = 5_000.0;

/// Returns the finding that a file system writes few bytes a second.
pub(super) fn slow_writes(place: &ExaminedPlace, measured: &Measured) -> Option<Finding> {
    let rate = measured.sequential?.bytes_per_second;
    let seconds = WRITTEN / rate.max(1.0) - WRITTEN / USUAL_BANDWIDTH;
    let shown = bytes(rate);
    (seconds >= WORTH).then(|| Finding {
        name: "slow-writes",
        seconds: Some(seconds),
        workload: Some("1 GB of writes".to_owned()),
        cause: format!("the disk writes {shown} a second"),
        evidence: format!("writes of 1 MiB past the page cache: {shown} a second"),
        remedy: Action::words(format!(
            "put the work on another disk than that of {}",
            place.mount_point.display()
        )),
        undo: Action::words("not needed"),
        risk: "none".to_owned(),
    })
}

/// Returns the finding that a file system makes few files a second, as over a network: each name is
/// a request that the caller waits for.
pub(super) fn slow_names(place: &ExaminedPlace, measured: &Measured) -> Option<Finding> {
    let rate = measured.names?.creates;
    let seconds = CREATED / rate.max(0.1) - CREATED / USUAL_CREATES;
    let (kind, point) = (&place.type_name, place.mount_point.display());
    (seconds >= WORTH).then(|| Finding {
        name: "slow-names",
        seconds: Some(seconds),
        workload: Some("10,000 new files, as of npm, pip or git".to_owned()),
        cause: format!("{kind} makes {rate:.0} files a second, and no sync is the reason"),
        evidence: format!("creates without a sync: {rate:.0} a second"),
        remedy: Action::words(format!(
            "put the files on another file system than that of {point}, such as a local disk or \
             tmpfs, and move them as one archive"
        )),
        undo: Action::words("not needed"),
        risk: "none".to_owned(),
    })
}
