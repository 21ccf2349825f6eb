//! What is set aside: a crash between any two steps, putting back by hand, and the removal.

use crate::support::{
    DATA, config, crash, everything, has_marker, isolated, leftovers, listing, make_files, paths,
    recovered, set_aside, settle, sh,
};
use rustix::mount::{MountFlags, mount};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use synconce_hold::aside::{self, AsideError, AsideRequest, Journal};
use synconce_hold::state_directory;

const ALL: [&str; 3] = ["meta.db", "plugin.one", "plugin.two"];

fn request(paths: &[PathBuf]) -> AsideRequest<'_> {
    AsideRequest { name: "test", unit: None, paths, reason: "a test", losses: &[] }
}

/// Makes the state after a crash: the journal is written, `made` directories exist, and
/// `renamed` files are set aside.
fn crashed_after(made: usize, renamed: usize, readme: &str) {
    let mut journal = Journal::read("test").unwrap();
    let set = journal.sets.last_mut().unwrap();
    set.finished = false;
    for one in &set.moves[renamed..] {
        fs::rename(&one.to, &one.from).unwrap();
    }
    for directory in set.directories() {
        fs::write(directory.join("README"), readme).unwrap();
    }
    for directory in set.directories().iter().skip(made) {
        fs::remove_dir_all(directory).unwrap();
    }
    fs::write(state_directory::journal("test"), serde_json::to_vec(&journal).unwrap()).unwrap();
}

#[test]
fn after_a_crash_at_any_step_the_next_recovery_finishes() {
    isolated(|| {
        let config = config("wipe", &everything());
        make_files("old");
        let original = listing();
        crash(&config);
        set_aside(recovered(&config));
        let after = listing();
        assert!(!after.contains("plugin") && after.contains("other/d"), "{after}");
        for (made, renamed) in [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)] {
            for readme in ["", "To put"] {
                crashed_after(made, renamed, readme);
                crash(&config);
                let aside = set_aside(recovered(&config));
                assert_eq!((listing(), &aside.paths), (after.clone(), &paths(&ALL)), "{renamed}");
                let journal = Journal::read("test").unwrap();
                assert!(journal.sets.len() == 1 && journal.sets[0].finished && !has_marker());
                let readme = sh(&format!("cat {DATA}/.synconce-aside-test-1/README"));
                assert!(aside.commands.iter().all(|one| readme.contains(one)), "{readme}");
            }
        }
        // The marker was not removed any more, or the journal not begun.
        crash(&config);
        let aside = set_aside(recovered(&config));
        assert_eq!((listing(), aside.paths), (after, paths(&ALL)));
        sh(&aside.commands[1..].join("\n"));
        assert_eq!(listing(), original);
    });
}

#[test]
fn files_made_anew_before_a_begun_wipe_is_finished_are_kept_beside_the_original() {
    isolated(|| {
        let config = config("wipe", &everything());
        make_files("old");
        let original = listing();
        crash(&config);
        set_aside(recovered(&config));
        crashed_after(1, 1, "");
        make_files("new");
        crash(&config);
        let aside = set_aside(recovered(&config));
        assert_eq!(aside.paths, paths(&ALL));
        assert_eq!(Journal::read("test").unwrap().sets.len(), 2);
        // What was not renamed in the first set when the daemon wrote to it is the original.
        sh(&aside.commands[1..].join("\n"));
        assert_eq!(sh(&format!("cat {DATA}/meta.db")), "old\n");
        assert_eq!(listing().lines().count(), original.lines().count());
    });
}

#[test]
fn of_two_wipes_without_a_start_between_the_older_is_put_back() {
    isolated(|| {
        let config = config("wipe", &everything());
        make_files("original");
        let original = listing();
        for content in ["second", "third"] {
            crash(&config);
            set_aside(recovered(&config));
            make_files(content);
            fs::write(format!("{DATA}/other/d"), "original\n").unwrap();
        }
        let journal = Journal::read("test").unwrap();
        assert_eq!(journal.sets.len(), 2);
        let commands = journal.commands();
        assert_eq!(commands, journal.put_back, "the journal has the commands as text");
        let stop = match synconce_probe::systemd::is_running() {
            true => "systemctl stop test.service",
            false => "# first stop the daemon of test.service",
        };
        assert_eq!(commands[0], stop);
        sh(&commands[1..].join("\n"));
        assert_eq!(listing(), original);
        let second = sh(&format!("cat {DATA}/.synconce-aside-test-2/meta.db"));
        let third = sh(&format!("cat {DATA}/.synconce-aside-test-1/.synconce-replaced/meta.db"));
        assert_eq!((second.as_str(), third.as_str()), ("second\n", "third\n"));
        let left = Journal::read("test").unwrap().commands();
        assert_eq!(left, commands[..1], "the original is not replaced by the second");
        settle("test").unwrap();
        assert_eq!((listing(), leftovers().as_str()), (original, ""));
    });
}

