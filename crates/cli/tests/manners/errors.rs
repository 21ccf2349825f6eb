//! Messages of failures: an act, an object and a reason in words.

use libtest_mimic::Trial;
use synconce_testkit::harness::{Place, binary, finish, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(no_message_has_the_number_of_an_error, &[]),
        trial(every_command_says_the_same_of_a_root_that_does_not_exist, &[]),
        trial(a_wrong_number_is_told_what_it_has_to_be, &[]),
        trial(a_quoted_command_line_gets_the_one_that_works, &[]),
        trial(a_client_of_a_daemon_gets_the_set_up_that_holds_the_daemon, &[]),
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

fn a_wrong_number_is_told_what_it_has_to_be(place: &Place) {
    for number in ["0", "x", "1.5", "", "99999999999999999999"] {
        for words in [
            &["run", "--commit-timeout", number, "--", "true"][..],
            &["doctor", "--fail-on", number, "."],
            &["tree", "run", "--pids-limit", number, "tree", "true"],
        ] {
            let ended = finish(&mut place.synconce(words));
            assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
            let why = "it is a whole number above 0\n";
            assert!(ended.stderr.contains(why), "{words:?}: {ended:?}");
        }
    }
}

fn a_quoted_command_line_gets_the_one_that_works(place: &Place) {
    for (quoted, works) in [
        ("echo hello", "leave the quotes out: synconce run -- echo hello"),
        ("cd / && true", "synconce run -- sh -c 'cd / && true'"),
    ] {
        let ended = finish(&mut place.held(&[], &[quoted]));
        assert_eq!(ended.status.code(), Some(127), "{quoted}: {ended:?}");
        let wanted = format!("No such file or directory\nsynconce: hint: {works}\n");
        assert!(ended.stderr.ends_with(&wanted), "{quoted}: {ended:?}");
    }
    let one = finish(&mut place.held(&[], &["ehco"]));
    assert!(!one.stderr.contains("hint:"), "{one:?}");
}

/// A script stands for the client: what counts is that nothing is held, and the name.
fn a_client_of_a_daemon_gets_the_set_up_that_holds_the_daemon(place: &Place) {
    let docker = place.write("docker", "#!/bin/sh\ncase $1 in sync) sync;; fail) exit 7;; esac\n");
    place.bare(&["chmod", "+x", "docker"]);
    let docker = docker.to_str().unwrap();
    let build = finish(&mut place.held(&[], &[docker, "build", "."]));
    assert!(build.status.success(), "{build:?}");
    let wanted = "synconce: nothing was held: dockerd does the syncs, and is not part of the run\n\
                  synconce: hint: sudo synconce setup docker\n";
    assert_eq!(build.stderr, wanted);
    for (options, word) in [(&["--quiet"][..], "build"), (&[], "run"), (&[], "sync"), (&[], "fail")]
    {
        let ended = finish(&mut place.held(options, &[docker, word]));
        assert!(!ended.stderr.contains("dockerd"), "{options:?} {word}: {ended:?}");
    }
}
