//! `synconce status --mend ID`

use super::{id, markers, names, others, target};
use crate::arguments::StatusArguments;
use crate::commands::advice::{MendStep, after_steps, command, steps};
use crate::commands::error::CommandError;
use crate::commands::output::{Stream, print};
use crate::commands::signal_forwarder::SignalForwarder;
use crate::commands::tree::environment::{DIRECTORIES, with_all_paths};
use crate::exit;
use crate::text::{printable, say, shell};
use rustix::process::{FlockType, Pid, fcntl_getlk};
use std::collections::HashSet;
use std::env;
use std::fmt::Display;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use synconce_durable::record::{Private, RunRecord};
use synconce_durable::recovery::{FoundMarker, MarkerState};
use synconce_durable::state_file;
use synconce_run::processes_of;
use synconce_sys::procfs::process_name;
use synconce_sys::reason;

/// What shows the runs.
const STATUS: &str = "synconce status";

/// Runs the commands that install every package again, or prints them.
pub(super) fn mend(arguments: &StatusArguments, typed: &str) -> Result<ExitCode, CommandError> {
    let root = arguments.root.as_deref();
    let found = find(typed, root)?;
    let id = &found.id;
    let (record, private) = parts(&found)?;
    let again = command("--mend", id, root);
    let system = system(root, &found, private, &again)?;
    let steps = steps(record, private, system.as_deref());
    let steps = steps.map_err(|reason| refusal(format!("cannot mend {id}: {reason}"), STATUS))?;
    if arguments.dry_run {
        let text: String = steps.iter().map(|step| step.command.clone() + "\n").collect();
        print(text)?;
        return Ok(ExitCode::SUCCESS);
    }
    refuse_running(&found)?;
    if !rustix::process::geteuid().is_root() {
        // A failure of the inner command would be lost in the arguments of sudo.
        let hint = format!("commands=$({again} --dry-run) && sudo sh -exc \"$commands\"");
        return Err(refusal(format!("cannot mend {id}: only root can install packages"), hint));
    }
    let forwarder = SignalForwarder::new();
    let forwarder =
        forwarder.map_err(|error| format!("cannot handle signals: {}", reason(&error)))?;
    for step in &steps {
        refuse_locked(id, system.as_deref(), &again)?;
        // A closed standard error is not a failure.
        let _ = Stream::Errors.print(format!("+ {}\n", step.command));
        let ended = run(step, system.as_deref(), &forwarder)?;
        if !ended.success() {
            let how = match (ended.code(), ended.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, signal) => format!("signal {}", signal.unwrap_or_default()),
            };
            say(&format!("cannot {}: {how}", step.act));
            say(&match step.remedy {
                Some(remedy) => format!("hint: {remedy}; then: synconce status"),
                None => format!("hint: remove the cause; then: {again}"),
            });
            return Ok(exit::of_command(ended));
        }
    }
    let lines = after_steps(record, private, id, root);
    let text: String = lines.iter().map(|line| printable(line) + "\n").collect();
    print(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the user's own interrupted run whose ID is `typed` or begins with it. The commands are
/// made from the record, so the record of another user is not taken, nor one in `root` alone.
fn find(typed: &str, root: Option<&Path>) -> Result<FoundMarker, CommandError> {
    let own = markers()?;
    let marked = root.map(target::markers).transpose()?.unwrap_or_default();
    let ids = own.iter().chain(&marked).map(|found| found.id.clone()).collect();
    let id = id::only(typed, &ids)?;
    // sudo may keep the variable that names the state directory of its caller.
    let user = rustix::process::geteuid().as_raw();
    let mut own = own.into_iter().filter(|found| found.owner == user);
    let found = own
        .find(|found| found.id == id)
        .ok_or_else(|| unknown(&id, root.filter(|_| marked.iter().any(|found| found.id == id))))?;
    match found.state {
        MarkerState::Interrupted => Ok(found),
        MarkerState::InFlight => Err(format!("the run {id} is in flight, not interrupted").into()),
    }
}

/// Returns why the run `id` is not mended. `marked` is the target of `--root` if it has a marker of
/// that name.
fn unknown(id: &str, marked: Option<&Path>) -> CommandError {
    let mut known = others::of_every_user().into_iter().chain(others::of_root());
    if let Some(root) = marked.filter(|_| known.all(|found| found.id != id)) {
        let root = shell(&[root.to_string_lossy().into_owned()]);
        let error =
            format!("cannot mend {id}: only {root} has its marker, which anyone may have written");
        return refusal(
            error,
            format!("make the system in {root} anew; then: {STATUS} --root {root} --clear {id}"),
        );
    }
    refusal(format!("cannot mend {id}: you have no interrupted run of this ID"), STATUS)
}

fn parts(found: &FoundMarker) -> Result<(&RunRecord, &Private), CommandError> {
    let record = found.record.as_ref();
    record
        .and_then(|record| Some((record, record.private.as_ref()?)))
        .ok_or_else(|| refusal(format!("cannot mend {}: its marker is damaged", found.id), STATUS))
}

/// Returns the root of the system to mend: the target of `--root`, or that of the run. After a boot
/// the disk of the run may be mounted elsewhere, and another disk in its place. The marker there
/// proves that the disk is the run's.
fn system(
    root: Option<&Path>,
    found: &FoundMarker,
    private: &Private,
    again: &str,
) -> Result<Option<PathBuf>, CommandError> {
    let Some(root) = root.or_else(|| private.target()) else { return Ok(None) };
    let marked = target::markers(root)?;
    if !marked.iter().any(|marked| marked.run() == found.run()) {
        let shown = shell(&[root.to_string_lossy().into_owned()]);
        let error = format!("cannot mend {shown}: it has no marker of the run {}", found.id);
        return Err(refusal(error, format!("mount the disk of the run there; then: {again}")));
    }
    Ok(Some(root.to_owned()))
}

fn refuse_running(found: &FoundMarker) -> Result<(), CommandError> {
    let left = processes_of(&HashSet::from([found.run()]));
    let Some(left) = left.into_values().find(|left| !left.is_empty()) else { return Ok(()) };
    let pids: Vec<_> = left.iter().map(|process| process.pid.to_string()).collect();
    let error = format!("cannot mend {}: its processes still run: {}", found.id, names(&left));
    Err(refusal(error, format!("wait for them, or end them: kill {}", pids.join(" "))))
}

/// Refuses if another process has one of the locks of apt and dpkg. The commands that remove their
/// files take no lock. Only root can look at the locks.
fn refuse_locked(id: &str, root: Option<&Path>, again: &str) -> Result<(), CommandError> {
    const LOCKS: [&str; 4] = [
        "lib/dpkg/lock-frontend",
        "lib/dpkg/lock",
        "lib/apt/lists/lock",
        "cache/apt/archives/lock",
    ];
    let directory = root.unwrap_or(Path::new("/")).join("var");
    let locked = |name: &str| {
        // The author of the system may have put a FIFO or a device there.
        let file = state_file::open(&directory.join(name)).ok()?;
        fcntl_getlk(&file, &FlockType::WriteLock.into()).ok()?
    };
    let Some(lock) = LOCKS.into_iter().find_map(locked) else {
        return Ok(());
    };
    let holder = lock_holder(Pid::as_raw(lock.pid));
    let error = format!("cannot mend {id}: apt or dpkg is locked by {holder}");
    Err(refusal(error, format!("wait until it has ended; then: {again}")))
}

/// Returns words for the process with a lock. `pid` is 0 for a process of another pid namespace,
/// and -1 for a lock of an open file description (fcntl(2), F_GETLK).
fn lock_holder(pid: i32) -> String {
    let name = u32::try_from(pid).ok().and_then(|pid| process_name(pid).ok());
    name.map_or_else(|| "another process".to_owned(), |name| format!("{name} (pid {pid})"))
}

/// Runs `step`, of the system in `root`, in a shell with the terminal of synconce. dpkg needs the
/// programs of root, whose directories cron and su(1) leave out of PATH.
fn run(
    step: &MendStep,
    root: Option<&Path>,
    forwarder: &SignalForwarder,
) -> Result<ExitStatus, CommandError> {
    let mut shell = Command::new("sh");
    shell.env("PATH", with_all_paths(&env::var_os("PATH").unwrap_or_default()));
    if root.is_some() {
        for name in DIRECTORIES {
            shell.env_remove(name);
        }
    }
    let child = shell.args(["-ec", &step.command]).spawn();
    let ended = child.and_then(|mut child| {
        forwarder.pass_on_to(&child)?;
        child.wait()
    });
    ended.map_err(|error| format!("cannot {}: {}", step.act, reason(&error)).into())
}

fn refusal(error: String, hint: impl Display) -> CommandError {
    CommandError::from(error).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_named_if_it_is_a_process_that_can_be_seen() {
        assert_eq!([0, -1].map(lock_holder), ["another process"; 2]);
        assert!(lock_holder(1).ends_with(" (pid 1)"), "{}", lock_holder(1));
    }
}
