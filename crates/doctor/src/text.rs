//! The report for a terminal.

use crate::cgroup::{Limit, LimitKind};
use crate::device::Device;
use crate::engine::ContainerEngine;
use crate::finding::Finding;
use crate::in_force::InForce;
use crate::measure::{
    AtOnce, DeviceFlushes, Export, Layers, Load, Measured, NameRates, Times, Transaction, Writes,
};
use crate::place::ExaminedPlace;
use crate::report::PlaceReport;
use crate::units::{at_least, bytes, micros, whole};
use std::fmt::Write;
use synconce_durable::text::printable;

/// etcd's limit for the 99th percentile of fdatasync, in microseconds.
const ETCD: f64 = 10_000.0;

impl PlaceReport {
    /// Returns the report for a terminal.
    pub fn text(&self) -> String {
        render(self)
    }
}

/// Returns the lines of `report`: without findings the verdict and one line of figures, with
/// findings everything.
fn render(report: &PlaceReport) -> String {
    let mut text = format!("{}\n", report.verdict);
    let is_short = report.findings.iter().all(|finding| finding.name == "flushes-ignored");
    if is_short {
        // A write to a string cannot fail.
        let engine = report.engine.as_ref().map_or_else(String::new, |it| it.summary() + "; ");
        let _ = writeln!(text, "{engine}{}", summary(&report.place, &report.measured));
        return text;
    }
    let _ = writeln!(text, "\n{}", place(&report.place));
    for (name, words) in devices(&report.place).into_iter().chain(engine(report)) {
        line(&mut text, name, &words);
    }
    figure_lines(&mut text, &report.measured);
    for (name, words) in settings(report) {
        line(&mut text, name, &words);
    }
    for missing in &report.not_measured {
        line(&mut text, "not measured", &format!("{}: {}", missing.what, missing.why));
    }
    for (at, finding) in (1..).zip(&report.findings) {
        block(&mut text, at, finding);
    }
    repeat(&mut text, &report.verdict);
    text
}

/// The columns and lines of a small terminal, without the lines of the command and of the prompt.
const SCREEN: [usize; 2] = [80, 20];

/// Repeats the verdict at the end of a report that is longer than a screen.
pub(crate) fn repeat(text: &mut String, verdict: &str) {
    let [columns, lines] = SCREEN;
    let on_screen = text.lines().map(|line| line.chars().count().div_ceil(columns).max(1));
    if on_screen.sum::<usize>() > lines {
        let _ = writeln!(text, "\n{verdict}");
    }
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
    format!("{} random writes of 4 KiB a second, {rate}/s", whole(writes.per_second))
}

fn sequential(writes: &Writes) -> String {
    format!("bandwidth {}/s", bytes(writes.bytes_per_second))
}

/// Adds a line with a name and words.
fn line(text: &mut String, name: &str, words: &str) {
    let _ = writeln!(text, "  {name:<12} {words}");
}

fn place(place: &ExaminedPlace) -> String {
    format!("{}: {}", printable(&place.path.to_string_lossy()), file_system(place))
}

/// Returns what the file system of a place is, and how full.
pub(crate) fn file_system(place: &ExaminedPlace) -> String {
    let ExaminedPlace { type_name, source, mount_options, .. } = place;
    format!("{type_name} on {source}, {} % used, {mount_options}", place.used_percent())
}

/// Returns names and words of the lines about the devices.
pub(crate) fn devices(place: &ExaminedPlace) -> Vec<(&'static str, String)> {
    let device = |device: &Device| {
        let cache = device.write_cache.as_deref().unwrap_or("unknown");
        ("device", format!("{}, write cache: {cache}", device.name))
    };
    place.devices.iter().map(device).collect()
}

