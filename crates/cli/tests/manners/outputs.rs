//! Standard output and standard error that are full, closed or without a reader.

use crate::ids::interrupt;
use libtest_mimic::Trial;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use synconce_testkit::harness::{Need, Place, binary, finish, trial};
use synconce_testkit::process::Finished;

pub fn trials() -> Vec<Trial> {
    let perl = [Need::Program("perl", "perl")];
    vec![
        trial(a_text_on_a_full_pipe_that_does_not_block_is_whole, &perl),
        trial(a_reader_that_ends_early_ends_a_command_quietly, &[]),
        trial(an_error_is_told_although_the_reader_of_another_output_has_ended, &[]),
        trial(a_text_on_a_full_disk_or_a_closed_output_is_an_error, &[]),
    ]
}

/// Runs a command whose descriptor `$ENV{STREAM}` is a full pipe that does not block. Reads the
/// pipe when the command has ended or waits in poll(2) or ppoll(2), and prints what the command
/// wrote.
const FULL_PIPE: &str = r#"
use Fcntl; use POSIX ":sys_wait_h";
pipe(my $reader, my $writer); fcntl($writer, F_SETFL, O_NONBLOCK);
while (syswrite($writer, "-" x 4096)) {}
my $pid = fork; if (!$pid) { POSIX::dup2(fileno($writer), $ENV{STREAM}); exec @ARGV }
close $writer;
my $polls = (POSIX::uname())[4] eq "aarch64" ? "73" : "7|271";
sub waits { open(my $file, "<", "/proc/$pid/syscall"); (<$file> // "") =~ /^($polls) / }
my $ended; until ($ended = waitpid($pid, WNOHANG) or waits()) { select(undef, undef, undef, 0.01) }
my $read; $read .= $_ while sysread($reader, $_, 65536);
waitpid($pid, 0) if !$ended; $read =~ s/^-+//; print $read; exit($? >> 8)
"#;

fn on_full_pipe(place: &Place, command: &Command, stream: &str) -> Finished {
    let mut perl = place.command("perl");
    perl.args(["-e", FULL_PIPE]).arg(command.get_program()).args(command.get_args());
    finish(perl.env("STREAM", stream))
}

/// Reported of Travis CI (issue 4704), where Node.js made the output of all programs non-blocking.
fn a_text_on_a_full_pipe_that_does_not_block_is_whole(place: &Place) {
    fs::create_dir(place.path("source")).unwrap();
    let id = interrupt(place);
    for words in [&["init", "trees"][..], &["--store", "trees", "import", "base", "source"]] {
        let made = finish(place.synconce(&["tree"]).args(words));
        assert!(made.status.success(), "{made:?}");
    }
    for (words, stream) in [
        (&["tree", "--store", "trees", "list"][..], "1"),
        (&["tree", "--store", "trees", "log", "missing"], "2"),
        (&["--help"], "1"),
        (&["help", "run"], "1"),
        (&["help", "nothing"], "2"),
        (&["--version"], "1"),
        (&["version"], "1"),
        (&["statsu"], "2"),
        (&["status"], "1"),
        (&["status", "--mend", &id], "2"),
        (&["bench", "loop", "none", "1"], "2"),
    ] {
        let plain = finish(&mut place.synconce(words));
        let full = on_full_pipe(place, &place.synconce(words), stream);
        let wanted = if stream == "1" { plain.stdout } else { plain.stderr };
        assert!(!wanted.is_empty() && full.stdout == wanted, "{words:?}: {wanted} {full:?}");
        assert_eq!(full.status.code(), plain.status.code(), "{words:?}: {full:?}");
    }
}

/// As of other programs: `synconce status | head`.
fn a_reader_that_ends_early_ends_a_command_quietly(place: &Place) {
    for words in [
        &["status", "--json"][..],
        &["status", "--format", "prometheus"],
        &["hold", "status"],
        &["setup", "kubernetes"],
        &["help", "run"],
        &["--help"],
        &["version"],
        &["tree", "--help"],
        &["doctor", "--context", "."],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = place.synconce(words).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGPIPE), "{words:?}: {ended:?}");
        assert!(ended.stderr.is_empty(), "{words:?}: {ended:?}");
    }
}

fn an_error_is_told_although_the_reader_of_another_output_has_ended(place: &Place) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut shell = place.command("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh", binary()]);
    shell.args(["doctor", "--context", ".", "--json", "--html", "page.html"]);
    let ended = shell.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(said.contains("page.html: File too large"), "{said}");
}

fn a_text_on_a_full_disk_or_a_closed_output_is_an_error(place: &Place) {
    for (output, why) in [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
    {
        for words in
            [&["status", "--json"][..], &["--help"], &["help", "run"], &["version"], &["-V"]]
        {
            let script = format!("exec \"$@\" {output}");
            let mut shell = place.command("sh");
            let ended = finish(shell.args(["-c", &script, "sh", binary()]).args(words));
            let message = format!("synconce: cannot write to standard output: {why}\n");
            let wanted = (Some(125), &message[..]);
            assert_eq!((ended.status.code(), &ended.stderr[..]), wanted, "{words:?} {output}");
        }
    }
}
