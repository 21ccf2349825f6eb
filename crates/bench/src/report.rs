//! The report of a benchmark, as tables and as JSON.

mod format;
pub mod host;
mod parts;
mod results;
mod table;

use crate::runner::{BenchRecord, LeftOut, Settings};
use crate::scenario::{Observation, Promise, Scenario};
pub(crate) use format::quantity;
use format::shown_p;
use host::MeasuredHost;
use results::{VariantResult, evaluate};
use serde::{Deserialize, Serialize};
use table::{Align, Table};

/// Version of the JSON layout.
pub(crate) const SCHEMA: u32 = 1;

/// Number of findings printed in full; the JSON contains all of them.
const DETAILS_SHOWN: usize = 10;

/// The complete result of one benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// Version of this layout, `SCHEMA`.
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The scenario's one-line description.
    pub about: String,
    /// Rounds, warm-up and seed.
    pub settings: Settings,
    /// The machine and the disk.
    pub host: MeasuredHost,
    /// The variants with every sample and their statistics.
    pub results: Vec<VariantResult>,
    /// The variants that could not run here.
    pub left_out: Vec<LeftOut>,
    /// Findings that are not times.
    pub findings: Vec<Observation>,
}

impl BenchReport {
    /// Evaluates a record. `host` must be read before the rounds, so that its load does not
    /// include the benchmark.
    pub fn new(
        scenario: &Scenario,
        settings: Settings,
        host: MeasuredHost,
        record: BenchRecord,
    ) -> Self {
        let results = record
            .measured
            .iter()
            .map(|one| evaluate(one, &record.measured, settings.seed))
            .collect();
        Self {
            schema: SCHEMA,
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            settings,
            host,
            results,
            left_out: record.left_out,
            findings: record.findings,
        }
    }

    /// Returns the report as text. Verdicts wrap in lines of `width` characters.
    pub fn text(&self, width: Option<usize>) -> String {
        let mut text = format!(
            "{}: {}\n{} {}, order shuffled with seed {}\n\n{}\n{}",
            self.scenario,
            self.about,
            self.settings.rounds,
            if self.settings.rounds == 1 { "round" } else { "rounds" },
            self.settings.seed,
            self.host.text(),
            self.table().render(width)
        );
        if self.results.iter().any(|r| r.measured.samples.len() > 1) {
            text.push_str(
                "\nratio: of medians, with a bootstrap 95 % interval; p: Mann-Whitney, two-sided\n",
            );
        }
        text.push_str(&parts::text(&self.results));
        text.push_str(&left_out_text(&self.left_out));
        for finding in &self.findings {
            text.push_str(&finding_text(finding));
        }
        text
    }

    fn table(&self) -> Table {
        let settled = self.any(|s| s.settle_ms.is_some());
        let flushed = self.any(|s| s.flushes.is_some());
        let mut table = Table::new([
            ("variant", Align::Left),
            ("median", Align::Right),
            ("min .. max", Align::Right),
            ("user+sys", Align::Right),
        ])
        .spare(&["p", "user+sys", "difference", "95 %", "min .. max"]);
        if flushed {
            table.column("flushes", Align::Right);
        }
        for (name, align) in [
            ("ratio", Align::Right),
            ("95 %", Align::Left),
            ("difference", Align::Right),
            ("p", Align::Right),
        ] {
            table.column(name, align);
        }
        if settled {
            table.column("left unsafe", Align::Right);
        }
        table.column("against the baseline", Align::Left);
        let mut group = None;
        for result in &self.results {
            let against = &result.measured.variant.against;
            if group.is_some_and(|g| g != against) {
                table.gap();
            }
            group = Some(against);
            table.row(cells(result, flushed, settled));
        }
        table
    }

    fn any(&self, has: impl Fn(&crate::runner::Sample) -> bool) -> bool {
        let mut samples = self.results.iter().flat_map(|r| &r.measured.samples);
        samples.any(has)
    }
}

fn cells(result: &VariantResult, flushed: bool, settled: bool) -> Vec<String> {
    let variant = &result.measured.variant;
    let samples = &result.measured.samples;
    let unit = variant.measure.nanoseconds();
    let shown = |value: f64| quantity(value * unit);
    let middle = |values: Vec<f64>| crate::statistics::median(&values);
    let none = || "-".to_owned();
    let cpu = middle(samples.iter().map(|s| s.user_ms + s.system_ms).collect());
    let mut cells = vec![variant.name.clone()];
    match &result.summary {
        None => cells.extend([none(), none()]),
        Some(s) => cells.extend([shown(s.median), format!("{} .. {}", shown(s.min), shown(s.max))]),
    }
    cells.push(cpu.map_or_else(none, |ms| quantity(ms / f64::from(variant.repeat) * 1e6)));
    if flushed {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let counts = samples.iter().filter_map(|s| s.flushes.map(|n| n as f64));
        cells.push(middle(counts.collect()).map_or_else(none, |n| format!("{n:.0}")));
    }
    match &result.comparison {
        None => cells.extend(["1", "", "", ""].map(str::to_owned)),
        Some(c) => cells.extend([
            format!("{:.3}", c.ratio),
            format!("[{:.3}, {:.3}]", c.ratio_interval.low, c.ratio_interval.high),
            format::signed(c.difference * unit),
            shown_p(c.p_value),
        ]),
    }
    if settled {
        let left = middle(samples.iter().filter_map(|s| s.settle_ms).collect());
        cells.push(match variant.promise {
            Promise::Durable => "nothing".to_owned(),
            Promise::OwnSyncs | Promise::Nothing => left.map_or_else(none, |ms| quantity(ms * 1e6)),
        });
    }
    cells.push(match &result.comparison {
        Some(c) => c.verdict.to_string(),
        None if variant.is_baseline() => "baseline".to_owned(),
        None => format!("{} was not measured", variant.against),
    });
    cells
}

/// Returns one line for all variants that lack the same package.
fn left_out_text(left_out: &[LeftOut]) -> String {
    let alike = left_out.chunk_by(|a, b| a.reason == b.reason && a.package == b.package);
    alike
        .map(|group| {
            let names: Vec<&str> = group.iter().map(|left| left.variant.as_str()).collect();
            let remedy = group[0].package.as_ref();
            let remedy = remedy.map_or(String::new(), |p| format!("; the package {p} brings it"));
            let reason = &group[0].reason;
            format!("left out: {}: {reason}{remedy}\n", names.join(", "))
        })
        .collect()
}

fn finding_text(finding: &Observation) -> String {
    let subject = finding.variant.as_ref();
    let subject = subject.map_or(String::new(), |name| format!("{name}: "));
    let mut text = format!("{subject}{}\n", finding.summary);
    for line in finding.details.iter().take(DETAILS_SHOWN) {
        text.push_str(&format!("  {line}\n"));
    }
    if let Some(more) = finding.details.len().checked_sub(DETAILS_SHOWN + 1) {
        text.push_str(&format!("  and {} more (all of them with --json)\n", more + 1));
    }
    text
}
