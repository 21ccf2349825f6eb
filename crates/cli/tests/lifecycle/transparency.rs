//! The command runs in the same environment as without synconce.

use synconce_testkit::harness::{Place, binary, finish, isolated, perl};
use synconce_testkit::process::Finished;

/// Prints all that a process inherits, sorted, without the name of the run in its environment.
const PORTRAIT: &str = r#"
$| = 1; open(my $out, ">>", $ENV{PORTRAIT}) or die;
opendir(my $fds, "/proc/self/fd") or die;
my %own = (fileno($out) => 1, fileno($fds) => 1);
for (sort { $a <=> $b } grep { /\d/ && !$own{$_} } readdir $fds) {
    my $flags = join " ", grep { /^(flags|pos|mnt_id)/ } do {
        open(my $info, "<", "/proc/self/fdinfo/$_"); map { s/\s+/ /gr } <$info> };
    print $out "fd $_ ", readlink("/proc/self/fd/$_"), " $flags\n";
}
sub file { open(my $file, "<", $_[0]) or return "none\n"; local $/; <$file> }
my $changing = "Name|SigQ|Pid|Tgid|Ngid|PPid|NS\\w+|Seccomp\\w*|Vm\\w+|Rss\\w+|Hugetlb\\w+|FDSize|\\w*ctxt\\w*|Mems\\w+";
print $out join("", grep { !/^($changing):/ } map { "$_\n" } split(/\n/, file("/proc/self/status")));
print $out "limits\n", file("/proc/self/limits"), "cgroup ", file("/proc/self/cgroup");
print $out "oom ", file("/proc/self/oom_score_adj"), "filter ", file("/proc/self/coredump_filter");
print $out "slack ", file("/proc/self/timerslack_ns"), "persona ", file("/proc/self/personality");
print $out "words ", file("/proc/self/cmdline") =~ tr/\0/|/r, "\n";
for (qw(cwd root ns/mnt ns/pid ns/user ns/net ns/uts ns/ipc ns/cgroup)) {
    print $out "$_ ", readlink("/proc/self/$_"), "\n";
}
print $out "nice ", getpriority(0, 0), " group ", getpgrp == $ENV{LEADER} ? "same" : "other", "\n";
my @stat = split / /, file("/proc/self/stat") =~ s/.*\) //r;
print $out "session $stat[3] terminal $stat[4] exit signal $stat[35] policy $stat[38]\n";
my $word = pack("i", 0); syscall($ENV{PRCTL}, 2, $word, 0, 0, 0); print $out "death signal ", unpack("i", $word), "\n";
$word = pack("i", 0); syscall($ENV{PRCTL}, 37, $word, 0, 0, 0); print $out "subreaper ", unpack("i", $word), "\n";
print $out "dumpable ", syscall($ENV{PRCTL}, 3, 0, 0, 0, 0), "\n";
open(my $environ, "<", "/proc/self/environ"); local $/ = "\0";
print $out "env ", grep({ !/^PORTRAIT=|^LEADER=|^PRCTL=/ } <$environ>), "\n";
"#;

/// Runs the portrait below `around`, which ends in `exec "$@"`, bare and held.
fn portraits(place: &Place, around: &str, options: &[&str]) -> [String; 2] {
    let script = perl(PORTRAIT);
    [("bare", false), ("held", true)].map(|(name, held)| {
        let script_around = format!("export LEADER=$$; {around}");
        let mut command = place.command("bash");
        command.args(["-c", &script_around, "bash"]).env("PORTRAIT", place.path(name));
        command.env("PRCTL", libc::SYS_prctl.to_string());
        if held {
            command.args([binary(), "run"]).args(options).arg("--");
        }
        let _ = std::fs::remove_file(place.path(name));
        let finished = finish(command.args(&script));
        assert!(finished.status.success(), "{name} {around}: {finished:?}");
        place.read(name)
    })
}

