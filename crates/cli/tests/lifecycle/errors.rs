//! Errors of the disk are reported on every file system: the exit code is 125, the file system
//! is named, the marker is kept, and nothing that is done later clears the error.

use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::path::Path;
use synconce_testkit::harness::{
    Place, StartedCommand, eventually, finish, isolated, perl, without_foreign_syncs,
};
use synconce_testkit::rig::{FsKind, Rig};

/// A disk whose writes can fail.
fn rig(kind: FsKind) -> Rig {
    Rig::builder().fs(kind).size(384 << 20).passthrough(false).up().unwrap()
}

/// Makes a file in advance, so that writing to it allocates no block.
fn old_file(directory: &Path) -> std::path::PathBuf {
    let file = directory.join("data");
    fs::write(&file, [b'a'; 65536]).unwrap();
    rustix::fs::syncfs(File::open(directory).unwrap()).unwrap();
    file
}

/// Runs `test` with such a file on a disk of each file system.
fn on_each_file_system(test: impl Fn(&Rig, &Path)) {
    for kind in FsKind::ALL {
        let _barrier = without_foreign_syncs();
        let rig = rig(kind);
        let file = old_file(rig.path());
        test(&rig, &file);
    }
}

/// Starts a run whose command overwrites `file`, syncs it, and waits for `go`. Writes of the disk
/// fail from then on. The command syncs the file before, too, so that the run has pinned the
/// disk: a sync(2) of another test may write the file back at any time, and an error that is
/// older than the pin fails the command's own sync.
fn overwrite(place: &Place, rig: &Rig, file: &Path) -> StartedCommand {
    overwrite_with(place, rig, &[], file)
}

fn overwrite_with(place: &Place, rig: &Rig, options: &[&str], file: &Path) -> StartedCommand {
    rig.disk().fail_writes(true).unwrap();
    let script = format!(
        "open(my $file, '+<', '{}') or die $!; $file->sync or die $!; \
         print $file 'b' x 65536; $file->flush; $file->sync or die $!; close $file; say_to('before', 1); wait_for('go');",
        file.display()
    );
    let run = StartedCommand::new(&mut place.held(options, &perl(&script)));
    place.wait_for("before");
    run
}

/// Lets the command end; returns the exit code of the run and its output.
fn end(place: &Place, run: &StartedCommand) -> (Option<i32>, String) {
    place.write("go", "");
    let code = run.end().code();
    ["before", "go"].iter().for_each(|name| place.remove(name));
    (code, run.text())
}

pub(super) fn assert_unsafe(place: &Place, rig: &Rig, (code, text): (Option<i32>, String)) {
    let what = rig.fs();
    assert_eq!(code, Some(125), "{what}: {text}");
    let named = format!("synconce: not durable: {} ({what} on ", rig.path().display());
    assert!(text.contains(&named), "{what}: {text}");
    // Neither a read of the file nor a second run, whose sync succeeds, clears the error.
    let _ = fs::read(rig.path().join("data"));
    let again = place.run(&["--commit-only", place.text(".").as_str()], &["true"]);
    assert!(again.status.success(), "{again:?}");
    let status = place.status(&[]);
    assert_eq!(status.status.code(), Some(4), "{what}: {status:?}");
    let id = status.stdout.split(' ').next().unwrap().to_owned();
    assert!(place.status(&["--clear", &id]).status.success());
}

/// Waits until the write-back of `file` has failed. The disk works again afterwards.
fn fail_write_back(rig: &Rig, file: &Path) {
    // Starts write-back without waiting for its result.
    fadvise(File::open(file).unwrap(), 0, None, Advice::DontNeed).unwrap();
    let failed = || rig.disk().stats().unwrap().transfers.is_some_and(|t| t.failed_writes > 0);
    eventually("a write has failed", failed);
    rig.disk().fail_writes(false).unwrap();
}

#[test]
fn an_error_of_write_back_during_the_run_fails_its_commit() {
    isolated(|place| {
        on_each_file_system(|rig, file| {
            let run = overwrite(place, rig, file);
            fail_write_back(rig, file);
            let ended = end(place, &run);
            assert_unsafe(place, rig, ended);
        });
    });
}

