//! Holds whose steps no power cut shows, or few: lost writes, kills, and directories of root beside
//! the held files.

mod beside;
mod losses;

use super::fixture::{HoldFixture, NAME, failed};
use super::judge::{misplaced, put_back};
use crate::Result;
use crate::campaign::{BrokenPromise, Findings};
use crate::config::{DiskKind, MarkerPlace};
use crate::recording::without_sync;
use crate::tool::Tool;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_testkit::patiently;
use synconce_testkit::process::{Finished, run};
use synconce_testkit::rig::Rig;

const SIZE: u64 = 64 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// What happens to a hold, and the mutant that it catches.
struct FaultScenario {
    mutant: &'static str,
    /// Returns the promise that was broken.
    run: fn(&HoldFixture, &Rig) -> Result<Option<BrokenPromise>>,
}

const SCENARIOS: [FaultScenario; 20] = [
    FaultScenario { mutant: "hold-stop-synced-late", run: losses::at_a_later_sync },
    FaultScenario { mutant: "hold-failure-in-memory", run: losses::with_a_full_state_disk },
    FaultScenario { mutant: "hold-marks-removed-first", run: losses::at_the_last_sync },
    FaultScenario { mutant: "hold-loss-unmarked", run: losses::with_its_marker },
    FaultScenario { mutant: "hold-loss-unjournaled", run: losses::before_a_restore },
    FaultScenario { mutant: "hold-loss-noted-late", run: losses::at_the_first_of_two_disks },
    FaultScenario { mutant: "hold-marker-losses-unread", run: losses::between_two_wipes },
    FaultScenario { mutant: "hold-wipe-unsynced", run: losses::before_a_wipe },
    FaultScenario { mutant: "hold-wipe-marks-first", run: wiped_without_the_marker },
    FaultScenario { mutant: "hold-boot-of-container", run: killed_with_its_boot_id },
    FaultScenario { mutant: "hold-others-set-aside", run: beside::recovered },
    FaultScenario { mutant: "hold-foreign-removed", run: beside::started },
    FaultScenario { mutant: "hold-settle-by-name", run: beside::settled },
    FaultScenario { mutant: "hold-mark-unsynced", run: cut_without_the_marker },
    FaultScenario { mutant: "hold-note-unwritten", run: killed_without_the_marker },
    FaultScenario { mutant: "hold-unguarded", run: locked_below_the_hold },
    FaultScenario { mutant: "hold-looked-once", run: beside::opened },
    FaultScenario { mutant: "hold-recover-marker-first", run: killed_before_the_journal },
    FaultScenario { mutant: "hold-recover-journal-late", run: killed_between_renames },
    FaultScenario { mutant: "hold-restore-journal-late", run: killed_while_restoring },
];

/// Runs all scenarios. For a mutant, runs only the scenario that has to catch it.
pub(super) fn all(tool: &Tool) -> Result<Findings> {
    let began = Instant::now();
    let mut findings = Findings::default();
    for FaultScenario { mutant: own, run } in SCENARIOS {
        if matches!(tool, Tool::Mutant { mutant, .. } if *mutant != own) {
            continue;
        }
        let _shared = without_sync();
        let fixture = HoldFixture::new(tool, MarkerPlace::Other)?;
        let rig = DiskKind::Ext4
            .rig(SIZE)
            .mount_options("commit=300")
            .passthrough(false)
            .at(fixture.disk())
            .up()?;
        mount("state", fixture.other(), "tmpfs", MountFlags::empty(), Some(c"size=64k"))?;
        fixture.make_directories()?;
        let fault = run(&fixture, &rig).map_err(|error| format!("{own}: {error}"));
        fixture.release()?;
        unmount(fixture.other(), UnmountFlags::DETACH)?;
        rig.down()?;
        findings.cuts += 1;
        if let Some((kind, detail)) = fault? {
            findings.note(kind, || format!("{own}: {detail}"));
        }
    }
    findings.millis = began.elapsed().as_millis() as u64;
    Ok(findings)
}

