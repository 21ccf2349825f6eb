//! Rules that cannot be used: the command does not start, and the message names the rule.

use synconce_testkit::harness::{Place, binary, finish, isolated, under_a_listener};
use synconce_testkit::rig::Rig;

/// Asserts that a run with `options` fails before its command starts, and prints `text`.
fn refused(place: &Place, options: &[&str], text: &str) {
    let ran = place.run(options, &["touch", "started"]);
    assert_eq!(ran.status.code(), Some(125), "{options:?}: {ran:?}");
    assert!(ran.stderr.starts_with(&format!("synconce: {text}")), "{options:?}: {ran:?}");
    assert!(!place.path("started").exists(), "{options:?}");
    assert!(place.markers().is_empty(), "{options:?}");
}

#[test]
fn a_rule_that_can_never_match_is_an_error() {
    isolated(|place| {
        place.bare(&["mkdir", "-p", "a/b", "c", "ram", "ram/disk"]);
        place.bare(&["mkfifo", "fifo"]);
        place.bare(&["touch", "file"]);
        let ram = ["mount", "-t", "tmpfs", "ram", "ram"];
        assert!(place.bare(&ram).status.success());
        for (options, text) in [
            (
                &["--only", "/proc/sys"][..],
                "cannot use --only /proc/sys: it is on no disk file system (proc)",
            ),
            (&["--except", "ram"], "cannot use --except ram: it is on no disk file system (tmpfs)"),
            (
                &["--except", "ram/x"],
                "cannot use --except ram/x: it is on no disk file system (tmpfs)",
            ),
            (&["--except", "no/such"], "cannot use --except no/such: there is no directory no"),
            (&["--except", "no/such/*"], "cannot use --except no/such/*: there is no directory no"),
            (&["--except", "no/*.db"], "cannot use --except no/*.db: there is no directory no"),
            (&["--only", "fifo"], "cannot use --only fifo: it is neither a file nor a directory"),
            (&["--only", "file/x"], "cannot use --only file/x: file is no directory, so nothing"),
            (&["--except", "file/x/y"], "cannot use --except file/x/y: file is no directory"),
            (&["--except", "file/*"], "cannot use --except file/*: file is no directory"),
            (&["--only", "a/[b"], "cannot use --only a/[b: `[` is no wildcard"),
            (&["--except", "a/[a-z]"], "cannot use --except a/[a-z]: `[` is no wildcard"),
            (&["--except", "/"], "cannot use --except /: it covers every file, so the run"),
            (&["--except", "/**"], "cannot use --except /**: it covers every file, so the run"),
            (&["--only", "a", "--except", "/"], "cannot use --only a: nothing is left of it"),
            (&["--only", "a/**", "--only", "a/b"], "cannot use --only a/b: --only a/** covers it"),
            (&["--only", "*/../a"], "cannot use --only */../a: `..` follows a wildcard"),
            (&["--only", "a", "--only", "a/b"], "cannot use --only a/b: --only a covers it"),
            (&["--only", "a/b", "--only", "a"], "cannot use --only a/b: --only a covers it"),
            (&["--only", "a", "--only", "a"], "cannot use --only a: it is given twice"),
            (
                &["--except", "a", "--except", "a/*.db"],
                "cannot use --except a/*.db: --except a covers it",
            ),
            (
                &["--except", "a/*", "--except", "a/b"],
                "cannot use --except a/b: --except a/* covers it",
            ),
            (
                &["--only", "a", "--except", "c"],
                "cannot use --except c: it matches nothing that --only names",
            ),
            (
                &["--only", "a/b", "--except", "a"],
                "cannot use --only a/b: nothing is left of it: --except a covers it",
            ),
            (
                &["--only", "a", "--except", "a"],
                "cannot use --only a: nothing is left of it: --except a covers it",
            ),
        ] {
            refused(place, options, text);
        }
        // A disk below.
        let rig = Rig::builder().size(64 << 20).up().unwrap();
        place.bare(&["mkdir", "ram/disk"]);
        let bind = ["mount", "--bind", rig.path().to_str().unwrap(), "ram/disk"];
        assert!(place.bare(&bind).status.success());
        let ran = place.run(&["--except", "ram"], &["true"]);
        assert!(ran.status.success(), "{ran:?}");
        // A name that cannot come, because nothing can be made there.
        assert!(place.bare(&["mount", "-o", "remount,bind,ro", "ram/disk"]).status.success());
        refused(
            place,
            &["--only", "ram/disk/new"],
            "cannot use --only ram/disk/new: it does not exist",
        );
        assert!(place.bare(&["umount", "ram/disk"]).status.success());
        assert!(place.bare(&["umount", "ram"]).status.success());
        rig.down().unwrap();
    });
}

#[test]
fn the_hint_of_a_refused_rule_is_a_command_that_works() {
    isolated(|place| {
        for (options, start) in [
            (["--only", "it's new/a/*.db"], "make the directory first: "),
            (["--only", "it's new/b/c/x"], "make the directory first: "),
            (["--except", "it's new/[x"], "for a `[` in the name: "),
        ] {
            let ran = place.run(&options, &["true"]);
            let hint = ran.stderr.lines().find_map(|line| line.strip_prefix("synconce: hint: "));
            let command = hint.and_then(|hint| hint.strip_prefix(start));
            let command = command.unwrap_or_else(|| panic!("{ran:?}"));
            let (before, option) = if command.starts_with("mkdir") {
                (command, format!("{} \"$1\"", options[0]))
            } else {
                ("true", command.to_owned())
            };
            let script = format!("{before} && exec {} run {option} -- true", binary());
            let ran = finish(place.command("sh").args(["-c", &script, "sh", options[1]]));
            assert!(ran.status.success() && ran.stderr.is_empty(), "{script}: {ran:?}");
        }
    });
}

#[test]
fn a_run_that_cannot_follow_rules_does_not_start() {
    isolated(|place| {
        for options in [["--only", "."], ["--except", "."]] {
            let sealed = [&["--sealed"], &options[..]].concat();
            refused(place, &sealed, "cannot use --only or --except: a sealed run cannot");
            let inner = [&[binary(), "run"], &options[..], &["--", "touch", "started"]].concat();
            for outer in [&[][..], &["--sealed"]] {
                let ran = place.run(outer, &inner);
                assert_eq!(ran.status.code(), Some(125), "{ran:?}");
                let text = "synconce: cannot use --only or --except: the run around this one";
                assert!(ran.stderr.contains(text), "{ran:?}");
                assert!(ran.stderr.contains("synconce: hint: "), "{ran:?}");
                assert!(!place.path("started").exists());
            }
            let words = under_a_listener();
            let mut command = place.command(&words[0]);
            command.args(&words[1..]).args(&inner);
            let ran = finish(&mut command);
            assert_eq!(ran.status.code(), Some(125), "{ran:?}");
            assert!(ran.stderr.contains("another program supervises"), "{ran:?}");
            assert!(!place.path("started").exists());
        }
    });
}
