//! A journal of ext4 that a commit of the kernel's own timer aborts, after a change that the run
//! has synced. Neither syncfs(2) nor fsync(2) reports the abort.

use super::errors::assert_unsafe;
use super::other_users::ALICE;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_durable::replace;
use synconce_testkit::harness::{
    Place, StartedCommand, before_stall, binary, eventually, finish, isolated, perl,
};
use synconce_testkit::rig::{Fault, Rig};

/// Makes and syncs the directory that is named.
const MAKE: &str = "use IO::Handle; mkdir $ARGV[0] or die $!; \
    sysopen(my $made, $ARGV[0], 0) or die $!; $made->sync or die $!";

fn rig() -> Rig {
    let rig = Rig::builder().size(64 << 20).passthrough(false).mount_options("commit=1");
    rig.up().unwrap()
}

/// Returns a command that makes and syncs a directory in `directory` once the disk fails, and then
/// does what `then` says.
fn making(directory: &Path, then: &str) -> [String; 3] {
    perl(&format!(
        "sysopen(my $place, '{0}', 0) or die $!; IO::Handle::sync($place) or die $!; \
         say_to('pinned', 1); wait_for('failing'); mkdir '{0}/made' or die $!; \
         IO::Handle::sync($place) or die $!; close $place; say_to('before', 1); wait_for('go'); \
         {then}",
        directory.display()
    ))
}

/// Starts `command`, whose command was returned by [`making`], and aborts the journal of `rig`.
fn abort(place: &Place, rig: &Rig, mut command: Command) -> StartedCommand {
    let run = StartedCommand::new(&mut command);
    place.wait_for("pinned");
    let change = || {
        place.write("failing", "");
        place.wait_for("before");
    };
    rig.abort_journal(change).unwrap();
    run
}

fn end(place: &Place, run: &StartedCommand) -> (Option<i32>, String) {
    place.write("go", "");
    let code = run.end().code();
    ["pinned", "failing", "before", "go"].iter().for_each(|name| place.remove(name));
    (code, run.text())
}

fn held(place: &Place, options: &[&str], words: &[String; 3]) -> Command {
    place.held(options, words)
}

#[test]
fn a_journal_that_its_own_timer_aborted_fails_the_commit() {
    isolated(|place| {
        for options in [&[][..], &["--sealed"]] {
            let rig = rig();
            let run = abort(place, &rig, held(place, options, &making(rig.path(), "")));
            assert_unsafe(place, &rig, end(place, &run));
        }
    });
}

#[test]
fn a_journal_that_its_own_timer_aborted_fails_a_commit_in_the_middle() {
    isolated(|place| {
        let rig = rig();
        let run = abort(place, &rig, held(place, &[], &making(rig.path(), "")));
        let asked = finish(&mut place.synconce(&["commit"]));
        assert_eq!(asked.status.code(), Some(125), "{asked:?}");
        assert_unsafe(place, &rig, end(place, &run));
    });
}

#[test]
fn a_journal_that_its_own_timer_aborted_fails_a_run_that_ends_its_mount_or_makes_it_read_only() {
    isolated(|place| {
        for words in ["'umount'", "'mount', '-o', 'remount,ro'"] {
            let rig = rig();
            let then = format!("exec {words}, '{}';", rig.path().display());
            let run = abort(place, &rig, held(place, &[], &making(rig.path(), &then)));
            assert_unsafe(place, &rig, end(place, &run));
        }
    });
}

#[test]
fn a_journal_that_its_own_timer_aborted_below_an_overlay_out_of_sight_fails_the_commit() {
    isolated(|place| {
        let rig = rig();
        let (disk, merged) = (rig.path().display().to_string(), place.text("merged"));
        let script = "mkdir -p $1 $0/lower $0/upper $0/work; mount -t overlay overlay -o \
            lowerdir=$0/lower,upperdir=$0/upper,workdir=$0/work $1";
        assert!(place.bare(&["sh", "-ec", script, &disk, &merged]).status.success());
        // The test itself goes on to see the disk.
        let mut hide = place.command("unshare");
        let hidden = "umount --lazy $0; exec \"$@\"";
        hide.args(["--mount", "--propagation", "private", "sh", "-ec", hidden, &disk]);
        hide.arg(binary()).args(["run", "--"]).args(making(Path::new(&merged), ""));
        let run = abort(place, &rig, hide);
        let (code, text) = end(place, &run);
        assert_eq!(code, Some(125), "{text}");
        assert!(text.contains(&format!("not durable: {merged} (overlay")), "{text}");
        assert!(place.bare(&["umount", &merged]).status.success());
    });
}

