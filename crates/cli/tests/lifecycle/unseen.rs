//! Callers that the supervisor may not examine: another user's without CAP_SYS_PTRACE, as in a
//! default container, processes that are not dumpable, and processes that /proc hides. They are
//! held as in a sealed run, and the commit covers what the commit of a sealed run covers.

use super::sealed_scope::{END, TEXT, WRITE, file_after_cut, recorded, text};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use synconce_testkit::harness::{
    Place, SYNC, binary, finish, isolated, perl, without_fuse_notice, without_stalls,
};
use synconce_testkit::process::Finished;

const NOBODY: u32 = 65534;
const AS_NOBODY: [&str; 6] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
/// Starts its arguments as root in a default container: without CAP_SYS_PTRACE.
const NO_PTRACE: [&str; 3] = ["setpriv", "--bounding-set", "-sys_ptrace"];

/// Lets the user nobody write in the directory of the test.
fn open(place: &Place) {
    fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o777)).unwrap();
}

/// Runs `above synconce run --json --stats OPTIONS -- WORDS`.
fn run(place: &Place, above: &[&str], options: &[&str], words: &[impl AsRef<OsStr>]) -> Finished {
    let held = [above, &[binary(), "run", "--stats", "--json"], options, &["--"]].concat();
    finish(place.command(held[0]).args(&held[1..]).args(words))
}

/// Runs `script` in perl as the user nobody, below a root without CAP_SYS_PTRACE.
fn perl_as_nobody(place: &Place, options: &[&str], script: &str) -> Finished {
    let words = perl(script);
    let words = [&AS_NOBODY[..], &words.each_ref().map(String::as_str)].concat();
    run(place, &NO_PTRACE, options, &words)
}

/// Returns how many of `call` were held, how many of these had a caller that could not be
/// examined, and how many passed.
fn counts(run: &Finished, call: &str) -> [u64; 3] {
    let line = run.stderr.lines().find(|line| line.starts_with('{')).expect("the accounts");
    let stats: serde_json::Value = serde_json::from_str(line).unwrap();
    ["held", "unseen", "passed"].map(|end| stats["calls"][call][end].as_u64().unwrap_or(0))
}

/// Returns standard error without the accounts.
fn notices(run: &Finished) -> String {
    let lines = run.stderr.lines().filter(|line| !line.starts_with('{'));
    without_fuse_notice(&lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn another_user_is_held_without_the_capability_as_with_it() {
    isolated(|place| {
        let _lock = without_stalls();
        open(place);
        let script = "open my $file, '>', \"data$$\" or die; print $file 'x'; $file->flush;
            my $fd = fileno $file;
            print join(' ', map { syscall($_, $fd) } FSYNC, FDATASYNC, SYNCFS), \"\\n\";
            print syscall(RANGE, $fd, 0, 0, 7), \"\\n\"; exit 7;";
        let script = script.replace("FSYNC", &libc::SYS_fsync.to_string());
        let script = script.replace("FDATASYNC", &libc::SYS_fdatasync.to_string());
        let script = script.replace("SYNCFS", &libc::SYS_syncfs.to_string());
        let script = script.replace("RANGE", &libc::SYS_sync_file_range.to_string());
        let seen = run(
            place,
            &[],
            &[],
            &[&AS_NOBODY[..], &perl(&script).each_ref().map(String::as_str)].concat(),
        );
        let unseen = perl_as_nobody(place, &[], &script);
        for (run, of_unseen) in [(&seen, 0), (&unseen, 1)] {
            assert_eq!(
                (run.status.code(), run.stdout.as_str()),
                (Some(7), "0 0 0\n0\n"),
                "{run:?}"
            );
            for call in ["fsync", "fdatasync", "syncfs", "sync_file_range"] {
                assert_eq!(counts(run, call), [1, of_unseen, 0], "{call} {run:?}");
            }
            assert_eq!(notices(run), "");
        }
    });
}

#[test]
fn the_table_of_stats_counts_the_callers_that_could_not_be_examined() {
    isolated(|place| {
        let _lock = without_stalls();
        open(place);
        let script = perl(SYNC);
        let words = [&AS_NOBODY[..], &script.each_ref().map(String::as_str)].concat();
        let held = [&[binary(), "run", "--stats", "--"][..], &words].concat();
        let run = finish(place.command(NO_PTRACE[0]).args(&NO_PTRACE[1..]).args(held));
        assert!(run.status.success(), "{run:?}");
        let line = "\n1 of 1 held calls: the caller could not be examined\n";
        assert!(run.stderr.contains(line), "{run:?}");
        assert!(run.stderr.contains("\ncommit all disks (sync(2)) "), "{run:?}");
    });
}

#[test]
fn what_another_user_synced_is_durable_after_the_commit() {
    isolated(|place| {
        let _lock = without_stalls();
        let rig = recorded();
        let path = rig.path().join("file");
        fs::write(&path, "").unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        let words = [&AS_NOBODY[..], &["sh", "-ec", WRITE, "sh", text(&path)]].concat();
        let before = rig.disk().stats().unwrap().flushes;
        let run = run(place, &NO_PTRACE, &[], &words);
        rig.disk().mark(END).unwrap();
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        assert_eq!(counts(&run, "fsync"), [1, 1, 0], "{run:?}");
        assert!(rig.disk().stats().unwrap().flushes > before);
        assert_eq!(file_after_cut(&rig).as_deref(), Some(TEXT));
    });
}

#[test]
fn an_open_of_another_user_syncs_for_real_and_is_counted_as_that() {
    isolated(|place| {
        open(place);
        let script = "use Fcntl; sysopen(my $file, 'data', O_WRONLY | O_CREAT | O_SYNC) or die;";
        let run = perl_as_nobody(place, &[], script);
        assert!(run.status.success(), "{run:?}");
        let line =
            r#""openat":{"held":0,"passed":1,"refused":0,"unseen":0,"reasons":{"unseen":1}}"#;
        assert!(run.stderr.contains(line), "{run:?}");
    });
}

#[test]
fn with_rules_a_caller_that_cannot_be_examined_syncs_for_real_and_a_notice_says_so() {
    isolated(|place| {
        let _lock = without_stalls();
        open(place);
        for options in [["--except", "other"], ["--only", "data"], ["--commit-only", "."]] {
            fs::create_dir_all(place.path("other")).unwrap();
            let run = perl_as_nobody(place, &options, &format!("{SYNC}{SYNC}"));
            assert!(run.status.success(), "{run:?}");
            assert_eq!(counts(&run, "fsync"), [0, 0, 2], "{options:?} {run:?}");
            assert_eq!(
                notices(&run),
                "synconce: some processes could not be examined, so the rules did not apply to \
                 them: their syncs were done\nsynconce: hint: docker run --cap-add SYS_PTRACE"
            );
            fs::remove_file(place.path("data")).unwrap();
        }
    });
}

#[test]
fn a_process_that_is_not_dumpable_is_held() {
    isolated(|place| {
        let _lock = without_stalls();
        open(place);
        // PR_SET_DUMPABLE, as ssh-agent does it.
        let script = format!("syscall({}, 4, 0, 0, 0, 0) and die; {SYNC}", libc::SYS_prctl);
        let run = run(place, &AS_NOBODY, &[], &perl(&script));
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), "synced\n"), "{run:?}");
        assert_eq!(counts(&run, "fsync"), [1, 1, 0], "{run:?}");
    });
}

