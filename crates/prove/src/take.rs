//! One recorded run.

use crate::Result;
use crate::bystanders::{Bystanders, Company};
use crate::scene::{MarkerPlace, Mode, Scene};
use crate::tool::{Places, Tool};
use crate::work::Work;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use synconce_testkit::manifest::{Manifest, Options};
use synconce_testkit::process;
use synconce_testkit::rig::{Rig, Tape};

/// A recorded run, and what its tree was before and after.
pub(crate) struct Take {
    pub scene: Scene,
    pub work: Work,
    pub tool: Tool,
    /// The disk that was written.
    pub disk: Tape,
    /// The disk of the marker, where that is another.
    pub other: Option<Tape>,
    pub parts: Vec<Part>,
}

/// What a take wrote on one disk.
pub(crate) struct Part {
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
    /// A survivor's own sync has returned.
    pub(crate) const SERVED: &str = "served";
    /// Nobody looks any further.
    pub(crate) const END: &str = "end";
}

/// How long the bystanders go on after the run.
const AFTER: Duration = Duration::from_millis(80);

/// The manifest of what `tool` has written on the disk that is mounted at `disk`: all but the marker
/// itself, whose directory changes the time of the root.
pub(crate) fn manifest(tool: &Tool, disk: &Path) -> Result<Manifest> {
    let options = Options::default().mtimes().ignore("var")?;
    let mut manifest = Manifest::with(tool.judged(disk), &options)?;
    manifest.entries.get_mut(".").into_iter().for_each(|root| root.mtime = None);
    Ok(manifest)
}

/// Held for writing while a run makes a sync(2), which would save what another run loses.
static DISKS: RwLock<()> = RwLock::new(());

/// Held while a run is recorded that makes no sync(2).
pub(crate) fn without_sync() -> RwLockReadGuard<'static, ()> {
    DISKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Records `work` under `tool` in `scene`, in the company of bystanders.
pub(crate) fn record(scene: Scene, work: Work, tool: &Tool, company: Company) -> Result<Take> {
    let is_sealed = scene.mode == Mode::Sealed;
    let _alone = is_sealed.then(|| DISKS.write().unwrap_or_else(PoisonError::into_inner));
    let _shared = (!is_sealed).then(without_sync);
    let control = tempfile::Builder::new().prefix("synconce-prove-").tempdir()?;
    let builder = scene.disk.rig(work.size()).record(true);
    let disk = builder.clone().up()?;
    let other = (scene.marker == MarkerPlace::Other).then(|| builder.up()).transpose()?;
    let places = places(scene, work, disk.path(), other.as_ref().map(Rig::path), control.path());
    let mut pushed: Vec<_> = places.disks().map(|disk| tool.judged(disk)).collect();
    let own = [places.tree(), places.bystander(), places.daemon(), places.state.clone()];
    pushed.iter().chain(&own).try_for_each(fs::create_dir_all)?;
    work.prepare(&places.tree())?;
    places.second.as_ref().map_or(Ok(()), |disk| work.prepare(&tool.judged(disk)))?;
    for rig in [Some(&disk), other.as_ref()].into_iter().flatten() {
        finish("sync", work.limit(), Command::new("sync").arg("-f").arg(rig.path()))?;
    }
    let manifests = || places.disks().map(|disk| manifest(tool, disk)).collect::<Result<Vec<_>>>();
    let before = manifests()?;
    pushed.push(places.state.clone());
    let bystanders = Bystanders::start(company, &places.bystander(), &pushed);
    disk.disk().mark(mark::START)?;
    let [seen_tree, seen_control, seen_daemon] = tool.sees(&places);
    let words = work.words(&seen_tree, &seen_control, &seen_daemon)?;
    finish(tool.name(), work.limit(), &mut tool.command(scene, &places, &words)?)?;
    disk.disk().mark(mark::RETURNED)?;
    if work.leaves_daemon() {
        serve(control.path(), work.limit())?;
        disk.disk().mark(mark::SERVED)?;
    }
    let finished = manifests()?;
    std::thread::sleep(AFTER);
    disk.disk().mark(mark::END)?;
    drop(bystanders);
    let parts = places.disks().cloned().zip(before).zip(finished);
    let parts = parts.map(|((point, before), finished)| Part { point, before, finished }).collect();
    let other = other.map(Rig::finish).transpose()?;
    let disk = disk.finish()?;
    Ok(Take { scene, work, tool: tool.clone(), disk, other, parts })
}

/// The places of a take of `work` on disks that are mounted there.
pub(crate) fn places(
    scene: Scene,
    work: Work,
    disk: &Path,
    other: Option<&Path>,
    control: &Path,
) -> Places {
    let state = match (scene.marker, other) {
        (MarkerPlace::Other, Some(other)) => other.join("state"),
        // What the machine itself knew is gone with it.
        (MarkerPlace::Root, _) => control.join("state"),
        _ => disk.join("state"),
    };
    let second = other.filter(|_| work == Work::TwoDisks).map(Path::to_owned);
    Places { disk: disk.to_owned(), second, state, control: control.to_owned() }
}

pub(crate) fn finish(name: &str, limit: Duration, command: &mut Command) -> Result<()> {
    let finished = process::run(command, limit)?;
    if finished.status.success() {
        return Ok(());
    }
    Err(format!("{name} failed: {}\n{}{}", finished.status, finished.stdout, finished.stderr)
        .into())
}

/// Lets the survivor go on, and waits for what it says.
fn serve(control: &Path, limit: Duration) -> Result<()> {
    fs::write(control.join("go"), "")?;
    let end = Instant::now() + limit;
    while Instant::now() < end {
        match fs::read_to_string(control.join("done")) {
            Ok(said) if said == "synced\n" => return Ok(()),
            Ok(said) => return Err(format!("the survivor's sync {said}").into()),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    Err("the survivor did not sync".into())
}