#[test]
fn settling_removes_everything_and_an_unfinished_wipe_is_not_settled() {
    isolated(|| {
        assert_eq!(settle("test").unwrap(), 0, "nothing is set aside");
        let config = config("wipe", &everything());
        make_files("old");
        crash(&config);
        set_aside(recovered(&config));
        crashed_after(1, 1, "");
        assert!(matches!(settle("test"), Err(AsideError::Unfinished(_))));
        assert_eq!(aside::set_aside(&request(&[])).unwrap().sets.len(), 1);
        assert!(matches!(settle("test"), Err(AsideError::NotStarted(_))));
        sh(&format!("echo new >{DATA}/meta.db"));
        // A settle that was cut short.
        sh(&format!("rm -r {DATA}/.synconce-aside-test-1/plugin.one/sub"));
        let removed = settle("test").unwrap();
        assert_eq!((removed, leftovers().as_str()), (1 + 1 + 1 + 2 + 2, ""));
        assert!(listing().contains("other/d"));
        assert_eq!(settle("test").unwrap(), 0);
    });
}

#[test]
fn another_directory_that_gets_the_name_of_one_that_was_made_is_neither_written_nor_removed() {
    isolated(|| {
        make_files("old");
        aside::set_aside(&request(&paths(&ALL))).unwrap();
        let (own, moved) = (format!("{DATA}/.synconce-aside-test-1"), format!("{DATA}/moved"));
        fs::rename(&own, &moved).unwrap();
        sh(&format!("mkdir {own}; echo precious >{own}/file; echo new >{DATA}/meta.db"));
        // Before and after the journal has the identity of the directory.
        for is_made in [true, false] {
            let mut journal = Journal::read("test").unwrap();
            let set = journal.sets.last_mut().unwrap();
            set.finished = false;
            if !is_made {
                set.made.clear();
            }
            fs::write(state_directory::journal("test"), serde_json::to_vec(&journal).unwrap())
                .unwrap();
            let said = ["it has entries that no hold made", "another directory has its name now"];
            let error = aside::set_aside(&request(&[])).unwrap_err().to_string();
            assert!(error.contains(said[usize::from(is_made)]), "{error}");
            assert_eq!(sh(&format!("cat {own}/*")), "precious\n");
        }
    });
}

#[test]
fn a_mount_is_named_before_anything_is_renamed_and_none_is_crossed() {
    isolated(|| {
        make_files("old");
        let before = listing();
        let all = paths(&ALL);
        for point in ["plugin.one/sub", "plugin.two"] {
            let point = Path::new(DATA).join(point);
            mount("m", &point, "tmpfs", MountFlags::empty(), None).unwrap();
            let error = aside::set_aside(&request(&all)).unwrap_err();
            assert!(error.to_string().contains(point.to_str().unwrap()), "{error}");
            sh(&format!("umount {}", point.display()));
            assert_eq!(listing(), before);
            assert!(!state_directory::journal("test").exists());
        }
        aside::set_aside(&request(&all)).unwrap();
        let point = format!("{DATA}/.synconce-aside-test-1/plugin.one/sub");
        mount("m", &point, "tmpfs", MountFlags::empty(), None).unwrap();
        fs::write(format!("{point}/kept"), "").unwrap();
        sh(&format!("echo new >{DATA}/meta.db"));
        let error = settle("test").unwrap_err().to_string();
        assert!(error.contains("mounted") && Path::new(&point).join("kept").exists(), "{error}");
        sh(&format!("umount {point}"));
        settle("test").unwrap();
    });
}

#[test]
fn any_name_is_put_back_by_a_shell_and_names_in_use_are_passed_over() {
    isolated(|| {
        fs::create_dir_all(format!("{DATA}/.synconce-aside-test-7")).unwrap();
        fs::create_dir_all(format!("{DATA}/.synconce-hold/x")).unwrap();
        let names = [&b"it's"[..], b"-n", b"a\n", b"\xff\xe9", b"$(x)", b"README", b".dot"];
        let names = names.map(|name| Path::new(DATA).join(OsStr::from_bytes(name)));
        names.iter().for_each(|name| fs::write(name, name.as_os_str().as_bytes()).unwrap());
        let journal = aside::set_aside(&request(&paths(&["*"]))).unwrap();
        assert_eq!(journal.sets[0].number, 8);
        assert!(names.iter().all(|name| !name.exists()));
        let again = Journal::read("test").unwrap();
        assert_eq!(again, journal, "as it was written");
        assert!(Path::new(DATA).join(".synconce-hold/x").exists());
        sh(&again.put_back.join("\n"));
        for name in names {
            assert_eq!(fs::read(&name).unwrap(), name.as_os_str().as_bytes(), "{name:?}");
        }
    });
}