/// Kills `verb` at its call number `when` of `call`.
fn kill_at(fixture: &HoldFixture, verb: &str, call: &str, when: usize) -> Result<()> {
    let inject = format!("inject={call}:signal=SIGKILL:when={when}");
    expect_killed(verb, &traced(fixture, verb, call, &inject)?)
}

/// Kills `verb` at its first call of `call` on `path`.
fn kill_on(fixture: &HoldFixture, verb: &str, call: &str, path: &str) -> Result<()> {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=SIGKILL"));
    let words = ["strace", "-f", "-o", "/dev/null", "-P", path, "-e", &trace, "-e", &inject];
    expect_killed(verb, &run_by(fixture, &words, verb)?)
}

fn expect_killed(verb: &str, ended: &Finished) -> Result<()> {
    if ended.status.signal() == Some(Signal::KILL.as_raw()) {
        Ok(())
    } else {
        Err(format!("{} was not killed", failed(verb, ended)).into())
    }
}

/// Runs `verb`, whose calls of `call` a tracer changes as `inject` says.
fn traced(fixture: &HoldFixture, verb: &str, call: &str, inject: &str) -> Result<Finished> {
    let trace = format!("trace={call}");
    run_by(fixture, &["strace", "-f", "-o", "/dev/null", "-e", &trace, "-e", inject], verb)
}

/// Runs `verb` by another program, whose command line begins with `words`.
fn run_by(fixture: &HoldFixture, words: &[&str], verb: &str) -> Result<Finished> {
    Ok(run(&mut command_by(fixture, words, verb), patiently(LIMIT))?)
}

fn command_by(fixture: &HoldFixture, words: &[&str], verb: &str) -> Command {
    let verb = fixture.command(verb);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(verb.get_program()).args(verb.get_args());
    command.envs(verb.get_envs().filter_map(|(name, it)| Some((name, it?))));
    command
}

/// Lets a start, which has to be refused, find no marker.
fn start_anew(fixture: &HoldFixture) -> Result<Option<BrokenPromise>> {
    forget_the_marker(fixture)?;
    let started = fixture.verb("start")?;
    if started.status.success() {
        Ok(Some(("forgotten", "a start succeeds after a hold that was cut short".to_owned())))
    } else if started.stderr.contains("its marker is lost") {
        Ok(None)
    } else {
        Err(failed("start", &started).into())
    }
}

/// Removes everything beside the disk, as a container that is made anew does.
fn forget_the_marker(fixture: &HoldFixture) -> Result<()> {
    fixture.boot()?;
    fs::remove_dir_all(fixture.state())?;
    Ok(fs::create_dir(fixture.state())?)
}

fn cut_without_the_marker(fixture: &HoldFixture, rig: &Rig) -> Result<Option<BrokenPromise>> {
    fixture.must("start")?;
    // What is not durable now is lost, as in a power cut.
    rig.disk().fail_writes(true)?;
    fixture.release()?;
    rig.unmount()?;
    rig.disk().fail_writes(false)?;
    rig.mount()?;
    start_anew(fixture)
}

/// A wipe is killed before its first rename, and its marker is lost.
fn wiped_without_the_marker(fixture: &HoldFixture, rig: &Rig) -> Result<Option<BrokenPromise>> {
    fixture.must("start")?;
    fixture.release()?;
    rig.unmount()?;
    rig.mount()?;
    // At the rename that makes the journal.
    kill_at(fixture, "recover", "renameat2", 1)?;
    start_anew(fixture)
}

/// A container with a boot id of its own ends, and the next container has another id. No write is
/// lost, so nothing may be set aside.
fn killed_with_its_boot_id(fixture: &HoldFixture, _: &Rig) -> Result<Option<BrokenPromise>> {
    fixture.must("start")?;
    fs::write(fixture.data().join("jobs/data"), "old")?;
    fixture.release()?;
    let before = fixture.content()?;
    let cover = "cd /proc/sys/kernel/random; mount --bind uuid boot_id; exec \"$@\"";
    let recovered = run_by(fixture, &["unshare", "--mount", "sh", "-ec", cover, "sh"], "recover")?;
    let is_whole = fixture.content()? == before;
    Ok((!is_whole).then(|| ("false alarm", failed("recover", &recovered))))
}

