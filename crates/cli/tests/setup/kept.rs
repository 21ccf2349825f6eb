//! `synconce setup apt` saves a file that it removes, unless it wrote the file itself, and takes in
//! programs that are installed later.

use super::apt::{place, state};
use super::place::{EndedCommand, TestRoot};
use std::fs;
use std::process::Command;

/// Returns the text that another version of synconce would have written in place of `wrapper`.
pub fn of_another_version(wrapper: &str) -> String {
    let begin = "# SHA-256 of the other lines: ";
    let digest = wrapper.lines().find(|line| line.starts_with(begin)).unwrap();
    let changed = format!("{wrapper}# of another version\n");
    let body = changed.replace(&format!("{digest}\n"), "");
    let sum = ["-c", "printf %s \"$0\" | sha256sum", &body];
    let sum = EndedCommand::run(Command::new("sh").args(sum)).stdout;
    changed.replace(digest, &format!("{begin}{}", sum.split(' ').next().unwrap()))
}

#[test]
fn a_renewal_keeps_edits_of_a_wrapper_and_names_them_also_when_quiet() {
    let place = place("apt-edits");
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    let wrapper = place.read("usr/bin/dpkg");
    let edited = format!("{wrapper}# mine\n");
    for (nth, words) in [&["apt"][..], &["apt", "--quiet"]].into_iter().enumerate() {
        place.write("usr/bin/dpkg", &edited);
        let saved = format!("var/lib/synconce/setup/apt/saved-{}-dpkg", nth + 1);
        let at = place.root.join(&saved).display().to_string();
        let check = place.setup(&["apt", "--check"]);
        assert!(check.code == Some(1) && check.stdout.starts_with("renew the wrapper "));
        assert!(check.stderr.contains(&format!("would be saved as {at}\n")), "{check:?}");
        let renewed = place.setup(words);
        let said = format!("usr/bin/dpkg is saved as {at}\n");
        assert!(renewed.code == Some(0) && renewed.stderr.contains(&said), "{renewed:?}");
        assert_eq!(place.read(&saved), edited);
        assert_eq!(place.read("usr/bin/dpkg"), wrapper);
    }
}

#[test]
fn an_unedited_wrapper_of_another_version_is_renewed_or_taken_away_and_not_kept() {
    let place = place("apt-versions");
    let before = state(&place);
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    let wrapper = place.read("usr/bin/dpkg");
    for words in [&["apt"][..], &["apt", "--undo"]] {
        place.write("usr/bin/dpkg", &of_another_version(&wrapper));
        let check = place.setup(&["apt", "--check"]);
        assert!(check.code == Some(1) && check.stdout.starts_with("renew the wrapper "));
        let ended = place.setup(words);
        assert!(ended.code == Some(0) && !ended.stderr.contains("saved"), "{ended:?}");
        assert_ne!(place.read("usr/bin/dpkg"), of_another_version(&wrapper));
    }
    assert_eq!(before, state(&place));
    assert!(!place.root.join("var/lib/synconce/setup").exists());
}

#[test]
fn an_undo_keeps_what_others_wrote_in_the_place_of_a_program() {
    let place = place("apt-edited");
    let before = state(&place);
    let mut kept = Vec::new();
    for (words, own) in [(&["apt", "--undo"][..], false), (&["apt", "--undo", "--force"], true)] {
        assert_eq!(place.setup(&["apt"]).code, Some(0));
        let edited =
            if own { "the operator's\n".into() } else { place.read("usr/bin/dpkg") + "# mine\n" };
        place.write("usr/bin/dpkg", &edited);
        let dry = place.setup(&[words, &["--dry-run"]].concat());
        let ended = place.setup(words);
        kept.push(edited);
        let saved = format!("var/lib/synconce/setup/apt/saved-{}-dpkg", kept.len());
        assert!(
            dry.stderr
                .contains(&format!("would be saved as {}", place.root.join(&saved).display()))
        );
        assert!(ended.stderr.contains("usr/bin/dpkg is saved as "), "{ended:?}");
        assert_eq!((ended.code, place.read(&saved)), (Some(0), kept[kept.len() - 1].clone()));
        assert_eq!(before, state(&place));
    }
    let directory = place.root.join("var/lib/synconce/setup/apt");
    assert_eq!(fs::read_dir(directory).unwrap().count(), 2, "unedited wrappers are not kept");
}

#[test]
fn a_check_names_the_programs_that_were_installed_after_the_set_up() {
    let place = place("apt-later");
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    let setup = format!("synconce setup apt --root {}", place.root.display());
    for (name, new) in
        [("aptitude", "aptitude, which was"), ("tasksel", "aptitude and tasksel, which were")]
    {
        place.program(&format!("usr/bin/{name}"));
        let check = place.setup(&["apt", "--check"]);
        let said =
            format!("synconce: apt is set up, but not {new} installed later: type {setup}\n");
        assert_eq!((check.code, check.stderr), (Some(1), said));
    }
    assert_eq!(place.setup(&["apt"]).code, Some(0));
    let check = place.setup(&["apt", "--check"]);
    assert_eq!((check.code, &*check.stderr), (Some(0), "synconce: apt is set up\n"));
}

#[test]
fn an_undo_says_in_a_line_that_the_edits_of_others_stay() {
    const PATH: &str = "etc/docker/daemon.json";
    for (edit, what) in [
        ("{\"x\": 1}\n", "has nothing of synconce now, and stays"),
        ("", "only synconce's part is taken out"),
    ] {
        let place = TestRoot::new("others-edit");
        assert_eq!(place.setup(&["docker"]).code, Some(0));
        let config = place.read(PATH).replacen('{', "{\n  \"log-level\": \"warn\",", 1);
        place.write(PATH, if edit.is_empty() { &config } else { edit });
        let undone = place.setup(&["docker", "--undo"]);
        assert_eq!(undone.code, Some(0), "{undone:?}");
        let path = place.root.join(PATH);
        let said = format!("synconce: {} was edited since `setup`: {what}\n", path.display());
        assert!(undone.stderr.contains(&said), "{undone:?}");
        let left = place.read(PATH);
        assert!(
            !left.contains("synconce")
                && left.contains(if edit.is_empty() { "warn" } else { edit })
        );
    }
}
