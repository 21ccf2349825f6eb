//! Speeds, compared with those of other variants of the group: "0.91 of no-sync's" and "1,013
//! times plain's" are read more easily than ratios of times.

use crate::runner::Measured;
use crate::scenario::Observation;
use crate::statistics::{self, SampleComparison};

/// Whether the number of calls a second is shown, for values in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rates {
    Shown,
    LeftOut,
}

/// Returns a finding for each group of variants `GROUP/WAY`: how many times as fast as each of
/// the `ways` of the group a variant is, with a 95 % interval.
pub(crate) fn compare(
    measured: &[&Measured],
    ways: &[&str],
    rates: Rates,
    seed: u64,
) -> Vec<Observation> {
    let group = |one: &&Measured| one.variant.name.split('/').next().map(str::to_owned);
    let groups = measured.chunk_by(|a, b| group(a) == group(b));
    let finding = |members: &[&Measured]| {
        let group = group(members.first()?)?;
        let lines = members.iter().filter_map(|one| line(one, &group, members, ways, rates, seed));
        let details: Vec<String> = lines.collect();
        let summary = format!("speed of {group}, ratios with a 95 % interval");
        (!details.is_empty()).then_some(Observation { variant: None, summary, details })
    };
    groups.filter_map(finding).collect()
}

/// Returns the speeds of one variant, or `None` if there is nothing to compare it with.
fn line(
    one: &Measured,
    group: &str,
    members: &[&Measured],
    ways: &[&str],
    rates: Rates,
    seed: u64,
) -> Option<String> {
    let own = values(one);
    let rate = (rates == Rates::Shown).then(|| statistics::median(&own)).flatten();
    let rate = rate.map(|nanoseconds| format!("{:.0} a second", 1e9 / nanoseconds));
    let ratios = ways.iter().filter_map(|way| {
        let name = format!("{group}/{way}");
        let other = members.iter().find(|other| other.variant.name == name)?;
        // A ratio of times, the other way round, is a ratio of speeds.
        let ratio = statistics::compare(&values(other), &own, seed)?;
        (other.variant.name != one.variant.name).then(|| format!("{} times {way}", shown(&ratio)))
    });
    let said: Vec<String> = rate.into_iter().chain(ratios).collect();
    (!said.is_empty()).then(|| format!("{}: {}", one.variant.name, said.join("; ")))
}

fn shown(ratio: &SampleComparison) -> String {
    let SampleComparison { ratio, ratio_interval: interval, .. } = ratio;
    let digits = match *ratio {
        ratio if ratio < 0.1 => 5,
        ratio if ratio < 10.0 => 2,
        _ => 0,
    };
    format!("{ratio:.digits$} [{:.digits$}, {:.digits$}]", interval.low, interval.high)
}

fn values(measured: &Measured) -> Vec<f64> {
    measured.samples.iter().map(|sample| sample.value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Sample;
    use crate::scenario::Variant;

    fn measured(name: &str, values: &[f64]) -> Measured {
        let sample = |value: &f64| Sample {
            round: 1,
            position: 1,
            value: *value,
            wall_ms: 1.0,
            user_ms: 0.0,
            system_ms: 0.0,
            exit_code: 0,
            flushes: None,
            settle_ms: None,
            parts: Vec::new(),
        };
        let variant = Variant::new(name, ["true"]);
        Measured { variant, samples: values.iter().map(sample).collect() }
    }

    #[test]
    fn speeds_are_shares_of_one_way_and_multiples_of_another() {
        let all = [
            measured("bolt/no-sync", &[10_000.0]),
            measured("bolt/plain", &[10_000_000.0]),
            measured("bolt/hold", &[12_500.0]),
        ];
        let all: Vec<_> = all.iter().collect();
        let findings = compare(&all, &["no-sync", "plain"], Rates::Shown, 1);
        assert_eq!(findings.len(), 1);
        let expected = [
            "bolt/no-sync: 100000 a second; 1000 [1000, 1000] times plain",
            "bolt/plain: 100 a second; 0.00100 [0.00100, 0.00100] times no-sync",
            "bolt/hold: 80000 a second; 0.80 [0.80, 0.80] times no-sync; 800 [800, 800] times plain",
        ];
        assert_eq!(findings[0].details, expected);
    }

    #[test]
    fn groups_are_apart_and_one_without_the_other_ways_has_rates_at_most() {
        let all = [measured("bolt/hold", &[1e6]), measured("lmdb/hold", &[1e6, 3e6])];
        let all: Vec<_> = all.iter().collect();
        let findings = compare(&all, &["no-sync"], Rates::Shown, 1);
        let lines: Vec<_> = findings.iter().flat_map(|it| &it.details).collect();
        assert_eq!(lines, ["bolt/hold: 1000 a second", "lmdb/hold: 500 a second"]);
        assert_eq!(compare(&all, &["no-sync"], Rates::LeftOut, 1), []);
    }
}
