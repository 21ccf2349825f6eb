//! Causes of slowness, by the least seconds that their remedies save. Pure: figures in, findings
//! out.

mod cause;
mod databases;
mod disk;
mod engine;
mod facts;
mod limits;

pub(crate) use cause::NO_UNDO;
pub use cause::{Action, Finding};
pub(crate) use facts::Facts;

use crate::engine::ContainerEngine;
use crate::in_force::{InForce, Skipping};
use crate::measure::Measured;
use crate::place::{ExaminedPlace, Space};
use crate::preload::{PRELOAD_FILE, preload_removal};
use crate::units::{at_least, bytes, micros};
use cause::WORTH;
use facts::{INSTALL, INSTALL_SYNCS};
use std::path::Path;
use synconce_durable::text::quote;

/// Flushes of the same install under dpkg's force-unsafe-io, rounded down.
const UNSAFE_INSTALL_SYNCS: f64 = 2_100.0;
/// Microseconds of a call that a supervised run holds.
const HELD_CALL: f64 = 24.0;
/// No disk without a protected cache flushes in fewer microseconds.
const FASTEST_FLUSH: f64 = 300.0;
/// Files of the workload of copy-ups.
const CHOWNED: f64 = 10_000.0;
/// File systems that are this full, in percent, slow down.
const NEARLY_FULL: u64 = 95;

/// The names of all findings.
pub const FINDINGS: [&str; 24] = [
    "cpu-limit",
    "eatmydata",
    "emulated",
    "flushes-ignored",
    "full",
    "fuse-overlayfs",
    "io-limit-bytes",
    "io-limit-writes",
    "large-freelist",
    "man-db-trigger",
    "native",
    "nearly-full",
    "no-native-diff",
    "no-sync",
    "overlay-copy-up",
    "repeated-triggers",
    "set-up-not-in-force",
    "slow-names",
    "slow-sync",
    "slow-transactions",
    "slow-writes",
    "step-copy-up",
    "unread-files",
    "vfs",
];

/// Returns the names of those of `all` that are `ignored`, and the others.
pub(crate) fn split(all: Vec<Finding>, ignored: &[String]) -> (Vec<&'static str>, Vec<Finding>) {
    let is_ignored = |found: &Finding| ignored.iter().any(|name| name == found.name);
    let (ignored, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_ignored);
    (ignored.into_iter().map(|found| found.name).collect(), others)
}

/// Returns the seconds of the most costly of `findings`.
pub(crate) fn most_seconds(findings: &[Finding]) -> f64 {
    findings.iter().filter_map(|finding| finding.seconds).fold(0.0, f64::max)
}

/// Returns the findings, the most costly first; those without a figure follow.
pub(crate) fn derive(facts: &Facts<'_>, in_force: &[InForce], measured: &Measured) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        facts.limits.iter().filter_map(|it| limits::finding(it, facts)).collect();
    let skips = |whose| in_force.iter().find(|found| found.skipping == whose);
    let is_skipped =
        skips(Skipping::OfThisProcess).or(skips(Skipping::OfDynamicPrograms)).is_some();
    if !is_skipped && !facts.place.needs_no_sync() {
        found.extend(slow_sync(facts, skips(Skipping::OfDpkg), measured));
        found.extend(copy_up(facts, measured));
        found.extend(ignored_flushes(facts.place, measured));
    }
    let is_limited = |kind: &str| found.iter().any(|finding| finding.name.starts_with(kind));
    let (of_io, of_cpus) = (is_limited("io-limit"), is_limited("cpu-limit"));
    found.extend(disk::slow_writes(facts.place, measured).filter(|_| !of_io));
    found.extend(disk::slow_names(facts.place, measured).filter(|_| !of_io && !of_cpus));
    if let Some(engine) = facts.engine {
        found.extend(engine::of_set_up(engine));
        found.extend(engine::of_no_sync(engine));
        found.extend(engine::of_storage(engine, facts.place));
        found.extend(engine::of_images(engine));
        found.extend(databases::slow_transactions(engine, least_sync(measured)));
        found.extend(databases::large_freelist(engine, measured));
        found.extend(measured.layers.and_then(|layers| engine::of_copy_up(engine, &layers)));
    }
    found.extend(skips(Skipping::OfDynamicPrograms).map(preloaded));
    found.extend(full(facts));
    let slow_sync = found.iter().find(|it| it.name == "slow-sync").and_then(|it| it.seconds);
    let rank = |finding: &Finding| match finding.name {
        "full" => f64::INFINITY,
        // The remedy begins with that of the slow syncs.
        "step-copy-up" => finding.seconds.unwrap_or(0.0).min(slow_sync.unwrap_or(f64::INFINITY)),
        // Nothing to change follows from it.
        "flushes-ignored" => -1.0,
        _ => finding.seconds.unwrap_or(0.0),
    };
    found.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    found
}

