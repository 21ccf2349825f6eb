//! What happens to held files after an unclean end, before the daemon starts.
//!
//! The end was unclean if the marker is from another boot, if a held file's file system was
//! unmounted meanwhile, if a write-back error was found, or if the marker is damaged. In all other
//! cases the kernel has every write, also the writes of a killed daemon.

mod error;
mod present;
mod state;

pub use self::error::RecoverError;

use self::state::MarkedState;
use crate::aside::{self, AsideRequest, Journal, Restored};
use crate::awaited_lock::OnWait;
use crate::config::{AfterCrash, Config};
use crate::docker_layers::{self, Orphans};
use crate::error::Unclean;
use crate::file_system::FileSystem;
use crate::lost_writes::{self, Loss};
use crate::mounted::has_failed;
use crate::note;
use crate::overlay;
use crate::record::HoldRecord;
use crate::resolved_path::ResolvedPath;
use crate::runtime::Lock;
use crate::unclean::unclean;
use std::io::ErrorKind;
use std::path::PathBuf;
use synconce_durable::error::Error;
use synconce_durable::mutant;

/// What the operator decides about held files after an unclean end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decision {
    /// As the hold's file says.
    #[default]
    ByFile,
    /// Set the files aside.
    Wipe,
    /// Use the files as they are.
    Keep,
}

/// What a recovery did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// Nothing: there is no marker.
    Clean,
    /// Nothing: the marker is of this boot, and its file systems were mounted all the time. The
    /// marker stays.
    Untouched,
    /// The files are used as they are, by the operator's decision. The marker is removed.
    Kept {
        /// Why a decision was necessary.
        reason: String,
    },
    /// The files are set aside until the hold is settled. The marker is removed.
    SetAside(SetAside),
    /// The files are at their places again: a restore that was cut short is finished.
    PutBack(Restored),
}

/// What was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Why.
    pub reason: String,
    /// What is set aside, by the names where the files belong. Includes what was set aside
    /// before, if the daemon has not started since. Empty if there were no files.
    pub paths: Vec<PathBuf>,
    /// The commands of a shell that put everything back, without synconce.
    pub commands: Vec<String>,
    /// What was found of layers that dockerd no longer uses, or can no longer use.
    pub layers: Layers,
}

/// Layers of dockerd to which nothing refers after a wipe, or that the crash damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layers {
    /// The hold's file names no data directory of dockerd.
    NotAsked,
    /// Layers were set aside, too.
    SetAside {
        /// The number of layers to which nothing refers.
        unreferenced: usize,
        /// The number of layers of images that the crash damaged, with those above them.
        damaged: usize,
        /// The names of the images that had these damaged layers, and were set aside, too.
        images: Vec<String>,
        /// The ids of containers that have a damaged layer, which was not set aside.
        containers: Vec<String>,
    },
    /// No layer was set aside, for this reason.
    Left(String),
}

/// What happens to the files.
enum Fate {
    Keep,
    Wipe(String),
    Refuse(String),
}

/// Recovers the hold of `config`, before the daemon and the hold start. After a crash of this
/// function, the next call continues. Waits until no other command changes the hold, and calls
/// `on_wait` before.
///
/// # Errors
/// [`RecoverError::Refused`] if an operator must decide; [`RecoverError::NotMounted`] and
/// [`RecoverError::Elsewhere`] if the files cannot be there; [`RecoverError::NotFound`] and
/// [`RecoverError::Other`] if they are not; [`RecoverError::InUse`] if the daemon
/// runs. Otherwise names the path. The marker stays, and the hold does not start.
pub fn recover(
    config: &Config,
    decision: Decision,
    on_wait: OnWait<'_>,
) -> Result<Recovered, RecoverError> {
    let name = &config.name;
    // Without the lock this could remove the marker of a later start.
    let lock = Lock::take(name, on_wait)?;
    let restored = aside::finish_restore(name)?;
    let has_begun = Journal::read(name)?.is_setting_aside();
    let state = match (MarkedState::read(config)?, restored) {
        (MarkedState::Clean, Some(restored)) if !has_begun => {
            return Ok(Recovered::PutBack(restored));
        }
        (MarkedState::Clean, _) => MarkedState::without_marker(config)?,
        (state, _) => state,
    };
    recover_from(config, decision, state, has_begun, &lock)
}

