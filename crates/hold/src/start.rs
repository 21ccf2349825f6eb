//! The start of a hold.

use crate::aside::{self, Journal};
use crate::awaited_lock::OnWait;
use crate::boot::kernel_boot_id;
use crate::config::{Config, Held, HeldKind};
use crate::error::{HoldFailure, Unclean};
use crate::file_id::FileId;
use crate::file_system::FileSystem;
use crate::kind;
use crate::lost_writes;
use crate::made::Made;
use crate::marker_place;
use crate::note;
use crate::open_files::FileUser;
use crate::overlaps;
use crate::patience::eventually;
use crate::reach::{self, Unreached};
use crate::read_only::{ReadOnly, is_read_only};
use crate::record::{HoldRecord, Spot};
use crate::resolved_path::ResolvedPath;
use crate::runtime::{self, Lock};
use crate::safe_directory::{Astray, SafeDirectory};
use crate::stop;
use crate::unclean::unclean;
use crate::users;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::file_system;
use synconce_durable::mutant;
use synconce_durable::pins::mount_of;
use synconce_durable::record::now;
use synconce_probe::mounts::{self, Mount, device};
use synconce_probe::namespaces;

/// What [`start`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// The hold began.
    Began {
        /// The held paths that were missing, and that this start made.
        made: Vec<PathBuf>,
        /// The first process, if it has another mount namespace and does not see the hold.
        unseen_by: Option<FileUser>,
    },
    /// The hold was in force already, and nothing was changed.
    InForce,
}

/// Where the daemon of a hold is started.
#[derive(Clone, Copy)]
pub enum DaemonStart<'a> {
    /// By the calling process. The function is called before the hold begins, once no lock is
    /// waited for any more.
    Child(&'a dyn Fn()),
    /// By its unit, if the hold has one, or anywhere.
    Elsewhere,
}

/// Starts the hold of `config`. The calling process must have one thread. Waits for other commands
/// that change the hold, or start a hold on one of its disks, and calls `on_wait` before.
///
/// The marker is durable before the first mount. An error leaves nothing mounted, no marker, and
/// nothing that this call made. A hold that is mounted only in part is stopped and started anew.
///
/// # Errors
/// Why nothing is held.
pub fn start(
    config: &Config,
    daemon: DaemonStart<'_>,
    on_wait: OnWait<'_>,
) -> Result<Started, HoldFailure> {
    // Without the boot id in the marker, the next start could not see whether the machine stopped.
    let boot = kernel_boot_id().map_err(HoldFailure::Boot)?;
    let mut lock = Lock::take(&config.name, on_wait)?;
    let marker = HoldRecord::read(&config.name);
    if let Some(record) = marker.map_err(|error| HoldFailure::of_marker(&config.name, error))? {
        if let Some(why) = unclean(&record) {
            return Err(HoldFailure::Unclean(config.name.clone(), why));
        }
        if record.config != *config && is_mounted(&record)? {
            return Err(HoldFailure::Changed(config.name.clone()));
        }
        if record.config == *config && is_whole(&record)? {
            guard_again(&mut lock, &record)?;
            make_writable(&record)?;
            return Ok(Started::InForce);
        }
        let again = |error| HoldFailure::Again(config.name.clone(), Box::new(error));
        stop::end(&lock, record).map_err(again)?;
    }
    // Until the overlays are mounted: a start by another name may look for markers meanwhile.
    lock.take_disks(&overlaps::devices(config)?, on_wait)?;
    if let DaemonStart::Child(has_locked) = daemon {
        has_locked();
    }
    overlaps::refuse_all(config)?;
    // Its marker was lost, and the mounts are gone.
    lock.end_guard()?;
    marker_place::refuse(config)?;
    refuse_parts(config)?;
    let mut new = Made::default();
    let made = config.missing();
    // A daemon that runs could open a file that this start makes, and that a refusal removes.
    if !made.is_empty() {
        refuse_second_daemon(config)?;
    }
    let mut places = Vec::new();
    for held in &config.hold {
        places.push(prepare(held, config, &mut new)?);
    }
    let paths: Vec<_> = places.iter().map(|(place, _)| place.path()).collect();
    refuse_users(&paths, config)?;
    let locked = lock_files(&places, config)?;
    refuse_unshared(config)?;
    let mut record = record(config, boot)?;
    // A verb that was killed may have left the note of an earlier hold.
    lost_writes::forget(&config.name)?;
    record.write_first()?;
    match begin(&mut record, daemon, &mut lock, locked) {
        Ok(unseen_by) => {
            new.keep();
            Ok(Started::Began { made, unseen_by })
        }
        Err(error) => {
            // The daemon was not started, but another process may have written meanwhile. So the
            // hold is stopped in order. If the stop fails, the marker stays.
            let _ = stop::end(&lock, record);
            Err(error)
        }
    }
}

