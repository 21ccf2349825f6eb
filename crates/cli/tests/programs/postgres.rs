//! PostgreSQL: many processes, a log that is synced by four methods, two of
//! them by flags of open.

use crate::comparison::{Comparison, OneSide, sh};
use std::path::Path;
use synconce_testkit::harness::Place;
use synconce_testkit::harness::{Need, postgresql};

pub const NEEDS: [Need; 1] = [Need::File("/usr/lib/postgresql", "postgresql")];

/// Every client has its own random generator, so that the sums do not depend on the order of
/// the transactions. The order of the rows does, so the dump is sorted. pgbench writes the
/// time into the history, and newer versions of pg_dump write a random key into the dump.
const SCRIPT: &str = r#"
bin=$1
export PGHOST=$(mktemp -d /tmp/pg.XXXXXX) PGUSER=postgres PGDATABASE=postgres
trap '$bin/pg_ctl -D base -m immediate stop >/dev/null 2>&1 || true; rm -rf "$PGHOST"' EXIT
start() {
    $bin/pg_ctl -D base -w -t 60 -l log \
        -o "-c listen_addresses='' -c unix_socket_directories=$PGHOST -c wal_sync_method=$1" start >/dev/null
}
$bin/initdb -D base -U postgres -A trust -E UTF8 --locale=C --data-checksums >/dev/null
start fdatasync
$bin/pgbench -i -q -s 2 2>/dev/null
$bin/pg_ctl -D base -m fast -w stop >/dev/null
for method in fdatasync fsync open_datasync open_sync; do
    start $method
    echo "$method: $($bin/psql -Atc 'show wal_sync_method')"
    $bin/pgbench -n -c 4 -j 2 -t 40 --random-seed=7 | grep -e '^number of'
    $bin/psql -Atc 'checkpoint'
    $bin/psql -Atc 'create table t as select g, md5(g::text) from generate_series(1, 2000) g' \
        -c 'delete from t where g % 3 = 0' -c 'vacuum full t' -c 'select count(*) from t'
    [ $method != fsync ] || $bin/psql -Atc 'create database copy template postgres' 2>&1
    $bin/psql -Atc 'drop table t'
    $bin/pg_ctl -D base -m fast -w stop >/dev/null
    $bin/pg_checksums -D base --check | grep -e 'Bad checksums'
done
# A crash of the server: what it replays is in the page cache.
start open_datasync
$bin/pgbench -n -c 2 -t 20 --random-seed=9 | grep -e '^number of'
$bin/pg_ctl -D base -m immediate -w stop >/dev/null
start open_sync
$bin/pg_amcheck --all --install-missing 2>&1
$bin/psql -Atc 'select tid, bid, aid, delta from pgbench_history order by 1, 2, 3, 4'
$bin/pg_dumpall --exclude-database=template1 | grep -c .
$bin/pg_dump --exclude-table-data=pgbench_history | grep -v -e '^.\(un\)\?restrict ' | LC_ALL=C sort
$bin/pg_ctl -D base -m fast -w stop >/dev/null
"#;

pub fn a_cluster_is_the_same_with_every_way_to_sync_its_log(place: &Place) {
    let bin = postgresql();
    let bin = bin.to_str().expect("a path of Debian's is UTF-8");
    let own = |dir: &Path| drop(sh(dir, "chown postgres: . tmp"));
    let user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"];
    let words = [&user[..], &["sh", "-ec", SCRIPT, "sh", bin]].concat();
    let comparison = Comparison::run(place, own, &words).succeeds();
    comparison.same("dumps", OneSide::out);
    comparison.holds("fsync", 500);
    comparison.holds("fdatasync", 100);
    // Segments of the log that were opened with O_DSYNC and O_SYNC.
    comparison.holds("openat", 10);
}

/// A database of another user, in a container whose root has no CAP_SYS_PTRACE.
const OTHER_USER: &str = r#"
bin=$1
as() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
export PGHOST=$(as mktemp -d /tmp/pg.XXXXXX) PGUSER=postgres PGDATABASE=postgres
trap 'as $bin/pg_ctl -D base -m immediate stop >/dev/null 2>&1 || true; rm -rf "$PGHOST"' EXIT
as $bin/initdb -D base -U postgres -A trust -E UTF8 --locale=C --data-checksums >/dev/null
as $bin/pg_ctl -D base -w -t 60 -l log \
    -o "-c listen_addresses='' -c unix_socket_directories=$PGHOST" start >/dev/null
as $bin/pgbench -i -q -s 1 2>/dev/null
as $bin/pgbench -n -c 4 -j 2 -t 40 --random-seed=7 | grep -e '^number of'
as $bin/psql -Atc 'checkpoint' -c 'create database copy template postgres'
as $bin/pg_dump --exclude-table-data=pgbench_history | grep -v -e '^.\(un\)\?restrict ' | LC_ALL=C sort
as $bin/pg_ctl -D base -m fast -w stop >/dev/null
as $bin/pg_checksums -D base --check | grep -e 'Bad checksums'
"#;

pub fn a_cluster_of_another_user_is_held_without_cap_sys_ptrace(place: &Place) {
    let bin = postgresql();
    let bin = bin.to_str().expect("a path of Debian's is UTF-8");
    let own = |dir: &Path| drop(sh(dir, "chown postgres: . tmp"));
    let above = ["setpriv", "--bounding-set=-sys_ptrace"];
    let words = ["sh", "-ec", OTHER_USER, "sh", bin];
    let comparison = Comparison::run_below(place, own, &above, &words).succeeds();
    comparison.same("dumps", OneSide::out);
    comparison.holds("fsync", 500);
    comparison.holds("fdatasync", 50);
    for call in ["fsync", "fdatasync", "sync_file_range", "syncfs"] {
        assert_eq!(comparison.passed(call), 0, "{call}");
    }
}
