//! The report for a terminal.

use crate::cgroup::{Limit, LimitKind};
use crate::finding::Finding;
use crate::measure::{AtOnce, Export, Layers, Measured, Times, Writes};
use crate::place::ExaminedPlace;
use crate::report::PlaceReport;
use std::fmt::Write;

/// etcd's limit for the 99th percentile of fdatasync, in microseconds.
const ETCD: f64 = 10_000.0;

/// Returns the lines of `report`: without findings the verdict and one line of figures, with
/// findings everything, and the verdict again.
pub(crate) fn render(report: &PlaceReport) -> String {
    let mut text = format!("{}\n", report.verdict);
    let is_short = report.findings.iter().all(|finding| finding.name == "flushes-ignored");
    if is_short {
        // A write to a string cannot fail.
        let engine = report.engine.as_ref().map_or_else(String::new, |it| it.summary() + "; ");
        let _ = writeln!(text, "{engine}{}", summary(&report.place, &report.measured));
        return text;
    }
    let _ = writeln!(text, "\n{}", place(&report.place));
    if let Some(engine) = &report.engine {
        let _ = writeln!(text, "  engine       {}", engine.summary());
        for line in engine.set_up.iter().flat_map(|set_up| &set_up.lines) {
            let _ = writeln!(text, "  set-up       {line}");
        }
        for line in engine.databases.iter().flat_map(|databases| &databases.lines) {
            let _ = writeln!(text, "  databases    {line}");
        }
    }
    figures(&mut text, &report.measured);
    for limit in &report.limits {
        let _ = writeln!(text, "  limit        {} ({})", limited(limit), limit.file.display());
    }
    for found in &report.in_force {
        let _ = writeln!(text, "  in force     {} ({})", found.name, found.evidence);
    }
    for missing in &report.not_measured {
        let _ = writeln!(text, "  not measured {}: {}", missing.what, missing.why);
    }
    for (at, finding) in (1..).zip(&report.findings) {
        block(&mut text, at, finding);
    }
    let _ = writeln!(text, "\n{}", report.verdict);
    text
}

fn summary(place: &ExaminedPlace, measured: &Measured) -> String {
    let mut parts = vec![format!("{} on {}", place.type_name, place.source)];
    parts.extend(
        measured
            .fsync
            .map(|times| format!("fsync p50 {}, p99 {}", micros(times.median), micros(times.p99))),
    );
    parts.extend(measured.fdatasync.map(|times| etcd(&times)));
    // A line has no room for all figures.
    let names = measured.names.filter(|_| measured.fsync.is_none());
    parts.extend(names.map(|names| format!("{} creates a second", whole(names.creates))));
    parts.extend(measured.random.map(|writes| random(&writes)));
    parts.extend(measured.sequential.map(|writes| sequential(&writes)));
    let export = measured.export.as_ref();
    parts.extend(export.map(|it| format!("export of an image {}/s", bytes(it.bytes_per_second))));
    parts.join("; ")
}

fn etcd(times: &Times) -> String {
    let verdict = if times.p99 < ETCD { "" } else { ", above etcd's limit of 10 ms" };
    format!("fdatasync p99 {}{verdict}", micros(times.p99))
}

fn random(writes: &Writes) -> String {
    let rate = bytes(writes.bytes_per_second);
    format!(
        "{} random writes of 4 KiB a second, {rate}/s by {}",
        whole(writes.per_second),
        writes.by
    )
}

fn sequential(writes: &Writes) -> String {
    format!("bandwidth {}/s by {}", bytes(writes.bytes_per_second), writes.by)
}

fn place(place: &ExaminedPlace) -> String {
    let mut text = format!(
        "{}: {} on {}, {} % used, {}",
        place.path.display(),
        place.type_name,
        place.source,
        place.used_percent(),
        place.mount_options
    );
    for device in &place.devices {
        let cache = device.write_cache.as_deref().unwrap_or("unknown");
        let _ = write!(text, "\n  device       {}, write cache: {cache}", device.name);
    }
    text
}

fn figures(text: &mut String, measured: &Measured) {
    let mut sync = |name: &str, times: Option<Times>, note: &str| {
        if let Some(times) = times {
            let (median, p99) = (micros(times.median), micros(times.p99));
            let _ = writeln!(
                text,
                "  {name:<12} p50 {median:>8}  p99 {p99:>8}  {} times {note}",
                times.samples
            );
        }
    };
    let limit = measured.fdatasync.map_or("", |times| {
        if times.p99 < ETCD {
            "after 2,300 bytes; within etcd's limit of 10 ms for p99"
        } else {
            "after 2,300 bytes; above etcd's limit of 10 ms for p99"
        }
    });
    sync("fsync", measured.fsync, "after 2,300 bytes");
    sync("fdatasync", measured.fdatasync, limit);
    sync("in place", measured.overwrite, "fdatasync of 4 KiB written again");
    if let Some(flushes) = measured.flushes {
        let _ = writeln!(
            text,
            "  flush        {} by the kernel's counts, {:.1} for an fsync: {:.0} % of its time is \
             the device's, {:.0} % the file system's",
            micros(flushes.mean),
            flushes.each,
            100.0 * flushes.share,
            100.0 * (1.0 - flushes.share)
        );
    }
    at_once(text, &measured.at_once);
    if let Some(names) = measured.names {
        let links = names.links.map_or("no".to_owned(), whole);
        let (creates, unlinks) = (whole(names.creates), whole(names.unlinks));
        let _ = writeln!(
            text,
            "  names        {creates} creates, {links} links, {unlinks} unlinks a second"
        );
    }
    if let Some(layers) = &measured.layers {
        layered(text, layers);
    }
    if let Some(Export { image, bytes: size, bytes_per_second, gzip, zstd }) = &measured.export {
        let (rate, size) = (bytes(*bytes_per_second), bytes(*size as f64));
        let mut line = format!("{rate}/s of {image}, {size}, as by docker save");
        for (rate, program) in [(gzip, "gzip"), (zstd, "zstd")] {
            line += &rate.map_or_else(String::new, |it| format!("; {program} {}/s", bytes(it)));
        }
        let _ = writeln!(text, "  export       {line}");
    }
    let writes =
        [measured.random.map(|it| random(&it)), measured.sequential.map(|it| sequential(&it))];
    for line in writes.into_iter().flatten() {
        let _ = writeln!(text, "  writes       {line}");
    }
}

