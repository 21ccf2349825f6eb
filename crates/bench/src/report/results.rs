//! Samples with their statistics.

use crate::runner::{Measured, Sample};
use crate::statistics::{SampleComparison, Summary, compare, summarize};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// A variant, its samples and their statistics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantResult {
    /// The variant and its samples.
    #[serde(flatten)]
    pub measured: Measured,
    /// Summary of the values, in the unit of the variant's measure.
    pub summary: Option<Summary>,
    /// Comparison with the baseline; `None` for a baseline.
    pub comparison: Option<SampleComparison>,
    /// The parts of a variant whose commands are timed separately.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartResult>,
}

/// The statistics of one part of a variant's samples, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartResult {
    /// The part's name.
    pub name: String,
    /// Summary of its times.
    pub summary: Option<Summary>,
    /// Comparison with the same part of the baseline; `None` for a baseline, or if the
    /// baseline lacks the part.
    pub comparison: Option<SampleComparison>,
}

/// Returns the parts of a variant whose commands are timed separately; otherwise none.
fn evaluate_parts(one: &Measured, baseline: Option<&Measured>, seed: u64) -> Vec<PartResult> {
    if one.variant.parts.is_empty() {
        return Vec::new();
    }
    let evaluated = |name: &str| {
        let own = times(&one.samples, name);
        let other = baseline.map(|baseline| times(&baseline.samples, name));
        PartResult {
            name: name.to_owned(),
            summary: summarize(&own),
            comparison: other.and_then(|other| compare(&own, &other, seed)),
        }
    };
    names(&one.samples).into_iter().map(evaluated).collect()
}

/// Evaluates a variant against its baseline.
pub(super) fn evaluate(one: &Measured, all: &[Measured], seed: u64) -> VariantResult {
    let values = |m: &Measured| m.samples.iter().map(|s| s.value).collect::<Vec<_>>();
    let baseline =
        all.iter().find(|m| m.variant.name == one.variant.against && !one.variant.is_baseline());
    VariantResult {
        measured: one.clone(),
        summary: summarize(&values(one)),
        comparison: baseline.and_then(|b| compare(&values(one), &values(b), seed)),
        parts: evaluate_parts(one, baseline, seed),
    }
}

/// Returns the names of the parts of samples, in order of appearance.
pub(super) fn names<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Vec<&'a str> {
    let parts = samples.into_iter().flat_map(|sample| &sample.parts);
    unique(parts.map(|part| part.name.as_str()))
}

/// Returns each of `names` once, in order of appearance.
pub(super) fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(*name)).collect()
}

/// Returns the times of one part.
pub(super) fn times(samples: &[Sample], name: &str) -> Vec<f64> {
    let parts = samples.iter().flat_map(|sample| &sample.parts);
    parts.filter(|part| part.name == name).map(|part| part.ms).collect()
}
