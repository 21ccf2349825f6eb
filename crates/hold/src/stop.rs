//! The end of a hold.

use crate::awaited_lock::OnWait;
use crate::boot::kernel_boot_id;
use crate::error::HoldFailure;
use crate::file_system::FileSystem;
use crate::live::{Obstacle, Overlay, View};
use crate::mounted::is_where_it_was;
use crate::open_files::FileUser;
use crate::overlay;
use crate::patience::eventually;
use crate::read_only::ReadOnly;
use crate::record::HoldRecord;
use crate::resolved_path::ResolvedPath;
use crate::runtime::Lock;
use crate::safe_directory::SafeDirectory;
use crate::unclean::unclean;
use rustix::io::Errno;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::{file_system, mutant};
use synconce_probe::mounts::{self, Mount, mount_id};

/// What [`stop`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The hold ended: everything is durable. These copies are left in other mount namespaces.
    Ended(Vec<Left>),
    /// There was no hold of this name.
    NotInForce,
}

/// A mount of an overlay that a stop leaves in another mount namespace, read-only for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The mount point, as the process sees it.
    pub point: PathBuf,
    /// A process of the namespace.
    pub user: FileUser,
}

/// Stops the hold `name`: unmounts, syncs the file systems, and removes what the hold added.
/// Waits for other commands that change the hold, and calls `on_wait` before.
///
/// # Errors
/// Why the hold is still in force, or what is not durable. The marker then stays.
pub fn stop(name: &str, on_wait: OnWait<'_>) -> Result<Stopped, HoldFailure> {
    let lock = Lock::take(name, on_wait)?;
    let record = HoldRecord::read(name).map_err(|error| HoldFailure::of_marker(name, error))?;
    let Some(record) = record else { return Ok(Stopped::NotInForce) };
    // A sandbox that hides the boot ends no hold.
    kernel_boot_id().map_err(HoldFailure::Boot)?;
    if let Some(why) = unclean(&record) {
        // A disk that failed can be repaired only after it is unmounted, and the overlays and
        // the guard keep it mounted. Nothing that a sync could add makes the files whole.
        release_all(&record)?;
        lock.end_guard()?;
        return Err(HoldFailure::Unclean(name.to_owned(), why));
    }
    Ok(Stopped::Ended(end(&lock, record)?))
}

/// Ends the hold of `record`, of which any part may be mounted.
pub(crate) fn end(lock: &Lock, mut record: HoldRecord) -> Result<Vec<Left>, HoldFailure> {
    // Both before the first unmount, so that a daemon that still runs keeps the whole hold.
    record.take_back()?;
    refuse_obstacles(&record)?;
    // Opened first: a descriptor reports the write-back errors since its open (syncfs(2)), and the
    // overlays report earlier ones.
    let pins = pins(&record)?;
    let held = mounted(&record)?;
    let read_only = make_read_only(&held, &record)?;
    // While the overlays are mounted: if this process is killed now, the overlays still report an
    // error to the next stop. A descriptor would report it once.
    let mut failed = None;
    if !mutant::is("hold-cleared-first") {
        if !mutant::is("hold-stop-synced-late") {
            failed = sync_or_note(&pins, &mut record)?;
        }
        failed = failed.or(note_lost_writes(&held, &mut record)?);
    }
    // Right after the overlays became read-only: until the unmount, a program that opens a file for
    // writing fails with EROFS.
    unmount_all(&held, &record)?;
    read_only.keep();
    let fenced: Vec<_> = held.into_iter().map(|(place, _)| place).collect();
    // After the unmount, because only now the mount tables show which copies it has ended.
    let left = unmount_copies(&record)?;
    // The sync below comes after the last writer.
    refuse_remains(&record, &fenced)?;
    lock.end_guard()?;
    let places = record.places()?;
    if mutant::is("hold-cleared-first") || mutant::is("hold-marks-removed-first") {
        overlay::clean(&places)?;
    }
    if mutant::is("hold-cleared-first") {
        HoldRecord::clear(&record.name)?;
    }
    failed = sync_or_note(&pins, &mut record)?.or(failed);
    if let Some(path) = failed {
        // What the hold added stays until `recover`: the disk may be read-only now, and the marker
        // may be lost with its container.
        return Err(HoldFailure::WriteBack(path, record.name));
    }
    clear(record, &places, &pins)?;
    Ok(left)
}