fn at_once(text: &mut String, all: &[AtOnce]) {
    let rate = |it: &AtOnce| match it.writers {
        1 => format!("1 writer {} fsyncs a second", whole(it.per_second)),
        writers => format!("{writers} writers {} each", whole(it.per_second)),
    };
    if !all.is_empty() {
        let rates = all.iter().map(rate).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "  at once      {rates}");
    }
}

fn layered(text: &mut String, layers: &Layers) {
    for (name, times, what) in
        [("copy-up", layers.file, "file"), ("", layers.directory, "directory")]
    {
        let (median, p99) = (micros(times.median), micros(times.p99));
        let _ = writeln!(
            text,
            "  {name:<12} p50 {median:>8}  p99 {p99:>8}  {} times a {what} of a lower layer",
            times.samples
        );
    }
    let unmount = micros(layers.unmount);
    let _ = writeln!(text, "  unmount      {unmount} of an overlay; it syncs the file system");
    if let Some(writes) = &layers.random {
        let _ = writeln!(text, "  in a layer   {}", random(writes));
    }
}

fn limited(limit: &Limit) -> String {
    match limit.kind {
        LimitKind::Cpus => format!("{} CPUs", limit.value),
        LimitKind::MemoryBytes => format!("{} of memory", bytes(limit.value)),
        LimitKind::WrittenBytesPerSecond => format!("{}/s written", bytes(limit.value)),
        LimitKind::WritesPerSecond => format!("{} writes a second", limit.value),
    }
}

/// Adds the lines of the finding number `at`.
pub(crate) fn block(text: &mut String, at: usize, finding: &Finding) {
    let cost = match (finding.seconds, &finding.workload) {
        (Some(seconds), Some(workload)) => {
            format!(": at least {} of {workload}", at_least(seconds))
        }
        _ => String::new(),
    };
    let Finding { name, cause, evidence, remedy, undo, risk, .. } = finding;
    let _ = write!(
        text,
        "\n{at}. {name}{cost}\n   cause     {cause}\n   evidence  {evidence}\n   do        {remedy}\n   \
         undo      {undo}\n   risk      {risk}\n"
    );
}

/// Rounds `value`, of which there is at least so much, down to a multiple of `digit`. The error of a
/// number such as 0.3 takes no digit away.
pub(crate) fn floor(value: f64, digit: f64) -> f64 {
    (value / digit + 1e-6).floor() * digit
}

/// Formats the seconds that a finding costs at least.
pub(crate) fn at_least(seconds: f64) -> String {
    if seconds < 3.0 {
        format!("{:.1} s", floor(seconds, 0.1))
    } else {
        format!("{:.0} s", floor(seconds, 1.0))
    }
}

/// Formats microseconds as us, ms or s.
pub(crate) fn micros(count: f64) -> String {
    match count {
        ..1e3 => format!("{count:.0} us"),
        ..1e6 => format!("{:.1} ms", count / 1e3),
        _ => format!("{:.2} s", count / 1e6),
    }
}

/// Formats bytes in decimal units.
pub(crate) fn bytes(count: f64) -> String {
    match count {
        ..1e3 => format!("{count:.0} B"),
        ..1e6 => format!("{:.1} kB", count / 1e3),
        ..1e9 => format!("{:.1} MB", count / 1e6),
        _ => format!("{:.1} GB", count / 1e9),
    }
}

/// Formats a whole number with separators of thousands.
pub(crate) fn whole(count: f64) -> String {
    let digits = format!("{count:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_in_their_largest_unit() {
        assert_eq!([0.95, 2.99, 0.3, 41.9].map(at_least), ["0.9 s", "2.9 s", "0.3 s", "41 s"]);
        assert_eq!([micros(999.4), micros(7_900.0), micros(2e6)], ["999 us", "7.9 ms", "2.00 s"]);
        assert_eq!([bytes(512.0), bytes(2.5e6), bytes(3e9)], ["512 B", "2.5 MB", "3.0 GB"]);
        assert_eq!([whole(17.0), whole(1_234.0), whole(1_234_567.0)], ["17", "1,234", "1,234,567"]);
    }
}