/// Returns the sentence that begins and ends the report.
pub(crate) fn verdict(
    facts: &Facts<'_>,
    in_force: &[InForce],
    measured: &Measured,
    findings: &[Finding],
    ignored: &[&str],
) -> String {
    let path = facts.subject();
    if let Some(Finding { name, seconds: Some(seconds), workload, cause, .. }) = findings.first() {
        let workload = workload.as_deref().unwrap_or_default();
        let seconds = at_least(*seconds);
        return format!("{path}: {name} costs at least {seconds} of {workload}: {cause}");
    }
    if let Some(first) = findings.first() {
        let waits = (first.name == "flushes-ignored").then(|| waits(measured)).flatten();
        let waits = waits.unwrap_or_default();
        return format!("{path}: {}: {}{waits}", first.name, first.cause);
    }
    if !ignored.is_empty() {
        return format!("{path}: nothing beside what --ignore leaves out: {}", ignored.join(", "));
    }
    if let Some(held) = in_force.iter().find(|it| it.skipping == Skipping::OfThisProcess) {
        return format!("{path}: nothing to change: {} holds the syncs already", held.name);
    }
    if facts.place.needs_no_sync() {
        let kind = if facts.place.in_memory { "in memory" } else { "volatile" };
        let name = &facts.place.type_name;
        return format!("{path}: nothing to change: {name} is {kind}, and no sync reaches a disk");
    }
    if facts.space == Space::TooSmall {
        return format!("{path}: nothing was measured: the file system is too small");
    }
    if let Some(why) = facts.held_builds() {
        return format!("{path}: nothing to change: {why}");
    }
    match measured.fsync {
        Some(times) => {
            let time = micros(times.median);
            format!("{path}: nothing to change: an fsync takes {time}, and no limit is near")
        }
        None => format!("{path}: nothing to change was found"),
    }
}

/// Returns what the syncs of an install take, where no flush is slow: other work can delay them.
fn waits(measured: &Measured) -> Option<String> {
    let least = at_least(INSTALL_SYNCS * least_sync(measured)? / 1e6);
    let usual = micros(INSTALL_SYNCS * measured.fsync?.median);
    Some(format!("; the syncs of {INSTALL} take at least {least}, and about {usual} now"))
}

/// Returns the least microseconds of a sync that waits for one flush.
fn least_sync(measured: &Measured) -> Option<f64> {
    let overwrite = measured.overwrite?;
    if overwrite.fastest < FASTEST_FLUSH {
        return Some(overwrite.fastest);
    }
    let mean = measured.flushes.map_or(f64::INFINITY, |flushes| flushes.mean);
    Some(overwrite.quarter.min(measured.fsync?.quarter).min(mean))
}

fn slow_sync(
    facts: &Facts<'_>,
    unsafe_io: Option<&InForce>,
    measured: &Measured,
) -> Option<Finding> {
    if facts.held_builds().is_some() {
        return None;
    }
    let place = facts.place;
    // Base images of Debian and Ubuntu have force-unsafe-io.
    let (count, how) = match (facts.engine, unsafe_io) {
        (Some(ContainerEngine { name: "containerd", .. }), _) => engine::IMPORTS,
        (None, None) => (INSTALL_SYNCS, "the install makes 5,210 fsync calls"),
        _ => {
            let how = "the install waits for 2,100 flushes in spite of force-unsafe-io";
            (UNSAFE_INSTALL_SYNCS, how)
        }
    };
    let each = least_sync(measured)?;
    // The commit of the run at its end.
    let commit = measured.fsync?.p99;
    let seconds = (count * (each - HELD_CALL) - commit) / 1e6;
    let share = measured.flushes.map_or_else(String::new, |flushes| {
        format!("; {:.0} % of the time of an fsync is the device's", 100.0 * flushes.share)
    });
    let shown = micros(each);
    let is_held = place.is_held_kind();
    let (remedy, risk) = if is_held {
        (
            Action::command("synconce run -- apt-get install PACKAGE..."),
            "a power cut during the run leaves files empty or old; `synconce status` then reports \
             the run",
        )
    } else {
        (
            Action::words(format!(
                "work on a local disk: synconce holds no syncs on {}",
                place.type_name
            )),
            "none",
        )
    };
    let finding = Finding {
        name: "slow-sync",
        seconds: Some(seconds),
        workload: Some(INSTALL.to_owned()),
        cause: format!("{how}, and most take at least {}", at_least(each / 1e6)),
        evidence: format!("a sync that needs one flush takes {shown} here{share}"),
        remedy,
        undo: Action::words(NO_UNDO),
        risk: risk.to_owned(),
    };
    let engine = facts.engine.filter(|_| is_held);
    (seconds >= WORTH).then(|| match engine {
        Some(engine) => engine::of_steps(engine, finding),
        None => finding,
    })
}

