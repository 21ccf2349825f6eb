//! Runs whose parts get signals at random moments.

use crate::{Result, load_words, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_testkit::process::{self, Group};
use synconce_testkit::rig::Rig;

const SIZE: u64 = 512 << 20;
/// How long a load goes on by itself.
const LOAD_MILLIS: u64 = 700;
const LIMIT: Duration = Duration::from_secs(60);
const FAILED: i32 = 125;
const INTERRUPTED: i32 = 4;

/// Who is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Supervisor,
    Face,
    Both,
    Command,
}

/// Makes `rounds` runs, each hit once.
pub(crate) fn run(synconce: &Path, rounds: u64, seed: u64) -> Result<()> {
    let rig = Rig::builder().size(SIZE).up()?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..rounds {
        let victims = [Victim::Supervisor, Victim::Face, Victim::Both, Victim::Command];
        let victim = victims[random.usize(..victims.len())];
        // A crash is SIGILL: Rust's handler for SIGSEGV lets one that was sent pass.
        let signal = [Signal::KILL, Signal::ILL, Signal::STOP][random.usize(..3)];
        let delay = Duration::from_micros(random.u64(..800_000));
        let outcome = hit(synconce, &rig, victim, signal, delay).map_err(|error| {
            format!("round {round}: {signal:?} to {victim:?} after {delay:?}: {error}")
        })?;
        *outcomes.entry(format!("{signal:?} to {victim:?}: {outcome}")).or_default() += 1;
    }
    for (outcome, count) in outcomes {
        println!("{count:4} {outcome}");
    }
    Ok(())
}

fn hit(
    synconce: &Path,
    rig: &Rig,
    victim: Victim,
    signal: Signal,
    delay: Duration,
) -> Result<String> {
    let place = tempfile::tempdir()?;
    let mut command = tool(synconce, place.path());
    command.args(["run", "--commit-only"]).arg(rig.path()).arg("--");
    let directory = rig.path().join("load");
    let run = Group::spawn(command.args(load_words(&directory, LOAD_MILLIS)?))?;
    std::thread::sleep(delay);
    let face = u64::from(run.pid());
    let supervisor = children(face).first().copied();
    let payload = supervisor.and_then(|pid| children(pid).first().copied());
    let hit: Vec<u64> = match victim {
        Victim::Supervisor => supervisor.into_iter().collect(),
        Victim::Face => vec![face],
        Victim::Both => supervisor.into_iter().chain([face]).collect(),
        Victim::Command => payload.into_iter().collect(),
    };
    send(&hit, signal);
    if signal == Signal::STOP {
        std::thread::sleep(Duration::from_millis(150));
        send(&hit, Signal::CONT);
    }
    let status = run.wait(LIMIT)?.ok_or("the run did not end")?;
    wait_for_quiet(&directory)?;
    let found = found(synconce, place.path())?;
    let alarmed = found == Some(INTERRUPTED);
    // Nobody is told that all is well of a run that was cut short.
    if status.success() && alarmed {
        return Err("it returned 0 and is found interrupted".into());
    }
    if status.code() == Some(FAILED) && !alarmed && victim != Victim::Command {
        // Nothing was held yet, or all had been committed.
        return Ok("125, nothing to repair".to_owned());
    }
    Ok(format!("{status}, status {}", found.unwrap_or(-1)))
}

fn children(pid: u64) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn send(pids: &[u64], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

/// Waits until nobody of the load is left: none of its calls is stuck.
fn wait_for_quiet(directory: &Path) -> Result<()> {
    let end = Instant::now() + LIMIT;
    let wanted = directory.display().to_string();
    loop {
        let busy = processes().find(|(_, words)| words.contains(&wanted));
        match busy {
            None => return Ok(()),
            Some((pid, words)) if Instant::now() > end => {
                return Err(format!("{pid} is stuck: {words:?}").into());
            }
            Some(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn processes() -> impl Iterator<Item = (String, Vec<String>)> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid =
            entry.file_name().into_string().ok().filter(|name| name.parse::<u32>().is_ok())?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words = words.split(|byte| *byte == 0);
        Some((pid, words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()))
    })
}

/// What status says, once no supervisor is left that could change it.
fn found(synconce: &Path, place: &Path) -> Result<Option<i32>> {
    let end = Instant::now() + LIMIT;
    loop {
        let finished = process::run(tool(synconce, place).arg("status"), LIMIT)?;
        // 3: still in flight, committing or serving.
        if finished.status.code() != Some(3) || Instant::now() > end {
            return Ok(finished.status.code());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