/// Root in a default container: apt-get calls msync(2) on private memory after it has been another
/// user for a while, which makes it not dumpable.
#[test]
fn the_msync_of_an_apt_get_does_not_make_the_commit_cover_every_disk() {
    isolated(|place| {
        let _lock = without_stalls();
        let script = format!(
            "$> = {NOBODY}; $> = 0; my $at = syscall({}, 0, 4096, 3, 0x22, -1, 0);
             print syscall({}, $at, 4096, 4), \"\\n\";",
            libc::SYS_mmap,
            libc::SYS_msync
        );
        let run = run(place, &NO_PTRACE, &[], &perl(&script));
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), "0\n"), "{run:?}");
        assert_eq!(counts(&run, "msync"), [0, 0, 1], "{run:?}");
        assert_eq!(notices(&run), "");
    });
}

#[test]
fn processes_that_proc_hides_are_held() {
    isolated(|place| {
        let _lock = without_stalls();
        open(place);
        for hide in ["1", "2"] {
            let script = format!("mount -t proc -o hidepid={hide} proc /proc && exec \"$@\"");
            let above = ["unshare", "--mount", "sh", "-c", &script, "sh"];
            let sync = perl(SYNC);
            let words = [&AS_NOBODY[..], &sync.each_ref().map(String::as_str)].concat();
            let run = run(place, &[&above[..], &NO_PTRACE].concat(), &[], &words);
            assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), "synced\n"), "{run:?}");
            assert_eq!(counts(&run, "fsync"), [1, 1, 0], "{run:?}");
            let real = [&[binary(), "real", "--"], &words[..]].concat();
            let run = self::run(place, &[&above[..], &NO_PTRACE].concat(), &[], &real);
            assert_eq!(counts(&run, "fsync"), [0, 0, 1], "{run:?}");
        }
    });
}

#[test]
fn a_pipe_of_a_caller_that_cannot_be_examined_is_answered_with_success() {
    isolated(|place| {
        let _lock = without_stalls();
        open(place);
        let script = format!(
            "pipe(my $pipe, my $end) or die; for my $fd (fileno $pipe, 99, -1) {{ \
             print syscall({}, $fd) == 0 ? 'success' : $! + 0, ' ' }}",
            libc::SYS_fsync
        );
        let run = perl_as_nobody(place, &[], &script);
        let bad = libc::EBADF;
        assert_eq!(run.stdout, format!("success {bad} {bad} "), "{run:?}");
        assert_eq!(counts(&run, "fsync"), [1, 1, 1], "{run:?}");
    });
}