/// Mounts the overlays of `record`, whose marker is written, and starts the guard. Returns what
/// [`reach::first_without`] finds.
fn begin(
    record: &mut HoldRecord,
    daemon: DaemonStart<'_>,
    lock: &mut Lock,
    locked: Vec<OwnedFd>,
) -> Result<Option<FileUser>, HoldFailure> {
    hold_all(record)?;
    note_devices(record)?;
    reach::find_bypass(record)?.map_or(Ok(()), Err)?;
    let first = match daemon {
        DaemonStart::Child(_) => None,
        DaemonStart::Elsewhere => reach::first_without(record)?,
    };
    if let (Some(first), Some(_)) = (&first, &record.config.unit) {
        return Err(Unreached::First(record.name.clone(), first.clone()).into());
    }
    make_writable(record)?;
    lock.guard(locked)?;
    Ok(first)
}

/// Makes the overlays of `record` writable. Refuses while a process has a file below one of them
/// open, which it opened between the last look and the mount. Files of bbolt need no second look:
/// the guard locks them.
fn make_writable(record: &HoldRecord) -> Result<(), HoldFailure> {
    let held = stop::mounted(record)?;
    let is_closed =
        |(place, mount): &&(ResolvedPath, Mount)| !place.is_file() && is_read_only(mount);
    let mut closed: Vec<_> = held.iter().filter(is_closed).map(|(place, _)| place).collect();
    if mutant::is("hold-looked-once") {
        closed.clear();
    }
    match users::that_stay_below(&closed)? {
        None => Ok(ReadOnly::undo(&held)?),
        Some((path, users)) => Err(in_use(path, users, &record.config)),
    }
}

/// Whether anything of `record` is mounted.
pub(crate) fn is_mounted(record: &HoldRecord) -> Result<bool, Error> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    // A path that is gone is not mounted.
    let places = record.places().unwrap_or_default();
    Ok(places.iter().any(|place| place.mount(&mounts).is_some()))
}