/// Removes the name of the run, and the numbers in the names of a test's captures.
fn comparable(portrait: &str) -> String {
    let lines = portrait.lines().map(|line| {
        let words = line.split('\0').filter(|word| !word.starts_with("SYNCONCE_RUN="));
        let line = words.collect::<Vec<_>>().join("\n  ");
        match line.find("/#") {
            Some(at) => format!("{} (a capture)", &line[..at]),
            None => line,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the lines that only one of both has.
fn differing(bare: &str, held: &str) -> Vec<String> {
    let lacks = |text: &str, line: &str| !text.lines().any(|one| one == line);
    let gone = bare.lines().filter(|line| lacks(held, line)).map(|line| format!("- {line}"));
    let new = held.lines().filter(|line| lacks(bare, line)).map(|line| format!("+ {line}"));
    gone.chain(new).collect()
}

fn assert_same(place: &Place, around: &str) {
    for options in [&[][..], &["--sealed"], &["--no-commit"]] {
        let [bare, held] = portraits(place, around, options);
        assert!(bare.contains("SigIgn:") && bare.contains("env "), "{bare}");
        assert_eq!(held.matches("SYNCONCE_RUN=").count(), 1, "{held}");
        let (bare, held) = (comparable(&bare), comparable(&held));
        let differing = differing(&bare, &held);
        assert!(differing.is_empty(), "{around} {options:?}: {differing:#?}");
    }
}

#[test]
fn a_command_inherits_everything_of_the_caller_and_nothing_of_synconce() {
    isolated(|place| assert_same(place, "exec \"$@\""));
}

#[test]
fn further_descriptors_reach_the_command_and_closed_ones_stay_closed() {
    isolated(|place| {
        place.write("seven", "seven\n");
        for around in [
            "exec 7<seven 9>>nine 200<>seven; exec \"$@\"",
            "exec 0<&-; exec \"$@\"",
            "exec 1>&-; exec \"$@\"",
            "exec 2>&-; exec \"$@\"",
            "exec 0<&- 1>&- 2>&-; exec \"$@\"",
            "exec 0<&- 3<seven; exec \"$@\"",
        ] {
            assert_same(place, around);
        }
    });
}

#[test]
fn ignored_and_blocked_signals_are_as_they_were() {
    isolated(|place| {
        let blocked = "exec perl -e 'use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGUSR1, \
                       SIGCHLD, SIGTERM, SIGPIPE)); exec @ARGV' \"$@\"";
        let ignored = "exec perl -e '$SIG{$_} = \"IGNORE\" for qw(CHLD PIPE TSTP TTIN TTOU CONT \
                       WINCH); exec @ARGV' \"$@\"";
        for around in [
            "trap '' PIPE; exec \"$@\"",
            "trap '' HUP INT; exec \"$@\"",
            "trap '' TERM QUIT USR1 USR2 ALRM; exec \"$@\"",
            "exec nohup \"$@\"",
            blocked,
            ignored,
        ] {
            assert_same(place, around);
        }
    });
}

#[test]
fn limits_priorities_and_the_like_are_as_they_were() {
    isolated(|place| {
        for around in [
            "umask 077; exec nice -n 7 \"$@\"",
            "ulimit -n 64 -c 0 -s 4096 -v unlimited; exec \"$@\"",
            "echo 321 > /proc/self/oom_score_adj; exec \"$@\"",
            "exec setarch --addr-no-randomize \"$@\"",
            "exec chrt --batch 0 \"$@\"",
            "cd /proc; exec \"$@\"",
        ] {
            assert_same(place, around);
        }
    });
}

#[test]
fn a_command_that_gets_no_environment_gets_only_the_runs_name() {
    isolated(|place| {
        let words = ["env", "-i", "SYNCONCE_STATE_DIR=S", binary(), "run", "--", "/usr/bin/env"];
        let state = format!("SYNCONCE_STATE_DIR={}", place.text("state"));
        let words = words.map(|word| if word.starts_with("SYN") { &state } else { word });
        let finished = place.bare(&words);
        let lines: Vec<_> = finished.stdout.lines().collect();
        assert_eq!(lines.len(), 2, "{finished:?}");
        assert!(lines[1].starts_with("SYNCONCE_RUN="));
    });
}

#[test]
fn what_goes_through_standard_input_and_output_is_untouched() {
    isolated(|place| {
        let synconce = binary();
        let script = format!(
            "seq 200000 | {synconce} run -- sh -c 'cat; echo error >&2' 2>errors | md5sum; \
             seq 200000 | md5sum; cat errors"
        );
        let finished = place.bare(&["bash", "-c", &script]);
        let lines: Vec<_> = finished.stdout.lines().collect();
        assert_eq!(lines.len(), 3, "{finished:?}");
        assert_eq!(lines[0], lines[1]);
        assert_eq!(lines[2], "error");
    });
}

#[test]
fn a_writer_into_a_closed_pipe_dies_by_sigpipe_as_it_would() {
    isolated(|place| {
        let synconce = binary();
        let script = format!("{synconce} run -- yes | head -1; echo ${{PIPESTATUS[0]}}");
        assert_eq!(place.bare(&["bash", "-c", &script]).stdout, "y\n141\n");
    });
}

#[test]
fn a_pipe_ends_when_the_command_closes_it_not_when_the_run_ends() {
    isolated(|place| {
        let synconce = binary();
        // The reader ends the run, so the end of the run cannot be what ends the reader's
        // input.
        for (closes, reads) in [("exec 1>&-", "cat"), ("exec 7>&-", "cat <&7")] {
            let command = format!("{closes}; until [ -e read ]; do sleep 0.01; done");
            place.write("command", &command);
            let script = match reads {
                "cat" => format!("{synconce} run -- sh command | (cat; touch read)"),
                _ => format!("(7>&1 {synconce} run -- sh command >/dev/null) | (cat; touch read)"),
            };
            let finished: Finished = place.bare(&["bash", "-c", &script]);
            assert!(finished.status.success(), "{finished:?}");
            std::fs::remove_file(place.path("read")).expect("the reader saw the end");
        }
    });
}

#[test]
fn a_writer_sees_that_the_command_closed_its_input() {
    isolated(|place| {
        let synconce = binary();
        let command = "exec 0<&-; until [ -e died ]; do sleep 0.01; done";
        place.write("command", command);
        let script = format!("(yes 2>/dev/null; touch died) | {synconce} run -- sh command");
        let finished = place.bare(&["bash", "-c", &script]);
        assert!(finished.status.success(), "{finished:?}");
        assert!(place.path("died").exists());
    });
}