/// The user may not write the directory of the mount. The file that was synced first shows the
/// stop, or the working directory, also if the user may not write `HOME` on the same disk.
#[test]
fn a_journal_that_its_own_timer_aborted_fails_the_commit_of_a_user_without_the_mount() {
    isolated(|place| {
        for works_there in [false, true] {
            let rig = rig();
            let mine = rig.path().join("of-alice/project");
            fs::create_dir_all(&mine).unwrap();
            chown(&mine, Some(ALICE), Some(ALICE)).unwrap();
            let home = if works_there { rig.path().join("of-alice") } else { place.path(".") };
            let all = fs::Permissions::from_mode(0o1777);
            fs::set_permissions(place.path("."), all.clone()).unwrap();
            for name in ["state", "runtime", "registry"] {
                fs::create_dir_all(place.path(name)).unwrap();
                fs::set_permissions(place.path(name), all.clone()).unwrap();
            }
            let words = making(&mine, "");
            let from: PathBuf = if works_there { mine } else { place.path(".") };
            let mut run = place.command("setpriv");
            let user = ALICE.to_string();
            run.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
            // The command waits in the directory of the test.
            run.args(["env", "--chdir"]).arg(&from).args([binary(), "run", "--", "env"]);
            run.arg("--chdir").arg(place.path(".")).args(words).env("HOME", &home);
            let run = abort(place, &rig, run);
            let (code, text) = end(place, &run);
            let named = format!("synconce: not durable: {} (ext4", rig.path().display());
            assert!(code == Some(125) && text.contains(&named), "{works_there}: {code:?}, {text}");
        }
    });
}

/// The remount is read-only before it has removed the mark that the journal has to be replayed. The
/// run has synced the disk, and then looks amid the remount.
#[test]
fn a_remount_that_goes_on_while_the_run_commits_fails_no_run() {
    isolated(|place| {
        let _lock = before_stall();
        let rig = Rig::builder().size(64 << 20).passthrough(false).up().unwrap();
        let mut strace = place.command("strace");
        let delay = "inject=syncfs:delay_exit=2000000:when=1";
        strace.args(["-f", "-o", "trace", "-e", "trace=syncfs", "-e", delay]);
        strace.args([binary(), "run", "--", "perl", "-e", MAKE]).arg(rig.path().join("made"));
        let run = StartedCommand::new(&mut strace);
        let trace = || fs::read_to_string(place.path("trace")).unwrap_or_default();
        eventually("the disk is synced", || trace().contains("= 0"));
        rig.disk().fail(Fault::writes().hanging()).unwrap();
        let mut remount = Command::new("mount");
        let mut remount = remount.args(["-o", "remount,ro"]).arg(rig.path()).spawn().unwrap();
        // The first two calls are a probe and the sync. strace notes a call before it delays it.
        let has_looked = || trace().matches("syncfs(").count() > 2;
        let is_over = || run.wait(Duration::ZERO).unwrap().is_some();
        eventually("the run has looked", || has_looked() || is_over());
        rig.disk().recover().unwrap();
        assert!(remount.wait().unwrap().success());
        assert_eq!(run.end().code(), Some(0), "{}", run.text());
    });
}

#[test]
fn a_remount_between_the_sync_and_the_look_fails_no_run() {
    isolated(|place| {
        let _lock = before_stall();
        // A busy machine may remount too late.
        assert!((0..5).any(|_| is_remounted_before_the_look(place)));
    });
}

/// Remounts a disk read-only when a run is about to look at the journal. Returns whether the
/// remount was over before the look.
fn is_remounted_before_the_look(place: &Place) -> bool {
    let rig = Rig::builder().size(64 << 20).passthrough(false).up().unwrap();
    let mut strace = place.command("strace");
    let delay = "inject=fremovexattr:delay_enter=2000000";
    strace.args(["-f", "-o", "trace", "-e", "trace=fremovexattr", "-e", delay, "-P"]);
    strace.arg(rig.path());
    strace.args([binary(), "run", "--", "perl", "-e", MAKE]).arg(rig.path().join("made"));
    let run = StartedCommand::new(&mut strace);
    // strace notes a call before it delays it.
    let trace = || fs::read_to_string(place.path("trace")).unwrap_or_default();
    eventually("the run looks", || trace().contains("fremovexattr("));
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(rig.path()).status();
    assert!(remount.unwrap().success());
    assert_eq!(run.end().code(), Some(0), "{}", run.text());
    let is_before = trace().contains("EROFS");
    place.remove("trace");
    is_before
}

/// `setup` renames a file, or lets dpkg-divert do it, and syncs the directory.
#[test]
fn a_journal_that_its_own_timer_aborted_fails_the_sync_of_a_directory() {
    isolated(|_| {
        let rig = rig();
        let [old, new] = ["old", "new"].map(|name| rig.path().join(name));
        fs::write(&old, "").unwrap();
        rig.abort_journal(|| fs::rename(&old, &new).unwrap()).unwrap();
        let error = replace::sync_directory_of(&new).unwrap_err();
        assert!(error.to_string().starts_with("cannot sync the directory of "), "{error}");
    });
}