/// Recovers the hold of `config` from `state`. `has_begun` says whether an earlier recovery was cut
/// short.
fn recover_from(
    config: &Config,
    decision: Decision,
    state: MarkedState,
    has_begun: bool,
    lock: &Lock,
) -> Result<Recovered, RecoverError> {
    let name = &config.name;
    let (reason, mut record, is_certain) = match state {
        MarkedState::Clean => return Ok(Recovered::Clean),
        MarkedState::Untouched => return Ok(Recovered::Untouched),
        MarkedState::Unclean { reason, record, is_certain } => (reason, record, is_certain),
    };
    present::refuse_unmounted(&record)?;
    present::refuse_elsewhere(&record, decision)?;
    present::refuse_others(&record, decision)?;
    record.take_back()?;
    // What was held when the crash came. The hold's file may name files by now that never were.
    let then = &record.config.clone();
    let reason = noting_edits(reason, then, config);
    // Some files are set aside already: the others no longer agree with them.
    if has_begun && decision == Decision::Keep && !aside::abandon(name)? {
        let reason = format!("{reason}, and files were set aside already: put them back first");
        let put_back = Journal::read(name).map(|journal| journal.commands()).unwrap_or_default();
        return Err(refused(then, reason, put_back));
    }
    let fate = if has_begun && decision != Decision::Keep {
        Fate::Wipe(reason.clone())
    } else {
        decide(config, decision, is_certain, reason.clone())
    };
    let doubt = present::doubt(&record)?;
    if let Some(why) = doubt.filter(|_| decision == Decision::ByFile) {
        return Err(refused(then, format!("{reason}, and {why}"), Vec::new()));
    }
    if let Fate::Refuse(reason) = fate {
        return Err(refused(then, reason, Vec::new()));
    }
    let places = places(&record)?;
    overlay::refuse_held(&places)?;
    if matches!(fate, Fate::Wipe(_)) {
        prepare_wipe(then, lock)?;
    }
    HoldRecord::keep_damaged(&record.name);
    // Before the notes beside the files go: the marker may be lost with its container.
    match &fate {
        Fate::Wipe(_) => sync_for_wipe(&mut record, &places)?,
        _ => sync(&mut record, &places)?,
    }
    if !record.lost {
        // On a full disk the marker stays as it is: if the machine stops before the end, the next
        // recovery asks.
        record.ending = true;
        let _ = record.write();
    } else if !record.losses.is_empty() {
        // The notes that these losses were read from go before the marker does.
        record.write()?;
    }
    // Without losses a damaged marker stays as it is. So the next recovery gives the same reason,
    // also if the marks beside the files are gone.
    match fate {
        Fate::Wipe(reason) => wipe(&record, places, reason),
        _ => keep(&mut record, &places, reason),
    }
}

/// Returns what a wipe of the hold that had `config` sets aside. `set_aside` may leave a held path
/// out.
fn paths_to_wipe(config: &Config) -> Vec<PathBuf> {
    let mut paths = config.to_set_aside();
    paths.extend(config.hold.iter().map(|held| held.path.clone()));
    paths
}

/// Refuses a wipe of the hold that had `config` if its renames would fail. The marks are still
/// beside the files then, and show the hold if the marker is lost before the next call.
fn prepare_wipe(config: &Config, lock: &Lock) -> Result<(), RecoverError> {
    // The guard has the files open, too.
    lock.end_guard()?;
    present::refuse_used(config)?;
    Ok(aside::refuse_mounts(&paths_to_wipe(config))?)
}

/// Syncs the disks of `places` before a wipe. The wipe does not use the files, but a later restore
/// would: so a lost write is noted durably in the marker, until the journal has the note.
fn sync_for_wipe(record: &mut HoldRecord, places: &[ResolvedPath]) -> Result<(), Error> {
    // The marker may name no disk: its own disk was full. A disk that failed may show so by itself.
    let is_unnamed = record.losses.is_empty() && unclean(record) == Some(Unclean::WriteBack);
    let failed = |system: &FileSystem| {
        if is_unnamed {
            return Some(system.clone());
        }
        // What has failed is mounted there now, and has another number than before a boot.
        has_failed(system).then(|| {
            let unknown = || FileSystem { super_block: None, ..system.clone() };
            FileSystem::of(&system.point).unwrap_or_else(|_| unknown())
        })
    };
    let failed: Vec<_> = record.file_systems.iter().filter_map(failed).collect();
    record.add_losses(&failed);
    if !mutant::is("hold-wipe-unsynced") {
        // The losses are computed below, and read by no one from this note: it may fail.
        overlay::sync(places, |error| drop(record.note_loss(error.path())))?;
    }
    record.losses = losses(record, places)?;
    if record.losses.is_empty() { Ok(()) } else { record.write() }
}

/// Returns the losses of the hold of `record`, which was at `places`. A loss without a super block
/// is replaced by a loss of each disk as mounted now.
fn losses(record: &HoldRecord, places: &[ResolvedPath]) -> Result<Vec<Loss>, Error> {
    let mut losses = record.losses.clone();
    let are_all_known = !losses.iter().any(Loss::is_unseen);
    let mut seen = Vec::new();
    for place in places {
        let system = FileSystem::of(place.parent())?;
        if !are_all_known
            || note::has_lost_writes(place)
            || lost_writes::is_noted_for_restore(&record.name, &system)
        {
            seen.push(Loss::read(&system));
        }
    }
    if !are_all_known && !seen.is_empty() {
        losses.retain(|loss| !loss.is_unseen());
    }
    seen.retain(|loss| !losses.contains(loss));
    losses.extend(seen);
    Ok(losses)
}

