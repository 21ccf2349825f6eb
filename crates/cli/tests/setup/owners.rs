//! `synconce setup`: the program that root's apt, an engine or a unit starts can be altered by root
//! alone.

use super::apt::place;
use super::place::{EndedCommand, SYNCONCE, TestRoot};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

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

/// Returns an access list: owner rwx, one named user or group with write, group r-x, others r-x,
/// and a mask (linux/posix_acl_xattr.h).
fn list(tag: u16, id: u32, mask: u16) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    let named = |wanted| (tag == wanted).then_some((tag, 7, id));
    let all = [Some((1_u16, 7_u16, none)), named(2), Some((4, 5, none)), named(8)];
    for (tag, rights, id) in all.into_iter().flatten().chain([(16, mask, none), (32, 5, none)]) {
        list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn a_program_that_an_access_list_lets_another_user_alter_is_refused() {
    let place = place("apt-listed");
    let (user, group, writes) = (2, 8, 7);
    for path in ["usr/bin/synconce", "usr/bin"] {
        let at = place.root.join(path);
        let end = |list: &[u8]| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::lsetxattr(&at, "system.posix_acl_access", list, flags).unwrap();
            place.setup(&["apt", "--dry-run"])
        };
        for (tag, id) in [(user, 1234), (group, 1234)] {
            let ended = end(&list(tag, id, writes));
            assert!(ended.code == Some(125) && ended.stderr.contains(OTHERS), "{path}: {ended:?}");
            assert_eq!(take_hint(&ended.stderr).code, Some(0));
            assert_eq!(place.setup(&["apt", "--dry-run"]).code, Some(0), "{path}");
        }
        // The mask lets no entry write; root and the group staff are not others.
        for (tag, id, mask) in [(user, 1234, 5), (user, 0, writes), (group, 50, writes)] {
            let ended = end(&list(tag, id, mask));
            assert_eq!(ended.code, Some(0), "{path}, {tag} {id} {mask}: {ended:?}");
        }
    }
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

/// Runs the command of the hint in `said` by a shell.
fn take_hint(said: &str) -> EndedCommand {
    let hint = said.lines().find_map(|line| line.strip_prefix("synconce: hint: ")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let directory = Path::new(SYNCONCE).parent().unwrap().display();
    EndedCommand::run(
        Command::new("sh").args(["-c", hint]).env("PATH", format!("{directory}:{path}")),
    )
}

#[test]
fn every_set_up_refuses_a_program_that_another_user_can_alter() {
    for words in [
        &["docker"][..],
        &["docker", "--builds-only"],
        &["podman"],
        &["buildkit"],
        &["containerd"],
        &["docker", "--hold"],
        &["buildkit", "--hold"],
        &["containerd", "--hold"],
    ] {
        let place = TestRoot::new(&format!("foreign-{}", words.concat()));
        for path in
            ["usr/local/bin/synconce", "usr/bin/containerd", "usr/bin/buildkitd", "usr/bin/runc"]
        {
            place.program(path);
        }
        for (unit, program) in [("containerd", "containerd"), ("buildkit", "buildkitd")] {
            let text = format!("[Service]\nExecStart=/usr/bin/{program}\n");
            place.write(&format!("lib/systemd/system/{unit}.service"), &text);
        }
        give(&place, "usr/local", 1234, 0, 0o755);
        let before = place.snapshot();
        for words in [words.to_vec(), [words, &["--dry-run"]].concat()] {
            let ended = place.setup(&words);
            assert!(
                ended.code == Some(125) && ended.stderr.contains(OTHERS),
                "{words:?}: {ended:?}"
            );
        }
        let check = place.setup(&[words, &["--check"]].concat());
        assert!(check.code == Some(1) && check.stderr.contains(OTHERS), "{words:?}: {check:?}");
        assert_eq!(before, place.snapshot(), "{words:?}");
        let taken = take_hint(&place.setup(words).stderr);
        assert_eq!(taken.code, Some(0), "{taken:?}");
        let ended = place.setup(words);
        assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
    }
}

#[test]
fn a_program_behind_a_chain_of_links_through_a_users_directory_is_refused() {
    for words in ["apt", "docker"] {
        let place = place(&format!("{words}-chain"));
        fs::create_dir_all(place.root.join("home/user")).unwrap();
        fs::create_dir_all(place.root.join("usr/local/bin")).unwrap();
        for (target, link) in [
            ("../../usr/bin/synconce", "home/user/link"),
            ("../../../home/user/link", "usr/local/bin/synconce"),
            ("synconce", "usr/local/bin/synconce-oci"),
        ] {
            let _ = fs::remove_file(place.root.join(link));
            symlink(target, place.root.join(link)).unwrap();
        }
        give(&place, "home/user", 1234, 1234, 0o755);
        let ended = place.setup(&[words]);
        let by = format!("{OTHERS}, by {}\n", place.root.join("home/user").display());
        assert!(ended.code == Some(125) && ended.stderr.contains(&by), "{ended:?}");
        // The copy takes the place of the first link.
        let taken = take_hint(&ended.stderr);
        assert_eq!(taken.code, Some(0), "{taken:?}");
        assert!(!place.root.join("usr/local/bin/synconce").is_symlink());
        assert_eq!(place.setup(&[words, "--check"]).code, Some(0));
    }
}

#[test]
fn a_program_that_is_installed_is_not_installed_over_itself() {
    let place = TestRoot::new("installed");
    place.program("usr/local/bin/synconce");
    fs::remove_file(place.root.join("usr/local/bin/synconce-oci")).unwrap();
    fs::create_dir_all(place.root.join("home/user")).unwrap();
    symlink("/usr/local/bin/synconce", place.root.join("home/user/synconce-oci")).unwrap();
    give(&place, "home/user", 1234, 1234, 0o755);
    let ended = place.setup(&["docker", "--runtime", "/home/user/synconce-oci"]);
    assert!(ended.code == Some(125) && ended.stderr.contains(OTHERS), "{ended:?}");
    assert!(ended.stderr.contains("hint: ln -sf synconce "), "{ended:?}");
    let taken = take_hint(&ended.stderr);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    assert_eq!(place.setup(&["docker", "--check"]).code, Some(0));
}

#[test]
fn a_wrapper_whose_program_cannot_be_followed_is_no_other_users_and_is_undone() {
    let place = place("apt-loop");
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    let synconce = place.root.join("usr/bin/synconce");
    fs::rename(&synconce, place.root.join("usr/bin/kept")).unwrap();
    symlink("synconce", &synconce).unwrap();
    place.program("usr/local/bin/synconce");
    let ended = place.setup(&["apt", "--dry-run"]);
    assert!(ended.code == Some(0) && !ended.stderr.contains(OTHERS), "{ended:?}");
    let ended = place.setup(&["apt", "--check"]);
    assert!(ended.code == Some(1) && !ended.stderr.contains(OTHERS), "{ended:?}");
    assert_eq!(place.setup(&["apt", "--undo"]).code, Some(0));
}

#[test]
fn the_link_itself_is_given_to_root_and_not_its_target() {
    let place = place("apt-link");
    fs::rename(place.root.join("usr/bin/synconce"), place.root.join("usr/target")).unwrap();
    give(&place, "usr/target", 0, 50, 0o775);
    symlink("../target", place.root.join("usr/bin/synconce")).unwrap();
    lchown(place.root.join("usr/bin/synconce"), Some(1234), Some(0)).unwrap();
    let ended = place.setup(&["apt"]);
    let link = place.root.join("usr/bin/synconce");
    let hint = format!("hint: chown -h root:root {}\n", link.display());
    assert!(ended.code == Some(125) && ended.stderr.contains(&hint), "{ended:?}");
    assert_eq!(take_hint(&ended.stderr).code, Some(0));
    let target = fs::metadata(place.root.join("usr/target")).unwrap();
    assert_eq!((target.gid(), target.mode() & 0o777), (50, 0o775));
    assert_eq!(place.setup(&["apt"]).code, Some(0));
}

#[test]
fn the_group_of_roots_process_is_not_roots_group() {
    let place = TestRoot::new("newgrp");
    give(&place, "usr/local/bin/synconce-oci", 0, 1234, 0o775);
    let mut setup = Command::new("setpriv");
    setup.args(["--regid=1234", "--clear-groups", SYNCONCE]).args(place.arguments(&["docker"]));
    let ended = EndedCommand::run(&mut setup);
    assert!(ended.code == Some(125) && ended.stderr.contains(OTHERS), "{ended:?}");
}
