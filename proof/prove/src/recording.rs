//! Records one run.

use crate::Result;
use crate::background_load::{BackgroundLoad, LoadKind};
use crate::config::{MarkerPlace, Mode, RunConfig};
use crate::tool::{Paths, Tool};
use crate::work::Work;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use synconce_testkit::manifest::{Manifest, ManifestOptions};
use synconce_testkit::process;
use synconce_testkit::rig::{Log, Rig, Tape};

/// A recorded run, and its trees before and after.
pub(crate) struct RecordedRun {
    pub config: RunConfig,
    pub work: Work,
    pub tool: Tool,
    /// The disk that was written.
    pub disk: Tape,
    /// The disk of the marker, if that is another disk.
    pub other: Option<Tape>,
    pub parts: Vec<DiskRecording>,
}

/// What a recorded run wrote on one disk.
pub(crate) struct DiskRecording {
    /// Where the disk was mounted.
    pub point: PathBuf,
    pub before: Manifest,
    pub finished: Manifest,
}

/// Marks in the log of the disk that is written.
pub(crate) mod mark {
    /// The tree is prepared and durable.
    pub(crate) const START: &str = "start";
    /// The command line has returned 0.
    pub(crate) const RETURNED: &str = "returned";
    /// The file in the daemon's directory is durable: a survivor's own sync, or a commit in the
    /// middle of the run, has returned.
    pub(crate) const DURABLE: &str = "durable";
    /// No place after this mark is cut.
    pub(crate) const END: &str = "end";
}

/// Returns the position of a mark.
pub(crate) fn place(log: &Log, mark: &str) -> Result<usize> {
    log.mark(mark).ok_or_else(|| format!("the mark {mark} is missing").into())
}

/// How long the background load continues after the run.
const AFTER: Duration = Duration::from_millis(80);

/// Returns the manifest of what `tool` has written on the disk mounted at `disk`, without the
/// marker, whose directory changes the time of the root.
pub(crate) fn manifest(tool: &Tool, disk: &Path) -> Result<Manifest> {
    let options = ManifestOptions::default().mtimes().ignore("var")?;
    let mut manifest = Manifest::with(tool.compared(disk), &options)?;
    if let Some(root) = manifest.entries.get_mut(".") {
        root.mtime = None;
    }
    Ok(manifest)
}

/// Locked for writing while a run makes a sync(2), which would save data that another run has
/// to lose.
static DISKS: RwLock<()> = RwLock::new(());

/// Locks out runs that make a sync(2) while a run without sync(2) is recorded.
pub(crate) fn without_sync() -> RwLockReadGuard<'static, ()> {
    DISKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks out the recordings without sync(2) while a run makes one.
pub(crate) fn with_sync() -> RwLockWriteGuard<'static, ()> {
    DISKS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Records `work` under `tool` in `config`, with the background load `load`.
