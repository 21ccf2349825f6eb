//! Runs whose processes are killed at random moments: by signals, and by the OOM killer.

use crate::memory::{Cgroup, Hierarchy};
use crate::processes::{self, children, describe, is_alive};
use crate::{Result, load_words, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_sys::process::FAILED;
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Group};
use synconce_testkit::rig::Rig;

const SIZE: u64 = 512 << 20;
/// How long a load runs if nothing is killed.
const LOAD_MILLIS: u64 = 700;
const LIMIT: Duration = Duration::from_secs(60);
/// A load that survives the supervisor for longer than this must have caused a flush of the
/// disk.
const LONG: Duration = Duration::from_millis(200);
const INTERRUPTED: i32 = 4;

/// Which process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SoakVictim {
    Supervisor,
    Frontend,
    Both,
    Command,
}

/// How the target is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Signal(Signal),
    /// By the OOM killer, in a memory cgroup.
    OutOfMemory,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(Signal::KILL) => f.write_str("SIGKILL"),
            Self::Signal(Signal::ILL) => f.write_str("SIGILL"),
            Self::Signal(Signal::STOP) => f.write_str("SIGSTOP"),
            Self::Signal(signal) => write!(f, "{signal:?}"),
            Self::OutOfMemory => f.write_str("OOM killer"),
        }
    }
}

/// The kill of one run.
#[derive(Clone, Copy, Debug)]
struct Kill {
    target: SoakVictim,
    method: Method,
    delay: Duration,
}

impl Kill {
    fn random(random: &mut fastrand::Rng) -> Self {
        // SIGILL stands for a crash: Rust's handler for SIGSEGV ignores a SIGSEGV sent by
        // kill(2).
        let signals = [Signal::KILL, Signal::ILL, Signal::STOP].map(Method::Signal);
        let method = signals.get(random.usize(..=signals.len())).copied();
        let method = method.unwrap_or(Method::OutOfMemory);
        let targets: &[SoakVictim] = match method {
            Method::OutOfMemory => &[SoakVictim::Supervisor, SoakVictim::Command],
            Method::Signal(_) => &[
                SoakVictim::Supervisor,
                SoakVictim::Frontend,
                SoakVictim::Both,
                SoakVictim::Command,
            ],
        };
        let target = targets[random.usize(..targets.len())];
        Self { target, method, delay: Duration::from_micros(random.u64(..800_000)) }
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {:?}", self.method, self.target)
    }
}

/// Makes `rounds` runs with one kill each.
pub(crate) fn run(synconce: &Path, rounds: u64, seed: u64) -> Result<()> {
    let rig = Rig::builder().size(SIZE).up()?;
    let memory = Hierarchy::find().map_err(|error| error.to_string());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..rounds {
        let kill = Kill::random(&mut random);
        let failed = |error| format!("round {round}: {kill} after {:?}: {error}", kill.delay);
        let outcome = match (kill.method, &memory) {
            (Method::OutOfMemory, Err(reason)) => format!("SKIPPED: {reason}"),
            (_, memory) => {
                run_and_kill(synconce, &rig, kill, memory.as_ref().ok()).map_err(failed)?
            }
        };
        *outcomes.entry(format!("{kill}: {outcome}")).or_default() += 1;
    }
    for (outcome, count) in outcomes {
        println!("{count:4} {outcome}");
    }
    Ok(())
}

