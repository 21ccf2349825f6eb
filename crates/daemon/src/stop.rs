//! The end of a hold.

use crate::error::Failure;
use crate::open_files::{self, OpenFile, User};
use crate::overlay::Place;
use crate::record::Record;
use crate::runtime::Lock;
use crate::unclean::unclean;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use synconce_durable::error::{Context, Error};
use synconce_durable::mutant;
use synconce_probe::mounts::{self, Mount};

/// How long a stop waits for processes that have held files open.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it waits between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// What [`stop`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The hold ended: everything is durable.
    Ended,
    /// There was no hold of this name.
    NotInForce,
}

/// Stops the hold `name`: unmounts, syncs the file systems, and removes what the hold added.
///
/// # Errors
/// Why the hold is still in force, or what is not durable. The marker then stays.
pub fn stop(name: &str) -> Result<Stopped, Failure> {
    let lock = Lock::take(name)?;
    let record = Record::read(name).map_err(|error| Failure::of_marker(name, error))?;
    let Some(record) = record else { return Ok(Stopped::NotInForce) };
    if let Some(why) = unclean(&record) {
        return Err(Failure::Unclean(name.to_owned(), why));
    }
    end(&lock, record)?;
    Ok(Stopped::Ended)
}

/// Ends the hold of `record`, of which any part may be mounted.
pub(crate) fn end(lock: &Lock, mut record: Record) -> Result<(), Failure> {
    // Opened first: a descriptor reports the write-back errors since it was opened (syncfs(2)),
    // and the overlays those before.
    let pins = pins(&record)?;
    let mounts = mounts::ours().on("cannot read", Path::new("/proc/self/mountinfo"))?;
    let mut places = Vec::new();
    for held in record.held() {
        let place = Place::of(held)?;
        places.extend(place.mount(&mounts).cloned().map(|mount| (place, mount)));
    }
    // Before the first unmount, so that a daemon that still runs keeps the whole hold.
    refuse_users(&places, &record)?;
    let mut failed = None;
    for (place, mount) in &places {
        failed = failed.or(place.has_write_back_error().then(|| place.path()));
        release(place, mount, &record)?;
    }
    lock.end_guard()?;
    if failed.is_none() {
        for held in record.held() {
            Place::of(held)?.clean()?;
        }
    }
    if mutant::is("hold-cleared-first") {
        Record::clear(&record.name)?;
    }
    for (pin, point) in &pins {
        if !mutant::is("hold-stop-unsynced") && rustix::fs::syncfs(pin).is_err() {
            failed = Some(point.clone());
        }
    }
    if let Some(path) = failed {
        // What the hold added stays until `recover`: the disk may be read-only now.
        record.failed = true;
        record.write()?;
        return Err(Failure::WriteBack(path, record.name));
    }
    Ok(Record::clear(&record.name)?)
}

/// Opens the file systems of the held files.
fn pins(record: &Record) -> Result<Vec<(OwnedFd, PathBuf)>, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut pins = Vec::new();
    for held in record.held() {
        let parent = Place::of(held)?.parent().to_owned();
        let pin = rustix::fs::open(&parent, flags, Mode::empty()).on("cannot open", &parent)?;
        pins.push((pin, parent));
    }
    Ok(pins)
}

/// Unmounts `place`. Also what /proc does not show, such as a mapping, keeps it busy.
fn release(place: &Place, mount: &Mount, record: &Record) -> Result<(), Failure> {
    let is_free = || match place.release() {
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Ok(false),
        Err(error) => Err(Failure::Act(Error::new("cannot unmount", &place.path(), error))),
        Ok(()) => Ok(true),
    };
    match eventually(is_free)? {
        true => Ok(()),
        false => Err(in_use(place, users(mount, &open_files::all()), record)),
    }
}

fn refuse_users(places: &[(Place, Mount)], record: &Record) -> Result<(), Failure> {
    let mut found = None;
    let is_free = || {
        let files = open_files::all();
        let of = |(place, mount): &(Place, Mount)| Some((place.clone(), users(mount, &files)));
        found = places.iter().filter_map(of).find(|(_, users)| !users.is_empty());
        Ok(found.is_none())
    };
    match (eventually(is_free)?, found) {
        (false, Some((place, users))) => Err(in_use(&place, users, record)),
        _ => Ok(()),
    }
}

fn in_use(place: &Place, users: Vec<User>, record: &Record) -> Failure {
    let unit = record.config.unit.clone();
    Failure::InUse { starting: false, path: place.path(), users, unit }
}

/// Waits until `holds` returns true, for at most [`PATIENCE`], and returns whether it did. A
/// program that reads the files for a moment, such as a backup, must not make the stop fail: at
/// a shutdown nothing would try again, and the next boot would find the hold interrupted.
fn eventually(mut holds: impl FnMut() -> Result<bool, Failure>) -> Result<bool, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        if holds()? {
            return Ok(true);
        }
        if Instant::now() > end {
            return Ok(false);
        }
        sleep(PAUSE);
    }
}

fn users(mount: &Mount, files: &[OpenFile]) -> Vec<User> {
    open_files::users(files.iter().filter(|file| file.mount == mount.id))
}
