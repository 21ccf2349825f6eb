//! Statistics against values computed by hand or by enumeration.

use synconce_bench::statistics::{Conclusion, compare, mann_whitney, median, summarize};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * b.abs().max(1e-3)
}

#[test]
fn the_median_is_the_middle_value_or_the_mean_of_the_two() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(median(&[7.0]), Some(7.0));
    assert_eq!(median(&[]), None);
}

#[test]
fn a_summary_has_the_quartiles_that_numpy_and_r_give() {
    let summary = summarize(&[1.0, 2.0, 3.0, 4.0, 10.0, 20.0]).expect("it is not empty");
    assert_eq!(summary.count, 6);
    assert_eq!((summary.min, summary.max), (1.0, 20.0));
    assert_eq!((summary.q1, summary.q3), (2.25, 8.5));
    assert_eq!(summary.median, 3.5);
    // Deviations 0.5 0.5 1.5 2.5 6.5 16.5.
    assert_eq!(summary.mad, 2.0);
    assert_eq!(summarize(&[]), None);
}

#[test]
fn the_exact_rank_test_agrees_with_the_enumeration_of_all_arrangements() {
    let five = mann_whitney(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0])
        .expect("neither is empty");
    assert_eq!(five.u, 0.0);
    assert!(close(five.p_value, 2.0 / 252.0), "{}", five.p_value);
    assert!(close(five.least_p, 2.0 / 252.0));
    let mixed = mann_whitney(&[1.0, 3.0, 5.0, 7.0], &[2.0, 4.0, 6.0, 8.0, 10.0]);
    assert!(close(mixed.expect("neither is empty").p_value, 0.412_698_412_7));
    let ages = mann_whitney(&[19.0, 22.0, 16.0, 29.0, 24.0], &[20.0, 11.0, 17.0, 12.0]);
    let ages = ages.expect("neither is empty");
    assert_eq!(ages.u, 17.0);
    assert!(close(ages.p_value, 1.0 / 9.0), "{}", ages.p_value);
}

#[test]
fn with_ties_or_many_values_the_rank_test_is_the_corrected_normal_one() {
    let tied =
        mann_whitney(&[1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 5.0], &[2.0, 3.0, 5.0, 6.0, 6.0, 7.0, 8.0])
            .expect("neither is empty");
    assert_eq!(tied.u, 9.5);
    assert!(close(tied.p_value, 0.061_007_138_9), "{}", tied.p_value);
    let first: Vec<f64> = (0..30).map(f64::from).collect();
    let second: Vec<f64> = first.iter().map(|v| v + 6.5).collect();
    let many = mann_whitney(&first, &second).expect("neither is empty");
    assert_eq!(many.u, 276.0);
    assert!(close(many.p_value, 0.010_314_672_4), "{}", many.p_value);
}

#[test]
fn samples_of_equal_values_do_not_differ() {
    let same = mann_whitney(&[2.0; 5], &[2.0; 5]).expect("neither is empty");
    assert!(close(same.p_value, 1.0));
    let comparison = compare(&[2.0; 5], &[2.0; 5], 1).expect("neither is empty");
    assert_eq!(comparison.verdict, Conclusion::NoDifferenceShown);
    assert_eq!(comparison.ratio, 1.0);
}

#[test]
fn a_clear_difference_is_shown_with_its_size() {
    let slow = [100.0, 101.0, 99.0, 102.0, 98.0];
    let fast = [50.0, 51.0, 49.0, 50.5, 49.5];
    let comparison = compare(&fast, &slow, 1).expect("neither is empty");
    assert_eq!(comparison.ratio, 0.5);
    assert_eq!(comparison.difference, -50.0);
    assert_eq!(comparison.verdict, Conclusion::Lower);
    // The ends of a percentile bootstrap are ratios of values seen.
    let interval = comparison.ratio_interval;
    assert!(interval.low >= 49.0 / 102.0 && interval.low < 0.5);
    assert!(interval.high <= 51.0 / 98.0 && interval.high > 0.5);
    let back = compare(&slow, &fast, 1).expect("neither is empty");
    assert_eq!(back.verdict, Conclusion::Higher);
}

#[test]
fn a_comparison_depends_on_nothing_but_its_values_and_its_seed() {
    let (a, b) = ([3.0, 1.0, 2.0, 5.0, 9.0], [2.0, 3.0, 4.0, 7.0, 8.0]);
    assert_eq!(compare(&a, &b, 7), compare(&a, &b, 7));
    assert_eq!(compare(&a, &b, 7).map(|c| c.verdict), Some(Conclusion::NoDifferenceShown));
}

#[test]
fn three_rounds_are_too_few_for_any_verdict_and_four_are_not() {
    let verdict = |a: &[f64], b: &[f64]| compare(a, b, 1).expect("neither is empty").verdict;
    let (low, high) = ([1.0, 1.1, 1.2, 1.3], [9.0, 9.1, 9.2, 9.3]);
    assert_eq!(verdict(&low[..3], &high[..3]), Conclusion::TooFewRounds);
    assert_eq!(verdict(&low, &high), Conclusion::Lower);
}

#[test]
fn an_empty_sample_or_a_baseline_of_nothing_has_no_comparison() {
    assert_eq!(compare(&[], &[1.0], 1), None);
    assert_eq!(compare(&[1.0], &[], 1), None);
    assert_eq!(compare(&[1.0], &[0.0], 1), None);
}
