//! SQLite: its shell with every journal file, two writers at once, and its own tests.

use crate::comparison::{Comparison, OneSide};
use synconce_testkit::harness::Place;
use synconce_testkit::harness::{Need, upstream};

pub const NEEDS: [Need; 1] = [Need::Program("sqlite3", "sqlite3")];
pub const NEEDS_UPSTREAM: [Need; 1] = [Need::Upstream("sqlite3/testfixture")];

/// How many rows a writer inserts, each in a transaction of its own.
const ROWS: u32 = 60;

/// Returns the statements of a writer whose first row is `first`.
fn writer(first: u32) -> String {
    let inserts = (first..first + ROWS).map(|row| {
        format!("INSERT INTO t VALUES ({row}, hex(zeroblob({})), {row} * 0.25);\n", row % 500)
    });
    inserts.collect()
}

fn churn() -> String {
    format!(
        "BEGIN; UPDATE t SET n = n + 1 WHERE id % 3 = 0; SAVEPOINT s; DELETE FROM t; \
         ROLLBACK TO s; DELETE FROM t WHERE id % 7 = 0; COMMIT;\n\
         BEGIN; UPDATE t SET text = 'lost'; ROLLBACK;\n{}\
         VACUUM; REINDEX; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA integrity_check;\n\
         SELECT count(*), sum(n), sum(length(text)) FROM t;\n.dump\n",
        writer(1000)
    )
}

/// Every journal mode with a journal file, at every level that syncs; two shells write at once.
const SCRIPT: &str = r#"
for journal in delete truncate persist wal; do for level in normal full extra; do
    base=$journal-$level.db
    sqlite3 -bail $base "PRAGMA journal_mode=$journal" "PRAGMA synchronous=$level" \
        'CREATE TABLE t (id INTEGER PRIMARY KEY, text, n)' 'CREATE INDEX i ON t (n)'
    set -- -bail -cmd '.timeout 60000' -cmd "PRAGMA synchronous=$level"
    sqlite3 "$@" $base <../first.sql & first=$!
    sqlite3 "$@" $base <../second.sql & second=$!
    wait $first; wait $second
    sqlite3 "$@" $base <../churn.sql
done; done
"#;

pub fn every_journal_holds_the_same(place: &Place) {
    place.write("first.sql", &writer(1));
    place.write("second.sql", &writer(500));
    place.write("churn.sql", &churn());
    let comparison = Comparison::run(place, |_| (), &["sh", "-ec", SCRIPT]).succeeds();
    comparison.same("dumps", OneSide::out);
    let intact = comparison.held.finished.stdout.lines().filter(|line| *line == "ok").count();
    assert_eq!(intact, 12, "every database is intact");
    comparison.holds("fdatasync", 4000);
}

/// SQLite's tests that sync, crash, map files, or put a layer between SQLite and the kernel.
const TESTS: &str = "sync sync2 journal1 journal2 jrnlmode wal wal2 walro pager1 savepoint io vacuum \
     atomic superlock shmlock lock pragma mmap1 mmap2 fallocate tempdb syscall exclusive crash5 \
     walcrash2 delete_db incrblob temptable attach";

/// Some of the tests fail for root; they must fail in the same way bare and held.
pub fn its_own_tests_agree(place: &Place) {
    let fixture = upstream("sqlite3/testfixture").expect("checked before");
    let tests = upstream("sqlite3/test").expect("beside the fixture");
    let (fixture, tests) = (fixture.display(), tests.display());
    let script = format!(
        "for name in {TESTS}; do [ ! -e {tests}/$name.test ] || \
         {fixture} {tests}/$name.test || echo $name: exit code $?; done"
    );
    let comparison = Comparison::run(place, |_| (), &["sh", "-c", &script]).succeeds();
    comparison.same("counts and failures", |side| {
        side.lines(|line| {
            let counts = line.contains(" errors out of ") || line.starts_with("!Failures on");
            (counts || line.contains("exit code")).then(|| line.to_owned())
        })
    });
    comparison.same("verdicts", |side| {
        side.lines(|line| line.ends_with("... Ok").then(|| line.to_owned()))
    });
    comparison.holds("fdatasync", 5000);
}
