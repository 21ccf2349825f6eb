//! `synconce setup apt`: the program that root's apt starts can be altered by root alone.

use super::apt::place;
use super::place::TestRoot;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

const OTHERS: &str = "can be changed by other users than root";

/// Sets the owner, group and mode of `path`.
fn give(place: &TestRoot, path: &str, owner: u32, group: u32, mode: u32) {
    let path = place.root.join(path);
    chown(&path, Some(owner), Some(group)).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn a_program_that_another_user_can_alter_is_refused_with_a_command_that_helps() {
    let place = place("apt-foreign");
    for (path, owner, group, mode) in [
        ("usr/bin/synconce", 1234, 0, 0o755),
        ("usr/bin/synconce", 0, 0, 0o757),
        ("usr/bin/synconce", 0, 1234, 0o775),
        ("usr/bin", 1234, 0, 0o755),
        ("usr/bin", 0, 0, 0o777),
        ("usr", 0, 1234, 0o2775),
    ] {
        let case = format!("{path} {owner}:{group} {mode:o}");
        give(&place, path, owner, group, mode);
        let before = place.snapshot();
        for words in [&["apt"][..], &["apt", "--dry-run"]] {
            let ended = place.setup(words);
            assert_eq!(ended.code, Some(125), "{case}: {ended:?}");
            assert!(ended.stderr.contains(OTHERS), "{case}: {ended:?}");
            let named = place.root.join(path).display().to_string();
            let hint = format!("hint: chown root:root {named} && chmod go-w {named}\n");
            assert!(ended.stderr.contains(&hint), "{case}: {ended:?}");
        }
        let check = place.setup(&["apt", "--check"]);
        assert!(check.code == Some(1) && check.stderr.contains(OTHERS), "{case}: {check:?}");
        assert_eq!(before, place.snapshot(), "{case}");
        give(&place, path, 0, 0, 0o755);
    }
    // As on Debian, where root lets the group staff install programs (base-passwd).
    give(&place, "usr/bin", 0, 50, 0o2775);
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    // Others can make files there, but not replace root's.
    give(&place, "usr/bin", 0, 0, 0o1777);
    assert_eq!(place.setup(&["apt", "--check"]).code, Some(0));
}

#[test]
fn a_wrapper_whose_program_another_user_can_alter_is_named_and_renewed() {
    let place = place("apt-renewed");
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    give(&place, "usr/bin/synconce", 1234, 0, 0o755);
    place.program("usr/local/bin/synconce");
    let check = place.setup(&["apt", "--check"]);
    let named = format!("usr/bin/synconce: {OTHERS}");
    assert!(check.code == Some(1) && check.stderr.contains(&named), "{check:?}");
    let ended = place.setup(&["apt"]);
    assert!(ended.code == Some(0) && ended.stderr.contains("renewed "), "{ended:?}");
    assert!(place.read("usr/bin/dpkg").contains("\nsynconce_program=/usr/local/bin/synconce\n"));
    assert_eq!(place.setup(&["apt", "--check"]).code, Some(0));
    // A set-up by another copy renews, though a check accepts any copy.
    fs::rename(place.root.join("usr/local/bin/synconce"), place.root.join("usr/new")).unwrap();
    give(&place, "usr/bin/synconce", 0, 0, 0o755);
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    assert!(place.read("usr/bin/dpkg").contains("\nsynconce_program=/usr/bin/synconce\n"));
    fs::rename(place.root.join("usr/new"), place.root.join("usr/local/bin/synconce")).unwrap();
    assert_eq!(place.setup(&["apt", "--check"]).code, Some(0));
    let again = place.setup(&["apt"]);
    assert!(again.code == Some(0) && again.stderr.contains("renewed "), "{again:?}");
    assert!(place.read("usr/bin/dpkg").contains("\nsynconce_program=/usr/local/bin/synconce\n"));
}
