//! Other users: unprivileged ones, and programs that change their user.

use crate::builds::{Build, dynamic, ways};
use crate::support::{Place, SYNCONCE, agree, isolated};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use synconce_testkit::process::{self, Finished};

const NOBODY: u32 = 65534;
const AS_NOBODY: [&str; 5] = ["setpriv", "--reuid", "65534", "--regid", "65534"];
const PLAIN: [&str; 5] = ["sync-file", "msync-good", "openat-raw", "openat2", "aio-alone"];

/// Makes the directory `name`, which belongs to the user nobody.
fn of_nobody(place: &Place, name: &str) -> PathBuf {
    let path = place.directory(name);
    chown(&path, Some(NOBODY), Some(NOBODY)).expect("a directory that is given away");
    path
}

/// Runs `words` in `directory` as the user nobody, without supplementary groups.
fn as_nobody(place: &Place, directory: &Path, words: &[&str]) -> Finished {
    for name in ["state", "runtime"] {
        of_nobody(place, name);
    }
    let words = [&AS_NOBODY[..], &["--clear-groups"], words].concat();
    process::run(&mut place.command(directory, &words), crate::support::limit()).unwrap()
}

fn held_as_nobody(place: &Place, directory: &Path, words: &[&str]) -> Finished {
    let run = [SYNCONCE, "run", "--commit-only", ".", "--stats", "--json", "--"];
    as_nobody(place, directory, &[&run, words].concat())
}

#[test]
fn an_unprivileged_user_is_held_without_a_notice() {
    isolated(|place: &Place| {
        let program = dynamic();
        let words = [&[program.as_str()], &PLAIN[..]].concat();
        let bare = as_nobody(place, &of_nobody(place, "bare"), &words);
        let held = held_as_nobody(place, &of_nobody(place, "held"), &words);
        agree(&bare, &held);
        assert_eq!(held.stderr.lines().count(), 1, "only the accounts: {}", held.stderr);
        for counted in [
            r#""fsync":{"held":1,"passed":0,"refused":0,"unseen":0,"reasons":{}}"#,
            r#""msync":{"held":3,"passed":0,"refused":0,"unseen":0,"reasons":{}}"#,
            r#""openat":{"held":1,"passed":0,"refused":0,"unseen":0,"reasons":{}}"#,
            r#""openat2":{"held":2,"passed":0,"refused":0,"unseen":0,"reasons":{}}"#,
            r#""io_submit":{"held":4,"passed":0,"refused":0,"unseen":0,"reasons":{}}"#,
        ] {
            assert!(held.stderr.contains(counted), "{counted}: {}", held.stderr);
        }
    });
}

#[test]
fn an_unprivileged_user_is_held_in_a_user_namespace_of_its_own() {
    isolated(|place: &Place| {
        let program = dynamic();
        let words = [&["unshare", "-Ur", program.as_str()], &PLAIN[..]].concat();
        let bare = as_nobody(place, &of_nobody(place, "bare"), &words);
        let held = held_as_nobody(place, &of_nobody(place, "held"), &words);
        agree(&bare, &held);
        assert!(held.stderr.contains(r#""openat":{"held":1,"passed":0"#), "{}", held.stderr);
    });
}

/// Copies the program; the copy is setuid and belongs to `owner`.
fn setuid(place: &Place, owner: u32) -> String {
    let path = place.path("setuid");
    fs::copy(ways(Build::Static), &path).expect("a copy of the program");
    chown(&path, Some(owner), Some(owner)).expect("a copy that is given away");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o6755)).expect("a setuid copy");
    place.text("setuid")
}

#[test]
fn an_unprivileged_user_gets_one_notice_of_a_setuid_command() {
    isolated(|place: &Place| {
        let (program, here) = (setuid(place, 0), of_nobody(place, "here"));
        let held = held_as_nobody(place, &here, &[&program, "as", "one", "a"]);
        assert!(held.status.success(), "{}", held.stderr);
        assert_eq!(held.stdout.matches("disk-sync=0").count(), 1, "{}", held.stdout);
        let notices: Vec<_> =
            held.stderr.lines().filter(|line| line.contains("gains no privileges")).collect();
        assert_eq!(notices.len(), 1, "{}", held.stderr);
        assert!(notices[0].contains(&program), "{}", notices[0]);
    });
}

#[test]
fn an_unprivileged_user_gets_a_notice_of_file_capabilities_unless_the_mount_is_nosuid() {
    isolated(|place: &Place| {
        let (program, here) = (place.text("capable"), of_nobody(place, "here"));
        fs::copy(ways(Build::Static), &program).expect("a copy of the program");
        let set = place.bare(&here, &["setcap", "cap_chown+ep", &program]);
        assert!(set.status.success(), "{set:?}");
        let noticed = held_as_nobody(place, &here, &[&program, "sync-file"]);
        assert!(noticed.stderr.contains("/capable gains no privileges"), "{noticed:?}");
        // On a nosuid mount the program gains no privileges without synconce either.
        let directory = place.text("");
        for words in
            [["mount", "--bind", &directory].as_slice(), &["mount", "-o", "remount,bind,nosuid"]]
        {
            let mounted = place.bare(&here, &[words, &[&directory]].concat());
            assert!(mounted.status.success(), "{mounted:?}");
        }
        let noticed = held_as_nobody(place, &here, &[&program, "sync-file"]);
        assert!(
            noticed.status.success() && !noticed.stderr.contains("gains no privileges"),
            "{noticed:?}"
        );
    });
}

#[test]
fn a_setuid_program_run_by_root_changes_its_user_and_is_held() {
    isolated(|place: &Place| {
        let program = setuid(place, NOBODY);
        let directories = ["bare", "held"].map(|name| of_nobody(place, name));
        let words = [program.as_str(), "sync-file", "openat-raw", "openat2"];
        let bare = place.bare(&directories[0], &words);
        let run = place.held(&directories[1], &["--no-commit"], &words);
        agree(&bare, &run.finished);
        assert!(bare.stdout.contains("owner=65534:65534"), "{}", bare.stdout);
        assert_eq!(run.programs().get("sync-file"), Some(&[2, 0, 0]));
        assert_eq!(run.programs().get("openat-raw"), Some(&[1, 0, 0]));
        assert_eq!(run.programs().get("openat2"), Some(&[2, 0, 0]));
        assert_eq!(run.notices(), "");
    });
}