/// Removes what the hold added to `places`, whose data are durable, and then the marker.
fn clear(
    mut record: HoldRecord,
    places: &[ResolvedPath],
    pins: &[(OwnedFd, PathBuf)],
) -> Result<(), HoldFailure> {
    if mutant::is("hold-cleared-first") {
        return Ok(());
    }
    record.ending = true;
    // On a full disk the marker stays as it is. If the machine then stops before the end, `recover`
    // finds the marks gone, and asks.
    let _ = record.write();
    for place in places {
        place.clean()?;
    }
    // Without this sync, a crash could bring a removed mark back, which looks like an interrupted
    // hold without a marker. An error here is no loss of held data, which are durable: any writer
    // on the disk may have caused it.
    if let Err(error) = sync_pins(pins) {
        return Err(HoldFailure::Removal(error, record.name));
    }
    Ok(HoldRecord::clear(&record.name)?)
}

/// Syncs the file systems of `pins`. Notes in `record` that a disk lost a write before the next
/// sync: the kernel reports a lost write once. Returns the mount point of the first file system
/// that lost one.
///
/// # Errors
/// As for [`HoldRecord::note_losses`], after all syncs.
fn sync_or_note(
    pins: &[(OwnedFd, PathBuf)],
    record: &mut HoldRecord,
) -> Result<Option<PathBuf>, Error> {
    let (mut failed, mut noted) = (None, Ok(()));
    for pin in pins {
        if let Err(error) = sync_pin(pin) {
            if !mutant::is("hold-stop-synced-late") {
                noted = noted.and(record.note_loss(error.path()));
            }
            failed.get_or_insert(error.path().to_owned());
        }
    }
    noted.map(|()| failed)
}

/// Syncs all file systems of `pins`.
///
/// # Errors
/// The first of all errors. It says that the removal is not synced.
fn sync_pins(pins: &[(OwnedFd, PathBuf)]) -> Result<(), Error> {
    let synced: Vec<_> = pins.iter().map(sync_pin).collect();
    synced.into_iter().collect()
}

fn sync_pin((pin, point): &(OwnedFd, PathBuf)) -> Result<(), Error> {
    if mutant::is("hold-stop-unsynced") {
        return Ok(());
    }
    let synced = file_system::sync(pin.as_fd());
    synced.on("cannot sync the removal of what the hold added on", point)
}

/// Returns the held places that have their overlay, and the mounts.
pub(crate) fn mounted(record: &HoldRecord) -> Result<Vec<(ResolvedPath, Mount)>, Error> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    let with_mount = |place: ResolvedPath| {
        let mount = place.mount(&mounts)?.clone();
        Some((place, mount))
    };
    Ok(record.places()?.into_iter().filter_map(with_mount).collect())
}

/// Makes the overlays at `places` read-only.
fn make_read_only(
    places: &[(ResolvedPath, Mount)],
    record: &HoldRecord,
) -> Result<ReadOnly, HoldFailure> {
    if mutant::is("hold-stop-copies-writable") {
        return Ok(ReadOnly::default());
    }
    if let Some(made) = ReadOnly::make(places)? {
        return Ok(made);
    }
    let view = View::take()?;
    let overlays = view.overlays(record)?;
    let named = overlays.iter().map(|overlay| (overlay.place.path(), overlay.users()));
    let named = named.into_iter().find(|(_, users)| !users.is_empty());
    let (path, users) = named.unwrap_or_else(|| (places[0].0.path(), Vec::new()));
    Err(HoldFailure::in_use(path, users, record))
}

/// Unmounts idle copies of the overlays, which are read-only, in other mount namespaces, and
/// returns those that stay.
fn unmount_copies(record: &HoldRecord) -> Result<Vec<Left>, Error> {
    let mut view = View::take()?;
    view.unmount_copies(record)?;
    let overlays = view.overlays(record)?;
    let copies = overlays.iter().flat_map(Overlay::copies);
    let left = copies.map(|(namespace, mount)| Left {
        point: mount.point.clone(),
        user: FileUser::in_namespace(namespace),
    });
    Ok(left.collect())
}

