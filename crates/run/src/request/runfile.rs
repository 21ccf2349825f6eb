//! The run file: a run's description of itself, in memory, while the run lives.
//!
//! The run file is named after the run's id, because process ids differ between pid
//! namespaces. The supervisor locks it, so that a stale file is recognised. After a crash the
//! run file proves nothing; the marker does. Like a marker, a run file has a public part, and
//! a private part in a second file.

use crate::report::protocol::CommitReport;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use synconce_durable::record::RunRecord;
use synconce_durable::state_file::{self, PRIVATE};
use synconce_durable::{recovery, standard_paths};

/// The phase of a living run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The command runs with its syncs held.
    Running,
    /// The command has ended; its work is being made durable.
    Committing,
    /// The run is over; survivors' syncs go to the kernel.
    Serving,
}

const SUFFIX: &str = "json";
/// The suffix of the file that records why the run was not committed. The file is in memory,
/// because the disk that failed may not respond.
const CAUSE: &str = "cause";

/// The public part of a run file.
#[derive(Debug, Serialize, Deserialize)]
struct PublicContent {
    phase: Phase,
    run: RunRecord,
}

/// The run file of a supervisor; removed when dropped.
#[derive(Debug)]
pub(crate) struct RunFile {
    path: PathBuf,
    file: File,
    /// The record without its private part.
    record: RunRecord,
}

impl RunFile {
    /// Writes the run file of `record` into `directory`, and creates the directory if
    /// necessary.
    pub(crate) fn create(directory: &Path, record: &RunRecord) -> io::Result<Self> {
        let path = directory.join(format!("{}.{SUFFIX}", record.id));
        // Locked and written before it gets its name, so that a file that is found unlocked is
        // stale.
        let new = directory.join(format!("{}.new", record.id));
        let file = match create(&new, 0o644) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                standard_paths::make_runtime(directory)?;
                create(&new, 0o644)?
            }
            other => other?,
        };
        let mut run_file = Self { path: new, file, record: record.public() };
        rustix::fs::flock(&run_file.file, FlockOperation::NonBlockingLockExclusive)?;
        run_file.write(Phase::Running)?;
        if let Some(private) = &record.private {
            let mut text = serde_json::to_vec_pretty(private)?;
            text.push(b'\n');
            create(&path.with_extension(PRIVATE), 0o600)?.write_all(&text)?;
        }
        fs::rename(&run_file.path, &path)?;
        run_file.path = path;
        Ok(run_file)
    }

    /// Rewrites the file for a new phase.
    pub(crate) fn enter(&mut self, phase: Phase) {
        // The file only informs people; a full /run must not fail a run.
        let _ = self.write(phase);
    }

    /// Writes a file with the result of the failed commit, which stays until the next boot.
    pub(crate) fn note(&self, report: &CommitReport) {
        // The marker records that the run was cut short; this file only adds the reason.
        let _ = serde_json::to_vec_pretty(report)
            .map_err(Into::into)
            .and_then(|text| create(&self.path.with_extension(CAUSE), 0o600)?.write_all(&text));
    }

    fn write(&mut self, phase: Phase) -> io::Result<()> {
        let content = PublicContent { phase, run: self.record.clone() };
        let mut text = serde_json::to_vec_pretty(&content)?;
        text.push(b'\n');
        self.file.write_all_at(&text, 0)?;
        self.file.set_len(text.len() as u64)
    }
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    let file = File::options().write(true).create_new(true).mode(mode).open(path)?;
    // The user's umask does not apply to these files.
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

impl Drop for RunFile {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes both parts of a run file.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_file(path.with_extension(PRIVATE));
}

/// Returns how the commit of this user's run `id` failed, if it failed since the boot.
pub fn failed_commit(id: &str) -> Option<CommitReport> {
    state_file::read(&state_file::open(&cause_of(id)?).ok()?).ok()
}

/// Removes the file that [`failed_commit`] reads.
pub fn forget_failed_commit(id: &str) {
    let _ = cause_of(id).map(fs::remove_file);
}

fn cause_of(id: &str) -> Option<PathBuf> {
    Some(standard_paths::runtime()?.join(format!("{id}.{CAUSE}")))
}

/// A living run.
#[derive(Debug)]
pub struct Live {
    /// The current phase.
    pub phase: Phase,
    /// The run's record.
    pub record: RunRecord,
    /// The supervisor's process id; `None` if the supervisor is in a pid namespace that is not
    /// visible here.
    pub supervisor: Option<u32>,
}

/// Returns the living runs of this user, oldest first. Removes the files of supervisors that
/// were killed; their markers remain.
///
/// # Errors
/// Those of reading the runtime directory. A missing directory has no runs.
pub fn live() -> io::Result<Vec<Live>> {
    let Some(directory) = standard_paths::runtime() else {
        return Ok(Vec::new());
    };
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut runs: Vec<Live> = entries.flatten().filter_map(|entry| read(&entry.path())).collect();
    runs.sort_by(|a, b| a.record.id.cmp(&b.record.id));
    Ok(runs)
}

fn read(path: &Path) -> Option<Live> {
    if path.extension().is_none_or(|suffix| suffix != SUFFIX) {
        return None;
    }
    let file = state_file::open(path).ok()?;
    // An error leaves open whether the run lives; the removal of its file would hide it.
    if state_file::lock_shared(&file).is_ok() {
        // The directory may belong to any user (SYNCONCE_RUNTIME_DIR): a file that is no run
        // file is not removed. A run file that may not be removed is skipped.
        if state_file::read::<PublicContent>(&file).is_ok() {
            remove(path);
        }
        return None;
    }
    // A rewrite may be read half done, but takes only a moment.
    (0..3).find_map(|_| {
        let PublicContent { phase, mut run } = state_file::read(&file).ok()?;
        run.private = run.private.or_else(|| recovery::read_private(path));
        let supervisor = has_open(run.supervisor, &file).then_some(run.supervisor);
        Some(Live { phase, record: run, supervisor })
    })
}

/// Whether `pid`, in this pid namespace, has `file` open.
fn has_open(pid: u32, file: &File) -> bool {
    let is_same = |other: Metadata| {
        file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (other.dev(), other.ino()))
    };
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| fs::metadata(entry.path()).ok()).any(is_same)
}

#[cfg(test)]
mod fuzz;