pub(crate) fn record(
    config: RunConfig,
    work: Work,
    tool: &Tool,
    load: LoadKind,
) -> Result<RecordedRun> {
    let syncs_all = config.mode == Mode::Sealed || work.commits_all_disks();
    let _alone = syncs_all.then(with_sync);
    let _shared = (!syncs_all).then(without_sync);
    let control = tempfile::Builder::new().prefix("synconce-prove-").tempdir()?;
    let builder = config.disk.rig(work.size()).record(true);
    let disk = builder.clone().up()?;
    let other = (config.marker == MarkerPlace::Other).then(|| builder.up()).transpose()?;
    let paths = paths(config, work, disk.path(), other.as_ref().map(Rig::path), control.path());
    let mut written_back: Vec<_> = paths.disks().map(|disk| tool.compared(disk)).collect();
    let own = [paths.tree(), paths.background_load(), paths.daemon(), paths.state.clone()];
    written_back.iter().chain(&own).try_for_each(fs::create_dir_all)?;
    work.prepare(&paths.tree())?;
    paths.second.as_ref().map_or(Ok(()), |disk| work.prepare(&tool.compared(disk)))?;
    for rig in [Some(&disk), other.as_ref()].into_iter().flatten() {
        finish("sync", work.limit(), Command::new("sync").arg("-f").arg(rig.path()))?;
    }
    let manifests = || paths.disks().map(|disk| manifest(tool, disk)).collect::<Result<Vec<_>>>();
    let before = manifests()?;
    written_back.push(paths.state.clone());
    let background_load = BackgroundLoad::start(load, &paths.background_load(), &written_back);
    disk.disk().mark(mark::START)?;
    let [seen_tree, seen_control, seen_daemon] = tool.sees(&paths);
    let words = work.words(&seen_tree, &seen_control, &seen_daemon)?;
    let mut command = tool.command(config, &paths, work, &words)?;
    std::thread::scope(|scope| {
        let mark = || mark_commit(&disk, control.path(), work.limit());
        let marking = work.is_durable_early().then(|| scope.spawn(mark));
        finish(tool.name(), work.limit(), &mut command)?;
        marking.map_or(Ok(()), |marking| marking.join().map_err(|_| "no mark was made")?)
    })?;
    disk.disk().mark(mark::RETURNED)?;
    if work.leaves_daemon() {
        serve(control.path(), work.limit())?;
        disk.disk().mark(mark::DURABLE)?;
    }
    let finished = manifests()?;
    std::thread::sleep(AFTER);
    disk.disk().mark(mark::END)?;
    drop(background_load);
    let parts = paths.disks().cloned().zip(before).zip(finished);
    let parts = parts
        .map(|((point, before), finished)| DiskRecording { point, before, finished })
        .collect();
    let other = other.map(Rig::finish).transpose()?;
    let disk = disk.finish()?;
    Ok(RecordedRun { config, work, tool: tool.clone(), disk, other, parts })
}

/// Returns the paths of a recorded run of `work` on disks that are mounted there.
pub(crate) fn paths(
    config: RunConfig,
    work: Work,
    disk: &Path,
    other: Option<&Path>,
    control: &Path,
) -> Paths {
    let state = match (config.marker, other) {
        (MarkerPlace::Other, Some(other)) => other.join("state"),
        // The machine's own marker is lost with the machine.
        (MarkerPlace::Root, _) => control.join("state"),
        _ => disk.join("state"),
    };
    let second = other.filter(|_| work == Work::TwoDisks).map(Path::to_owned);
    Paths { disk: disk.to_owned(), second, state, control: control.to_owned() }
}

pub(crate) fn finish(name: &str, limit: Duration, command: &mut Command) -> Result<()> {
    let finished = process::run(command, limit)?;
    if finished.status.success() {
        return Ok(());
    }
    Err(format!("{name} failed: {}\n{}{}", finished.status, finished.stdout, finished.stderr)
        .into())
}

/// Waits for the commit in the middle of the run, marks it, and lets the command go on.
fn mark_commit(disk: &Rig, control: &Path, limit: Duration) -> Result<()> {
    let committed = control.join("committed");
    wait_until("the command commits", limit, || committed.exists())?;
    disk.disk().mark(mark::DURABLE)?;
    Ok(fs::write(control.join("go"), "")?)
}

/// Waits until `holds` returns true, at most for `limit`; `what` names the event.
pub(crate) fn wait_until(what: &str, limit: Duration, holds: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + limit;
    while !holds() {
        if Instant::now() > end {
            return Err(format!("it did not happen that {what}").into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Lets the survivor continue, and waits until the survivor reports that it is done.
fn serve(control: &Path, limit: Duration) -> Result<()> {
    fs::write(control.join("go"), "")?;
    let end = Instant::now() + limit;
    while Instant::now() < end {
        match fs::read_to_string(control.join("done")) {
            Ok(result) if result == "synced\n" => return Ok(()),
            Ok(result) => return Err(format!("the survivor's sync {result}").into()),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    Err("the survivor did not sync".into())
}
