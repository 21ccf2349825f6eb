//! A package whose postinst starts a daemon, installed in a Debian root: the daemon outlives
//! the run, and the kernel does its syncs again.

use crate::comparison::{calls, report, same_trees, sh};
use std::fs;
use std::path::Path;
use synconce_testkit::harness::{Need, Place, debian, eventually, exists, perl};
use synconce_testkit::process::Finished;

pub const NEEDS: [Need; 3] = [
    Need::Program("mmdebstrap", "mmdebstrap"),
    Need::Program("dpkg-deb", "dpkg"),
    Need::Program("perl", "perl"),
];

/// The daemon writes whether it is held and can sync: once, and then four times a second.
const DAEMON: &str = r#"
say_to('/var/lib/beat/first', hold() . ' ' . sync_file('/var/lib/beat/data'));
while (1) {
    select(undef, undef, undef, 0.25);
    say_to('/var/lib/beat/last', hold() . ' ' . sync_file('/var/lib/beat/data'));
}
"#;

const INIT: &str = r#"#!/bin/sh
### BEGIN INIT INFO
# Provides: beat
# Required-Start:
# Required-Stop:
# Default-Start: 2 3 4 5
# Default-Stop: 0 1 6
# Short-Description: syncs a file
### END INIT INFO
case "$1" in
start) start-stop-daemon --start --quiet --background --make-pidfile \
    --pidfile /run/beat.pid --exec /usr/sbin/beat
    until [ -e /var/lib/beat/first ]; do sleep 0.05; done ;;
stop) start-stop-daemon --stop --quiet --pidfile /run/beat.pid --remove-pidfile ;;
*) exit 1 ;;
esac
"#;

const POSTINST: &str = "#!/bin/sh
set -e
[ \"$1\" != configure ] || service beat start
";

const CONTROL: &str = "Package: beat
Version: 1
Architecture: all
Maintainer: nobody <nobody@invalid>
Depends: perl-base
Description: a daemon that syncs
";

/// Makes two equal Debian roots that contain the package.
fn prepare(place: &Place) {
    let [_, _, daemon] = perl(DAEMON);
    for (name, mode, text) in [
        ("DEBIAN/control", "644", CONTROL),
        ("DEBIAN/postinst", "755", POSTINST),
        ("etc/init.d/beat", "755", INIT),
        ("usr/sbin/beat", "755", &format!("#!/usr/bin/perl\n{daemon}")),
    ] {
        let path = place.path("package").join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a directory of ours");
        fs::write(&path, text).expect("a file of ours");
        sh(&place.path("package"), &format!("chmod {mode} {name}"));
    }
    sh(
        &place.path(""),
        &format!(
            "mkdir -p package/var/lib/beat
            dpkg-deb --root-owner-group --build package beat.deb
            for root in bare held; do
                mkdir $root
                tar --extract --same-owner --same-permissions --file={} --directory=$root
                cp beat.deb $root/
            done",
            debian::base().display()
        ),
    );
}

/// Returns the pid of the daemon in `root`, which wrote `first` during the install.
fn daemon(root: &Path, first: &str) -> u32 {
    let first_state = fs::read_to_string(root.join("var/lib/beat/first")).expect("it has synced");
    assert_eq!(first_state, first);
    let pid = fs::read_to_string(root.join("run/beat.pid")).expect("its pid file");
    pid.trim().parse().expect("a number")
}

fn installed(root: &Path, finished: &Finished) {
    let Finished { status, stdout, stderr, .. } = finished;
    assert!(status.success(), "{status}\n{stdout}\n{stderr}");
    let state = sh(root, "chroot . dpkg-query -W -f '${db:Status-Abbrev}' beat");
    assert_eq!(state.trim(), "ii");
}

pub fn a_daemon_of_a_package_lives_on_with_real_syncs(place: &Place) {
    prepare(place);
    let (bare, held) = (place.path("bare"), place.path("held"));
    let [bare_text, held_text] = ["bare", "held"].map(|name| place.text(name));
    let install = ["dpkg", "--install", "/beat.deb"];

    let without = place.bare(&[&["chroot", &bare_text][..], &install].concat());
    installed(&bare, &without);
    let options = ["--root", &held_text, "--stats", "--json"];
    let with = place.run(&options, &[&["chroot", &held_text][..], &install].concat());
    installed(&held, &with);
    assert_eq!(with.stdout, without.stdout);
    let synced = calls(&with)["fsync"]["held"].as_u64();
    assert!(synced > Some(20), "dpkg and the daemon sync: {}", with.stderr);

    let bare_daemon = daemon(&bare, "free synced\n");
    let held_daemon = daemon(&held, "held synced\n");
    syncs_are_real_again(place, &held, held_daemon);
    for root in [&bare, &held] {
        sh(root, "chroot . service beat stop");
    }
    eventually("both daemons have ended", || !exists(bare_daemon) && !exists(held_daemon));
    eventually("no survivor is served", || place.status(&[]).stdout.is_empty());
    assert!(place.run_files().is_empty() && place.markers().is_empty());
    // Logs contain times; the daemon and the run's marker leave directories.
    same_trees(&bare, &held, &["var/log", "var/lib/beat", "var/lib/synconce"]);
    report("service", &without, &with, &calls(&with));
}

fn syncs_are_real_again(place: &Place, root: &Path, daemon: u32) {
    assert!(exists(daemon), "it outlives the run");
    let last = root.join("var/lib/beat/last");
    eventually("its syncs go to the kernel", || {
        fs::read_to_string(&last).unwrap_or_default() == "free synced\n"
    });
    let status = place.status(&[]);
    assert_eq!(status.status.code(), Some(0), "{}", status.stdout);
    let named = format!("real syncs again for: beat (pid {daemon})");
    let is_named = status.stdout.contains(" serving ") && status.stdout.contains(&named);
    assert!(is_named, "{named} is not in {}", status.stdout);
    assert!(place.markers().is_empty(), "the run is committed");
    let left = fs::read_dir(root.join("var/lib/synconce/runs")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "the marker in the root is gone, too");
}
