//! Edge cases of what a commit covers: unmounts that fail, runs in runs, a held sync(), disks
//! that become writable.

use crate::scope::rig;
use std::fs;
use synconce_durable::record::RunRecord;
use synconce_testkit::harness::{
    Place, StartedCommand, binary, finish, isolated, perl, under_a_listener,
};
use synconce_testkit::rig::Rig;

fn start(place: &Place, options: &[&str], script: &str) -> StartedCommand {
    StartedCommand::new(&mut place.held(options, &perl(script)))
}

#[test]
fn a_file_system_whose_unmount_failed_is_committed_at_the_end() {
    isolated(|place| {
        let rig = rig();
        let point = rig.path().display();
        // The working directory keeps the file system busy for the command's own umount.
        let script = format!(
            "sync_file('{point}/data'); my $here = POSIX::getcwd(); chdir '{point}'; \
             system 'umount', '{point}'; chdir $here; say_to('failed', $? >> 8); wait_for('go'); \
             open(my $file, '>', '{point}/more') or die; print $file 'x' x 65536;"
        );
        let going = start(place, &[], &script);
        assert_ne!(place.wait_for("failed"), "0\n");
        rig.disk().fail_writes(true).unwrap();
        place.write("go", "");
        assert_eq!(going.end().code(), Some(125), "{}", going.text());
        assert!(going.text().contains("not durable: "), "{}", going.text());
        rig.disk().fail_writes(false).unwrap();
        rig.down().unwrap();
    });
}

#[test]
fn an_inner_run_asks_the_outer_one_to_commit_what_it_names() {
    isolated(|place| {
        let rig = rig();
        let point = rig.path().to_str().unwrap();
        for named in [&["--commit-all"][..], &["--root", point], &["--commit-only", point]] {
            let script = format!("echo x > {point}/data");
            let inner = [&[binary(), "run"], named, &["--", "sh", "-c", &script]].concat();
            let before = rig.disk().stats().unwrap().flushes;
            let run = place.run(&[], &inner);
            assert!(run.status.success(), "{named:?} {run:?}");
            assert!(rig.disk().stats().unwrap().flushes > before, "{named:?} {run:?}");
        }
        rig.down().unwrap();
    });
}

#[test]
fn a_run_under_a_foreign_listener_commits_only_what_it_was_asked_to() {
    isolated(|place| {
        let rigs = [rig(), rig()];
        let points = rigs.each_ref().map(|rig| rig.path().to_str().unwrap());
        let listener = under_a_listener();
        let mut command = place.command(&listener[0]);
        command.args(&listener[1..]).args([binary(), "run", "--stats", "--json"]);
        let run = finish(command.args(["--commit-only", points[0], "--", "true"]));
        assert!(run.status.success(), "{run:?}");
        let committed = |point: &str| run.stderr.contains(&format!("\"mount_point\":\"{point}\""));
        assert!(committed(points[0]) && !committed(points[1]), "{run:?}");
        rigs.into_iter().for_each(|rig| rig.down().unwrap());
    });
}

#[test]
fn an_error_on_another_disk_is_not_missed_after_a_held_sync() {
    isolated(|place| {
        let rig = rig();
        let script = format!(
            "syscall({}); say_to('held', 1); wait_for('go'); \
             open(my $file, '>', '{}/data') or die; print $file 'x' x 65536;",
            libc::SYS_sync,
            rig.path().display()
        );
        let going = start(place, &[], &script);
        place.wait_for("held");
        rig.disk().fail_writes(true).unwrap();
        place.write("go", "");
        assert_eq!(going.end().code(), Some(125), "{}", going.text());
        assert!(going.text().contains(rig.path().to_str().unwrap()), "{}", going.text());
        rig.disk().fail_writes(false).unwrap();
        rig.down().unwrap();
    });
}

#[test]
fn all_is_committed_although_no_disk_was_writable_at_the_start() {
    isolated(|place| {
        let synconce = binary();
        let rig = rig();
        rig.remount("ro").unwrap();
        fs::create_dir(place.path("memory")).unwrap();
        let point = rig.path().display();
        let script = format!(
            "mount -t tmpfs memory memory && cd memory && \
             mount -o remount,bind,ro / && export SYNCONCE_STATE_DIR=$PWD/state && \
             exec {synconce} run --commit-all --stats --json -- \
             sh -c 'mount -o remount,rw {point} && echo x > {point}/data'"
        );
        let run = finish(place.command("unshare").args(["--mount", "sh", "-c", &script]));
        assert!(run.status.success(), "{run:?}");
        assert!(run.stderr.contains(&format!("\"mount_point\":\"{point}\"")), "{run:?}");
        rig.down().unwrap();
    });
}

#[test]
fn a_name_that_was_written_in_part_hides_none_that_follows() {
    isolated(|place| {
        // This name does not fit into one page of the marker's file.
        let long = place.path(&vec!["d".repeat(250); 15].join("/"));
        fs::create_dir_all(&long).unwrap();
        let rigs = [Rig::builder().at(&long), Rig::builder()];
        let rigs = rigs.map(|rig| rig.size(64 << 20).passthrough(false).up().unwrap());
        let points = rigs.each_ref().map(|rig| rig.path().display());
        fs::create_dir(place.path("state")).unwrap();
        let mounted = place.bare(&["mount", "-t", "tmpfs", "-o", "size=1m", "state", "state"]);
        assert!(mounted.status.success(), "{mounted:?}");
        let script = format!(
            "sync_file('data'); system 'cat /dev/zero > state/filler 2>/dev/null'; \
             sync_file('{}/data'); unlink 'state/filler'; sync_file('{}/data'); \
             say_to('held', 1); wait_for('go');",
            points[0], points[1]
        );
        let going = start(place, &[], &script);
        place.wait_for("held");
        let record = RunRecord::from_public(&fs::read(&place.markers()[0]).unwrap()).unwrap();
        let named = record.file_systems.iter().any(|one| one.mount_point == rigs[1].path());
        assert!(named, "{record:?}");
        place.write("go", "");
        assert!(going.end().success(), "{}", going.text());
        rigs.into_iter().for_each(|rig| rig.down().unwrap());
    });
}
