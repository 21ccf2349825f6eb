//! The way back of what is set aside: a crash between any two steps, and several wipes.

use crate::support::{
    DATA, config, crash, cut_recovery_short, daemon_writes, everything, has_marker, isolated,
    leftovers, listing, make_files, paths, recover, recovered, set_aside, settle, sh,
    write_journal,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs;
use std::path::Path;
use synconce_hold::aside::{AsideError, Journal, RestoreError, Restored, restore};
use synconce_hold::recover::{Decision, Recovered};

const ALL: [&str; 3] = ["meta.db", "plugin.one", "plugin.two"];

fn restored() -> Restored {
    restore("test", &|_| {}).unwrap()
}

/// Sets files with the text `content` aside.
fn wipe(content: &str) {
    let config = config("wipe", &everything());
    make_files(content);
    fs::write(format!("{DATA}/other/d"), "other\n").unwrap();
    crash(&config);
    set_aside(recovered(&config));
}

fn cat(path: &str) -> String {
    sh(&format!("cat {DATA}/{path}"))
}

/// Makes the state after a crash of a restore: the journal is written, and of the renames of each
/// file, away and back, the first `steps` are done.
fn crashed_after(steps: usize) {
    let mut journal = Journal::read("test").unwrap();
    let set = journal.sets.last_mut().unwrap();
    set.moves.iter_mut().for_each(|one| one.put_back = true);
    let replaced = Path::new(DATA).join(".synconce-aside-test-1/.synconce-replaced");
    for step in 0..steps {
        let one = &set.moves[step / 2];
        if step % 2 == 0 {
            sh(&format!("mkdir -m 700 -p {}", replaced.display()));
            fs::rename(&one.from, replaced.join(one.from.file_name().unwrap())).unwrap();
        } else {
            fs::rename(&one.to, &one.from).unwrap();
        }
    }
    write_journal(&journal);
}

#[test]
fn after_a_crash_at_any_step_the_next_restore_or_recovery_finishes() {
    isolated(|| {
        let config = config("wipe", &everything());
        for steps in 0..=2 * ALL.len() {
            for by_recovery in [false, true] {
                wipe("old");
                make_files("new");
                fs::write(format!("{DATA}/other/d"), "other\n").unwrap();
                crashed_after(steps);
                assert!(matches!(settle("test"), Err(AsideError::Unfinished(_))), "{steps}");
                let done = if by_recovery {
                    match recovered(&config) {
                        Recovered::PutBack(restored) => restored,
                        other => panic!("{steps}: {other:?}"),
                    }
                } else {
                    restored()
                };
                assert_eq!(done.paths.len(), ALL.len() - steps / 2, "{steps}");
                let content = listing();
                assert!(content.contains("old") && !content.contains("new"), "{steps}: {content}");
                let newer = ".synconce-aside-test-1/.synconce-replaced";
                assert_eq!(cat(&format!("{newer}/plugin.one/sub/b")), "new\n", "{steps}");
                assert_eq!(cat(&format!("{newer}/meta.db")), "new\n", "{steps}");
                assert_eq!(restored(), Restored::default(), "{steps}");
                // Nothing is newer than the restore.
                assert!(matches!(settle("test"), Err(AsideError::NotStarted(_))), "{steps}");
                assert_eq!(cat(&format!("{newer}/meta.db")), "new\n", "{steps}");
                daemon_writes();
                settle("test").unwrap();
                assert_eq!((listing(), leftovers().as_str()), (content, ""), "{steps}");
            }
        }
    });
}

#[test]
fn of_several_wipes_the_oldest_comes_back_once_and_a_later_wipe_can_come_back_too() {
    isolated(|| {
        for content in ["original", "second"] {
            wipe(content);
        }
        make_files("third");
        let done = restored();
        assert_eq!((done.paths, cat("meta.db").as_str()), (paths(&ALL), "original\n"));
        let kept =
            ["1", "2"].map(|number| Path::new(DATA).join(format!(".synconce-aside-test-{number}")));
        assert_eq!(done.kept, kept);
        assert_eq!(restored(), Restored::default(), "the second stays where it is");
        assert_eq!(Journal::read("test").unwrap().commands().len(), 1);
        wipe("later");
        make_files("last");
        assert_eq!(
            restored().replaced[0].1,
            kept[1].with_file_name(".synconce-aside-test-3/.synconce-replaced/meta.db")
        );
        assert_eq!(cat("plugin.two/c"), "later\n");
        daemon_writes();
        settle("test").unwrap();
        assert_eq!(leftovers(), "");
    });
}

#[test]
fn files_of_a_recovery_that_was_cut_short_come_back_and_the_operator_decides() {
    isolated(|| {
        let config = config("wipe", &everything());
        wipe("old");
        cut_recovery_short(&config);
        let done = restored();
        assert!(done.is_interrupted && has_marker(), "{done:?}");
        assert_eq!(done.paths, paths(&ALL[..2]));
        let kept = recover(&config, Decision::Keep).unwrap();
        assert!(matches!(kept, Recovered::Kept { .. }) && !has_marker());
        assert_eq!(cat("plugin.two/c"), "old\n");
        settle("test").unwrap();
        // Without a recovery that has begun, the hold is recovered first.
        crash(&config);
        assert!(matches!(restore("test", &|_| {}), Err(RestoreError::Interrupted(_))));
    });
}

#[test]
fn after_a_recovery_that_was_cut_short_the_original_stays_and_the_marker_alone_decides() {
    isolated(|| {
        let config = config("wipe", &everything());
        for content in ["original", "second"] {
            wipe(content);
        }
        let mut journal = Journal::read("test").unwrap();
        journal.sets[1].finished = false;
        write_journal(&journal);
        crash(&config);
        let done = restored();
        assert_eq!((done.paths, done.is_interrupted), (paths(&ALL), true));
        // Once more would put the second in the place of the original.
        assert!(matches!(restore("test", &|_| {}), Err(RestoreError::Interrupted(_))));
        let kept = recover(&config, Decision::Keep).unwrap();
        assert!(matches!(kept, Recovered::Kept { .. }) && !has_marker());
        assert_eq!(restored(), Restored::default());
        assert_eq!(cat("meta.db"), "original\n");
        assert_eq!(cat(".synconce-aside-test-2/meta.db"), "second\n");
        daemon_writes();
        settle("test").unwrap();
        assert_eq!((cat("meta.db").as_str(), leftovers().as_str()), ("original\n", ""));
    });
}

#[test]
fn the_memory_for_many_files_does_not_grow_with_their_square() {
    isolated(|| {
        let all: Vec<_> = (0..2000).map(|number| format!("plugin.{number}")).collect();
        for name in &all {
            fs::create_dir_all(Path::new(DATA).join(name)).unwrap();
        }
        let config = config("wipe", &everything());
        crash(&config);
        set_aside(recovered(&config));
        let most = Some(512 << 20);
        setrlimit(Resource::As, Rlimit { current: most, maximum: most }).unwrap();
        assert_eq!(restored().paths.len(), all.len());
    });
}

#[test]
fn files_whose_directory_is_gone_are_not_forgotten() {
    isolated(|| {
        wipe("old");
        let (own, moved) = (format!("{DATA}/.synconce-aside-test-1"), format!("{DATA}/moved"));
        fs::rename(&own, &moved).unwrap();
        let error = restore("test", &|_| {}).unwrap_err();
        assert!(error.to_string().ends_with("/.synconce-aside-test-1 is gone"), "{error}");
        assert_eq!(sh(&error.commands()[0].0), format!("{moved}\n"));
        fs::rename(&moved, &own).unwrap();
        assert_eq!(restored().paths, paths(&ALL));
        assert_eq!((cat("meta.db").as_str(), leftovers().as_str()), ("old\n", ""));
    });
}

#[test]
fn files_whose_directory_was_deleted_are_given_up_by_the_command_of_the_message() {
    isolated(|| {
        let config = config("wipe", &everything());
        for is_cut_short in [false, true] {
            wipe("old");
            make_files("new");
            if is_cut_short {
                crashed_after(2);
            }
            sh(&format!("rm -r {DATA}/.synconce-aside-test-1"));
            let before = listing();
            let commands = restore("test", &|_| {}).unwrap_err().commands();
            if is_cut_short {
                // Otherwise the daemon would never start again.
                let recovered = recover(&config, Decision::ByFile).unwrap_err();
                assert_eq!(recovered.commands(), commands);
            }
            sh(&commands[1].0);
            assert_eq!(restored(), Restored::default());
            assert_eq!(recovered(&config), Recovered::Clean);
            assert_eq!((listing(), leftovers().as_str()), (before, ""));
        }
    });
}

/// Sets aside the directory `first`, and what is made anew as `second`. One is in the other.
fn wipe_nested(first: &str, second: &str) {
    for (content, name) in [("original", first), ("second", second)] {
        let config = config("wipe", &format!("set_aside = [\"{DATA}/{name}\"]"));
        make_files(content);
        crash(&config);
        set_aside(recovered(&config));
    }
    make_files("third");
}

#[test]
fn a_directory_comes_back_before_what_was_set_aside_in_it_earlier() {
    isolated(|| {
        for way in ["restore", "commands", "after a crash"] {
            wipe_nested("plugin.one/sub", "plugin.one");
            let mut journal = Journal::read("test").unwrap();
            match way {
                "commands" => {
                    let commands = journal.commands();
                    commands
                        .iter()
                        .filter(|one| one.starts_with('('))
                        .for_each(|one| drop(sh(one)));
                }
                "after a crash" => {
                    let second = format!("{DATA}/.synconce-aside-test-2");
                    for one in journal.sets.iter_mut().flat_map(|set| &mut set.moves) {
                        one.put_back = one.to != Path::new(&second).join("meta.db");
                    }
                    write_journal(&journal);
                    sh(&format!("cd {DATA}; mv plugin.one third; mv {second}/plugin.one ."));
                    restored();
                    sh(&format!("rm -r {DATA}/third"));
                }
                _ => assert_eq!(restored().paths.len(), 3),
            }
            assert_eq!(cat("meta.db"), "original\n", "{way}");
            assert_eq!(cat("plugin.one/a"), "second\n", "{way}");
            assert_eq!(cat("plugin.one/sub/b"), "original\n", "{way}");
            daemon_writes();
            settle("test").unwrap();
            assert_eq!(leftovers(), "", "{way}");
        }
    });
}

#[test]
fn a_directory_that_went_away_with_its_newer_parent_is_not_gone() {
    isolated(|| {
        for is_restore in [false, true] {
            wipe_nested("plugin.one", "plugin.one/sub");
            let mut journal = Journal::read("test").unwrap();
            let commands = journal.commands();
            if is_restore {
                journal.sets[0].moves.iter_mut().for_each(|one| one.put_back = true);
                write_journal(&journal);
            }
            commands.iter().filter(|one| one.starts_with('(')).for_each(|one| drop(sh(one)));
            let listed = Journal::read("test").unwrap();
            assert_eq!(listed.to_put_back().is_empty(), !is_restore, "{is_restore}");
            assert_eq!(restored().paths, Vec::<std::path::PathBuf>::new());
            assert!(!Journal::read("test").unwrap().is_restoring());
            assert_eq!(cat("plugin.one/sub/b"), "original\n");
            daemon_writes();
            settle("test").unwrap();
            assert_eq!(leftovers(), "");
        }
    });
}

#[test]
fn the_commands_put_back_the_original_for_good_and_a_later_crash_has_a_new_one() {
    isolated(|| {
        let put_back = || {
            let commands = Journal::read("test").unwrap().commands();
            commands.iter().filter(|one| one.starts_with('(')).for_each(|one| drop(sh(one)));
        };
        wipe("original");
        wipe("second");
        put_back();
        assert_eq!(restored(), Restored::default());
        assert_eq!(cat("meta.db"), "original\n");
        wipe("later");
        assert_eq!(restored().paths, paths(&ALL));
        assert_eq!(cat("meta.db"), "later\n");
    });
}

#[test]
fn what_a_file_system_is_mounted_on_is_not_put_back_by_half() {
    isolated(|| {
        wipe("old");
        let journal = Journal::read("test").unwrap();
        let last = journal.sets[0].moves.last().unwrap();
        sh(&format!("mount -t tmpfs none {}", last.to.display()));
        let before = listing();
        let error = restore("test", &|_| {}).unwrap_err();
        assert!(matches!(error, RestoreError::Mounted { .. }), "{error}");
        assert_eq!(listing(), before);
        assert!(!Journal::read("test").unwrap().is_restoring());
        sh(&error.remedy().unwrap());
        assert_eq!(restored().paths, paths(&ALL));
    });
}

#[test]
fn files_that_were_moved_with_the_directory_above_are_looked_for_where_it_was() {
    isolated(|| {
        wipe("old");
        let moved = format!("{DATA}.moved");
        fs::rename(DATA, &moved).unwrap();
        let commands = restore("test", &|_| {}).unwrap_err().commands();
        assert_eq!(sh(&commands[0].0), format!("{moved}/.synconce-aside-test-1\n"));
        fs::rename(&moved, DATA).unwrap();
        assert_eq!(restored().paths, paths(&ALL));
    });
}
