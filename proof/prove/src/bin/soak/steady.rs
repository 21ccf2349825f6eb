//! The supervisor under a steady load: its open descriptors and its memory, sampled every
//! second.

use crate::{Result, load_words, tool};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_testkit::patiently;
use synconce_testkit::process::Group;
use synconce_testkit::rig::Rig;

const SIZE: u64 = 1 << 30;
/// Time beyond the load, for the commit on a busy machine.
const GRACE: Duration = Duration::from_secs(120);
/// By how much memory may grow in the second half: allocators and page tables vary by some
/// KiB.
const RSS_GROWTH_KIB: u64 = 512;

/// What the supervisor uses at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    descriptors: u64,
    rss_kib: u64,
    threads: u64,
}

/// Runs one load for `seconds`.
pub(crate) fn run(synconce: &Path, seconds: u64) -> Result<()> {
    let rig = Rig::builder().size(SIZE).up()?;
    let place = tempfile::tempdir()?;
    let directory = rig.path().join("load");
    let mut command = tool(synconce, place.path());
    command.args(["run", "--stats", "--commit-only"]).arg(rig.path()).arg("--");
    let run = Group::spawn(command.args(load_words(&directory, seconds * 1000)?))?;
    let end = Instant::now() + Duration::from_secs(seconds) + patiently(GRACE);
    let mut samples = Vec::new();
    let status = loop {
        if let Some(status) = run.wait(Duration::from_secs(1))? {
            break status;
        }
        samples.extend(supervisor(place.path()).and_then(sample));
        if Instant::now() > end {
            return Err(format!("the run did not end: {}{}", run.stdout()?, run.stderr()?).into());
        }
    };
    print!("{}{}", run.stdout()?, run.stderr()?);
    if !status.success() {
        return Err(format!("the run ended with {status}").into());
    }
    let left = tool(synconce, place.path()).arg("status").status()?;
    if !left.success() {
        return Err(format!("status afterwards: {left}").into());
    }
    compare(&samples)
}

/// Returns the supervisor's pid from the only run file.
fn supervisor(place: &Path) -> Option<u64> {
    let mut files = fs::read_dir(place.join("runtime")).ok()?.flatten().map(|file| file.path());
    let public = files.find(|path| path.extension().is_some_and(|it| it == "json"))?;
    let content: serde_json::Value = serde_json::from_slice(&fs::read(public).ok()?).ok()?;
    content["run"]["supervisor"].as_u64()
}

fn sample(pid: u64) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    Some(Sample {
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64,
        rss_kib: field("VmRSS:")?,
        threads: field("Threads:")?,
    })
}

/// Reads one number of a sample.
type Of = fn(&Sample) -> u64;

/// Compares the last quarter of the samples with the third; the first half fills caches.
fn compare(samples: &[Sample]) -> Result<()> {
    let quarter = samples.len() / 4;
    if quarter == 0 {
        return Err("too short to see any growth".into());
    }
    let most = |part: &[Sample], of: Of| part.iter().map(of).max().unwrap_or(0);
    let (third, last) = (&samples[2 * quarter..3 * quarter], &samples[3 * quarter..]);
    let kinds: [(&str, Of, u64); 3] = [
        ("descriptors", |sample| sample.descriptors, 4),
        ("KiB of memory", |sample| sample.rss_kib, RSS_GROWTH_KIB),
        ("threads", |sample| sample.threads, 2),
    ];
    for (name, of, allowed) in kinds {
        let (before, after) = (most(third, of), most(last, of));
        println!("supervisor: {before} then {after} {name} at most");
        if after > before + allowed {
            return Err(format!("the supervisor's {name} grow: {before} then {after}").into());
        }
    }
    Ok(())
}