/// Opens the file systems of the held files, each once.
fn pins(record: &HoldRecord) -> Result<Vec<(OwnedFd, PathBuf)>, Error> {
    let open = |path: &Path| -> Result<_, Error> {
        Ok((SafeDirectory::open(path)?.readable()?, path.to_owned()))
    };
    let (systems, places) = (record.file_systems.iter(), record.places()?);
    let mut pins = Vec::new();
    for place in &places {
        match open(place.parent()) {
            // The directory was renamed or removed. Its file system is synced all the same.
            Err(error)
                if error.io().kind() == ErrorKind::NotFound
                    && systems.clone().all(is_where_it_was) =>
            {
                for system in systems.clone() {
                    pins.push(open(&system.point)?);
                }
            }
            pin => pins.push(pin?),
        }
    }
    // Another file system may be mounted over the directory by now.
    let is_pinned = |system: &FileSystem| places.iter().any(|place| system.has(place.parent()));
    for system in systems.filter(|system| !is_pinned(system)) {
        if is_where_it_was(system) {
            pins.push(open(&system.point)?);
        } else if system.super_block.is_some() {
            // Mounted, and not here: what a container wrote that is gone.
            let act = "cannot find the file system that was mounted on";
            return Err(Error::new(act, &system.point, Errno::NODEV));
        }
    }
    keep_one_of_each(&mut pins)?;
    Ok(pins)
}

/// Keeps the first of the pins of each file system. A pin on an unlisted mount stays.
fn keep_one_of_each(pins: &mut Vec<(OwnedFd, PathBuf)>) -> Result<(), Error> {
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    let mut seen = HashSet::new();
    pins.retain(|(pin, _)| {
        let id = mount_id(pin);
        let mount = mounts.iter().find(|mount| Some(mount.id) == id);
        mount.is_none_or(|mount| seen.insert(mount.device))
    });
    Ok(())
}

/// Unmounts the overlays at the held paths.
fn release_all(record: &HoldRecord) -> Result<(), HoldFailure> {
    let held = mounted(record)?;
    if held.is_empty() {
        return Ok(());
    }
    refuse(|| Ok(in_use(&View::take()?.overlays(record)?, record)))?;
    unmount_all(&held, record)
}

/// Notes in `record` the disks of the paths of `held` that lost a write. Returns the first path.
fn note_lost_writes(
    held: &[(ResolvedPath, Mount)],
    record: &mut HoldRecord,
) -> Result<Option<PathBuf>, Error> {
    let (mut first, mut noted) = (None, Ok(()));
    for (place, _) in held {
        if place.has_write_back_error()? {
            noted = noted.and(record.note_loss(place.parent()));
            first.get_or_insert_with(|| place.path());
        }
    }
    noted.map(|()| first)
}

/// Unmounts the overlays at `held`.
fn unmount_all(held: &[(ResolvedPath, Mount)], record: &HoldRecord) -> Result<(), HoldFailure> {
    held.iter().try_for_each(|(place, mount)| release(place, mount, record))
}

/// Unmounts `place`. Users that /proc does not show can keep the mount busy, too.
fn release(place: &ResolvedPath, mount: &Mount, record: &HoldRecord) -> Result<(), HoldFailure> {
    let is_busy = |error: &Error| error.io().raw_os_error() == Some(Errno::BUSY.raw_os_error());
    let is_free = || match place.release(mount) {
        Err(error) if is_busy(&error) => Ok(false),
        released => released.map(|()| true).map_err(HoldFailure::Act),
    };
    if eventually(is_free)? {
        return Ok(());
    }
    let view = View::take()?;
    let overlays = view.overlays(record)?;
    let named = obstructed(&overlays, record);
    Err(named.unwrap_or_else(|| HoldFailure::in_use(place.path(), Vec::new(), record)))
}

