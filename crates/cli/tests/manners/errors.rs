//! Messages of failures: an act, an object and a reason in words.

use libtest_mimic::Trial;
use synconce_testkit::harness::{Place, binary, finish, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(no_message_has_the_number_of_an_error, &[]),
        trial(every_command_says_the_same_of_a_root_that_does_not_exist, &[]),
    ]
}

fn no_message_has_the_number_of_an_error(place: &Place) {
    for words in [
        &["run", "--commit-only", "none", "--", "true"][..],
        &["run", "--", "/none"],
        &["run", "--", "/etc"],
        &["real", "--", "/none"],
        &["run", "--no-commit", "--", binary(), "real", "--", "/none"],
        &["commit", "--json=none/file"],
        &["oci", "--explain", "none"],
        &["bench", "compile", "--source", "none"],
        &["bench", "cost", "--dir", "file"],
        &["bench", "loop", "fsync", "1", "none/file"],
        &["setup", "docker", "--runtime", "none"],
        &["tree", "--store", "none", "list"],
        &["tree", "--store", "file/none", "import", "a", "."],
        &["status", "--root", "file"],
    ] {
        place.write("file", "");
        let ended = finish(&mut place.synconce(words));
        assert!(!ended.status.success(), "{words:?}: {ended:?}");
        assert!(ended.stderr.starts_with("synconce"), "{words:?}: {ended:?}");
        assert!(!ended.stderr.contains("os error"), "{words:?}: {ended:?}");
    }
}

fn every_command_says_the_same_of_a_root_that_does_not_exist(place: &Place) {
    let words: [&[&str]; 3] = [
        &["run", "--root", "none", "--", "true"],
        &["status", "--root", "none"],
        &["setup", "docker", "--root", "none"],
    ];
    for words in words {
        let ended = finish(&mut place.synconce(words));
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        let wanted = "synconce: cannot use --root none: no such directory\nsynconce: hint: ";
        assert!(ended.stderr.starts_with(wanted), "{words:?}: {ended:?}");
    }
}
