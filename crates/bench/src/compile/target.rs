//! Compares the tool's overhead on a build with the target.

use crate::runner::{Measured, Sample};
use crate::scenario::Observation;
use crate::statistics::{Conclusion, SampleComparison, compare};

/// The name of the baseline.
pub(super) const BARE: &str = "bare";

/// The target: the highest ratio of a build's time under the tool to its time without the tool.
const TARGET: f64 = 1.01;

/// Returns a finding for each variant about its wall time and its processor time. On a busy machine
/// the processor time is more precise.
pub(super) fn compare_with_target(measured: &[&Measured], seed: u64) -> Vec<Observation> {
    let Some(bare) = measured.iter().find(|one| one.variant.name == BARE) else {
        return Vec::new();
    };
    let ours = measured.iter().filter(|one| !one.variant.is_baseline());
    ours.map(|one| Observation {
        variant: Some(one.variant.name.clone()),
        summary: format!(
            "wall {}; user+sys {}",
            side_by_side(one, bare, |sample| sample.value, seed),
            side_by_side(one, bare, |sample| sample.user_ms + sample.system_ms, seed)
        ),
        details: Vec::new(),
    })
    .collect()
}

fn side_by_side(ours: &Measured, bare: &Measured, of: fn(&Sample) -> f64, seed: u64) -> String {
    let values = |one: &Measured| one.samples.iter().map(of).collect::<Vec<_>>();
    compare(&values(ours), &values(bare), seed).map_or("not measured".to_owned(), |found| {
        let interval = found.ratio_interval;
        format!(
            "{:.3} [{:.3}, {:.3}] of {BARE}, {}",
            found.ratio,
            interval.low,
            interval.high,
            verdict(&found)
        )
    })
}

/// Returns the verdict. An interval that contains the target decides nothing.
fn verdict(found: &SampleComparison) -> &'static str {
    if found.verdict == Conclusion::TooFewRounds {
        "too few rounds to tell"
    } else if found.ratio_interval.high <= TARGET {
        "within 1 %"
    } else if found.ratio_interval.low > TARGET {
        "more than 1 % over"
    } else {
        "not told from 1 %"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Variant;

    const BASE: [f64; 6] = [1000.0, 1001.0, 999.0, 1000.5, 999.5, 1000.0];

    fn measured(name: &str, wall: &[f64], cpu: f64) -> Measured {
        let sample = |(round, value): (u32, &f64)| Sample {
            round,
            position: 1,
            value: *value,
            wall_ms: *value,
            user_ms: value * cpu,
            system_ms: value * cpu,
            exit_code: 0,
            flushes: None,
            settle_ms: None,
            parts: Vec::new(),
        };
        Measured {
            variant: Variant { against: BARE.to_owned(), ..Variant::new(name, ["true"]) },
            samples: (1..).zip(wall).map(sample).collect(),
        }
    }

    fn compared(factor: f64, rounds: usize, cpu: f64) -> String {
        let slower = BASE.map(|value| value * factor);
        let all = [measured(BARE, &BASE[..rounds], 1.0), measured("held", &slower[..rounds], cpu)];
        compare_with_target(&[&all[0], &all[1]], 1).remove(0).summary
    }

    #[test]
    fn a_build_is_within_the_target_or_over_it_by_the_whole_interval() {
        let text = compared(1.005, 6, 1.02);
        assert!(text.starts_with("wall 1.005 [1.00"), "{text}");
        assert!(text.contains("of bare, within 1 %; user+sys 1.025"), "{text}");
        assert!(text.ends_with("of bare, more than 1 % over"), "{text}");
    }

    #[test]
    fn an_interval_around_the_target_decides_nothing() {
        let text = compared(1.01, 6, 1.0);
        assert!(text.contains("of bare, not told from 1 %;"), "{text}");
    }

    #[test]
    fn so_few_rounds_that_nothing_can_be_told_are_said_to_be_too_few() {
        assert!(compared(1.5, 2, 1.0).contains("too few rounds to tell"));
    }

    #[test]
    fn without_a_bare_build_nothing_is_compared() {
        assert_eq!(compare_with_target(&[&measured("held", &BASE, 1.0)], 1), []);
    }
}
