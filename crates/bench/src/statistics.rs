//! Pure statistics: medians, a bootstrap interval, a rank test.
//!
//! All results are deterministic: the bootstrap uses a generator seeded by the caller.

mod mann_whitney;

pub use mann_whitney::mann_whitney;

use serde::{Deserialize, Serialize};

/// Number of resamples for an interval.
const RESAMPLES: usize = 10_000;
/// Share of resamples inside an interval.
const COVERAGE: f64 = 0.95;
/// A p value below this, with an interval that excludes 1, is a difference.
const SIGNIFICANCE: f64 = 0.05;

/// The summary of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// Middle value.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// First quartile.
    pub q1: f64,
    /// Third quartile.
    pub q3: f64,
    /// Median absolute deviation from the median, unscaled.
    pub mad: f64,
}

/// A two-sided 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `value` is inside the interval.
    fn spans(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The conclusion from two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// There are too few values for any outcome to be significant.
    TooFewRounds,
    /// The interval of the ratio spans 1, or the rank test is not significant.
    NoDifferenceShown,
    /// Shown to be lower than the baseline.
    Lower,
    /// Shown to be higher than the baseline.
    Higher,
}

impl std::fmt::Display for Conclusion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::TooFewRounds => "too few rounds to tell",
            Self::NoDifferenceShown => "no difference shown",
            Self::Lower => "lower",
            Self::Higher => "higher",
        })
    }
}

/// A sample compared with its baseline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleComparison {
    /// Median over the baseline's median.
    pub ratio: f64,
    /// 95 % bootstrap interval of the ratio.
    pub ratio_interval: Interval,
    /// Median minus the baseline's median.
    pub difference: f64,
    /// 95 % bootstrap interval of the difference.
    pub difference_interval: Interval,
    /// Two-sided p value of the Mann-Whitney test.
    pub p_value: f64,
    /// The conclusion.
    pub verdict: Conclusion,
}

/// Returns the median, or `None` for an empty sample.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(&sorted(values), 0.5)
}

/// Returns the summary of a sample, or `None` for an empty one.
pub fn summarize(values: &[f64]) -> Option<Summary> {
    let ordered = sorted(values);
    let median = quantile(&ordered, 0.5)?;
    let deviations: Vec<f64> = ordered.iter().map(|v| (v - median).abs()).collect();
    Some(Summary {
        count: ordered.len(),
        median,
        min: *ordered.first()?,
        max: *ordered.last()?,
        q1: quantile(&ordered, 0.25)?,
        q3: quantile(&ordered, 0.75)?,
        mad: quantile(&sorted(&deviations), 0.5)?,
    })
}

/// Compares a sample with its baseline; returns `None` if one is empty or the baseline's
/// median is not positive.
///
/// The intervals are percentile bootstraps of 10,000 resamples, both samples resampled
/// independently. With about five values such intervals are too narrow, which is why the
/// verdict also requires the rank test.
pub fn compare(values: &[f64], baseline: &[f64], seed: u64) -> Option<SampleComparison> {
    let (ours, theirs) = (median(values)?, median(baseline)?);
    if theirs <= 0.0 {
        return None;
    }
    let (ratio_interval, difference_interval) = bootstrap(values, baseline, seed)?;
    let test = mann_whitney(values, baseline)?;
    let verdict = if test.least_p >= SIGNIFICANCE {
        Conclusion::TooFewRounds
    } else if ratio_interval.spans(1.0) || test.p_value >= SIGNIFICANCE {
        Conclusion::NoDifferenceShown
    } else if ours < theirs {
        Conclusion::Lower
    } else {
        Conclusion::Higher
    };
    Some(SampleComparison {
        ratio: ours / theirs,
        ratio_interval,
        difference: ours - theirs,
        difference_interval,
        p_value: test.p_value,
        verdict,
    })
}

fn bootstrap(values: &[f64], baseline: &[f64], seed: u64) -> Option<(Interval, Interval)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut ratios = Vec::with_capacity(RESAMPLES);
    let mut differences = Vec::with_capacity(RESAMPLES);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RESAMPLES {
        let ours = resampled_median(values, &mut ours, &mut random)?;
        let theirs = resampled_median(baseline, &mut theirs, &mut random)?;
        ratios.push(ours / theirs);
        differences.push(ours - theirs);
    }
    Some((interval(&ratios)?, interval(&differences)?))
}

fn resampled_median(
    values: &[f64],
    drawn: &mut Vec<f64>,
    random: &mut fastrand::Rng,
) -> Option<f64> {
    drawn.clear();
    drawn.extend((0..values.len()).map(|_| values[random.usize(..values.len())]));
    drawn.sort_unstable_by(f64::total_cmp);
    quantile(drawn, 0.5)
}

fn interval(values: &[f64]) -> Option<Interval> {
    let ordered = sorted(values);
    let tail = (1.0 - COVERAGE) / 2.0;
    Some(Interval { low: quantile(&ordered, tail)?, high: quantile(&ordered, 1.0 - tail)? })
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut ordered = values.to_vec();
    ordered.sort_unstable_by(f64::total_cmp);
    ordered
}

/// Interpolates linearly between order statistics (type 7 of Hyndman and Fan, the default of R
/// and NumPy).
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sample sizes are far below 2^52 and positions are never negative"
)]
fn quantile(ordered: &[f64], share: f64) -> Option<f64> {
    let last = ordered.len().checked_sub(1)?;
    let position = last as f64 * share;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let weight = position - below as f64;
    Some(ordered[below] + (ordered[above] - ordered[below]) * weight)
}
