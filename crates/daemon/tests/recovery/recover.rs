//! The decision: clean or unclean, and what happens then.

use crate::support::{
    DATA, config, crash, everything, has_marker, isolated, listing, make_files, marker, paths,
    recover_as, recovered, set_aside, sh,
};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use synconce_daemon::aside::Journal;
use synconce_daemon::record::{self, Record};
use synconce_daemon::recover::{
    Decision, Layers, RecoverError, Recovered, Steps, Verdict, recover,
};

fn damaged() -> Verdict {
    Verdict::Damaged("page 7".to_owned())
}

#[test]
fn in_the_same_boot_nothing_is_changed() {
    isolated(|| {
        let config = config("wipe", &everything());
        make_files("old");
        let before = listing();
        assert_eq!(recovered(&config), Recovered::Clean);
        marker(&config).write().unwrap();
        for decision in [Decision::ByFile, Decision::Wipe, Decision::Keep] {
            let recovered = recover_as(&config, decision, &damaged()).unwrap();
            assert_eq!(recovered, Recovered::Untouched);
        }
        assert!(has_marker() && listing() == before);
    });
}

#[test]
fn an_unclean_end_is_told_by_the_boot_the_mounts_an_error_or_a_damaged_marker() {
    isolated(|| {
        let config = config("wipe", &everything());
        make_files("old");
        let whole = marker(&config);
        let mut unmounted = whole.clone();
        unmounted.file_systems[0].mount += 1 << 40;
        let ends = [
            (Record { boot: "another".to_owned(), ..whole.clone() }, "the machine stopped"),
            (Record { boot: String::new(), ..whole.clone() }, "the machine stopped"),
            (Record { failed: true, ..whole.clone() }, "a write to the disk failed"),
            (unmounted, "unmounted"),
        ];
        for (record, reason) in ends {
            make_files("old");
            record.write().unwrap();
            let aside = set_aside(recovered(&config));
            assert!(aside.reason.contains(reason), "{}", aside.reason);
            assert!(!listing().contains("plugin") && !has_marker());
            assert_eq!(aside.layers, Layers::NotAsked);
        }
        whole.write().unwrap();
        let text = fs::read(record::path("test")).unwrap();
        for content in [&text[..0], &text[..9], &text[..text.len() - 2], &[0; 4096], b"{}", b"\n"] {
            make_files("old");
            fs::write(record::path("test"), content).unwrap();
            let aside = set_aside(recovered(&config));
            assert!(aside.reason.contains("damaged"), "{}", aside.reason);
            assert!(!listing().contains("plugin") && !has_marker());
        }
    });
}

#[test]
fn what_was_held_is_set_aside_also_if_the_file_of_the_hold_no_longer_names_it() {
    isolated(|| {
        let mut config = config("wipe", "");
        make_files("old");
        crash(&config);
        config.hold[0].path = Path::new(DATA).join("other");
        let aside = set_aside(recovered(&config));
        assert_eq!(aside.paths, paths(&["meta.db", "other"]));
    });
}

#[test]
fn a_check_decides_and_what_cannot_be_checked_is_refused() {
    isolated(|| {
        let config = config("check", &everything());
        make_files("old");
        let before = listing();
        crash(&config);
        let unknown = Verdict::Unknown("no program".to_owned());
        let error = recover_as(&config, Decision::ByFile, &unknown).unwrap_err();
        assert!(error.to_string().contains("no program"), "{error}");
        assert!(listing() == before && has_marker());
        let whole = recover_as(&config, Decision::ByFile, &Verdict::Whole).unwrap();
        assert!(matches!(whole, Recovered::WasWhole { .. }) && listing() == before);
        assert!(!has_marker());
        crash(&config);
        let aside = recover_as(&config, Decision::ByFile, &damaged()).unwrap();
        let aside = set_aside(aside);
        assert!(aside.reason.contains("meta.db is damaged: page 7"), "{}", aside.reason);
        assert!(!listing().contains("plugin") && !has_marker());
        // The cache cannot be trusted after a failed write.
        make_files("old");
        Record { failed: true, ..marker(&config) }.write().unwrap();
        set_aside(recovered(&config));
    });
}

#[test]
fn a_refusal_changes_nothing_and_the_operator_decides() {
    isolated(|| {
        let config = config("refuse", "");
        make_files("old");
        let before = listing();
        crash(&config);
        let never = |_: &[_]| panic!("nothing may be changed");
        let steps = Steps { check_bolt: &|_| Verdict::Whole, clean: &never };
        let error = recover(&config, Decision::ByFile, &steps).unwrap_err();
        let commands: Vec<_> = error.commands().into_iter().map(|(command, _)| command).collect();
        assert_eq!(commands[0], format!("ls -la '{DATA}/meta.db'"));
        assert_eq!(commands[1], "synconce hold recover test --keep");
        assert_eq!(commands[2], "synconce hold recover test --wipe");
        assert!(listing() == before && has_marker());
        let kept = recover_as(&config, Decision::Keep, &damaged()).unwrap();
        assert!(matches!(kept, Recovered::Kept { .. }) && listing() == before && !has_marker());
        crash(&config);
        set_aside(recover_as(&config, Decision::Wipe, &Verdict::Whole).unwrap());
        assert!(!listing().contains("meta.db") && !has_marker());
    });
}

#[test]
fn files_of_a_begun_wipe_are_not_used_before_all_are_put_back() {
    isolated(|| {
        let config = config("wipe", &everything());
        make_files("old");
        let before = listing();
        crash(&config);
        set_aside(recovered(&config));
        let mut journal = Journal::read("test").unwrap();
        journal.sets[0].finished = false;
        let last = &journal.sets[0].moves[2];
        fs::rename(&last.to, &last.from).unwrap();
        fs::write(record::aside_path("test"), serde_json::to_vec(&journal).unwrap()).unwrap();
        crash(&config);
        let error = recover_as(&config, Decision::Keep, &Verdict::Whole).unwrap_err();
        let RecoverError::Refused { put_back, .. } = error else { panic!("{error}") };
        let moves = &put_back.iter().filter(|one| one.starts_with("mv")).collect::<Vec<_>>()[..2];
        moves.iter().for_each(|one| drop(sh(one)));
        assert_eq!(listing(), before);
        let kept = recover_as(&config, Decision::Keep, &Verdict::Whole).unwrap();
        assert!(matches!(kept, Recovered::Kept { .. }) && listing() == before && !has_marker());
        assert_eq!(recovered(&config), Recovered::Clean);
    });
}

#[test]
fn leftovers_of_the_hold_are_removed_before_a_rename() {
    isolated(|| {
        let config = config("wipe", "");
        make_files("old");
        crash(&config);
        let cleaned = Cell::new(false);
        let clean = |held: &[synconce_daemon::config::Held]| {
            cleaned.set(held[0].path.exists());
            Ok(())
        };
        recover(
            &config,
            Decision::ByFile,
            &Steps { check_bolt: &|_| Verdict::Whole, clean: &clean },
        )
        .unwrap();
        assert!(cleaned.get() && !listing().contains("meta.db"));
    });
}
