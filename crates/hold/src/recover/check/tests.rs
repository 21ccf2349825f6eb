use super::*;
use std::path::PathBuf;

fn held(path: PathBuf, kind: Kind) -> Held {
    Held { path, kind, throw_away: false }
}

fn by(words: &[&str]) -> Verdict {
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    check("test", &held("/".into(), Kind::Other), Some(&words))
}

#[test]
fn the_exit_code_of_a_command_decides_and_a_command_that_did_not_check_decides_nothing() {
    assert_eq!(by(&["test", "-d", "{}"]), Verdict::Whole);
    assert!(
        matches!(by(&["test", "-f", "{}"]), Verdict::Damaged(why) if why.contains("test -f /"))
    );
    assert!(matches!(by(&["sh", "-c", "kill -SEGV $$"]), Verdict::Damaged(_)));
    let undecided =
        [&["/nonexistent"][..], &["sh", "-c", "/nonexistent"], &["sh", "-c", "kill $$"]];
    for words in undecided {
        assert!(matches!(by(words), Verdict::Unknown(_)), "{words:?}");
    }
}

#[test]
fn what_cannot_be_checked_is_unknown_and_a_missing_file_is_damage() {
    for kind in [Kind::Lmdb, Kind::Etcd, Kind::Postgresql, Kind::Other] {
        let verdict = check("test", &held("/".into(), kind), None);
        assert!(matches!(verdict, Verdict::Unknown(_)), "{kind:?}");
        let verdict = check("test", &held("/nonexistent".into(), kind), None);
        assert!(matches!(verdict, Verdict::Damaged(_)), "{kind:?}");
    }
}

#[test]
fn bolt_databases_are_checked_by_their_pages() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta.db");
    let verdict = |content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        check("test", &held(path.clone(), Kind::Bolt), None)
    };
    // bbolt wrote this database.
    let whole = include_bytes!("../../../../../proof/fuzz/corpora/bolt/one");
    assert_eq!(verdict(whole), Verdict::Whole);
    let mut damaged = whole.to_vec();
    damaged[0x800..0x810].fill(0xff);
    assert!(matches!(verdict(&damaged), Verdict::Damaged(why) if why.contains("page 4")));
    let verdict = check("test", &held(directory.path().to_owned(), Kind::Bolt), None);
    assert!(matches!(verdict, Verdict::Unknown(why) if why.contains("not a regular file")));
}

fn sqlite(directory: &Path, sql: &str) {
    let status = Command::new("sqlite3").arg(directory.join("some.db")).arg(sql).status();
    assert!(status.expect("sqlite3 is installed").success());
}

#[test]
fn sqlite_databases_are_checked_by_sqlite3_and_a_file_that_should_be_one_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let verdict = || check("test", &held(at.to_owned(), Kind::Sqlite), None);
    assert!(matches!(verdict(), Verdict::Unknown(_)), "nothing is there");
    sqlite(
        at,
        "CREATE TABLE t (a); CREATE INDEX i ON t (a); WITH RECURSIVE n (x) AS (SELECT 1 \
                UNION ALL SELECT x + 1 FROM n LIMIT 5000) INSERT INTO t SELECT hex(x) FROM n",
    );
    assert_eq!(verdict(), Verdict::Whole);
    let whole = std::fs::read(at.join("some.db")).unwrap();
    let mut torn = whole.clone();
    torn[8192..16384].fill(0);
    for damaged in [&torn[..], &whole[..4096 * 3], &[0; 4096], &[]] {
        std::fs::write(at.join("some.db"), damaged).unwrap();
        assert!(matches!(verdict(), Verdict::Damaged(_)), "{} bytes", damaged.len());
    }
    std::fs::write(at.join("some.db"), &whole).unwrap();
    for (name, content) in [("Cookies", &[][..]), ("sub.LOCK.d", &[0; 4096]), ("LOCK", &[0])] {
        std::fs::write(at.join(name), content).unwrap();
        assert!(matches!(verdict(), Verdict::Unknown(why) if why.contains(name)), "{name}");
        std::fs::remove_file(at.join(name)).unwrap();
    }
    for (name, content) in [("LOCK", ""), ("data.lock", ""), ("d.PID", ""), ("note", "text")] {
        std::fs::write(at.join(name), content).unwrap();
    }
    assert_eq!(verdict(), Verdict::Whole, "lock files and text");
    std::fs::write(at.join("other-wal"), "").unwrap();
    assert!(matches!(verdict(), Verdict::Damaged(why) if why.contains("other")));
}

#[test]
fn copies_of_two_holds_are_apart_and_what_a_killed_check_left_is_removed() {
    let above = tempfile::tempdir().unwrap();
    let at = above.path().join("held");
    std::fs::create_dir(&at).unwrap();
    sqlite(&at, "CREATE TABLE t (a)");
    let [ours, others] =
        ["test-1", "test-1-1"].map(|of| above.path().join(".synconce-check-".to_owned() + of));
    for left in [&ours, &others] {
        std::fs::create_dir(left).unwrap();
        std::fs::write(left.join("some.db"), "").unwrap();
    }
    let verdict = check("test", &held(at, Kind::Sqlite), None);
    assert_eq!(verdict, Verdict::Whole);
    assert!(!ours.exists() && others.join("some.db").exists(), "the hold \"test-1\" has the other");
    assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 2);
}
