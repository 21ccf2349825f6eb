//! Findings about file systems that are slow without a sync.

use super::cause::{Action, Finding, WORTH};
use crate::measure::{LEAST_CREATES, Measured};
use crate::place::ExaminedPlace;
use crate::units::{at_least, bytes};
use synconce_durable::text::quote;

/// The workload of figures about bandwidth, in bytes.
pub(super) const WRITTEN: f64 = 1e9;
/// Bytes a second that a build host should write.
pub(super) const USUAL_BANDWIDTH: f64 = 200e6;
/// The workload of figures about names, in files.
const CREATED: f64 = 10_000.0;
/// Microseconds in which a build host should create a file.
const USUAL_CREATE: f64 = 200.0;

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
            "put the work on another disk: {} is on this disk",
            place.mount_point.display()
        )),
        undo: Action::words("not needed"),
        risk: "none".to_owned(),
    })
}

/// Returns the finding that most new files wait, although no call syncs them: over a network each
/// name is a request that the caller waits for. A few slow creates are no finding: they may wait
/// for other work.
pub(super) fn slow_names(place: &ExaminedPlace, measured: &Measured) -> Option<Finding> {
    let create = measured.names?.create.filter(|times| times.samples >= LEAST_CREATES)?;
    let seconds = CREATED * (create.quarter - USUAL_CREATE) / 1e6;
    let (kind, point) = (&place.type_name, place.mount_point.display());
    let least = at_least(create.quarter / 1e6);
    let elsewhere = Action::Words(format!(
        "put the files on another file system, such as a local disk or tmpfs, and move them to {point} \
         as one archive"
    ));
    let finding = Finding {
        name: "slow-names",
        seconds: Some(seconds),
        workload: Some("10,000 new files, as of npm, pip or git".to_owned()),
        cause: format!("most new files on {kind} take at least {least}, and no sync is the reason"),
        evidence: format!(
            "most of {} creates without a sync take at least {least}",
            create.samples
        ),
        remedy: elsewhere,
        undo: Action::words("not needed"),
        risk: "none".to_owned(),
    };
    (seconds >= WORTH).then(|| match synchronous_option(place) {
        Some(option) => of_option(option, place, &least, finding),
        None => finding,
    })
}

/// Returns the mount option that makes a disk's file system write each new name before the call
/// returns (mount(8)). On a network file system this option changes only the client's cache.
fn synchronous_option(place: &ExaminedPlace) -> Option<&'static str> {
    let has = |option: &&str| place.mount_options.split(',').any(|it| it == *option);
    ["sync", "dirsync"].into_iter().find(has).filter(|_| place.is_held_kind())
}

/// Returns the finding about slow names with the mount option `option` as its cause.
fn of_option(option: &str, place: &ExaminedPlace, least: &str, finding: Finding) -> Finding {
    let point = quote(&place.mount_point);
    let (remedy, undo) = match option {
        "sync" => (
            Action::Command(format!("mount -o remount,async {point}")),
            Action::Command(format!("mount -o remount,sync {point}")),
        ),
        // A remount keeps the option (`MS_RMT_MASK` in include/uapi/linux/mount.h).
        _ => (
            Action::Words(format!(
                "take {option} out of the options of {point}, such as in /etc/fstab, then unmount \
                 and mount it: a remount keeps {option}"
            )),
            Action::words("put the option back, then unmount and mount it"),
        ),
    };
    Finding {
        cause: format!("{option} is a mount option: most new files take at least {least}"),
        remedy,
        undo,
        risk:
            "a power cut loses new names that no sync has written; /etc/fstab may have the option \
               for the next boot"
                .to_owned(),
        ..finding
    }
}