/// Whether everything of `record` is mounted, and no write was lost.
fn is_whole(record: &HoldRecord) -> Result<bool, Error> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    for (held, place) in record.held().iter().zip(record.places()?) {
        // A link above the path may have changed since.
        let leads_there = ResolvedPath::find(held)?.path() == place.path();
        if !leads_there || place.mount(&mounts).is_none() || place.has_write_back_error()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Starts a new guard for the hold of `record`, which is in force, if its guard was killed. The
/// daemon may have the files open.
fn guard_again(lock: &mut Lock, record: &HoldRecord) -> Result<(), Error> {
    if runtime::guard(&record.name).is_some() {
        return Ok(());
    }
    record.take_back()?;
    let mut locked = Vec::new();
    let places = record.held().iter().zip(record.places()?);
    for (_, place) in places.filter(|(held, _)| held.kind == HeldKind::Bolt) {
        let file = place.open_below()?;
        runtime::lock_below(&file).on("cannot lock", &place.path())?;
        locked.push(file);
    }
    lock.guard(locked)
}

fn record(config: &Config, boot: String) -> Result<HoldRecord, Error> {
    let (mut file_systems, mut spots) = (Vec::new(), Vec::new());
    for held in &config.hold {
        let place = ResolvedPath::find(held)?;
        let id = FileId::read(&place.path())?;
        let parent = place.parent().to_owned();
        spots.push(Spot { parent, device: None, id, directories: Vec::new() });
        // The directory above: the file itself may be missing, or held already.
        let system = FileSystem::of(place.parent())?;
        if !file_systems.contains(&system) {
            file_systems.push(system);
        }
    }
    Ok(HoldRecord {
        name: config.name.clone(),
        started: now(),
        boot,
        file_systems,
        config: config.clone(),
        losses: Vec::new(),
        has_intact: true,
        lost: false,
        ending: false,
        aside_in: config.set_aside.iter().map(|path| aside::directory_of(path)).collect(),
        spots,
        namespace: namespaces::ours(),
    })
}

/// Refuses while only a part of the files is set aside, or put back.
fn refuse_parts(config: &Config) -> Result<(), HoldFailure> {
    let journal = Journal::read(&config.name)?;
    if journal.is_restoring() {
        return Err(HoldFailure::Restoring(config.name.clone()));
    }
    if journal.is_setting_aside() {
        return Err(HoldFailure::Unclean(config.name.clone(), Unclean::Marker));
    }
    Ok(())
}

/// Refuses a data directory of dockerd whose mount is private: dockerd would bind-mount the
/// directory over itself, without the mounts of the hold (`setupDaemonRootPropagation` in
/// moby), and wait for ever for the locks that the guard has.
fn refuse_unshared(config: &Config) -> Result<(), HoldFailure> {
    let Some(root) = &config.docker_root else { return Ok(()) };
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    let mount = mount_of(root, &mounts)?;
    if mount.propagates {
        Ok(())
    } else {
        Err(HoldFailure::Private(root.clone(), mount.point.clone()))
    }
}

/// Makes the directory of a held path: it is missing before the daemon's first start, and after
/// a wipe.
fn make_parent(held: &Held, new: &mut Made) -> Result<SafeDirectory, Error> {
    let above = held.path.parent().unwrap_or(Path::new("/"));
    // The daemon's user reaches its files, and no other user reads the directory.
    SafeDirectory::make_all(above, |directory, name| new.add(directory, name))
}

/// A place that can be held, and its directory.
type Prepared = (ResolvedPath, SafeDirectory);

/// Makes a missing file or directory, and checks what is there.
fn prepare(held: &Held, config: &Config, new: &mut Made) -> Result<Prepared, HoldFailure> {
    let parent = make_parent(held, new)?;
    parent.refuse_writable_by_all()?;
    let place = ResolvedPath::at(parent.path().to_owned(), held);
    refuse_foreign(&place, config)?;
    // Before the check of the content: a clean hold leaves nothing, a crash its link.
    place.clean()?;
    kind::inspect(held).map_err(HoldFailure::Refused)?;
    match parent.look(place.name())? {
        None => make(held, &parent, place.name(), config, new)?,
        Some(found) => parent.refuse_hard_link(place.name(), &found)?,
    }
    Ok((place, parent))
}

/// Locks the files of bbolt among `places`, which are those of `config`, and returns the files.
fn lock_files(places: &[Prepared], config: &Config) -> Result<Vec<OwnedFd>, HoldFailure> {
    let held = config.hold.iter().zip(places);
    let files = held.filter(|(held, _)| held.kind == HeldKind::Bolt).map(|(_, (place, parent))| {
        let (path, file) = (place.path(), parent.open_file(place.name(), OFlags::RDWR)?);
        match runtime::lock_below(&file) {
            Err(Errno::WOULDBLOCK) => Err(in_use(path, Vec::new(), config)),
            other => Ok(other.on("cannot lock", &path).map(|()| file)?),
        }
    });
    files.collect()
}

/// Refuses `place` while another container holds it, whose processes and mounts are out of sight: a
/// lock through one overlay is no lock in the other. Refuses it also if the marker of an earlier
/// hold is lost.
fn refuse_foreign(place: &ResolvedPath, config: &Config) -> Result<(), HoldFailure> {
    // Each volatile overlay has the mark. The look below would make one.
    if !place.is_marked()? {
        return Ok(());
    }
    if !eventually(|| Ok::<_, HoldFailure>(place.is_in_use()? != Some(true)))? {
        return Err(in_use(place.path(), Vec::new(), config));
    }
    let unclean = |why| Err(HoldFailure::Unclean(config.name.clone(), why));
    match note::was_mounted(place) {
        None => unclean(Unclean::UnknownMarker),
        Some(false) => unclean(Unclean::Marker),
        // No write was lost, but none was synced either: without the marker no stop would do so.
        Some(true) => {
            let parent = place.open_parent()?.readable()?;
            let synced = file_system::sync(parent.as_fd());
            Ok(synced.on("cannot sync the file system of", place.parent())?)
        }
    }
}

/// Makes the missing `path`. The daemon may run as another user. So the new file gets the owner, the
/// mode and the access lists of the file that was set aside, if there is one.
fn make(
    held: &Held,
    parent: &SafeDirectory,
    name: &OsStr,
    config: &Config,
    new: &mut Made,
) -> Result<(), Error> {
    let path = parent.path().join(name);
    let made = if held.kind.is_file() {
        parent.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    } else {
        rustix::fs::mkdirat(parent, name, Mode::RWXU)
            .on("cannot create", &path)
            .and_then(|()| parent.open_directory(name))
    }?;
    new.add(parent.try_clone()?, name.to_owned());
    match aside::former(&config.name, &held.path)? {
        Some(former) => former.give(&made, &path),
        None => Ok(()),
    }
}

/// Refuses a second daemon on the files of `config`: the first one has them open. The first one may
/// have outlived a `synconce hold run` that was killed.
///
/// # Errors
/// [`HoldFailure::InUse`], or names the path that cannot be read.
pub fn refuse_second_daemon(config: &Config) -> Result<(), HoldFailure> {
    let paths: Vec<_> = config.hold.iter().map(|held| held.path.clone()).collect();
    refuse_users(&paths, config)
}

/// Refuses the first of `paths` at which a process has a file open: the syncs of that process would
/// stay real, and its mappings would show the file below.
fn refuse_users(paths: &[PathBuf], config: &Config) -> Result<(), HoldFailure> {
    match users::that_stay(paths)? {
        None => Ok(()),
        Some((path, users)) => Err(in_use(path, users, config)),
    }
}

fn in_use(path: PathBuf, users: Vec<FileUser>, config: &Config) -> HoldFailure {
    HoldFailure::InUse { starting: true, path, users, unit: config.unit.clone() }
}

fn hold_all(record: &HoldRecord) -> Result<(), Error> {
    record.places()?.iter().try_for_each(ResolvedPath::hold)
}

/// Writes the devices of the overlays, and their directories, to the marker. Both are known only
/// after the mount. Until then the marker has only the paths. The daemon has not started yet.
fn note_devices(record: &mut HoldRecord) -> Result<(), Error> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    for (place, spot) in record.places()?.iter().zip(&mut record.spots) {
        // If the overlay is not at the place, another file has got the name meanwhile.
        let mount = place.mount(&mounts).ok_or_else(|| Astray::Replaced.on(&place.path()))?;
        spot.device = Some(device(mount));
        spot.directories = place.identities()?;
    }
    record.write()
}
