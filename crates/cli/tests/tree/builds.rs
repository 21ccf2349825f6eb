//! Builds that end badly, or are large: the base is as before, and nothing of them is left.

use crate::roots;
use crate::site::{CUT, Site, same};
use crate::verbs::{NEEDS, names, set, waiting};
use libtest_mimic::Trial;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::chown;
use synconce_testkit::harness::{Need, Place, eventually, postgresql, trial, trials_on};
use synconce_testkit::rig::{FsKind, Rig};

pub fn trials() -> Vec<Trial> {
    let server = [NEEDS[0], Need::File("/usr/lib/postgresql", "postgresql")];
    let mut trials = vec![
        trial(a_server_that_a_build_leaves_ends_and_has_its_data, &server),
        trial(a_build_of_many_files_is_kept_and_removed_whole, &NEEDS),
    ];
    trials.extend(trials_on(
        &FsKind::ALL,
        a_build_whose_machine_loses_power_leaves_its_base,
        &NEEDS,
    ));
    trials
}

/// Returns how many entries `directory` of the store has.
fn count(site: &Site<'_>, directory: &str) -> usize {
    fs::read_dir(site.store().join(directory)).unwrap().count()
}

/// PostgreSQL is the host's, below `/usr`. The small root has no directory for its socket but
/// `data`.
fn a_server_that_a_build_leaves_ends_and_has_its_data(place: &Place) {
    let source = roots::small(place, "source");
    roots::link_to_usr(&source);
    chown(source.join("data"), Some(1000), Some(1000)).unwrap();
    let site = Site::plain(place);
    site.import("base", &source);
    let (wanted, before) = (site.content("base"), site.layers());

    let bin = postgresql().display().to_string();
    let start = format!(
        "cluster=/data/cluster-that-is-left; sql='{bin}/psql -U user -h /data -At postgres -c'
         start() {{ {bin}/pg_ctl -D $cluster -o '-k /data -h localhost' -l /data/log -w start >/dev/null; }}"
    );
    let build = |options: &[&str], script: &str| {
        let room = ["--user", "user", "--network", "none", "--bind", "/usr:/usr:ro"];
        let script = format!("{start}\n{script}");
        site.well(&[&["run"], options, &room, &["--", "/bin/sh", "-ec", &script]].concat())
    };
    let left = build(
        &["--from", "base", "--commit", "built"],
        &format!(
            "{bin}/initdb -D $cluster -U user -A trust -E UTF8 --locale=C >/dev/null
             start; $sql 'create table kept as select 42 as answer'"
        ),
    );
    assert_eq!((&left.stdout[..], &left.stderr[..]), ("SELECT 1\n", ""), "{left:?}");
    eventually("the server has ended", || {
        let running = place.sh("cat /proc/[0-9]*/cmdline 2>/dev/null || true").stdout;
        !running.contains("cluster-that-is-left")
    });
    assert_eq!(count(&site, "sessions"), 0);
    site.assert_unchanged("a build that left a server", "base", &before);
    same("the base", &wanted, &site.content("base"));
    // The server was killed: it recovers.
    let again = build(&["--from", "built"], "start; $sql 'select answer from kept'");
    assert_eq!(again.stdout, "42\n", "{again:?}");
    site.well(&["fsck"]);
}

/// The disk has the changes of the build at the cut.
fn a_build_whose_machine_loses_power_leaves_its_base(place: &Place, kind: FsKind) {
    let (rig, site) = Site::on_disk(place, Rig::builder().fs(kind).size(320 << 20).record(true));
    site.import("base", &roots::small(place, "source"));
    let (wanted, before) = (site.content("base"), site.layers());
    let script = "echo changed >/data/file; rm /data/other; mkdir /data/new; echo yes >/mnt/built
                  sleep 1000000";
    let build = waiting(&site, &["--from", "base", "--commit", "built"], script);
    place.write("talk/go", "");
    eventually("the build has changed its tree", || place.path("talk/built").exists());
    let synced = place.bare(&["sync", "-f", &place.text("rig")]);
    assert!(synced.status.success(), "{synced:?}");
    rig.disk().mark(CUT).unwrap();
    build.signal(Signal::KILL).unwrap();
    build.end();
    site.after_the_cut(rig, || {
        let next = site.well(&["list"]);
        let said = ["a run in base, begun ", " was interrupted; its changes are thrown away\n"];
        assert!(said.iter().all(|said| next.stderr.contains(said)), "{next:?}");
        assert_eq!(site.well(&["list"]).stderr, "");
        assert_eq!(names(&site), set(&["base"]));
        site.assert_unchanged("a power cut during a build", "base", &before);
        same("the base", &wanted, &site.content("base"));
        site.well(&["gc", "--wait"]);
        assert_eq!(["sessions", "open", "trash"].map(|name| count(&site, name)), [0; 3]);
        assert_eq!(count(&site, "layers"), 1);
        site.well(&["fsck"]);
    });
}

/// docs/benchmarks.md has the build of ten times as many files, which takes minutes.
fn a_build_of_many_files_is_kept_and_removed_whole(place: &Place) {
    let (rig, site) = Site::on_disk(place, Rig::builder().fs(FsKind::Ext4).size(1 << 30));
    site.import("base", &roots::small(place, "source"));
    let (wanted, before) = (site.content("base"), site.layers());
    let script = "for d in $(seq 20); do mkdir -p /data/many/$d; cd /data/many/$d
                  for f in $(seq 1000); do echo $f >$f; done; done";
    site.keep("base", "built", &["/bin/sh", "-ec", script]);
    let found = site.from("built", "find /data/many -type f | wc -l; cat /data/many/20/1000");
    assert_eq!(found, "20000\n1000\n");
    site.assert_unchanged("a build of many files", "base", &before);
    same("the base", &wanted, &site.content("base"));
    site.well(&["remove", "--wait", "built"]);
    let left = ["layers", "sessions", "open", "trash"].map(|name| count(&site, name));
    assert_eq!(left, [1, 0, 0, 0]);
    site.well(&["fsck"]);
    drop(site);
    rig.down().unwrap();
}