/// Returns names and words of the lines about the engine.
pub(crate) fn engine(report: &PlaceReport) -> Vec<(&'static str, String)> {
    let Some(engine) = &report.engine else { return Vec::new() };
    let set_up = engine.set_up.iter().flat_map(|set_up| &set_up.lines);
    let databases = engine.databases.iter().flat_map(|databases| &databases.lines);
    let mut lines = vec![("engine", engine.summary())];
    lines.extend(set_up.map(|line| ("set-up", line.clone())));
    lines.extend(databases.map(|line| ("databases", line.clone())));
    lines.extend(files_of_databases(engine).map(|words| ("bbolt", words)));
    lines
}

/// Returns what is said about the files of the engine's databases; `None` if there are none.
fn files_of_databases(engine: &ContainerEngine) -> Option<String> {
    let count = engine.bolt.len();
    let longest = engine.synced_databases().max_by_key(|it| it.free_list_bytes.unwrap_or(0))?;
    let size: u64 = engine.bolt.iter().map(|database| database.bytes).sum();
    let noun = if count == 1 { "database" } else { "databases" };
    let text = format!("{count} {noun}, {}", bytes(size as f64));
    let Some((pages, list)) = longest.free_pages.zip(longest.free_list_bytes) else {
        return Some(format!("{text}, no list of free pages"));
    };
    let (pages, list, name) = (whole(pages as f64), bytes(list as f64), longest.name());
    Some(format!("{text}; longest list of free pages: {list} of {pages} pages in {name}"))
}

/// Returns names and words of the lines about limits, and about what skips syncs.
pub(crate) fn settings(report: &PlaceReport) -> Vec<(&'static str, String)> {
    let limit = |it: &Limit| ("limit", format!("{} ({})", limited(it), it.file.display()));
    let mut lines: Vec<_> = report.limits.iter().map(limit).collect();
    let in_force = |it: &InForce| ("in force", format!("{} ({})", it.name, it.evidence));
    lines.extend(report.in_force.iter().map(in_force));
    lines
}