#[test]
fn runs_and_commits_are_counted_since_the_boot() {
    isolated(|place| {
        let counted = |ended, durable, failed| {
            let metrics = place.status(&["--format", "prometheus"]).stdout;
            for line in [
                format!("synconce_runs_ended_total {ended}"),
                format!("synconce_commits_total{{result=\"durable\"}} {durable}"),
                format!("synconce_commits_total{{result=\"failed\"}} {failed}"),
            ] {
                assert!(metrics.lines().any(|it| it == line), "no {line}: {metrics}");
            }
        };
        counted(0, 0, 0);
        assert!(place.run(&[], &["true"]).status.success());
        counted(1, 0, 0);
        let _barrier = without_foreign_syncs();
        let rig = rig(FsKind::Ext4);
        let run = overwrite(place, &rig, &old_file(rig.path()));
        let ended = end(place, &run);
        rig.disk().fail_writes(false).unwrap();
        counted(2, 0, 1);
        // Its second run commits.
        assert_unsafe(place, &rig, ended);
        counted(3, 1, 1);
        // A command that fails has a commit, too. A command that is not found counts as no run.
        place.run(&["--commit-only", place.text(".").as_str()], &["false"]);
        place.run(&[], &["./not-there"]);
        counted(4, 2, 1);
        // A count that cannot be written fails no run.
        fs::remove_dir_all(place.path("runtime/counts")).unwrap();
        place.write("runtime/counts", "");
        assert!(place.run(&[], &["true"]).status.success());
        counted(0, 0, 0);
    });
}

#[test]
fn an_error_at_the_commit_fails_it() {
    isolated(|place| {
        on_each_file_system(|rig, file| {
            let run = overwrite(place, rig, file);
            let ended = end(place, &run);
            rig.disk().fail_writes(false).unwrap();
            assert_unsafe(place, rig, ended);
        });
    });
}

#[test]
fn an_error_at_a_commit_in_the_middle_fails_it_and_each_commit_after_it() {
    isolated(|place| {
        for kind in FsKind::ALL {
            for options in [&[][..], &["--sealed"]] {
                let barrier = without_foreign_syncs();
                let rig = rig(kind);
                let file = old_file(rig.path());
                let run = overwrite_with(place, &rig, options, &file);
                fail_write_back(&rig, &file);
                // The commit of a sealed run calls sync(2).
                drop(barrier);
                let commit = || finish(&mut place.synconce(&["commit"]));
                let named = format!("synconce: not durable: {} (", rig.path().display());
                // The kernel reports the error to the first commit only.
                for asked in [commit(), commit()] {
                    assert_eq!(asked.status.code(), Some(125), "{kind} {options:?}: {asked:?}");
                    assert!(asked.stderr.contains(&named), "{kind} {options:?}: {asked:?}");
                }
                let ended = end(place, &run);
                assert_unsafe(place, &rig, ended);
            }
        }
    });
}

#[test]
fn an_error_that_was_reported_to_another_process_first_fails_the_commit() {
    isolated(|place| {
        on_each_file_system(|rig, file| {
            // Opened before the error: after a syncfs(2) has reported an error, descriptors that
            // are opened later no longer report it (errseq).
            let other = File::open(rig.path()).unwrap();
            let run = overwrite(place, rig, file);
            let reported = rustix::fs::syncfs(&other);
            assert!(reported.is_err(), "{}: the error is reported", rig.fs());
            rig.disk().fail_writes(false).unwrap();
            let ended = end(place, &run);
            assert_unsafe(place, rig, ended);
        });
    });
}

#[test]
fn an_error_below_an_overlay_is_named_by_the_file_system_that_has_it() {
    isolated(|place| {
        for kind in FsKind::ALL {
            let _barrier = without_foreign_syncs();
            let rig = rig(kind);
            let merged = place.overlay(&rig.path().join("lower"), rig.path(), "");
            let file = old_file(&merged);
            rustix::fs::syncfs(File::open(rig.path()).unwrap()).unwrap();
            let run = overwrite(place, &rig, &file);
            let ended = end(place, &run);
            rig.disk().fail_writes(false).unwrap();
            rustix::mount::unmount(&merged, rustix::mount::UnmountFlags::empty()).unwrap();
            assert_unsafe(place, &rig, ended);
        }
    });
}

