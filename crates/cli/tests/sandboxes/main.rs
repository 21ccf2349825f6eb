//! A run in sandboxes: settings of systemd, containers, Landlock, limits. In each, the run holds
//! the calls of its command, or ends with 125 before the command starts and names the setting
//! that helps. Never does a run hold nothing without a notice. The freezers of control groups, by
//! which engines pause containers, freeze a run.

mod freezers;
mod rows;

use libtest_mimic::{Arguments, Trial};
use rows::{ExpectedRun, ROWS, SandboxRow};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitCode};
use synconce_testkit::harness::{
    Cgroups, Place, binary, finish, limit, named_trial, numbers_of_calls, without_fuse_notice,
    without_stalls,
};
use synconce_testkit::isolation::{is_inside, isolated_as};
use synconce_testkit::process::Finished;

/// Functions and variables for the scripts of the sandboxes.
const PRELUDE: &str = include_str!("prelude.sh");

/// Writes files in the directory of its argument, and syncs them in several ways.
const WRITER: &str = r#"
use strict; use Fcntl; use IO::Handle;
my $dir = shift; my $n = 0;
sub put { my ($flags) = @_;
    sysopen(my $file, "$dir/data" . $n++, O_WRONLY | O_CREAT | O_TRUNC | $flags, 0644) or die $!;
    syswrite($file, "text\n") == 5 or die $!; return $file; }
open(my $started, '>', "$dir/started") or die $!;
put(0)->sync or die $!; put(0)->sync or die $!;
syscall(FDATASYNC, fileno put(0)) == 0 or die $!;
put(O_SYNC);
my $how = pack('QQQ', O_WRONLY | O_CREAT | O_DSYNC, 0644, 0); my $path = "$dir/data4";
my $fd = syscall(OPENAT2, -100, $path, $how, 24); $fd >= 0 or die "openat2: $!";
open(my $file, '>&=', $fd) or die $!; syswrite($file, "text\n") == 5 or die $!;
"#;

fn main() -> ExitCode {
    let trial = |row: &'static SandboxRow| {
        let name = row.name.replace("::", ":");
        let inside = name.clone();
        named_trial(&name, row.needs, move || {
            // A commit of every disk waits for the disks of other tests. The wait for them does not
            // count against the limit, so this process has the lock, not the one inside.
            let _lock = (!is_inside()).then(without_stalls);
            isolated_as(&inside, limit(), || test(row));
        })
    };
    let mut trials: Vec<Trial> = ROWS.iter().map(trial).collect();
    assert!(trials.len() >= 25);
    trials.extend(freezers::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn test(row: &SandboxRow) {
    let place = Place::new(&format!("sandbox-{}", row.name.replace(['/', ' '], "-")));
    let groups = Cgroups::unique();
    let bare = run(&place, row, &groups, &[]);
    assert!(bare.status.success(), "the sandbox itself: {bare:?}");
    assert!(is_written(&place), "{bare:?}");
    let stats = format!("--json={}", place.text("work/stats"));
    let held = run(&place, row, &groups, &[binary(), "run", &stats, "--"]);
    check(row.expected, &place, &held);
    assert!(place.markers().is_empty(), "a marker is left: {held:?}");
    place.down();
}

/// Runs the writer in the sandbox, behind the words `before` of its command line.
fn run(place: &Place, row: &SandboxRow, groups: &Cgroups, before: &[&str]) -> Finished {
    for name in ["work", "state", "runtime", "registry"] {
        let _ = fs::remove_dir_all(place.path(name));
        fs::create_dir(place.path(name)).unwrap();
        fs::set_permissions(place.path(name), PermissionsExt::from_mode(0o777)).unwrap();
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    command.args(["sh", "-ec", &format!("{PRELUDE}\n{}", row.sandbox), "sh"]);
    command.args(before).args(row.writer);
    let writer = WRITER.replace("FDATASYNC", &libc::SYS_fdatasync.to_string());
    let writer = writer.replace("OPENAT2", &libc::SYS_openat2.to_string());
    command.args(["perl", "-e", &writer]).arg(place.path("work"));
    for (name, value) in place.command("sh").get_envs() {
        value.map(|value| command.env(name, value));
    }
    command.env("PLACE", place.path("")).env("GROUP", groups.id("sandbox"));
    command.env("NUMBERS", numbers_of_calls());
    command.env("BINARY", binary()).current_dir(place.path(""));
    finish(&mut command)
}

/// Whether the writer has written each of its files.
fn is_written(place: &Place) -> bool {
    (0..5).all(|number| place.read(&format!("work/data{number}")) == "text\n")
}

/// One call was held.
const ONE: [u64; 3] = [1, 0, 0];
/// One call passed.
const PASSED: [u64; 3] = [0, 1, 0];

fn check(expected: ExpectedRun, place: &Place, held: &Finished) {
    let messages = without_fuse_notice(&held.stderr);
    if let ExpectedRun::Refused(words) = expected {
        assert_eq!(held.status.code(), Some(125), "{held:?}");
        assert!(!place.path("work/started").exists(), "the command has started: {held:?}");
        let hint = messages.lines().find(|line| line.starts_with("synconce: hint: "));
        assert!(hint.is_some_and(|hint| hint.contains(words)), "{words}: {held:?}");
        return;
    }
    assert!(held.status.success() && is_written(place), "{held:?}");
    let counts = ["fsync", "fdatasync", "openat", "openat2"].map(|call| counts(place, call));
    let (wanted, notice) = match expected {
        ExpectedRun::Held => ([[2, 0, 0], ONE, ONE, ONE], ""),
        ExpectedRun::HeldButOpens => ([[2, 0, 0], ONE, PASSED, PASSED], ""),
        ExpectedRun::HeldButOpenat2 => ([[2, 0, 0], ONE, ONE, PASSED], ""),
        // The flags of openat2(2) are in memory, which cannot be read.
        ExpectedRun::Unseen => ([[2, 0, 2], [1, 0, 1], PASSED, [0, 0, 0]], ""),
        ExpectedRun::HeldWith(notice) => ([[2, 0, 0], ONE, ONE, ONE], notice),
        ExpectedRun::Refused(_) => unreachable!("it is checked above"),
    };
    assert_eq!(counts, wanted, "{held:?}");
    assert_eq!(stats(place)["outcome"], "committed", "{held:?}");
    assert!(messages.contains(notice), "{held:?}");
    assert_eq!(messages.is_empty(), notice.is_empty(), "{held:?}");
}

fn stats(place: &Place) -> serde_json::Value {
    serde_json::from_str(&place.read("work/stats")).unwrap()
}

/// Returns how many of `call` were held, how many passed, and how many of the held ones had a
/// caller that could not be examined.
fn counts(place: &Place, call: &str) -> [u64; 3] {
    let stats = stats(place);
    ["held", "passed", "unseen"].map(|end| stats["calls"][call][end].as_u64().unwrap_or(0))
}
