//! Names of holds: mistyped ones, those without a file, and those of which something is damaged.

use crate::crashes::unmount_below;
use crate::support::{failed, hold, sh, with_hold};
use std::fs;
use std::path::Path;
use synconce_testkit::harness::{Place, isolated};

/// Checks that the command fails, and returns what it says.
fn refused(place: &Place, words: &[&str]) -> String {
    let finished = hold(place, words);
    assert_eq!(finished.status.code(), Some(125), "{words:?}: {finished:?}");
    assert_eq!(finished.stdout, "", "{words:?}");
    finished.stderr
}

#[test]
fn a_mistyped_name_is_an_error_of_every_verb_and_leaves_nothing() {
    isolated(|place| {
        for verb in ["start", "stop", "status", "recover", "settle", "restore"] {
            let said = refused(place, &[verb, "typo"]);
            assert!(said.contains("cannot read /etc/synconce/hold.d/typo.toml"), "{verb}: {said}");
            // There is no hold to list.
            assert!(said.contains("hint: man synconce-hold\n"), "{verb}: {said}");
            let said = refused(place, &[verb, "./typo.toml"]);
            assert!(said.contains("cannot read ./typo.toml"), "{verb}: {said}");
            for name in ["t.aside", "../t", "a b", ""] {
                let said = refused(place, &[verb, name]);
                assert!(said.contains("cannot "), "{verb} {name}: {said}");
            }
        }
        if !Path::new("/etc/synconce/hold.d/containerd.toml").exists() {
            let said = refused(place, &["start", "containerd"]);
            assert!(said.ends_with("hint: synconce setup containerd --hold\n"), "{said}");
        }
        for directory in ["runtime/holds", "state/holds"] {
            assert!(!place.path(directory).exists(), "{directory}");
        }
    });
}

#[test]
fn a_file_that_is_there_and_cannot_be_read_is_said_without_the_holds_that_there_are() {
    isolated(|place| {
        sh(
            place,
            "mkdir upper work
            mount -t overlay etc -o lowerdir=/etc,upperdir=upper,workdir=work /etc
            mkdir -p /etc/synconce/hold.d
            cd /etc/synconce/hold.d
            printf '\\377' >latin.toml
            mkdir directory.toml",
        );
        for name in ["latin", "directory"] {
            let said = refused(place, &["start", name]);
            assert!(
                said.contains(&format!("cannot read /etc/synconce/hold.d/{name}.toml: ")),
                "{said}"
            );
            assert!(!said.contains("the holds are") && !said.contains("hint: "), "{said}");
        }
        let said = refused(place, &["start", "typo"]);
        let all = "; the holds are directory, latin\nsynconce: hint: synconce hold status\n";
        assert!(said.ends_with(all), "{said}");
    });
}

#[test]
fn a_known_hold_is_stopped_and_settled_whether_or_not_it_is_in_force() {
    with_hold("", |place, fixture| {
        let said = fixture.ok("stop");
        assert!(said.contains("the hold t is not in force"), "{said}");
        fixture.ok("settle");
        fixture.ok("start");
        let text = place.read("t.toml");
        place.remove("t.toml");
        let shown = hold(place, &["status", "t"]);
        assert_eq!((shown.status.code(), shown.stderr.as_str()), (Some(0), ""));
        let stopped = hold(place, &["stop", "t"]);
        assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
        // Nothing is left of the name.
        assert!(refused(place, &["stop", "t"]).contains("cannot read"));
        place.write("t.toml", &text);
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn a_damaged_marker_is_said_with_the_command_that_recovers() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        fs::create_dir_all(place.path("state/holds")).unwrap();
        for content in ["", "{", "[]", "nonsense"] {
            place.write("state/holds/t.json", content);
            for verb in ["start", "stop", "status"] {
                let said = refused(place, &[verb, "./t.toml"]);
                assert!(said.contains("the marker is damaged"), "{verb}: {said}");
                assert!(said.contains("hint: synconce hold recover t\n"), "{verb}: {said}");
            }
        }
        // The marker of another hold, whose files are unknown.
        fixture.configure("second", "");
        let said = refused(place, &["start", "./second.toml"]);
        assert!(said.contains("hint: synconce hold recover t\n"), "{said}");
        fixture.ok("recover");
        fixture.ok("start");
        fixture.ok("stop");
    });
}