#[test]
fn a_disk_that_is_full_during_the_run_fails_only_the_command() {
    isolated(|place| {
        for kind in FsKind::ALL {
            let rig = rig(kind);
            let script = format!(
                "open(my $file, '>', '{}/data') or die; my $text = 'x' x (1 << 20); my $all = 1; \
                 $all &&= syswrite($file, $text) for 1 .. 500; $file->sync; exit($all ? 0 : 28);",
                rig.path().display()
            );
            let run = place.run(&[], &perl(&script));
            // What fitted is durable; the command got ENOSPC for the rest.
            assert_eq!(run.status.code(), Some(28), "{kind}: {run:?}");
            assert!(place.status(&[]).status.success(), "{kind}");
        }
    });
}

#[test]
fn metadata_that_was_lost_during_the_run_fails_its_commit() {
    isolated(|place| {
        for kind in FsKind::ALL {
            let _barrier = without_foreign_syncs();
            let rig = rig(kind);
            let other = File::open(rig.path()).unwrap();
            rustix::fs::syncfs(&other).unwrap();
            rig.disk().fail_writes(true).unwrap();
            let script = format!(
                "sysopen(my $place, '{0}', 0) or die $!; IO::Handle::sync($place) or die $!; \
                 mkdir '{0}/data' or die $!; IO::Handle::sync($place) or die $!; \
                 close $place; say_to('before', 1); wait_for('go');",
                rig.path().display()
            );
            let run = StartedCommand::new(&mut place.held(&[], &perl(&script)));
            place.wait_for("before");
            // No file has the error: the file system stops writing.
            let _ = rustix::fs::syncfs(&other);
            rig.disk().fail_writes(false).unwrap();
            let ended = end(place, &run);
            assert_unsafe(place, &rig, ended);
        }
    });
}

#[test]
fn metadata_that_was_lost_below_an_overlay_fails_the_commit_if_the_upper_is_out_of_sight() {
    isolated(|place| {
        for kind in FsKind::ALL {
            let _barrier = without_foreign_syncs();
            let rig = rig(kind);
            let merged = place.text("merged");
            let script = "mkdir -p $1 $0/lower $0/upper $0/work; mount -t overlay overlay -o \
                lowerdir=$0/lower,upperdir=$0/upper,workdir=$0/work $1";
            let disk = rig.path().display().to_string();
            assert!(place.bare(&["sh", "-ec", script, &disk, &merged]).status.success());
            let other = File::open(rig.path()).unwrap();
            rustix::fs::syncfs(&other).unwrap();
            assert!(place.bare(&["umount", "--lazy", &disk]).status.success());
            rig.disk().fail_writes(true).unwrap();
            let script = format!(
                "sysopen(my $place, '{merged}', 0) or die $!; IO::Handle::sync($place) or die $!; \
                 mkdir '{merged}/data' or die $!; \
                 close $place; say_to('before', 1); wait_for('go');"
            );
            let run = StartedCommand::new(&mut place.held(&[], &perl(&script)));
            place.wait_for("before");
            let _ = rustix::fs::syncfs(&other);
            rig.disk().fail_writes(false).unwrap();
            let (code, text) = end(place, &run);
            assert_eq!(code, Some(125), "{kind}: {text}");
            assert!(text.contains(&format!("not durable: {merged} (overlay")), "{kind}: {text}");
            let unmounted = place.bare(&["umount", &merged]);
            assert!(unmounted.status.success(), "{kind}: {unmounted:?}");
        }
    });
}

#[test]
fn a_special_file_as_the_mount_point_of_a_read_only_btrfs_fails_no_run() {
    isolated(|place| {
        let rig = rig(FsKind::Btrfs);
        let (fifo, point) = (rig.path().join("fifo").display().to_string(), place.text("point"));
        let script = "mkfifo $0; : >$1; mount --bind $0 $1; umount ${0%/*}";
        assert!(place.bare(&["sh", "-ec", script, &fifo, &point]).status.success());
        // The run finds the mount of the FIFO first.
        rig.mount().unwrap();
        let words = ["mount", "-o", "remount,ro", &rig.path().display().to_string()];
        let run = place.run(&["--commit-only", &point], &words);
        let unmounted = place.bare(&["umount", &point]);
        assert!(run.status.success(), "{run:?}");
        assert!(unmounted.status.success(), "{unmounted:?}");
        rig.down().unwrap();
    });
}
