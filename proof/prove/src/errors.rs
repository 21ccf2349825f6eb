//! A write-back error that the kernel reported to another process during the run. At the
//! commit only a descriptor opened before the error reports it. Where there is no older
//! descriptor, a sync of the caller's own file has to report it. An error at a commit in the
//! middle of the run has to fail the commit at the end as well. A journal of ext4 that its own
//! timer has aborted shows no error; the commit has to find it.

use crate::campaign::Findings;
use crate::config::{DiskKind, MarkerPlace, RunConfig};
use crate::recording::{paths, wait_until};
use crate::row::{Job, Role};
use crate::tool::Tool;
use crate::work::Work;
use crate::{ProveArguments, Result};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_sys::process::FAILED;
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Group};
use synconce_testkit::rig::Rig;

const SIZE: u64 = 384 << 20;
const LIMIT: Duration = Duration::from_secs(60);
const BYTES: usize = 65536;

/// The workload's exit code if a call reported the error.
const REPORTED: i32 = 9;
const SCRIPT: &str = include_str!("errors.pl");

/// When the error happens, and which file it concerns.
#[derive(Clone, Copy, Debug)]
struct ErrorCase {
    name: &'static str,
    /// The script's first argument.
    when: &'static str,
    /// The disk of the marker is pinned before the command starts; other disks at the first
    /// held call.
    marker: MarkerPlace,
    by: By,
}

/// What gets the error during the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Another,
    /// A commit in the middle of the run, and no other process.
    Checkpoint,
    /// The journal of ext4, in a commit of the kernel's own timer. The kernel reports nothing.
    Timer,
}

const fn case(name: &'static str, when: &'static str, marker: MarkerPlace) -> ErrorCase {
    ErrorCase { name, when, marker, by: By::Another }
}

const CASES: [ErrorCase; 8] = [
    case("error seen by another", "synced", MarkerPlace::Same),
    case("error before the first sync", "unsynced", MarkerPlace::Same),
    case("error of an older file", "older", MarkerPlace::Same),
    case("error of a mapping", "mapping", MarkerPlace::Same),
    case("error seen by another", "synced", MarkerPlace::Other),
    case("error before the first sync", "unsynced", MarkerPlace::Other),
    case("error of an older file", "older", MarkerPlace::Other),
    case("error of a mapping", "mapping", MarkerPlace::Other),
];

const fn at_checkpoint(marker: MarkerPlace) -> ErrorCase {
    ErrorCase { by: By::Checkpoint, ..case("error at a commit in the middle", "synced", marker) }
}

const CHECKPOINTS: [ErrorCase; 2] =
    [at_checkpoint(MarkerPlace::Same), at_checkpoint(MarkerPlace::Other)];

const JOURNALS: [ErrorCase; 1] = [ErrorCase {
    by: By::Timer,
    ..case("journal aborted by its timer", "journal", MarkerPlace::Other)
}];

/// Mutants, and the cases that must catch them.
const MUTANTS: [(&str, &[ErrorCase]); 4] = [
    ("pins-late", CASES.split_at(1).0),
    ("late-look-skipped", CASES.split_at(5).1),
    ("checkpoint-error-forgotten", &CHECKPOINTS),
    ("aborted-journal-unseen", &JOURNALS),
];

/// Returns the rows of the shipped tool and of the mutants on each file system.
pub(crate) fn jobs(arguments: &ProveArguments) -> Vec<Job<'static>> {
    let shipped = arguments.shipped();
    let promise = CASES.iter().chain(&CHECKPOINTS).chain(&JOURNALS);
    let promise = promise.map(|case| (Role::Promise, case.name, case, shipped.clone()));
    let mut all: Vec<_> = promise.collect();
    for (mutant, cases) in MUTANTS {
        let Some(tool) = arguments.mutant(mutant) else { continue };
        all.extend(cases.iter().map(|case| (Role::Mutant, mutant, case, tool.clone())));
    }
    let mut jobs = Vec::new();
    for (role, name, case, tool) in all {
        for disk in DiskKind::SOUND {
            if case.by == By::Timer && disk != DiskKind::Ext4 {
                continue;
            }
            let config = RunConfig::supervised(disk, case.marker);
            let tool = tool.clone();
            let made = move || make_error(config, case, &tool);
            // A sync(2) of another process may write the data before the disk fails, and the
            // commit of another row may find the stop of the journal before this run ends.
            let make = move |_| made().or_else(|_| made()).or_else(|_| made());
            jobs.push(Job::new(role, name, config, make));
        }
    }
    jobs
}

