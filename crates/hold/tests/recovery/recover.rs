//! The decision: clean or unclean, and what happens then.

use crate::support::{
    DATA, config, crash, cut_recovery_short, everything, has_marker, isolated, leave_link, listing,
    make_files, marker, paths, recover, recovered, release, set_aside, sh,
};
use std::fs;
use std::path::Path;
use synconce_hold::aside::Loss;
use synconce_hold::config::{AfterCrash, Config, Held, HeldKind};
use synconce_hold::file_system::SuperBlock;
use synconce_hold::record::HoldRecord;
use synconce_hold::recover::{Decision, Layers, RecoverError, Recovered};
use synconce_hold::resolved_path::ResolvedPath;
use synconce_hold::safe_directory::SCRATCH;
use synconce_hold::state_directory;

#[test]
fn in_the_same_boot_nothing_is_changed() {
    isolated(|| {
        let config = config("wipe", &everything());
        make_files("old");
        assert_eq!(recovered(&config), Recovered::Clean);
        marker(&config).write().unwrap();
        let link = leave_link(&config);
        let before = listing();
        for decision in [Decision::ByFile, Decision::Wipe, Decision::Keep] {
            assert_eq!(recover(&config, decision).unwrap(), Recovered::Untouched);
        }
        assert!(has_marker() && listing() == before && link.exists());
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
        let unseen = unmounted.clone();
        let super_block = SuperBlock { directory: "/sys/fs/ext4/none".into(), number: 1 };
        unmounted.file_systems[0].super_block = Some(super_block);
        let loss = Loss { boot: whole.boot.clone(), super_block: None };
        let ends = [
            (HoldRecord { boot: "another".to_owned(), ..whole.clone() }, "the machine stopped"),
            (HoldRecord { losses: vec![loss], ..whole.clone() }, "the disk lost writes"),
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
        make_files("old");
        unseen.write().unwrap();
        let error = recover(&config, Decision::ByFile).unwrap_err();
        assert!(error.to_string().contains("nothing shows whether"), "{error}");
        assert!(listing().contains("plugin") && has_marker());
        whole.write().unwrap();
        let text = fs::read(state_directory::marker("test")).unwrap();
        for content in [&text[..0], &text[..9], &text[..text.len() - 2], &[0; 4096], b"{}", b"\n"] {
            make_files("old");
            fs::write(state_directory::marker("test"), content).unwrap();
            let aside = set_aside(recovered(&config));
            assert!(aside.reason.contains("damaged"), "{}", aside.reason);
            assert!(!listing().contains("plugin") && !has_marker());
        }
    });
}

#[test]
fn what_was_held_is_set_aside_and_nothing_that_the_edited_file_of_the_hold_names() {
    isolated(|| {
        let mut config = config("wipe", "");
        make_files("old");
        crash(&config);
        config.hold[0].path = Path::new(DATA).join("other");
        config.set_aside = paths(&["plugin.one"]);
        config.after_crash = AfterCrash::Refuse;
        let error = recover(&config, Decision::ByFile).unwrap_err();
        assert_eq!(error.commands()[0].0, format!("ls -la {DATA}/meta.db"));
        config.after_crash = AfterCrash::Wipe;
        let aside = set_aside(recovered(&config));
        assert_eq!(aside.paths, paths(&["meta.db"]));
        assert!(aside.reason.contains("the hold's file was edited since"));
        assert!(listing().contains("other/d") && listing().contains("plugin.one/a"));
    });
}

#[test]
fn a_refusal_changes_nothing_and_the_operator_decides() {
    isolated(|| {
        let config = config("refuse", "");
        make_files("old");
        let link = leave_link(&config);
        let before = listing();
        crash(&config);
        let error = recover(&config, Decision::ByFile).unwrap_err();
        let commands: Vec<_> = error.commands().into_iter().map(|(command, _)| command).collect();
        assert_eq!(commands[0], format!("ls -la {DATA}/meta.db"));
        assert_eq!(commands[1], "synconce hold recover test --keep");
        assert_eq!(commands[2], "synconce hold recover test --wipe");
        assert!(listing() == before && has_marker() && link.exists());
        let kept = recover(&config, Decision::Keep).unwrap();
        assert!(matches!(kept, Recovered::Kept { .. }) && listing() == before && !has_marker());
        assert!(!link.exists());
        crash(&config);
        set_aside(recover(&config, Decision::Wipe).unwrap());
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
        cut_recovery_short(&config);
        let error = recover(&config, Decision::Keep).unwrap_err();
        let RecoverError::Refused { put_back, .. } = error else { panic!("{error}") };
        let moves = &put_back.iter().filter(|one| one.starts_with('(')).collect::<Vec<_>>()[..2];
        moves.iter().for_each(|one| drop(sh(one)));
        assert_eq!(listing(), before);
        let kept = recover(&config, Decision::Keep).unwrap();
        assert!(matches!(kept, Recovered::Kept { .. }) && listing() == before && !has_marker());
        assert_eq!(recovered(&config), Recovered::Clean);
    });
}

/// Returns the names of the attributes of `path`.
fn attributes(path: &Path) -> String {
    let mut names = vec![0; 64 << 10];
    let length = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    String::from_utf8_lossy(&names[..length]).into_owned()
}

/// Returns the hold "test" on the directory "other" in place of the database.
fn of_directory() -> Config {
    let mut config = config("wipe", "");
    let path = Path::new(DATA).join("other");
    config.hold = vec![Held { path, kind: HeldKind::Other, throw_away: false }];
    config
}

#[test]
fn leftovers_of_the_hold_are_removed_before_a_rename() {
    isolated(|| {
        let config = of_directory();
        make_files("old");
        let place = ResolvedPath::find(&config.hold[0]).unwrap();
        place.hold().unwrap();
        crash(&config);
        let before = listing();
        let error = recover(&config, Decision::ByFile).unwrap_err();
        assert!(error.to_string().contains("while it is held"), "{error}");
        assert!(listing() == before && has_marker(), "nothing is renamed below an overlay");
        release(&place);
        assert!(attributes(&place.path()).contains("trusted.overlay."));
        let aside = set_aside(recovered(&config));
        assert_eq!(aside.paths, paths(&["other"]));
        // After a rename the attributes would have been out of reach.
        let other = Path::new(DATA).join(".synconce-aside-test-1/other");
        assert_eq!(attributes(&other), "");
        assert!(!Path::new(DATA).join(SCRATCH).exists() && !place.path().exists());
    });
}

#[test]
fn after_a_damaged_marker_a_missing_file_is_for_the_operator_to_decide() {
    isolated(|| {
        let config = config("wipe", &everything());
        make_files("old");
        sh(&format!("rm {DATA}/meta.db"));
        marker(&config).write().unwrap();
        fs::write(state_directory::marker("test"), "").unwrap();
        let before = listing();
        let error = recover(&config, Decision::ByFile).unwrap_err();
        assert!(matches!(error, RecoverError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("meta.db is missing: its file system may not be"));
        assert!(listing() == before && has_marker());
        let aside = set_aside(recover(&config, Decision::Wipe).unwrap());
        assert_eq!(aside.paths, paths(&["plugin.one", "plugin.two"]));
        assert!(!has_marker());
    });
}

#[test]
fn a_path_that_cannot_be_looked_at_keeps_the_marker_and_so_does_one_of_synconce() {
    isolated(|| {
        let mut config = config("wipe", "");
        make_files("old");
        crash(&config);
        // Below a file: ENOTDIR, and not ENOENT.
        config.hold[0].path = Path::new(DATA).join("meta.db/below");
        crash(&config);
        let error = recover(&config, Decision::ByFile).unwrap_err();
        assert!(error.to_string().contains("Not a directory") && has_marker(), "{error}");
        config.hold[0].path = Path::new(DATA).join(".synconce-db");
        sh(&format!("touch {DATA}/.synconce-db"));
        crash(&config);
        let error = recover(&config, Decision::ByFile).unwrap_err();
        assert!(error.to_string().contains("cannot set aside") && has_marker(), "{error}");
    });
}