#[test]
fn a_damaged_marker_hides_no_other_hold_whose_marker_is_lost() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        fixture.ok("start");
        unmount_below(fixture);
        place.remove("state/holds/t.json");
        place.write("state/holds/other.json", "nonsense");
        assert_eq!(fixture.state(), "interrupted");
        let said = fixture.ok("recover");
        assert!(said.contains("its marker is lost; the files are set aside"), "{said}");
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn a_damaged_marker_whose_hold_has_no_file_is_said_with_what_ends_it() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        fs::create_dir_all(place.path("state/holds")).unwrap();
        place.write("state/holds/t.json", "{");
        let text = place.read("t.toml");
        place.remove("t.toml");
        let said = refused(place, &["recover", "./t.toml"]);
        for part in ["cannot read ./t.toml: ", "the marker is damaged\n"] {
            assert!(said.contains(part), "{said}");
        }
        let (_, hint) = said.split_once("hint: write ./t.toml again ").expect("a hint");
        let (again, gone) = hint.split_once("; if the held files are gone for good: ").unwrap();
        assert!(again.ends_with("type: synconce hold recover ./t.toml"), "{said}");
        // Each of the two ways ends the state.
        place.write("t.toml", &text);
        fixture.ok("recover");
        assert_eq!(fixture.state(), "off");
        place.write("state/holds/t.json", "{");
        sh(place, gone);
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn a_file_with_a_fault_is_refused_by_every_verb_that_reads_it() {
    isolated(|place| {
        let hold = "[[hold]]\npath = \"/data/base\"\nkind = \"lmdb\"\n";
        for (text, said) in [
            (
                &format!("after_crash = \"check\"\n{hold}"),
                "unknown variant `check`, expected `wipe` or `refuse`",
            ),
            (&format!("set_aside = [\"/data/*/a\"]\n{hold}"), "has a wildcard before its last"),
            (&format!("{hold}{hold}"), "path: \"/data/base\" is given twice"),
        ] {
            place.write("t.toml", text);
            for verb in ["start", "status", "recover"] {
                let found = refused(place, &[verb, "./t.toml"]);
                assert!(found.contains(said), "{verb}: {found}");
                assert!(found.contains("hint: man synconce-hold\n"), "{verb}: {found}");
            }
        }
    });
}

#[test]
fn a_kind_that_there_is_not_is_said_with_those_that_there_are_and_what_to_write() {
    isolated(|place| {
        place.write("t.toml", "[[hold]]\npath = \"/var/lib/redis\"\nkind = \"redis\"\n");
        let wanted = "synconce: cannot understand ./t.toml: there is no kind \"redis\"; the kinds are \
                      bolt, sqlite, lmdb, etcd, postgresql, other\n\
                      synconce: hint: if these files agree after a wipe, say kind = \"other\" in the \
                      hold's file\n";
        for verb in ["start", "status", "recover"] {
            assert_eq!(refused(place, &[verb, "./t.toml"]), wanted, "{verb}");
        }
        for (typed, kind) in
            [("sqlite3", "sqlite"), ("SQLite", "sqlite"), ("postgres", "postgresql")]
        {
            place.write("t.toml", &format!("[[hold]]\npath = \"/a\"\nkind = \"{typed}\"\n"));
            let said = refused(place, &["start", "./t.toml"]);
            let hint = format!(
                "synconce: hint: say kind = \"{kind}\" in the hold's file; or, if these files agree \
                 after a wipe, say kind = \"other\" in the hold's file\n"
            );
            assert!(said.ends_with(&hint), "{typed}: {said}");
        }
        // The other faults of a file are said with their lines.
        place.write("t.toml", "[[hold]]\npath = \"/a\"\nkind = \"other\"\nkinds = \"redis\"\n");
        let said = refused(place, &["start", "./t.toml"]);
        assert!(said.contains("line 4") && said.contains("hint: man synconce-hold\n"), "{said}");
    });
}

#[test]
fn a_hold_in_force_whose_file_got_a_fault_is_shown_with_the_fault() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        place.write("t.toml", "hold = []\n");
        let shown = fixture.hold("status");
        assert!(shown.stdout.contains(" held "), "{shown:?}");
        failed(shown, &["nothing would be held"]);
        fixture.ok("stop");
    });
}