/// Makes one run with a kill, and returns a description of the result.
fn run_and_kill(
    synconce: &Path,
    rig: &Rig,
    kill: Kill,
    memory: Option<&Hierarchy>,
) -> Result<String> {
    // Created before the run, so that the cgroup is dropped after the run's processes were
    // killed.
    let wanted = memory.filter(|_| kill.method == Method::OutOfMemory);
    let cgroup = wanted.map(Cgroup::new).transpose()?;
    let place = tempfile::tempdir()?;
    let mut command = tool(synconce, place.path());
    command.args(["run", "--commit-only"]).arg(rig.path()).arg("--");
    let directory = rig.path().join("load");
    let run = Group::spawn(command.args(load_words(&directory, LOAD_MILLIS)?))?;
    std::thread::sleep(kill.delay);
    let frontend = u64::from(run.pid());
    let supervisor = children(frontend).first().copied();
    let payload = supervisor.and_then(|pid| children(pid).first().copied());
    let marked = fs::read_dir(place.path().join("state/runs")).is_ok_and(|mut runs| {
        runs.any(|file| file.is_ok_and(|it| it.path().extension().is_some_and(|it| it == "json")))
    });
    let pids: Vec<u64> = match kill.target {
        SoakVictim::Supervisor => supervisor.into_iter().collect(),
        SoakVictim::Frontend => vec![frontend],
        SoakVictim::Both => supervisor.into_iter().chain([frontend]).collect(),
        SoakVictim::Command => payload.into_iter().collect(),
    };
    let killed = kill_all(kill.method, &pids, cgroup.as_ref())?;
    // The marker existed, and the run cannot have finished.
    let orphaned = kill.target == SoakVictim::Supervisor && !supervisor.is_some_and(is_alive);
    let cut_short = marked && orphaned && payload.is_some_and(is_alive);
    let (since, flushes) = (Instant::now(), rig.disk().stats()?.flushes);
    let Some(status) = run.wait(patiently(LIMIT))? else {
        let all: Vec<u64> = [Some(frontend), supervisor, payload].into_iter().flatten().collect();
        return Err(format!("the run did not end: {}", describe(&all)).into());
    };
    wait_for_quiet(&directory)?;
    let flushed = rig.disk().stats()?.flushes > flushes;
    if cut_short && since.elapsed() > LONG && !flushed {
        return Err("syncs after the end of the supervisor do not reach the disk".into());
    }
    let found = found(synconce, place.path())?;
    let reported = found == Some(INTERRUPTED);
    if cut_short && !reported {
        return Err(format!("it was cut short and is not reported: {status}, {found:?}").into());
    }
    // Exit code 0 of an interrupted run would be a false promise.
    if status.success() && reported {
        return Err("it returned 0 and is reported as interrupted".into());
    }
    let missed = if killed { "" } else { "missed, " };
    if status.code() == Some(FAILED) && !reported && kill.target != SoakVictim::Command {
        // Nothing was held yet, or everything was already committed.
        return Ok(format!("{missed}125, nothing to repair"));
    }
    Ok(format!("{missed}{status}, status {}", found.unwrap_or(-1)))
}

/// Kills the processes; returns `false` if they had exited before.
fn kill_all(method: Method, pids: &[u64], cgroup: Option<&Cgroup>) -> Result<bool> {
    match (method, cgroup, pids) {
        (Method::OutOfMemory, Some(cgroup), &[target]) => cgroup.kill(target),
        (Method::OutOfMemory, ..) => Ok(false),
        (Method::Signal(signal), ..) => {
            let sent = send(pids, signal);
            match signal {
                Signal::STOP => {
                    std::thread::sleep(Duration::from_millis(150));
                    send(pids, Signal::CONT);
                }
                _ => wait_for_end(pids)?,
            }
            Ok(sent)
        }
    }
}

/// Sends `signal` to each process; returns whether any of them still existed.
fn send(pids: &[u64], signal: Signal) -> bool {
    let pids = pids.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?));
    // The process may have exited by itself.
    pids.map(|pid| kill_process(pid, signal).is_ok()).fold(false, |any, sent| any | sent)
}

fn wait_for_end(pids: &[u64]) -> Result<()> {
    let end = Instant::now() + patiently(LIMIT);
    while pids.iter().any(|pid| is_alive(*pid)) {
        if Instant::now() > end {
            return Err(format!("{pids:?} still run after the signal").into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Waits until no process of the load is left, so that none of its calls is stuck.
fn wait_for_quiet(directory: &Path) -> Result<()> {
    let end = Instant::now() + patiently(LIMIT);
    let wanted = directory.display().to_string();
    loop {
        let busy = processes::all().find(|(_, words)| words.contains(&wanted));
        match busy {
            None => return Ok(()),
            Some((pid, words)) if Instant::now() > end => {
                return Err(format!("{pid} is stuck: {words:?}").into());
            }
            Some(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Returns the exit code of `synconce status` once no supervisor is left that could change the
/// result.
fn found(synconce: &Path, place: &Path) -> Result<Option<i32>> {
    let end = Instant::now() + patiently(LIMIT);
    loop {
        let finished = process::run(tool(synconce, place).arg("status"), patiently(LIMIT))?;
        // Exit code 3: the run is still in flight, committing or serving.
        if finished.status.code() != Some(3) || Instant::now() > end {
            return Ok(finished.status.code());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