/// Waits until the overlays end that this stop has not made read-only: they are not mounted at
/// their places, so a stop does not reach them. `fenced` are the places of the read-only ones. An
/// overlay that an earlier stop has left is read-only, too.
fn refuse_remains(record: &HoldRecord, fenced: &[ResolvedPath]) -> Result<(), HoldFailure> {
    let places = record.places()?.into_iter();
    let is_fenced = |place: &ResolvedPath| fenced.iter().any(|one| one.path() == place.path());
    let mut places: Vec<_> = places.filter(|place| !is_fenced(place)).collect();
    if !places.is_empty() {
        let view = View::take()?;
        let overlays = view.overlays(record)?.into_iter();
        let is_left: Vec<_> = overlays.filter(Overlay::is_left).map(|one| one.place).collect();
        places.retain(|place| is_left.iter().all(|one| one.path() != place.path()));
    }
    let mut left = None;
    let is_free = || {
        left = None;
        for place in &places {
            if place.is_in_use()? == Some(true) {
                left = Some(place.path());
                return Ok(false);
            }
        }
        Ok::<_, HoldFailure>(true)
    };
    match (eventually(is_free)?, left) {
        (false, Some(path)) => Err(HoldFailure::in_use(path, Vec::new(), record)),
        _ => Ok(()),
    }
}

/// Fails if something keeps an overlay beyond an unmount of the held path, and is no copy that can
/// be left read-only. Unmounts idle copies in other mount namespaces: at a shutdown nothing else
/// would do so, and the next boot would find the hold interrupted. If the stop fails later, the
/// hold is in force without the copies.
fn refuse_obstacles(record: &HoldRecord) -> Result<(), HoldFailure> {
    refuse(|| {
        let mut view = View::take()?;
        if may_be_free(&view.overlays(record)?) {
            view.unmount_copies(record)?;
        }
        Ok(obstructed(&view.overlays(record)?, record))
    })
}

/// Whether nothing but mounts in other namespaces keeps `overlays`.
fn may_be_free(overlays: &[Overlay<'_>]) -> bool {
    let mut overlays = overlays.iter();
    overlays.all(|overlay| overlay.users().is_empty() && overlay.obstacle_here().is_none())
}

/// Fails with what `found` returns, if it returns a failure for as long as [`eventually`] waits.
fn refuse(found: impl Fn() -> Result<Option<HoldFailure>, HoldFailure>) -> Result<(), HoldFailure> {
    let mut last = None;
    let is_free = || {
        last = found()?;
        Ok::<_, HoldFailure>(last.is_none())
    };
    match (eventually(is_free)?, last) {
        (false, Some(failure)) => Err(failure),
        _ => Ok(()),
    }
}

fn in_use(overlays: &[Overlay<'_>], record: &HoldRecord) -> Option<HoldFailure> {
    let used = overlays.iter().map(|overlay| (overlay, overlay.users_of_hold()));
    let (overlay, users) = used.into_iter().find(|(_, users)| !users.is_empty())?;
    Some(HoldFailure::in_use(overlay.place.path(), users, record))
}

/// Returns what keeps an overlay beyond an unmount of the held path.
fn obstructed(overlays: &[Overlay<'_>], record: &HoldRecord) -> Option<HoldFailure> {
    let first = |obstacle: fn(&Overlay<'_>) -> Option<Obstacle>| {
        let found = overlays.iter().find_map(|overlay| Some((overlay, obstacle(overlay)?)));
        found.map(|(overlay, obstacle)| {
            HoldFailure::Blocked(overlay.place.path(), obstacle, record.name.clone())
        })
    };
    // First: from here no other obstacle can be removed.
    let found = first(|overlay| overlay.home()).or_else(|| in_use(overlays, record));
    found.or_else(|| first(|overlay| overlay.obstacle_here().or_else(|| unreached(overlay))))
}

/// Returns a mount of `overlay` in another namespace, if a stop here cannot make it read-only.
fn unreached(overlay: &Overlay<'_>) -> Option<Obstacle> {
    let is_reached = overlay.mount.is_some() || overlay.is_left();
    if is_reached { None } else { overlay.elsewhere() }
}
