//! Reports of records that were made up.

use super::*;

/// Returns a record of syncs that begin at multiples of `step` and take `wait`, microseconds.
fn record(step: u64, wait: u64, bytes: impl Fn(u64) -> u64, looks: (u64, u64)) -> String {
    let mut text = "{\"record\":1,\"command\":[\"make\"]}\n".to_owned();
    for at in 0..100 {
        let (nanoseconds, bytes) = (wait * 1000 + bytes(at), bytes(at));
        text += &format!(
            "{{\"call\":\"fsync\",\"at\":{},\"thread\":1,\"program\":\"cc\",\"file\":\"/a/{at}\",\
             \"bytes\":{bytes},\"wait\":{nanoseconds},\"would\":\"hold\"}}\n",
            at * step
        );
    }
    let (looks, alone) = looks;
    text + &format!(
        "{{\"end\":{{\"Exited\":0}},\"at\":2000000,\"looks\":{looks},\"alone\":{alone},\
         \"lost\":{}}}\n",
        alone * 1000
    )
}

fn examined(text: &str) -> CommandReport {
    examine_record(text.as_bytes()).unwrap()
}

#[test]
fn waits_one_after_the_other_add_up_and_waits_at_the_same_time_do_not() {
    let apart = examined(&record(10_000, 8_000, |_| 4096, (500, 500)));
    assert!((apart.waits.covered - 0.8).abs() < 1e-3, "{apart:#?}");
    let together = examined(&record(1_000, 8_000, |_| 4096, (500, 500)));
    assert!((together.waits.seconds - 0.8).abs() < 1e-3, "{together:#?}");
    assert!((together.waits.covered - 0.107).abs() < 1e-3, "{together:#?}");
}

#[test]
fn the_least_saving_is_below_the_likely_one_and_falls_with_fewer_samples() {
    let many = examined(&record(10_000, 8_000, |_| 4096, (500, 400))).savings;
    let few = examined(&record(10_000, 8_000, |_| 4096, (10, 8))).savings;
    assert!(few.at_least < many.at_least && many.at_least < many.about, "{few:?} {many:?}");
    assert!((many.critical - 0.64).abs() < 1e-3 && many.about < many.critical, "{many:?}");
    let none = examined(&record(10_000, 8_000, |_| 4096, (0, 0))).savings;
    assert_eq!((none.at_least, none.about), (0.0, 0.0));
}

#[test]
fn the_commit_takes_the_longer_the_more_the_bytes_of_a_sync_cost() {
    // A nanosecond a byte, as `record` makes it: 100 MB take 0.1 s.
    let known = examined(&record(10_000, 8_000, |at| (at % 2) * 2_000_000, (500, 500))).savings;
    assert!((known.commit - 0.1 - 0.003 - 0.03).abs() < 0.02, "{known:?}");
    // All syncs had the same number of bytes: 200 MB a second are assumed.
    let same = examined(&record(10_000, 8_000, |_| 2_000_000, (500, 500))).savings;
    assert!((same.commit - 1.0).abs() < 0.1, "{same:?}");
}

#[test]
fn a_report_begins_and_ends_with_the_verdict_and_names_what_to_do() {
    let report = examined(&record(10_000, 8_000, |_| 4096, (500, 500)));
    let text = report.text("synconce run -- make");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.first(), lines.last());
    assert!(lines[0].starts_with("make: 100 syncs were waited for, 800"), "{text}");
    assert!(lines[0].contains("; `synconce run` saves at least "), "{text}");
    assert!(text.contains("\n  do           synconce run -- make\n"), "{text}");
    assert!(text.contains("  /a\n"), "{text}");
}