/// A figure of a report.
pub(crate) enum Figure {
    /// Waits of one kind, and for what.
    Waits(&'static str, Times, &'static str),
    /// A figure in words.
    Words(&'static str, String),
}

/// Returns the figures in the order of the report.
pub(crate) fn figures(measured: &Measured) -> Vec<Figure> {
    let limit = measured.fdatasync.map_or("", |times| {
        if times.p99 < ETCD {
            "after 2,300 bytes; within etcd's limit of 10 ms for p99"
        } else {
            "after 2,300 bytes; above etcd's limit of 10 ms for p99"
        }
    });
    let waits = |name, times: Option<Times>, note| Some(Figure::Waits(name, times?, note));
    let words = |name, words: Option<String>| Some(Figure::Words(name, words?));
    let layers = measured.layers.as_ref();
    let all = [
        waits("fsync", measured.fsync, "after 2,300 bytes"),
        waits("fdatasync", measured.fdatasync, limit),
        waits("in place", measured.overwrite, "fdatasync of 4 KiB written again"),
        words("transaction", measured.transaction.as_ref().map(transaction)),
        words("flush", measured.flushes.as_ref().map(flushes)),
        words("at once", at_once(&measured.at_once)),
        words("names", measured.names.as_ref().map(names)),
        waits("copy-up", layers.map(|it| it.file), "a file of lower layers"),
        waits("copy-up", layers.map(|it| it.directory), "a directory of lower layers"),
        words("unmount", layers.map(unmount)),
        words("in a layer", layers.and_then(|it| it.random.as_ref()).map(random)),
        words("export", measured.export.as_ref().map(export)),
        words("load", measured.load.as_ref().map(|it| load(it, measured))),
        words("writes", measured.random.as_ref().map(random)),
        words("writes", measured.sequential.as_ref().map(sequential)),
    ];
    all.into_iter().flatten().collect()
}

fn figure_lines(text: &mut String, measured: &Measured) {
    let mut before = "";
    for figure in figures(measured) {
        match figure {
            Figure::Waits(name, times, note) => {
                let label = if name == before { "" } else { name };
                before = name;
                let (median, p99) = (micros(times.median), micros(times.p99));
                let shown =
                    format!("p50 {median:>8}  p99 {p99:>8}  {} times {note}", times.samples);
                line(text, label, &shown);
            }
            Figure::Words(name, words) => line(text, name, &words),
        }
    }
}

fn flushes(flushes: &DeviceFlushes) -> String {
    format!(
        "{} by the kernel's counts, {:.1} for an fsync: {:.0} % of its time is the device's, \
         {:.0} % the file system's",
        micros(flushes.mean),
        flushes.each,
        100.0 * flushes.share,
        100.0 * (1.0 - flushes.share)
    )
}

fn transaction(transaction: &Transaction) -> String {
    let list = transaction.free_list.map_or_else(String::new, |times| {
        let scaled = transaction.scaled_from.map(|sample| bytes(sample as f64));
        let scaled = scaled.map_or_else(String::new, |sample| format!(", scaled from {sample}"));
        format!("; p50 {} for a sync with the list of free pages{scaled}", micros(times.median))
    });
    let took = micros(transaction.micros);
    format!("{took} of the engine's databases: two syncs in place{list}")
}

fn at_once(all: &[AtOnce]) -> Option<String> {
    let rate = |it: &AtOnce| match it.writers {
        1 => format!("1 writer {} fsyncs a second", whole(it.per_second)),
        writers => format!("{writers} writers {} each", whole(it.per_second)),
    };
    let rates: Vec<_> = all.iter().map(rate).collect();
    (!rates.is_empty()).then(|| rates.join(", "))
}

fn names(names: &NameRates) -> String {
    let links = names.links.map_or("no".to_owned(), whole);
    let (creates, unlinks) = (whole(names.creates), whole(names.unlinks));
    format!("{creates} creates, {links} links, {unlinks} unlinks a second")
}

fn unmount(layers: &Layers) -> String {
    format!("{} of an overlay; it syncs the file system", micros(layers.unmount))
}

fn export(export: &Export) -> String {
    let Export { image, bytes: size, bytes_per_second, gzip, gunzip, zstd } = export;
    let (rate, size) = (bytes(*bytes_per_second), bytes(*size as f64));
    let mut line = format!("{rate}/s of {image}, {size}, as by docker save");
    for (rate, program) in [(gzip, "gzip"), (gunzip, "gzip -d"), (zstd, "zstd")] {
        line += &rate.map_or_else(String::new, |it| format!("; {program} {}/s", bytes(it)));
    }
    line
}

/// dockerd writes a layer twice: as it is sent, and unpacked. The page cache takes all writes of a
/// small image. Of a large image the disk has to take them, and may then be the limit.
fn load(load: &Load, measured: &Measured) -> String {
    let (rate, size) = (load.bytes_per_second, bytes(load.bytes as f64));
    let line = format!("{}/s of a layer of {size}, not compressed, as by docker load", bytes(rate));
    let disk = measured.sequential.map(|writes| writes.bytes_per_second / 2.0);
    match disk {
        Some(disk) if disk < rate => {
            let disk = bytes(disk);
            format!("{line}; of a large image {disk}/s: the disk has to write each layer twice")
        }
        Some(_) => format!("{line}; the disk is not the limit"),
        None => line,
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

/// Returns what a finding costs, if it has a figure.
pub(crate) fn price(finding: &Finding) -> Option<String> {
    let (seconds, workload) = (finding.seconds?, finding.workload.as_ref()?);
    Some(format!("at least {} of {workload}", at_least(seconds)))
}

/// Adds the lines of the finding number `at`.
pub(crate) fn block(text: &mut String, at: usize, finding: &Finding) {
    let cost = price(finding).map_or_else(String::new, |price| format!(": {price}"));
    let Finding { name, cause, evidence, remedy, undo, risk, .. } = finding;
    let (remedy, undo) = (remedy.text(), undo.text());
    let _ = write!(
        text,
        "\n{at}. {name}{cost}\n   cause     {cause}\n   evidence  {evidence}\n   do        {remedy}\n   \
         undo      {undo}\n   risk      {risk}\n"
    );
}
