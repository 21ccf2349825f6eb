//! `synconce doctor -- COMMAND` counts the syncs of real programs as `strace -f` does.

use crate::command::report;
use crate::support::rig;
use libtest_mimic::Trial;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{Debian, Need, Place, finish, postgresql, trial};
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    let strace = Need::Program("strace", "strace");
    let compiler = Need::Program("gcc", "gcc libc6-dev");
    let go =
        [Need::Program("go", "golang-go"), Need::File(BBOLT, "golang-github-coreos-bbolt-dev")];
    vec![
        trial(dpkg_has_the_counts_of_strace, &[strace]),
        trial(git_gc_has_the_counts_of_strace, &[strace, Need::Program("git", "git")]),
        trial(fio_with_io_uring_has_the_counts_of_strace, &[strace, Need::Program("fio", "fio")]),
        trial(calls_of_all_kinds_have_the_counts_of_strace, &[strace]),
        trial(threads_processes_and_signals_have_the_counts_of_strace, &[strace, compiler]),
        trial(a_go_program_on_bbolt_has_the_counts_of_strace, &[strace, go[0], go[1]]),
        trial(
            pgbench_has_the_counts_of_strace,
            &[strace, Need::File("/usr/lib/postgresql", "postgresql")],
        ),
        trial(
            an_apt_install_has_the_counts_of_strace,
            &[strace, Need::Program("mmdebstrap", "mmdebstrap")],
        ),
    ]
}

const BBOLT: &str = "/usr/share/gocode/src/go.etcd.io/bbolt/db.go";
/// Calls that have a time.
pub const TRACE: &str = "trace=fsync,fdatasync,sync,syncfs,sync_file_range";
/// Calls that have none.
const UNTIMED: &str = ",io_uring_setup,umount2";
/// Calls that have none, if one of [`SYNC_FLAGS`] makes them sync.
const BY_FLAG: &str = ",msync,open,openat,openat2,preadv2,pwritev2";
const SYNC_FLAGS: [&str; 5] = ["MS_SYNC", "O_SYNC", "O_DSYNC", "RWF_SYNC", "RWF_DSYNC"];

/// How often each call was made.
type Counts = BTreeMap<String, u64>;

/// Returns the command `strace` that writes calls of `words` to the file `trace`.
fn strace(trace: &Path, words: &[&str]) -> Vec<String> {
    let calls = format!("{TRACE}{UNTIMED}{BY_FLAG}");
    let own = ["strace", "-f", "-e", &calls, "-o", trace.to_str().unwrap()];
    own.iter().chain(words).map(|word| (*word).to_owned()).collect()
}

