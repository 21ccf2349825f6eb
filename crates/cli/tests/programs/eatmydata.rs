//! synconce by the name `eatmydata`, beside Debian's script of that name.

use super::hints::{allow_sudo, as_nobody, give};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use synconce_testkit::harness::{Need, Place, Trace, binary, finish, perl, without_seccomp};
use synconce_testkit::process::Finished;

pub const NEEDS: [Need; 1] = [Need::Program("eatmydata", "eatmydata")];
pub const NEEDS_STRACE: [Need; 1] = [Need::Program("strace", "strace")];
pub const NEEDS_CHROOT: [Need; 1] = [Need::Program("busybox", "busybox-static")];

const SCRIPT: &str = "/usr/bin/eatmydata";
const SYNCS: &str = "echo x >data && sync data";

/// Makes the directory `ours`, which has the name eatmydata and the links `names` to it.
fn offer(place: &Place, names: &[&str]) {
    fs::create_dir_all(place.path("ours")).unwrap();
    symlink(binary(), place.path("ours/eatmydata")).unwrap();
    for name in names {
        symlink("eatmydata", place.path(&format!("ours/{name}"))).unwrap();
    }
}

/// Returns `sh -c LINE` with `directory` before all others in PATH.
fn shell(place: &Place, directory: &str, line: &str) -> Command {
    let mut command = place.command("sh");
    let path = [directory, "tools"].map(|name| place.text(name)).join(":");
    command.env("PATH", format!("{path}:/usr/sbin:/usr/bin:/sbin:/bin")).args(["-c", line]);
    command
}