/// Makes one error. The promise is broken if no call fails and the run returns 0.
fn make_error(config: RunConfig, case: &ErrorCase, tool: &Tool) -> Result<Findings> {
    let began = Instant::now();
    let control = tempfile::tempdir()?;
    let rig = Rig::builder().fs(config.disk.kind()).size(SIZE).passthrough(false);
    let rig = if case.by == By::Timer { rig.mount_options("commit=1") } else { rig }.up()?;
    let elsewhere = (config.marker == MarkerPlace::Other).then_some(control.path());
    let paths = paths(config, Work::Files, rig.path(), elsewhere, control.path());
    fs::create_dir_all(paths.tree())?;
    let files = ["data", "other"].map(|name| paths.tree().join(name));
    // The files exist before, so that overwriting them needs no journal: an error would abort
    // the journal.
    files.iter().try_for_each(|file| fs::write(file, [b'a'; BYTES]))?;
    // The kernel keeps an error for later descriptors until one descriptor has reported it
    // (errseq_t).
    let other = File::open(rig.path())?;
    rustix::fs::syncfs(&other)?;
    let words = ["perl", "-e", SCRIPT, case.when].map(str::to_owned).into_iter();
    let [data, second] = &files;
    let arguments = [data, second, control.path()].map(|path: &Path| path.display().to_string());
    let words: Vec<String> = words.chain(arguments).collect();
    let run = Group::spawn(&mut tool.command(config, &paths, Work::Files, &words)?)?;
    let written = control.path().join("written");
    wait_until("the files are written", patiently(LIMIT), || written.exists())?;
    let is_reported = match case.by {
        By::Another => {
            rig.disk().fail_writes(true)?;
            rustix::fs::syncfs(&other).is_err()
        }
        By::Checkpoint => {
            rig.disk().fail_writes(true)?;
            // Only the write-back fails, so that nothing but the run remembers the error.
            rustix::fs::fadvise(File::open(data)?, 0, None, rustix::fs::Advice::DontNeed)?;
            wait_until("a write has failed", patiently(LIMIT), || has_failed(&rig))?;
            rig.disk().fail_writes(false)?;
            let asked = process::run(&mut tool.commit(&paths), patiently(LIMIT))?;
            asked.status.code() == Some(FAILED)
        }
        By::Timer => {
            let [failing, made] = ["failing", "made"].map(|name| control.path().join(name));
            let mut changed = Err("nothing was changed".into());
            rig.abort_journal(|| {
                let written = fs::write(failing, "").map_err(Into::into);
                let wait = |()| wait_until("a change", patiently(LIMIT), || made.exists());
                changed = written.and_then(wait);
            })?;
            changed?;
            true
        }
    };
    rig.disk().fail_writes(false)?;
    if !is_reported {
        return Err("the error was not reported".into());
    }
    fs::write(control.path().join("go"), "")?;
    let status = run.wait(patiently(LIMIT))?.ok_or("the run did not end")?;
    // The mutant leaves out the call that makes ext4 notice the stop. The commit of another row may
    // make that call, if it looks at all disks.
    let is_mutant = matches!(tool, Tool::Mutant { .. });
    if case.by == By::Timer && is_mutant && rustix::fs::fsync(&other).is_err() {
        return Err("another row made ext4 notice the stop".into());
    }
    let mut findings = Findings { cuts: 1, ..Findings::default() };
    if !matches!(status.code(), Some(FAILED | REPORTED)) {
        findings.found.insert("error unseen", 1);
        findings.first = Some(format!("{status}, {}", run.stderr()?));
    }
    findings.millis = began.elapsed().as_millis() as u64;
    Ok(findings)
}

fn has_failed(rig: &Rig) -> bool {
    let transfers = rig.disk().stats().ok().and_then(|stats| stats.transfers);
    transfers.is_some_and(|transfers| transfers.failed_writes > 0)
}