/// Returns the counts in the output of strace. strace writes a call in two lines if another process
/// has an event meanwhile. A call that the kernel begins again after a signal is one call.
fn traced(trace: &Path) -> Counts {
    let mut counts = Counts::new();
    let text = fs::read_to_string(trace).unwrap();
    for line in text.lines() {
        let words = line.split_once(' ').map_or("", |(_, words)| words.trim_start());
        let is_again = line.contains(" ERESTARTSYS ");
        if let Some(resumed) = words.strip_prefix("<... ") {
            if is_again {
                *counts.get_mut(resumed.split(' ').next().unwrap()).expect("its beginning") -= 1;
            }
            continue;
        }
        let Some((call, arguments)) = words.split_once('(') else { continue };
        let needs_flag = BY_FLAG.split(',').any(|it| it == call);
        let syncs = !needs_flag || SYNC_FLAGS.iter().any(|flag| arguments.contains(flag));
        let is_call = call.bytes().all(|byte| byte.is_ascii_lowercase() || b"_2".contains(&byte));
        if is_call && syncs && !is_again {
            *counts.entry(call.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Returns the counts of a report, with those of calls that have no time.
fn reported(report: &Value) -> Counts {
    let [timed, untimed] = [&report["waits"]["by_call"], &report["not_covered"]];
    let groups = timed.as_array().unwrap().iter().map(|group| (group, "name"));
    let groups = groups.chain(untimed.as_array().unwrap().iter().map(|kind| (kind, "call")));
    let count = |(group, name): (&Value, &str)| {
        (group[name].as_str().unwrap().to_owned(), group["calls"].as_u64().unwrap())
    };
    groups.map(count).collect()
}

/// Runs `words` in `directory` under strace, under doctor and under both. Each time `prepare` makes
/// what the words need, before. Returns the report of doctor alone.
fn agree(place: &Place, directory: &Path, prepare: &str, words: &[&str]) -> (Counts, Value) {
    let fresh = |name: &str| {
        let here = directory.join(name);
        fs::create_dir(&here).unwrap();
        let made = finish(place.command("sh").args(["-ec", prepare]).current_dir(&here));
        assert!(made.status.success(), "{made:?}");
        here
    };
    let trace = place.path("trace");
    let bare = strace(&trace, words);
    let ended = finish(place.command(&bare[0]).args(&bare[1..]).current_dir(fresh("bare")));
    assert!(ended.status.success(), "{words:?}: {ended:?}");
    let wanted = traced(&trace);
    let (report, ended) = report(place, &fresh("watched"), words);
    assert!(ended.status.success(), "{words:?}: {ended:?}");
    assert_eq!(reported(&report), wanted, "{words:?}: {report:#}");
    let both = agree_in_one_run(place, &fresh("both"), words);
    assert_eq!(both, wanted, "{words:?}");
    (wanted, report)
}

/// Runs `words` in `directory` once, under strace and doctor: for a program that does not make the
/// same calls each time. Returns the counts.
fn agree_in_one_run(place: &Place, directory: &Path, words: &[&str]) -> Counts {
    let trace = place.path("trace");
    let both = strace(&trace, words);
    let both: Vec<_> = both.iter().map(String::as_str).collect();
    let (report, ended) = report(place, directory, &both);
    assert!(ended.status.success(), "{words:?}: {ended:?}");
    let wanted = traced(&trace);
    assert_eq!(reported(&report), wanted, "{words:?}: {report:#}");
    wanted
}

/// A package of 30 files, and an empty root for dpkg.
const PACKAGE: &str = r#"
mkdir -p package/DEBIAN package/usr/share/many root/var/lib/dpkg/updates root/var/lib/dpkg/info
touch root/var/lib/dpkg/status
for at in $(seq 30); do echo "$at" >"package/usr/share/many/$at"; done
printf 'Package: many\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n' \
    >package/DEBIAN/control
dpkg-deb --root-owner-group -Znone --build package many.deb >/dev/null
"#;

fn dpkg_has_the_counts_of_strace(place: &Place) {
    let rig = rig(FsKind::Ext4, 1);
    let words = ["dpkg", "--force-not-root", "--force-bad-path", "--root=root", "-i", "many.deb"];
    let (counts, report) = agree(place, rig.path(), PACKAGE, &words);
    assert!(counts["fsync"] > 20, "{counts:?}");
    let programs = report["waits"]["by_program"].as_array().unwrap();
    assert_eq!((programs.len(), &programs[0]["name"]), (1, &"dpkg".into()), "{report:#}");
    // One process, which does nothing while it waits.
    let critical = report["savings"]["critical"].as_f64().unwrap();
    assert!(critical > 0.5 * report["waits"]["covered"].as_f64().unwrap(), "{report:#}");
}

/// A repository with loose objects.
const REPOSITORY: &str = "
git init -q .
git config core.fsync all && git config core.fsyncMethod fsync && git config gc.auto 0
for at in $(seq 20); do echo $at >file$at; git add .
git -c user.name=x -c user.email=x@x commit -q -m $at; done
";

fn git_gc_has_the_counts_of_strace(place: &Place) {
    let rig = rig(FsKind::Ext4, 1);
    let (counts, report) = agree(place, rig.path(), REPOSITORY, &["git", "gc", "--quiet"]);
    assert!(counts["fsync"] > 3, "{counts:?}");
    // Children of git sync, and are named.
    assert_eq!(report["waits"]["by_program"][0]["name"], "git", "{report:#}");
}

fn fio_with_io_uring_has_the_counts_of_strace(place: &Place) {
    let rig = rig(FsKind::Ext4, 0);
    let words = "fio --name=x --rw=randwrite --bs=4k --size=1m --fsync=1 --number_ios=50 --output=/dev/null";
    let words: Vec<_> = words.split(' ').collect();
    let uring = [&words[..], &["--ioengine=io_uring"]].concat();
    let (counts, _) = agree(place, rig.path(), "", &uring);
    // Its syncs are no calls.
    assert_eq!(counts, Counts::from([("io_uring_setup".to_owned(), 1)]));
}

/// Makes calls of all kinds that a program makes itself: some sync and others do not, by their
/// flags.
const ALL_KINDS: &str = "
import mmap, os
flags = os.O_CREAT | os.O_RDWR
file = os.open('file', flags)
os.ftruncate(file, 65536)
for at in range(7):
    os.pwrite(file, b'x', at)
    os.fsync(file)
for at in range(5):
    os.fdatasync(file)
for at in range(3):
    os.sync()
for more in os.O_DSYNC, os.O_SYNC, os.O_DSYNC, 0:
    other = os.open('other', flags | more)
    os.write(other, bytes(4096))
    os.close(other)
for more in os.RWF_DSYNC, os.RWF_SYNC, 0:
    os.pwritev(file, [b'x'], 0, more)
with mmap.mmap(file, 65536) as mapped:
    for at in range(4):
        mapped[at] = 1
        mapped.flush()
try:
    os.fsync(99)
except OSError:
    pass
";

fn calls_of_all_kinds_have_the_counts_of_strace(place: &Place) {
    let rig = rig(FsKind::Ext4, 1);
    let (counts, report) = agree(place, rig.path(), "", &["python3", "-c", ALL_KINDS]);
    let wanted =
        [("fdatasync", 5), ("fsync", 8), ("msync", 4), ("openat", 3), ("pwritev2", 2), ("sync", 3)];
    assert_eq!(counts, wanted.map(|(call, count)| (call.to_owned(), count)).into());
    assert_eq!(report["waits"]["failed"], 1, "{report:#}");
    let writer = ["dd", "if=/dev/zero", "of=file", "bs=4k", "count=20", "oflag=dsync"];
    fs::create_dir(rig.path().join("writer")).unwrap();
    let (counts, _) = agree(place, &rig.path().join("writer"), "", &writer);
    assert_eq!(counts, Counts::from([("openat".to_owned(), 1)]));
}

fn threads_processes_and_signals_have_the_counts_of_strace(place: &Place) {
    // A sync takes longer than the time between two signals.
    let rig = rig(FsKind::Ext4, 8);
    place.write("calls.c", include_str!("../oci/calls.c"));
    let built = finish(place.command("gcc").args(["-pthread", "-o", "calls", "calls.c"]));
    assert!(built.status.success(), "{built:?}");
    let calls = place.text("calls");
    for (at, (words, wanted)) in [
        ("file threads 100 fsync 10", 1_000),
        ("file processes 20 threads 3 fdatasync 2 sync_file_range 2", 240),
        ("file interrupted 5 fsync 20 syncfs 2", 22),
    ]
    .into_iter()
    .enumerate()
    {
        let words: Vec<_> = std::iter::once(&*calls).chain(words.split(' ')).collect();
        let here = rig.path().join(at.to_string());
        fs::create_dir(&here).unwrap();
        let (counts, _) = agree(place, &here, "", &words);
        assert_eq!(counts.values().sum::<u64>(), wanted, "{words:?}: {counts:?}");
    }
}

fn a_go_program_on_bbolt_has_the_counts_of_strace(place: &Place) {
    let rig = rig(FsKind::Ext4, 1);
    place.write("main.go", include_str!("../programs/bbolt.go"));
    let build = format!(
        "GO111MODULE=off GOFLAGS= GOTOOLCHAIN=local GOPATH=/usr/share/gocode GOCACHE={} \
         go build -o bolt main.go",
        concat!(env!("CARGO_TARGET_TMPDIR"), "/go-cache")
    );
    let built = finish(place.command("sh").args(["-ec", &build]));
    assert!(built.status.success(), "{built:?}");
    // How many of the goroutines' writes share a transaction differs from run to run.
    let counts = agree_in_one_run(place, rig.path(), &[&place.text("bolt")]);
    // For each of 200 transactions, one sync of the data and one of the meta page.
    assert!(counts["fdatasync"] > 400, "{counts:?}");
}

/// A database whose clients commit at the same time, by two ways to sync its log.
const PGBENCH: &str = r#"
bin=$1
mkdir socket
export PGHOST="$PWD/socket" PGUSER=postgres PGDATABASE=postgres
"$bin/initdb" -D base -U postgres -A trust >/dev/null
for method in fdatasync open_datasync; do
    "$bin/pg_ctl" -D base -w -t 60 -l log \
        -o "-c listen_addresses='' -c unix_socket_directories=$PGHOST -c wal_sync_method=$method" start >/dev/null
    "$bin/pgbench" -i -q 2>/dev/null
    "$bin/pgbench" -n -c 4 -j 2 -t 30 >/dev/null
    "$bin/pg_ctl" -D base -m fast -w stop >/dev/null
done
"#;

fn pgbench_has_the_counts_of_strace(place: &Place) {
    let rig = rig(FsKind::Ext4, 1);
    let own = finish(place.command("chown").args(["postgres:"]).arg(rig.path()));
    assert!(own.status.success(), "{own:?}");
    let bin = postgresql();
    let user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"];
    let words = [&user[..], &["sh", "-ec", PGBENCH, "sh", bin.to_str().unwrap()]].concat();
    let counts = agree_in_one_run(place, rig.path(), &words);
    for (call, least) in [("fsync", 100), ("fdatasync", 20), ("openat", 1)] {
        assert!(counts.get(call).is_some_and(|count| *count >= least), "{call}: {counts:?}");
    }
}

fn an_apt_install_has_the_counts_of_strace(place: &Place) {
    let root = Debian::new(&place.path("root"));
    let install = root.command(&["apt-get", "install", "--yes", "--quiet=2", "manpages-dev"]);
    let words: Vec<_> = words_of(&install);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let counts = agree_in_one_run(place, &place.path(""), &words);
    // dpkg syncs each file and its own database; apt maps its caches.
    for (call, least) in [("fsync", 100), ("sync_file_range", 1_000), ("msync", 1)] {
        assert!(counts.get(call).is_some_and(|count| *count >= least), "{call}: {counts:?}");
    }
    root.down();
}

/// Returns the words of `command`.
fn words_of(command: &Command) -> Vec<String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_str().expect("UTF-8").to_owned()).collect()
}