/// The processes and mounts of a container end, and its marker is lost, while the disk stays
/// mounted: nothing is lost, so a start has to succeed.
fn killed_without_the_marker(fixture: &HoldFixture, _: &Rig) -> Result<Option<BrokenPromise>> {
    fixture.must("start")?;
    fixture.release()?;
    forget_the_marker(fixture)?;
    for verb in ["start", "stop"] {
        let finished = fixture.verb(verb)?;
        if !finished.status.success() {
            return Ok(Some(("false alarm", failed(verb, &finished))));
        }
    }
    Ok(None)
}

/// No process may lock a database without the hold: neither after a start, nor after a start that
/// finds a guard killed.
fn locked_below_the_hold(fixture: &HoldFixture, _: &Rig) -> Result<Option<BrokenPromise>> {
    for _turn in 0..2 {
        fixture.must("start")?;
        let below = fixture.data().join(".synconce-hold/meta.db/upper/meta.db");
        match flock(fs::File::open(below)?, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {}
            Ok(()) => return Ok(Some(("two writers", "a database is not locked".to_owned()))),
            Err(error) => return Err(error.into()),
        }
        fixture.kill_guard()?;
    }
    fixture.must("stop")?;
    Ok(None)
}

/// The marks beside the files are in a directory that is renamed, and are removed first: then the
/// marker alone shows the hold.
fn killed_before_the_journal(fixture: &HoldFixture, rig: &Rig) -> Result<Option<BrokenPromise>> {
    let file = fixture.base().join(format!("{NAME}.toml"));
    let set_aside = format!("set_aside = [{:?}]\n", fixture.data());
    fs::write(&file, set_aside + &fs::read_to_string(&file)?)?;
    fixture.must("start")?;
    fs::write(fixture.data().join("jobs/data"), "old")?;
    fixture.release()?;
    rig.unmount()?;
    rig.mount()?;
    let before = fixture.content()?;
    // At the rename that makes the journal.
    kill_at(fixture, "recover", "renameat2", 1)?;
    let recovered = fixture.verb("recover")?;
    if !recovered.status.success() {
        return Ok(Some(("not recovered", failed("recover", &recovered))));
    }
    if fixture.data().exists() {
        return Ok(Some(("not set aside", recovered.stderr)));
    }
    put_back(fixture, &before)
}

fn killed_between_renames(fixture: &HoldFixture, _: &Rig) -> Result<Option<BrokenPromise>> {
    fixture.must("start")?;
    fs::write(fixture.data().join("jobs/data"), "old")?;
    fixture.crash()?;
    let before = fixture.content()?;
    // A rename makes the journal; the next ones set files aside.
    kill_at(fixture, "recover", "renameat2", 3)?;
    if fixture.content()? == before {
        return Err("no file was set aside".into());
    }
    let recovered = fixture.verb("recover")?;
    if !recovered.status.success() {
        return Ok(Some(("not recovered", failed("recover", &recovered))));
    }
    match misplaced(fixture, &before)? {
        Some(detail) => Ok(Some(("not set aside", detail))),
        None => put_back(fixture, &before),
    }
}

/// The next recovery, as the daemon's unit makes it, puts back what is still set aside.
fn killed_while_restoring(fixture: &HoldFixture, _: &Rig) -> Result<Option<BrokenPromise>> {
    fixture.must("start")?;
    fs::write(fixture.data().join("jobs/data"), "old")?;
    fixture.crash()?;
    let before = fixture.content()?;
    fixture.must("recover")?;
    kill_at(fixture, "restore", "renameat2", 2)?;
    if fixture.content()? == before {
        return Err("nothing is left to be put back".into());
    }
    let recovered = fixture.verb("recover")?;
    if !recovered.status.success() {
        return Ok(Some(("not recovered", failed("recover", &recovered))));
    }
    let is_whole = fixture.content()? == before;
    Ok((!is_whole).then(|| ("put back in part", failed("recover", &recovered))))
}
