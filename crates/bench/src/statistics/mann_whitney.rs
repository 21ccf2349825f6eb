//! The Mann-Whitney rank test: do two samples come from one distribution?

/// Up to this number of pairs the p value is exact if there are no ties.
const EXACT_PAIRS: usize = 400;

/// Result of the rank test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankTest {
    /// U of the first sample: the number of pairs in which its value is larger, ties counted
    /// half.
    pub u: f64,
    /// Two-sided p value.
    pub p_value: f64,
    /// The smallest p value that samples of these sizes can reach.
    pub least_p: f64,
}

/// Tests two samples; returns `None` if one is empty.
///
/// The p value is exact without ties and up to 400 pairs; otherwise the
/// normal approximation with tie and continuity correction.
#[expect(clippy::cast_precision_loss, reason = "sample sizes are far below 2^52")]
pub fn mann_whitney(first: &[f64], second: &[f64]) -> Option<RankTest> {
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let (n, m) = (first.len(), second.len());
    let u = first.iter().flat_map(|a| second.iter().map(move |b| pair(*a, *b))).sum::<f64>();
    let ties = tie_term(first, second);
    let exact = n * m <= EXACT_PAIRS;
    let p_value =
        if exact && ties == 0.0 { exact_p(n, m, u) } else { normal_p(n as f64, m as f64, u, ties) };
    let least_p = if exact { exact_p(n, m, 0.0) } else { normal_p(n as f64, m as f64, 0.0, 0.0) };
    Some(RankTest { u, p_value, least_p })
}

fn pair(a: f64, b: f64) -> f64 {
    match a.total_cmp(&b) {
        std::cmp::Ordering::Greater => 1.0,
        std::cmp::Ordering::Equal => 0.5,
        std::cmp::Ordering::Less => 0.0,
    }
}

/// Returns the sum of t^3 - t over the groups of equal values.
#[expect(clippy::cast_precision_loss, reason = "sample sizes are far below 2^52")]
fn tie_term(first: &[f64], second: &[f64]) -> f64 {
    let mut all: Vec<f64> = first.iter().chain(second).copied().collect();
    all.sort_unstable_by(f64::total_cmp);
    all.chunk_by(|a, b| a == b)
        .map(|group| {
            let t = group.len() as f64;
            t.powi(3) - t
        })
        .sum()
}

/// Returns twice the probability that U is at most the smaller of the two values of U. Counts the
/// arrangements with each U by their recurrence.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "U is a whole number between 0 and 400 without ties"
)]
fn exact_p(n: usize, m: usize, u: f64) -> f64 {
    let pairs = n * m;
    let smaller = u.min(pairs as f64 - u) as usize;
    // ways[k][u]: choices of k values among those seen with U = u.
    let mut ways = vec![vec![0.0_f64; pairs + 1]; n + 1];
    ways[0][0] = 1.0;
    for rank in 0..n + m {
        for taken in (1..=n.min(rank + 1)).rev() {
            // The value at this rank exceeds those of the other sample below it.
            let beaten = rank + 1 - taken;
            if beaten > m {
                continue;
            }
            for sum in beaten..=pairs {
                let more = ways[taken - 1][sum - beaten];
                ways[taken][sum] += more;
            }
        }
    }
    let total: f64 = ways[n].iter().sum();
    let tail: f64 = ways[n][..=smaller].iter().sum();
    (2.0 * tail / total).min(1.0)
}

fn normal_p(n: f64, m: f64, u: f64, ties: f64) -> f64 {
    let all = n + m;
    let variance = n * m / 12.0 * ((all + 1.0) - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = (u - n * m / 2.0).abs() - 0.5;
    erfc(distance.max(0.0) / (2.0 * variance).sqrt()).min(1.0)
}

/// Returns the complementary error function for x >= 0, relative error under 1.2e-7 (Chebyshev
/// fit, Numerical Recipes, section 6.2).
fn erfc(x: f64) -> f64 {
    const FIT: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let fit = FIT.iter().rev().fold(0.0, |sum, factor| sum * t + factor);
    t * (fit - x * x).exp()
}
