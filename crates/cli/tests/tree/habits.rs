//! What the programs around a run leave to it: ignored signals, masks, and open or closed
//! descriptors.

use crate::concurrent::{point, text};
use crate::site::{Site, limit};
use crate::verbs::{NEEDS, with_base};
use libtest_mimic::Trial;
use std::fs;
use synconce_testkit::harness::{Place, trial};
use synconce_testkit::process::{self, Finished};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_caller_that_ignores_sigchld_gets_the_exit_status, &NEEDS),
        trial(a_user_reaches_a_bind_whatever_the_umask_of_the_caller, &NEEDS),
        trial(a_closed_standard_descriptor_stays_closed, &NEEDS),
        trial(root_of_a_user_namespace_of_one_user_runs_commands, &NEEDS),
        trial(pipes_and_locks_are_free_when_the_command_closes_them, &NEEDS),
    ]
}

/// SIGCHLD is signal 17, and SIGPIPE 13, which the caller does not ignore.
const SIGCHLD_AND_SIGPIPE: u64 = 1 << 16 | 1 << 12;

/// The ways in which a command is started.
const WAYS: [&[&str]; 2] = [&[], &["--no-hold"]];

/// Runs the script `around`, which ends in `"$@"`, with `tree run --from base OPTIONS -- /bin/sh
/// -c COMMAND`.
fn around(site: &Site<'_>, around: &str, options: &[&str], command: &str) -> Finished {
    around_words(site, around, options, &["/bin/sh", "-c", command])
}

/// As [`around`], with the words of a command.
fn around_words(site: &Site<'_>, around: &str, options: &[&str], command: &[&str]) -> Finished {
    let words = [&["run", "--from", "base"], options, &["--"], command].concat();
    let run = site.tree(&words);
    let mut shell = site.place.command("bash");
    shell.args(["-c", around, "bash"]).arg(run.get_program()).args(run.get_args());
    process::run(&mut shell, limit()).unwrap()
}

/// Reported of bun (pull request 43203) and shadow (161): the kernel keeps no exit status for a
/// process that ignores SIGCHLD, and execve(2) keeps the disposition.
fn a_caller_that_ignores_sigchld_gets_the_exit_status(place: &Place) {
    let site = with_base(place);
    let ignoring = "exec perl -e '$SIG{CHLD} = \"IGNORE\"; exec @ARGV' \"$@\"";
    for options in WAYS {
        // Without a shell, which may set signals itself.
        let grep = ["/bin/busybox", "grep", "SigIgn", "/proc/self/status"];
        let ignored = around_words(&site, ignoring, options, &grep);
        let mask = ignored.stdout.trim().rsplit('\t').next().unwrap();
        let mask = u64::from_str_radix(mask, 16).unwrap_or_else(|_| panic!("{ignored:?}"));
        assert_eq!(mask & SIGCHLD_AND_SIGPIPE, 1 << 16, "{options:?} {mask:x}");
        let finished = around(&site, ignoring, options, "exit 3");
        assert_eq!(finished.status.code(), Some(3), "{options:?} {finished:?}");
        assert_eq!(finished.stderr, "", "{options:?}");
    }
}

/// Reported of buildah (issue 1305) and cross-boss (3).
fn a_user_reaches_a_bind_whatever_the_umask_of_the_caller(place: &Place) {
    let site = with_base(place);
    let shared = point(&site, "shared");
    fs::write(shared.join("file"), "shared\n").unwrap();
    for (source, target) in [(shared.clone(), "/new/directory"), (shared.join("file"), "/new/file")]
    {
        let bind = format!("{}:{target}", text(&source));
        let options = ["--user", "user", "--bind", &bind];
        let command = format!("cat {target} {target}/file 2>/dev/null");
        let finished = around(&site, "umask 077; exec \"$@\"", &options, &command);
        assert_eq!(finished.stdout, "shared\n", "{target}: {finished:?}");
    }
}

fn a_closed_standard_descriptor_stays_closed(place: &Place) {
    let site = with_base(place);
    for options in WAYS {
        let command = "readlink /proc/self/fd/0 || echo closed";
        let finished = around(&site, "exec \"$@\" <&-", options, command);
        assert_eq!(finished.stdout, "closed\n", "{options:?} {finished:?}");
    }
}

/// Reported of build-fhs-userenv (nixpkgs issue 10496): builds begin with
/// `unshare --map-root-user`, which maps one user and denies setgroups(2).
fn root_of_a_user_namespace_of_one_user_runs_commands(place: &Place) {
    let site = with_base(place);
    for options in ["--map-root-user", "--map-root-user --mount"] {
        for way in WAYS {
            let unsharing = format!("exec unshare {options} \"$@\"");
            let finished = around(&site, &unsharing, way, "id -u; echo new >/data/file; exit 3");
            assert_eq!(finished.stdout, "0\n", "{options} {way:?} {finished:?}");
            assert_eq!(finished.status.code(), Some(3), "{options} {way:?} {finished:?}");
        }
    }
}

/// Reported of sccache (pull request 2841) and many scripts with flock(1).
fn pipes_and_locks_are_free_when_the_command_closes_them(place: &Place) {
    let site = with_base(place);
    let shared = point(&site, "shared");
    let bind = format!("{}:/mnt", text(&shared));
    let free = shared.join("free");
    // The process that waits for the pipe or the lock ends the command. So the end of the command
    // is not what frees them.
    let ways = [
        ("exec >&-", "\"$@\" | (cat; touch free)"),
        ("exec 7>&-", "(7>&1 \"$@\" >/dev/null) | (cat; touch free)"),
        ("exec <&-", "(yes 2>/dev/null; touch free) | \"$@\""),
        ("exec 9>&-", "(flock 9; \"$@\" & exec 9>&-; flock lock touch free; wait $!) 9>lock"),
    ];
    for options in WAYS {
        for (closes, frees) in ways {
            let command = format!("{closes}; until [ -e /mnt/free ]; do sleep 0.02; done");
            let frees = format!("set -o pipefail; cd {}; {frees}", text(&shared));
            let options = [options, &["--bind", &bind]].concat();
            let finished = around(&site, &frees, &options, &command);
            assert!(finished.status.success(), "{options:?} {closes}: {finished:?}");
            fs::remove_file(&free).unwrap();
        }
    }
}
