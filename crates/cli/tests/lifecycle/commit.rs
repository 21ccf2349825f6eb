//! The commit: once, by file system, with descriptors opened before the run.

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use synconce_testkit::harness::{
    DiskLock, Place, StartedCommand, Trace, binary, committed, eventually, files, finish, isolated,
    isolated_alone, kill, limit, perl, stall, without_foreign_syncs, without_stalls,
};
use synconce_testkit::rig::{FsKind, Rig};

/// Returns a disk that writes nothing back by itself for a while.
pub fn rig() -> Rig {
    Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const STATS: [&str; 2] = ["--stats", "--json"];
const ALL: [&str; 3] = ["--stats", "--json", "--commit-all"];

#[test]
fn each_file_system_is_synced_once_by_a_descriptor_opened_before_the_command() {
    isolated(|place| {
        let _lock = without_stalls();
        let rig = rig();
        let mut strace = place.command("strace");
        strace
            .args(["-f", "-y", "-o", "trace", "-e", "trace=open,openat,syncfs,sync,execve"])
            .args([binary(), "run", "--commit-all", "--"])
            .args(["sh", "-c", "echo x > data; sync; sync -f data"]);
        let finished = finish(&mut strace);
        assert!(finished.status.success(), "{finished:?}");
        let trace = Trace::parse(&place.read("trace"));
        let command = trace.expect(1, &["execve(", "\"sh\""]);
        for point in ["/", text(rig.path())] {
            let by = format!("<{point}>");
            let opened =
                trace.expect(0, &["open", &format!("\"{point}\", O_RDONLY|O_NOCTTY|O_NONBLOCK")]);
            assert!(opened < command, "{}", trace.line(opened));
            // The command's own syncfs calls are on its file, and held.
            let synced = trace.expect(command, &["syncfs(", &by]);
            assert_eq!(trace.find(synced + 1, &["syncfs(", &by]), None, "once");
        }
        rig.down().unwrap();
    });
}

#[test]
fn commit_only_narrows_the_commit() {
    isolated(|place| {
        let rigs = [rig(), rig()];
        fs::create_dir(rigs[0].path().join("below")).unwrap();
        let only = rigs[0].path().join("below");
        let options = [&STATS[..], &["--commit-only", text(&only)]].concat();
        let run = place.run(&options, &["sh", "-c", ":"]);
        assert_eq!(committed(&run.stderr), [(rigs[0].path().to_owned(), true)]);
        let mut strace = place.command("strace");
        strace.args(["-f", "-o", "trace", "-e", "trace=open,openat", binary(), "run"]);
        finish(strace.args(["--commit-only", text(&only), "--", "true"]));
        let trace = Trace::parse(&place.read("trace"));
        let open = |rig: &Rig| trace.count(&[&format!("\"{}\", O_RDONLY", text(rig.path()))]);
        assert_eq!([open(&rigs[0]), open(&rigs[1])], [1, 0], "others may hang");
        let run = place.run(&ALL, &["sh", "-c", ":"]);
        let mut all = vec![("/".into(), true)];
        all.extend(rigs.iter().map(|rig| (rig.path().to_owned(), true)));
        all.sort();
        assert_eq!(committed(&run.stderr), all);
        rigs.into_iter().for_each(|rig| rig.down().unwrap());
    });
}

#[test]
fn commit_only_refuses_a_path_that_is_not_there_or_not_on_a_disk() {
    isolated(|place| {
        for path in ["/proc", "/dev/shm", "/no/such/path"] {
            let run = place.run(&["--commit-only", path], &["touch", "started"]);
            assert_eq!(run.status.code(), Some(125), "{run:?}");
            let said = format!("synconce: cannot use --commit-only {path}: ");
            assert!(run.stderr.starts_with(&said), "{run:?}");
            assert!(!place.path("started").exists());
        }
    });
}

#[test]
fn without_a_commit_nothing_reaches_the_disk_and_there_is_no_marker() {
    isolated(|place| {
        let _barrier = without_foreign_syncs();
        let rig = rig();
        let file = rig.path().join("data");
        let before = rig.disk().stats().unwrap().flushes;
        let script =
            format!("echo x > {0}; sync {0}; sync; ls -A state 2>/dev/null; true", file.display());
        let run = place.run(&["--no-commit"], &["sh", "-c", &script]);
        assert!(run.status.success(), "{run:?}");
        assert_eq!(run.stdout + &run.stderr, "");
        assert_eq!(rig.disk().stats().unwrap().flushes, before);
        rig.down().unwrap();
    });
}

#[test]
fn a_file_system_that_was_mounted_during_the_run_is_committed_too() {
    isolated(|place| {
        let rig = rig();
        let (device, point) = (rig.device().to_owned(), place.path("mounted"));
        fs::create_dir(&point).unwrap();
        rig.unmount().unwrap();
        let script = format!(
            "mount {} mounted && echo x > mounted/data && sync mounted/data",
            device.display()
        );
        let run = place.run(&STATS, &["sh", "-c", &script]);
        assert!(run.status.success(), "{run:?}");
        assert!(committed(&run.stderr).contains(&(point.clone(), true)), "{run:?}");
        unmount(&point, UnmountFlags::empty()).expect("no process keeps it busy");
        rig.mount().unwrap();
        rig.down().unwrap();
    });
}

#[test]
fn a_file_system_can_be_unmounted_in_the_run_and_is_synced_before() {
    isolated(|place| {
        let rig = rig();
        let point = text(rig.path()).to_owned();
        let script = format!("echo kept > {point}/data && sync {point}/data && umount {point}");
        let run = place.run(&STATS, &["sh", "-c", &script]);
        assert!(run.status.success(), "{run:?}");
        assert!(committed(&run.stderr).contains(&(point.into(), true)), "{run:?}");
        rig.mount().unwrap();
        assert_eq!(fs::read_to_string(rig.path().join("data")).unwrap(), "kept\n");
        rig.down().unwrap();
    });
}

#[test]
fn a_file_system_can_be_unmounted_as_soon_as_the_run_is_over() {
    isolated(|place| {
        let rig = rig();
        for _ in 0..20 {
            let file = rig.path().join("data");
            assert!(
                place.run(&[], &perl(&format!("sync_file('{}')", file.display()))).status.success()
            );
            unmount(rig.path(), UnmountFlags::empty()).expect("no process keeps it busy");
            rig.mount().unwrap();
        }
        rig.down().unwrap();
    });
}

#[test]
fn a_failing_device_is_named_and_the_others_commit() {
    isolated(|place| {
        for kind in [FsKind::Ext4, FsKind::Xfs] {
            let size = if kind == FsKind::Xfs { 512 << 20 } else { 64 << 20 };
            let bad = Rig::builder().fs(kind).size(size).up().unwrap();
            let good = rig();
            let script = format!(
                "sync_file('{}'); say_to('before', 1); wait_for('go');",
                bad.path().join("data").display()
            );
            let run = StartedCommand::new(&mut place.held(&ALL, &perl(&script)));
            place.wait_for("before");
            bad.disk().fail_flushes(1_000_000).unwrap();
            place.write("go", "");
            assert_eq!(run.end().code(), Some(125), "{}", run.text());
            let named = format!("synconce: not durable: {} (", bad.path().display());
            assert!(run.text().contains(&named), "{}", run.text());
            assert!(run.text().contains(text(bad.device())), "{}", run.text());
            assert!(run.text().contains("Input/output error"), "{}", run.text());
            let synced = committed(&run.text());
            assert!(synced.contains(&(bad.path().to_owned(), false)), "{synced:?}");
            assert!(synced.contains(&(good.path().to_owned(), true)), "{synced:?}");
            assert!(synced.contains(&("/".into(), true)), "{synced:?}");

            eventually("it is found", || place.status(&[]).status.code() == Some(4));
            let status = place.status(&[]).stdout;
            let id = status.split(' ').next().unwrap();
            let cause = named.replace("synconce:", "\n ");
            assert!(status.contains(&cause), "nothing else says it after the run: {status}");
            assert!(place.status(&["--clear", id]).status.success());
            assert_eq!(files(&place.path("runtime"), "cause"), Vec::<PathBuf>::new());
            bad.disk().fail_flushes(0).unwrap();
            good.down().unwrap();
            ["before", "go"].iter().for_each(|name| place.remove(name));
        }
    });
}

#[test]
fn an_error_that_was_reported_to_another_process_during_the_run_fails_the_commit() {
    // A sync(2) of another test would write the file before the disk fails.
    isolated_alone(|place| {
        let _barrier = without_foreign_syncs();
        let rig = Rig::builder().size(64 << 20).passthrough(false).up().unwrap();
        let file = rig.path().join("data");
        // Existing blocks, so that the write needs no journal: the failing disk would abort
        // the journal.
        fs::write(&file, [b'a'; 8192]).unwrap();
        rustix::fs::syncfs(fs::File::open(&file).unwrap()).unwrap();
        let script = format!(
            "open(my $file, '+<', '{}') or die; print $file 'b' x 8192; close $file; \
             say_to('before', 1); wait_for('go');",
            file.display()
        );
        let run = StartedCommand::new(&mut place.held(&ALL, &perl(&script)));
        place.wait_for("before");
        rig.disk().fail_writes(true).unwrap();
        let reported = fs::File::open(&file).unwrap().sync_all();
        assert!(reported.is_err(), "the error is reported: {reported:?}");
        rig.disk().fail_writes(false).unwrap();
        place.write("go", "");
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        assert!(committed(&run.text()).contains(&(rig.path().to_owned(), false)), "{}", run.text());
    });
}

/// Starts a run whose commit waits for a flush of `rig` that does not end.
fn stalled(
    place: &Place,
    rig: &Rig,
    options: &[&str],
    around: &[&str],
) -> (StartedCommand, DiskLock) {
    let data = rig.path().join("data");
    let script = "say_to('held', 'yes'); wait_for('go');";
    let words = perl(&format!("sync_file('{}'); {script}", data.display()));
    let all = [around, &[binary(), "run"], options, &["--"]].concat();
    let mut command = place.command(all[0]);
    let run = StartedCommand::new(command.args(&all[1..]).args(&words));
    // The disk is stalled only now: before, a sync(2) of another test's run would wait for the
    // disk, and the command for that sync(2).
    place.wait_for("held");
    let stalled = stall(rig);
    place.write("go", "");
    rig.disk().wait_for_waiting_flush(limit()).unwrap();
    // The flush may come from another process.
    eventually("the commit begins", || {
        place.status(&[]).stdout.contains(" committing ")
            || run.wait(Duration::ZERO).unwrap().is_some()
    });
    ["held", "go"].into_iter().for_each(|name| place.remove(name));
    (run, stalled)
}

#[test]
fn a_flush_that_hangs_is_given_up_and_named() {
    isolated(|place| {
        let rig = rig();
        let options = [&ALL[..], &["--commit-timeout", "1"]].concat();
        let (run, _stalled) = stalled(place, &rig, &options, &[]);
        assert_eq!(run.end().code(), Some(125), "{}", run.text());
        let named = format!(
            "synconce: not durable: {} (ext4 on {}): no answer for ",
            rig.path().display(),
            rig.device().display()
        );
        assert!(run.text().contains(&named), "{}", run.text());
        assert!(committed(&run.text()).contains(&("/".into(), true)), "{}", run.text());
        let status = place.status(&[]);
        assert_eq!(status.status.code(), Some(4), "{status:?}");
        rig.disk().release_flushes().unwrap();
        eventually("the supervisor ends", || place.run_files().is_empty());
        assert_eq!(place.markers().len(), 1, "no sync has succeeded");
    });
}

#[test]
fn ctrl_c_during_a_long_commit_prints_what_is_not_durable_and_the_commit_goes_on() {
    isolated(|place| {
        for by in [Signal::INT, Signal::TERM, Signal::HUP] {
            let rig = rig();
            let (run, _stalled) = stalled(place, &rig, &[], &[]);
            // By then the commit has reported its progress (every 250 ms), and the other file
            // systems are synced.
            std::thread::sleep(Duration::from_millis(700));
            // Repeated: the signal may arrive before the frontend has seen the end of the
            // command.
            eventually("the wait is given up", || {
                kill(run.pid(), by);
                run.wait(Duration::from_millis(20)).unwrap().is_some()
            });
            assert_eq!(run.end().code(), Some(125), "{}", run.text());
            // On a busy machine the other file systems may not be synced, either.
            let text = run.text();
            let named = text.lines().find(|line| line.starts_with("synconce: not yet durable: "));
            let rig_path = self::text(rig.path());
            assert!(named.is_some_and(|line| line.contains(rig_path)), "{text}");
            let status = place.status(&[]);
            assert_eq!(status.status.code(), Some(3), "{status:?}");
            assert!(status.stdout.contains(" committing "), "{status:?}");
            rig.disk().release_flushes().unwrap();
            eventually("it is durable", || place.status(&[]).status.success());
            assert!(place.markers().is_empty());
            rig.down().unwrap();
        }
    });
}

#[test]
fn what_was_ignored_and_what_is_for_the_command_does_not_cut_the_wait_short() {
    isolated(|place| {
        let rig = rig();
        let (run, _stalled) = stalled(place, &rig, &[], &["nohup"]);
        for by in [Signal::HUP, Signal::USR1, Signal::USR2, Signal::CONT, Signal::HUP] {
            kill(run.pid(), by);
        }
        let waited = run.wait(Duration::from_millis(300)).unwrap();
        assert_eq!(waited, None, "{}", run.text());
        rig.disk().release_flushes().unwrap();
        assert!(run.end().success(), "{}", run.text());
        rig.down().unwrap();
    });
}

#[test]
fn a_failed_command_is_committed_too() {
    isolated(|place| {
        let rig = rig();
        let before = rig.disk().stats().unwrap().flushes;
        let file = rig.path().join("data");
        let run = place.run(&ALL, &["sh", "-c", &format!("echo x > {}; exit 3", file.display())]);
        assert_eq!(run.status.code(), Some(3));
        assert!(committed(&run.stderr).contains(&(rig.path().to_owned(), true)));
        assert!(rig.disk().stats().unwrap().flushes > before);
        rig.down().unwrap();
    });
}