/// A copy-up of data ends with a sync in the kernel, where no hold of calls reaches
/// (`ovl_copy_up_file` in fs/overlayfs/copy_up.c). With metacopy a chown copies no data.
fn copy_up(facts: &Facts<'_>, measured: &Measured) -> Option<Finding> {
    let overlay = facts.place.overlay.as_ref()?;
    if overlay.metacopy {
        return None;
    }
    let seconds = CHOWNED * least_sync(measured)? / 1e6;
    let mut evidence =
        format!("{} is an overlay without metacopy", facts.place.mount_point.display());
    if facts.host.version() >= (6, 12) {
        evidence += "; since Linux 6.12 directories and empty files may be synced, too";
    }
    (seconds >= WORTH).then(|| Finding {
        name: "overlay-copy-up",
        seconds: Some(seconds),
        workload: Some("a chown -R of 10,000 files of a lower layer".to_owned()),
        cause: "the kernel syncs each file that it copies up, which no hold of calls reaches"
            .to_owned(),
        evidence,
        remedy: Action::words(
            "set owners where files are made: COPY --chown=USER in place of RUN chown -R; or \
             mount the overlay of throw-away work with -o volatile",
        ),
        undo: Action::words("not needed"),
        risk: "a volatile overlay is lost in a power cut".to_owned(),
    })
}

fn ignored_flushes(place: &ExaminedPlace, measured: &Measured) -> Option<Finding> {
    let mean = measured.flushes.map_or(f64::INFINITY, |flushes| flushes.mean);
    let fastest = measured.overwrite?.fastest.min(mean);
    let is_write_back = place.devices.iter().any(|device| device.is_write_back());
    (is_write_back && fastest < FASTEST_FLUSH).then(|| Finding {
        name: "flushes-ignored",
        seconds: None,
        workload: None,
        cause: format!("a flush returns in {}, and may reach no medium", micros(fastest)),
        evidence: "the device has a volatile write cache, and is faster than such a disk can be"
            .to_owned(),
        remedy: Action::words(
            "nothing here: ask the operator of the host whether the disk has a protected cache",
        ),
        undo: Action::words("not needed"),
        risk: "no commit can promise what the host of a virtual machine ignores".to_owned(),
    })
}

fn preloaded(found: &InForce) -> Finding {
    // No environment changes what the file preloads.
    let (remedy, undo) = match &found.preload {
        Some(library) => {
            let removal = preload_removal(library);
            let word = quote(Path::new(library));
            (
                Action::Command(format!("{removal} && synconce run -- COMMAND")),
                Action::Command(format!("echo {word} >>{PRELOAD_FILE}")),
            )
        }
        None => {
            let remedy = "env -u LD_PRELOAD synconce run -- COMMAND";
            (Action::command(remedy), Action::words(NO_UNDO))
        }
    };
    Finding {
        name: "eatmydata",
        seconds: None,
        workload: None,
        cause: format!(
            "{} is in force, so most commands skip their syncs, and nothing syncs at the end",
            found.name
        ),
        evidence: found.evidence.clone(),
        remedy,
        undo,
        risk: "as it is now: data are lost in a power cut after exit code 0".to_owned(),
    }
}

fn full(facts: &Facts<'_>) -> Option<Finding> {
    let place = facts.place;
    let used = place.used_percent();
    let path: &Path = &place.mount_point;
    let (name, cause) = match facts.space {
        Space::Full => ("full", "the file system has too little free space to measure"),
        _ if used >= NEARLY_FULL => ("nearly-full", "a file system this full slows down"),
        _ => return None,
    };
    let files = place.available_files.map_or_else(String::new, |it| format!(", {it} free files"));
    Some(Finding {
        name,
        seconds: None,
        workload: None,
        cause: cause.to_owned(),
        evidence: format!("{used} % used, {} free{files}", bytes(place.available as f64)),
        remedy: match facts.engine {
            Some(engine) => Action::Command(engine::prune(engine)),
            None => Action::words(format!("free some space on {}", path.display())),
        },
        undo: Action::words("not needed"),
        risk: "what is removed is gone".to_owned(),
    })
}

#[cfg(test)]
pub(crate) mod tests;
