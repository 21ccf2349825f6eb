//! IDs of runs that are abbreviated.

use libtest_mimic::Trial;
use synconce_testkit::harness::{Place, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_run_is_cleared_by_its_id_and_by_a_beginning_of_it, &[]),
        trial(a_beginning_that_several_runs_share_is_refused_with_their_ids, &[]),
        trial(several_runs_are_cleared_and_each_is_reported, &[]),
    ]
}

/// Leaves an interrupted run; returns its ID.
pub fn interrupt(place: &Place) -> String {
    let before = place.markers();
    let run = place.run(&[], &["sh", "-c", "sync .; kill -9 $PPID; sleep 1"]);
    assert_eq!(run.status.code(), Some(125), "{run:?}");
    let new = place.markers().into_iter().find(|marker| !before.contains(marker));
    new.unwrap().file_stem().unwrap().to_str().unwrap().to_owned()
}

fn a_run_is_cleared_by_its_id_and_by_a_beginning_of_it(place: &Place) {
    for length in [12, usize::MAX] {
        let id = interrupt(place);
        let none = place.status(&["--clear", "1999"]);
        assert_eq!(none.status.code(), Some(125), "{none:?}");
        assert!(none.stderr.contains("there is no run 1999"), "{none:?}");
        let empty = place.status(&["--clear", ""]);
        assert_eq!(empty.status.code(), Some(125), "no run is named: {empty:?}");
        let cleared = place.status(&["--clear", &id[..length.min(id.len())]]);
        assert!(cleared.status.success(), "{cleared:?}");
        assert_eq!(cleared.stderr, format!("synconce: cleared {id}\n"));
        assert_eq!(place.status(&[]).status.code(), Some(0));
    }
}

fn a_beginning_that_several_runs_share_is_refused_with_their_ids(place: &Place) {
    let mut ids = [interrupt(place), interrupt(place)];
    ids.sort();
    let refused = place.status(&["--clear", "20"]);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    let wanted = format!("synconce: the ID 20 is ambiguous: {}, {}\n", ids[0], ids[1]);
    assert_eq!(refused.stderr, wanted);
    let whole = place.status(&["--json", "--clear", &ids[0]]);
    let report: serde_json::Value = serde_json::from_str(&whole.stdout).unwrap();
    let cleared = serde_json::json!([ids[0]]);
    assert_eq!((&report["cleared"], &whole.stderr[..]), (&cleared, ""), "{whole:?}");
    assert_eq!(place.markers().len(), 1);
}

fn several_runs_are_cleared_and_each_is_reported(place: &Place) {
    for is_json in [false, true] {
        let ids = [interrupt(place), interrupt(place), interrupt(place)];
        let option = if is_json { &["--json"][..] } else { &[] };
        let words = ["--clear", &ids[0], "1999", "20", &ids[1]];
        let some = place.status(&[option, &words].concat());
        assert_eq!(some.status.code(), Some(125), "one of them is no run: {some:?}");
        let said: String =
            [&ids[0], &ids[1]].map(|id| format!("synconce: cleared {id}\n")).concat();
        let mut left = [&ids[1], &ids[2]];
        left.sort();
        let failures = format!(
            "synconce: there is no run 1999; `synconce status` lists them\n\
             synconce: the ID 20 is ambiguous: {}, {}\n",
            left[0], left[1]
        );
        if is_json {
            let report: serde_json::Value = serde_json::from_str(&some.stdout).unwrap();
            assert_eq!(report, serde_json::json!({ "cleared": [ids[0], ids[1]] }));
            assert_eq!(some.stderr, failures);
        } else {
            assert_eq!((some.stdout, some.stderr), (String::new(), said + &failures));
        }
        let rest = place.status(&["--clear", "--root", "/", &ids[2]]);
        assert_eq!(rest.status.code(), Some(125), "an option has no value: {rest:?}");
        assert!(place.status(&["--clear", &ids[2]]).status.success());
        assert!(place.markers().is_empty());
    }
}