/// Uses the files as they are, and removes the marker, after what the hold added is durably gone.
fn keep(
    record: &mut HoldRecord,
    places: &[ResolvedPath],
    reason: String,
) -> Result<Recovered, RecoverError> {
    overlay::clean(places)?;
    present::look_at(record.held())?;
    sync(record, places)?;
    HoldRecord::clear(&record.name)?;
    Ok(Recovered::Kept { reason })
}

/// Syncs the file systems of `places`: without a marker no command reports a loss of what was in
/// memory alone. The kernel reports a lost write once, so a failure is noted for the next recovery.
fn sync(record: &mut HoldRecord, places: &[ResolvedPath]) -> Result<(), Error> {
    let mut lost = None;
    let opened = overlay::sync(places, |error| {
        // The failure matters more than that of its note.
        let _ = record.note_loss(error.path());
        lost.get_or_insert(error);
    });
    lost.map_or(opened, Err)
}

/// Returns where the overlays of `record` were. A path whose directory is gone has none.
fn places(record: &HoldRecord) -> Result<Vec<ResolvedPath>, Error> {
    let mut places = Vec::new();
    for index in 0..record.held().len() {
        match record.place(index) {
            Err(error) if error.io().kind() == ErrorKind::NotFound => {}
            place => places.push(place?),
        }
    }
    Ok(places)
}

/// Returns `reason`, with a note if the hold's file was edited since `then`.
fn noting_edits(reason: String, then: &Config, now: &Config) -> String {
    let files = |config: &Config| {
        let held: Vec<_> = config.hold.iter().map(|held| held.path.clone()).collect();
        (held, config.to_set_aside(), config.docker_root.clone())
    };
    if files(then) == files(now) {
        reason
    } else {
        format!("{reason}; the hold's file was edited since: the marker says what was held")
    }
}

fn refused(config: &Config, reason: String, put_back: Vec<String>) -> RecoverError {
    let held = config.hold.iter().map(|held| held.path.clone()).collect();
    RecoverError::Refused { name: config.name.clone(), reason, held, put_back }
}

fn decide(config: &Config, decision: Decision, is_certain: bool, reason: String) -> Fate {
    match (decision, config.after_crash) {
        (Decision::Keep, _) => Fate::Keep,
        (Decision::Wipe, _) => Fate::Wipe(reason),
        (Decision::ByFile, AfterCrash::Wipe) if is_certain => Fate::Wipe(reason),
        (Decision::ByFile, _) => Fate::Refuse(reason),
    }
}

/// Sets aside the files of the hold of `record`, which was at `places`, and removes the marker
/// after all renames are durable.
fn wipe(
    record: &HoldRecord,
    places: Vec<ResolvedPath>,
    reason: String,
) -> Result<Recovered, RecoverError> {
    let config = &record.config;
    let held = config.hold.as_slice();
    let name = config.name.as_str();
    if mutant::is("hold-recover-marker-first") {
        HoldRecord::clear(name)?;
    }
    let paths = paths_to_wipe(config);
    // Until the renames are durable, the marks beside the files show the hold: the marker may be
    // lost with its container. Marks in a directory that is renamed itself would go with it.
    let moved = aside::expand(&paths)?;
    let (moving, staying): (Vec<_>, Vec<_>) = places
        .into_iter()
        .partition(|place| moved.iter().any(|path| place.parent().starts_with(path)));
    overlay::clean(&moving)?;
    if mutant::is("hold-wipe-marks-first") {
        overlay::clean(&staying)?;
    }
    overlay::restore_attributes(&staying)?;
    present::look_at(held)?;
    let (unit, losses) = (config.unit.as_deref(), record.losses.as_slice());
    let request = |paths, reason| AsideRequest { name, unit, paths, reason, losses };
    let mut journal = aside::set_aside(&request(&paths, &reason))?;
    let mut layers = Layers::NotAsked;
    if let Some(root) = &config.docker_root {
        layers = match docker_layers::find(root) {
            Err(why) => Layers::Left(why.to_string()),
            Ok(Orphans { unreferenced, damaged, images, containers, paths }) => {
                // In one set: without its layers, an image could not be understood any more.
                journal = aside::set_aside(&request(&paths, reason_of(damaged)))?;
                Layers::SetAside { unreferenced, damaged, images, containers }
            }
        };
    }
    present::expect_none(held)?;
    overlay::clean(&staying)?;
    HoldRecord::clear(name)?;
    let (paths, commands) = (journal.paths(), journal.commands());
    Ok(Recovered::SetAside(SetAside { reason, paths, commands, layers }))
}

/// Returns why layers of dockerd are set aside, if `damaged` of them are damaged.
fn reason_of(damaged: usize) -> &'static str {
    match damaged {
        0 => "BuildKit's database, which referred to these layers, is set aside",
        _ => {
            "BuildKit's database, which referred to these layers, is set aside; or the crash \
             damaged a layer of these images"
        }
    }
}