fn tool(place: &Place, name: &str, mode: u32, text: &str) {
    let path = place.write(name, text);
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Command lines whose exit codes and output are compared.
const LINES: &[&str] = &[
    "eatmydata",
    "eatmydata --",
    "eatmydata ''",
    "eatmydata -- ''",
    "eatmydata true",
    "eatmydata -- false",
    "eatmydata -- sh -c 'exit 77'",
    "eatmydata sh -c 'kill -TERM $$'",
    "eatmydata sh -c 'kill -KILL $$'",
    "eatmydata -- -- true",
    "eatmydata --help",
    "eatmydata -n true",
    "eatmydata no-such-command",
    "eatmydata ./no-such-file",
    "eatmydata /no/such/directory/file",
    "eatmydata ./tools/plain",
    "eatmydata plain",
    "eatmydata directory",
    "eatmydata /tmp",
    "eatmydata no-interpreter",
    "eatmydata ./tools/no-interpreter",
    "eatmydata headerless 'a b' -- --c ''",
    "eatmydata shows 'a b' -- --c ''",
    "eatmydata ./tools/shows '*' \"$0\"",
    "PATH=:$PATH eatmydata here 1",
    "PATH=$PATH: eatmydata here 2",
    "PATH=tools:$PATH eatmydata shows 3",
    "echo input | eatmydata cat",
    "eatmydata cat <&-",
    "cd /tmp && eatmydata pwd",
    "A=1 eatmydata sh -c 'echo $A'",
    "linked",
    "linked --help -- 'a b' ''",
    "\"$D/linked\" x",
    "cd \"$D\" && ./linked x",
    "cd tools && linked x",
    "orphan",
    "ln -s linked $D/again; again x; code=$?; rm $D/again; exit $code",
];

pub fn command_lines_end_as_those_of_the_script_do(place: &Place) {
    offer(place, &["linked", "orphan"]);
    for directory in ["theirs", "tools", "tools/directory"] {
        fs::create_dir(place.path(directory)).unwrap();
    }
    for name in ["linked", "orphan"] {
        symlink(SCRIPT, place.path(&format!("theirs/{name}"))).unwrap();
    }
    tool(place, "tools/plain", 0o644, "echo no right to execute\n");
    tool(place, "tools/no-interpreter", 0o755, "#!/no/such/interpreter\n");
    tool(place, "tools/headerless", 0o755, "echo \"$0|$1|$2|$3|$4|$#\"; exit 9\n");
    for name in ["tools/shows", "tools/linked", "here"] {
        tool(place, name, 0o755, "#!/bin/sh\necho \"$0|$1|$2|$3|$4|$#\"; exit 9\n");
    }
    let run = |directory: &str, line: &str| {
        finish(shell(place, directory, line).env("D", place.path(directory)))
    };
    for line in LINES {
        let (theirs, ours) = (run("theirs", line), run("ours", line));
        assert_eq!(ours.status.code(), theirs.status.code(), "{line}: {ours:?} {theirs:?}");
        assert_eq!(ours.stdout, theirs.stdout, "{line}");
        let speaks = |finished: &Finished| !finished.stderr.is_empty();
        assert_eq!(speaks(&ours), speaks(&theirs), "{line}: {ours:?} {theirs:?}");
    }
    assert!(place.markers().is_empty() && place.run_files().is_empty());
}

pub fn what_a_command_synced_is_committed_at_its_end(place: &Place) {
    offer(place, &["linked"]);
    fs::create_dir(place.path("tools")).unwrap();
    tool(place, "tools/linked", 0o755, &format!("#!/bin/sh\n{SYNCS}\n"));
    for line in [&format!("eatmydata sh -c '{SYNCS}'"), "linked"] {
        let line = format!("strace -f -o trace -e trace=fsync,syncfs,execve {line}");
        let finished = finish(&mut shell(place, "ours", &line));
        assert!(finished.status.success() && finished.stderr.is_empty(), "{line}: {finished:?}");
        let trace = Trace::parse(&place.read("trace"));
        let held = trace.expect(0, &["\"sync\", \"data\""]);
        trace.expect_result(held, &["syncfs("], "= 0");
        assert!(place.markers().is_empty());
    }
}

pub fn inside_a_run_the_outer_run_holds(place: &Place) {
    offer(place, &[]);
    let line = format!("eatmydata eatmydata sh -c '{SYNCS}'");
    let mut nested = shell(place, "ours", &format!("{} run -- {line}", binary()));
    let finished = finish(&mut nested);
    assert!(finished.status.success() && finished.stderr.is_empty(), "{finished:?}");
    // Without a run around it, the second one is inside the run of the first.
    let finished = finish(&mut shell(place, "ours", &line));
    assert!(finished.status.success() && finished.stderr.is_empty(), "{finished:?}");
}

/// Returns a script that prints whether its process has the attribute of a subreaper (prctl(2)).
fn prints_subreaper() -> String {
    format!(
        "my $is = pack('i', 9); syscall({}, 37, $is, 0, 0, 0); print unpack('i', $is), \"\\n\"; ",
        libc::SYS_prctl
    )
}

pub fn a_command_runs_where_nothing_can_be_held(place: &Place) {
    offer(place, &[]);
    let notice = "synconce: the command runs with real syncs: ";
    // The mask and the dispositions of signals are those that were inherited.
    let shows = "grep -E '^(SigBlk|SigIgn|SigCgt)' /proc/self/status; exit 7";
    let bare = place.bare(&["sh", "-c", shows]);
    let ours = place.text("ours/eatmydata");
    let seccomp = without_seccomp(libc::EPERM);
    let words: Vec<_> = seccomp.iter().map(String::as_str).collect();
    let finished = place.bare(&[&words[..], &[&ours, "sh", "-c", shows]].concat());
    assert_eq!(finished.status.code(), Some(7), "{finished:?}");
    assert_eq!(finished.stdout, bare.stdout);
    assert!(finished.stderr.starts_with(notice), "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");

    let mut unwritable = place.command(&ours);
    unwritable.env("SYNCONCE_STATE_DIR", "/proc/none").args(["sh", "-c", "exit 7"]);
    let finished = finish(&mut unwritable);
    assert_eq!(finished.status.code(), Some(7), "{finished:?}");
    assert!(finished.stderr.starts_with(notice), "{finished:?}");

    // The attribute of a subreaper would outlive the execve(2).
    let mut reaper = place.command(&ours);
    let [perl, dash_e, script] = perl(&prints_subreaper());
    reaper.env("SYNCONCE_STATE_DIR", "/proc/none").args([perl, dash_e, script]);
    assert_eq!(finish(&mut reaper).stdout, "0\n");
}

/// Returns `strace INJECT ours/eatmydata WORDS`, which traces the first process alone.
fn injected(place: &Place, inject: &str, words: &[&str]) -> Command {
    let mut command = place.command("strace");
    command.args(["-qq", "-o", "trace", "-e", inject, &place.text("ours/eatmydata")]).args(words);
    command
}

pub fn a_failed_fork_leaves_the_command_its_signals_and_orphans(place: &Place) {
    offer(place, &[]);
    let shows = "open(my $status, '<', '/proc/self/status'); print grep(/^SigBlk/, <$status>);";
    let shows = perl(&format!("{}{shows}", prints_subreaper()));
    let shows = shows.each_ref().map(String::as_str);
    let fails = "inject=clone:error=EAGAIN:when=1";
    let bare = place.bare(&shows);
    assert!(bare.stdout.starts_with("0\nSigBlk:"), "{bare:?}");
    let failed = finish(&mut injected(place, fails, &shows));
    assert!(failed.stderr.contains("the command runs with real syncs"), "{failed:?}");
    assert_eq!(failed.stdout, bare.stdout);

    // A caller may have made the process a subreaper before execve(2).
    let becomes = format!("syscall({}, 36, 1, 0, 0, 0); exec @ARGV;", libc::SYS_prctl);
    let [perl, dash_e, becomes] = perl(&becomes);
    let becomes = [perl.as_str(), &dash_e, &becomes];
    let ours = place.text("ours/eatmydata");
    let bare = place.bare(&[&becomes[..], &shows].concat());
    assert!(bare.stdout.starts_with("1\n"), "{bare:?}");
    let mut failed = place.command(becomes[0]);
    failed.env("SYNCONCE_STATE_DIR", "/proc/none").args(&becomes[1..]).arg(ours).args(shows);
    assert_eq!(finish(&mut failed).stdout, bare.stdout);
}

pub fn two_installations_do_not_call_each_other(place: &Place) {
    offer(place, &["whoami"]);
    for directory in ["theirs", "copy", "tools"] {
        fs::create_dir(place.path(directory)).unwrap();
    }
    symlink(SCRIPT, place.path("theirs/whoami")).unwrap();
    fs::copy(binary(), place.path("copy/eatmydata")).unwrap();
    symlink("eatmydata", place.path("copy/whoami")).unwrap();
    for (first, second) in [("theirs", "ours"), ("ours", "theirs"), ("copy", "ours")] {
        let line = format!("PATH=$D/{first}:$D/{second}:$PATH exec timeout 60 whoami");
        let finished = finish(shell(place, "none", &line).env("D", place.path("")));
        assert_eq!(finished.stdout, "root\n", "{first}, {second}: {finished:?}");
    }
}

pub fn a_signal_during_a_failing_set_up_is_for_the_command(place: &Place) {
    offer(place, &[]);
    let mut command = injected(place, "inject=ppoll:signal=TERM:when=1", &["echo", "runs"]);
    let finished = finish(command.env("SYNCONCE_STATE_DIR", "/proc/none"));
    assert_eq!(finished.status.signal(), Some(libc::SIGTERM), "{finished:?}");
    assert_eq!(finished.stdout, "");
}

pub fn a_command_that_may_have_started_is_not_started_again(place: &Place) {
    offer(place, &[]);
    let inject = "inject=ppoll:error=ENOMEM:when=2";
    let finished = finish(&mut injected(place, inject, &["sh", "-c", "echo once >>ran;"]));
    assert_eq!(finished.status.code(), Some(125), "{finished:?}");
    let says = "synconce: cannot wait for the command: Cannot allocate memory\n";
    assert!(finished.stderr.starts_with(says), "{finished:?}");
    assert!(!place.path("ran").exists() || place.read("ran") == "once\n");
}

/// Makes a chroot that has busybox, and this program as `/bin/eatmydata` with the link
/// `/bin/sync` to it.
fn chroot(place: &Place) {
    fs::create_dir_all(place.path("root/bin")).unwrap();
    fs::create_dir_all(place.path("root/usr/bin")).unwrap();
    fs::create_dir_all(place.path("root/proc")).unwrap();
    fs::copy("/bin/busybox", place.path("root/usr/bin/busybox")).unwrap();
    fs::copy(binary(), place.path("root/bin/eatmydata")).unwrap();
    symlink("/bin/eatmydata", place.path("root/bin/sync")).unwrap();
    symlink("busybox", place.path("root/usr/bin/sync")).unwrap();
}

pub fn a_link_does_not_find_itself_in_a_chroot(place: &Place) {
    chroot(place);
    let enter = |before: &[&str], words: &[&str]| {
        let root = place.text("root");
        let words = [before, &["chroot", &root], words].concat();
        let mut command = place.command(words[0]);
        for name in ["STATE", "RUNTIME", "REGISTRY"] {
            command.env_remove(format!("SYNCONCE_{name}_DIR"));
        }
        finish(command.env("PATH", "/bin:/usr/bin:/usr/sbin:/sbin").args(&words[1..]))
    };
    for words in [&["sync"][..], &["eatmydata", "busybox", "sync"]] {
        // Without /proc nothing can be held.
        let bare = enter(&[], words);
        assert!(bare.status.success(), "{bare:?}");
        assert!(bare.stderr.contains("the command runs with real syncs"), "{bare:?}");
        // What is around the chroot holds for it.
        let inside = enter(&[binary(), "run", "--no-commit", "--"], words);
        assert!(inside.status.success() && inside.stderr.is_empty(), "{inside:?}");
        let mounted = "mount -t proc proc \"$0/proc\" && exec chroot \"$0\" \"$@\"";
        let root = place.text("root");
        let mount = ["unshare", "--mount", "sh", "-c", mounted, &root];
        let mut held = place.command(mount[0]);
        held.env_remove("SYNCONCE_STATE_DIR").env_remove("SYNCONCE_RUNTIME_DIR");
        held.env("PATH", "/bin:/usr/bin:/usr/sbin:/sbin").args(&mount[1..]).args(words);
        let held = finish(held.env_remove("SYNCONCE_REGISTRY_DIR"));
        assert!(held.status.success() && held.stderr.is_empty(), "{held:?}");
        assert!(place.path("root/var/lib/synconce/runs").exists());
    }
}

pub fn a_user_calls_sudo_by_it(place: &Place) {
    offer(place, &[]);
    give(place);
    allow_sudo(place);
    // Without such a program the user's syncs are held.
    let held = as_nobody(place, &[&place.text("ours/eatmydata"), "sh", "-c", SYNCS]);
    assert!(held.status.success() && held.stderr.is_empty(), "{held:?}");
    let called = as_nobody(place, &[&place.text("ours/eatmydata"), "sudo", "-n", "id", "-un"]);
    assert_eq!(called.stdout, "root\n", "{called:?}");
    let hint = called.stderr.lines().find_map(|line| line.strip_prefix("synconce: hint: "));
    let hint = hint.unwrap_or_else(|| panic!("no hint: {called:?}"));
    assert!(hint.contains(" run -- id -un"), "{called:?}");
    let works = as_nobody(place, &["sh", "-c", hint]);
    assert_eq!(works.stdout, "root\n", "{works:?}");
}

pub fn a_preloaded_library_that_drops_syncs_is_named(place: &Place) {
    offer(place, &[]);
    let lines = |preload: &str| {
        let mut command = place.command(&place.text("ours/eatmydata"));
        let by_name = finish(command.env("LD_PRELOAD", preload).arg("true")).stderr;
        let by_run = finish(place.held(&[], &["true"]).env("LD_PRELOAD", preload)).stderr;
        assert_eq!(by_name, by_run);
        by_name
    };
    let one = lines("libeatmydata.so");
    assert!(one.starts_with("synconce: LD_PRELOAD has libeatmydata.so, which drops syncs"));
    assert!(one.ends_with("synconce: hint: unset LD_PRELOAD\n"), "{one}");
    let among = lines("libm.so.6:libeatmydata.so");
    assert!(among.ends_with("synconce: hint: export LD_PRELOAD=libm.so.6\n"), "{among}");
    assert_eq!(lines("libm.so.6"), "");
    fs::create_dir(place.path("etc")).unwrap();
    let script = "mount -t tmpfs tmpfs etc; cp /etc/ld.so.cache etc; mount --move etc /etc
        echo '/no/libeatmydata.so # libnosync' >/etc/ld.so.preload; exec \"$@\"";
    let mut command = place.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh", binary()]);
    let file = finish(command.args(["run", "--", "true"])).stderr;
    assert!(
        file.contains("synconce: /etc/ld.so.preload has /no/libeatmydata.so, which drops syncs"),
        "{file}"
    );
    let hint = "synconce: hint: sed -i 's,[^:[:space:]]*libeatmydata[^:[:space:]]*,,g' \
                /etc/ld.so.preload\n";
    assert!(file.contains(hint), "{file}");
}
