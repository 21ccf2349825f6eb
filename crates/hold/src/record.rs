//! The durable marker of a hold.

use crate::config::{Config, Held};
use crate::file_id::FileId;
use crate::file_system::FileSystem;
use crate::lost_writes::{self, Loss};
use crate::resolved_path::ResolvedPath;
use crate::state_directory::{self, MARKER};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::record::now;
use synconce_durable::replace::{self, Rights, exists};
use synconce_durable::{mutant, state_file};

/// What is in the marker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// The name of the hold.
    pub name: String,
    /// When the hold started, RFC 3339 in UTC.
    pub started: String,
    /// The kernel's boot id at the start.
    pub boot: String,
    /// The file systems of the held files.
    pub file_systems: Vec<FileSystem>,
    /// What is held, and what a crash costs, as the hold's file said at the start.
    pub config: Config,
    /// The disks that lost writes: what is on them may be damaged, in this boot, too.
    #[serde(default)]
    pub losses: Vec<Loss>,
    /// Whether a file beside the marker shows that no write was lost: `HoldRecord::note_losses`
    /// removes it. Markers of older versions have no such file.
    #[serde(default)]
    pub has_intact: bool,
    /// This marker takes the place of a lost one. `started` is when the loss was found, and an
    /// empty `boot` says that nothing shows whether the machine stopped.
    #[serde(default)]
    pub lost: bool,
    /// A stop or a recovery may have removed the marks beside the files
    /// ([`ResolvedPath::is_marked`]).
    #[serde(default)]
    pub ending: bool,
    /// Where the held paths are, in the order of `config`. Empty in markers of older versions.
    #[serde(default)]
    pub spots: Vec<Spot>,
    /// The directories that have the paths of `set_aside`, without links, in the order of `config`;
    /// `None` for a directory that was missing. Empty in markers of older versions.
    #[serde(default)]
    pub aside_in: Vec<Option<PathBuf>>,
    /// The number of the mount namespace of the overlays; 0 if it is unknown.
    #[serde(default)]
    pub namespace: u64,
}

/// Where a held path was when the hold started. Links and names may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spot {
    /// The directory that has the held path, without links.
    pub parent: PathBuf,
    /// The device of the overlay (`st_dev`). `None` until the overlay is mounted.
    pub device: Option<u64>,
    /// What the held path was. `None` in markers of older versions.
    #[serde(default)]
    pub id: Option<FileId>,
    /// The directories of the overlay: see `ResolvedPath::take_back`. Empty until the overlay is
    /// mounted, and in markers of older versions.
    #[serde(default)]
    pub directories: Vec<FileId>,
}

impl HoldRecord {
    /// Returns a marker of the hold of `config` in `boot` that has neither file systems nor losses.
    pub fn new(config: &Config, boot: &str) -> Self {
        Self {
            name: config.name.clone(),
            started: now(),
            boot: boot.to_owned(),
            file_systems: Vec::new(),
            config: config.clone(),
            losses: Vec::new(),
            has_intact: false,
            lost: false,
            ending: false,
            spots: Vec::new(),
            aside_in: Vec::new(),
            namespace: 0,
        }
    }

    /// Returns the held files and directories.
    pub fn held(&self) -> &[Held] {
        &self.config.hold
    }

    /// Returns the place of the held path with the number `index`: where the overlay was mounted,
    /// also if links lead to another place now.
    ///
    /// # Errors
    /// For markers of older versions, those of [`ResolvedPath::find`].
    pub fn place(&self, index: usize) -> Result<ResolvedPath, Error> {
        let held = &self.config.hold[index];
        match self.spots.get(index) {
            Some(spot) => Ok(ResolvedPath::at(spot.parent.clone(), held)),
            None => ResolvedPath::find(held),
        }
    }

    /// Returns the places of all held paths: see [`HoldRecord::place`].
    ///
    /// # Errors
    /// As for [`HoldRecord::place`].
    pub fn places(&self) -> Result<Vec<ResolvedPath>, Error> {
        (0..self.held().len()).map(|index| self.place(index)).collect()
    }

    /// Returns the places of the held paths that can be found.
    pub(crate) fn known_places(&self) -> Vec<ResolvedPath> {
        (0..self.held().len()).filter_map(|index| self.place(index).ok()).collect()
    }

    /// Makes root the owner of the directories of all overlays again: see
    /// [`ResolvedPath::take_back`].
    ///
    /// # Errors
    /// As for [`ResolvedPath::take_back`].
    pub(crate) fn take_back(&self) -> Result<(), Error> {
        for (spot, held) in self.spots.iter().zip(self.held()) {
            ResolvedPath::at(spot.parent.clone(), held).take_back(&spot.directories)?;
        }
        Ok(())
    }

    /// Returns the first held path that exists without the mark of its overlay: a backup, or a
    /// snapshot from before the hold, was restored.
    pub(crate) fn restored(&self) -> Result<Option<PathBuf>, Error> {
        // A stop or a recovery may have removed the marks.
        if self.ending {
            return Ok(None);
        }
        for (place, spot) in self.places()?.iter().zip(&self.spots) {
            // Without a device in the marker, the mark may not have been durable yet.
            if spot.device.is_some() && exists(&place.path())? && !place.is_marked()? {
                return Ok(Some(place.path()));
            }
        }
        Ok(None)
    }

    /// Reads the marker of the hold `name`. Returns `None` if there is none: the hold is not
    /// in force, and was stopped in order.
    ///
    /// # Errors
    /// Names the file. A marker that cannot be read is not a missing marker.
    pub fn read(name: &str) -> Result<Option<Self>, Error> {
        let path = state_directory::marker(name);
        match state_file::open(&path) {
            Err(error) if error == Errno::NOENT => Ok(None),
            file => {
                let record = state_file::read::<Self>(&file.on("cannot open", &path)?);
                let mut record = record.on("cannot read", &path)?;
                record.config.name = name.to_owned();
                Ok(Some(record))
            }
        }
    }

    /// Whether `error` of [`HoldRecord::read`] is about the content: the marker is damaged.
    pub fn is_damage(error: &Error) -> bool {
        // Only what a reader of JSON says about the content.
        matches!(error.io().kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
    }

    /// Writes the marker durably, with the directories above it.
    ///
    /// # Errors
    /// Names the act and path. Nothing may be held then.
    pub fn write(&self) -> Result<(), Error> {
        if mutant::is("hold-marker-unwritten") {
            return Ok(());
        }
        let path = state_directory::marker(&self.name);
        replace::make_directories_above(&path)?;
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from);
        let text = text.on("cannot write", &path)?;
        replace::write(&path, &text, Rights::common())
    }

    /// Writes the first marker of a hold, as [`HoldRecord::write`] does, after the file of
    /// [`HoldRecord::has_intact`]. The sync of the marker's directory makes that file durable, too,
    /// on file systems with a journal. Elsewhere a crash may take the file away: the marker is
    /// unclean anyway after the next boot.
    ///
    /// # Errors
    /// As for [`HoldRecord::write`]. Both files are removed then.
    pub(crate) fn write_first(&self) -> Result<(), Error> {
        let path = state_directory::intact(&self.name);
        replace::make_directories_above(&path)?;
        let mut file = File::options();
        file.write(true).create(true).mode(0o644).open(&path).on("cannot create", &path)?;
        self.write().inspect_err(|_| drop(Self::clear(&self.name)))
    }

    /// Notes that each disk of the hold may have lost writes: see [`HoldRecord::note_losses`].
    ///
    /// # Errors
    /// As for [`HoldRecord::note_losses`].
    pub(crate) fn note_failure(&mut self) -> Result<(), Error> {
        let places = self.known_places();
        let systems = places.iter().filter_map(|place| FileSystem::of(place.parent()).ok());
        // Another disk may be mounted over a place by now, so the disks of the start are added.
        let systems: Vec<_> = systems.chain(self.file_systems.iter().cloned()).collect();
        self.note_losses(&systems)
    }

    /// Notes that the disk of `path` lost writes: as [`HoldRecord::note_losses`], or as
    /// [`HoldRecord::note_failure`] if the disk cannot be found.
    ///
    /// # Errors
    /// As for [`HoldRecord::note_losses`].
    pub(crate) fn note_loss(&mut self, path: &Path) -> Result<(), Error> {
        match FileSystem::of(path) {
            Ok(system) => self.note_losses(&[system]),
            Err(_) => self.note_failure(),
        }
    }

    /// Notes that `systems` lost writes. The kernel reports a lost write once, so the next stop
    /// would not see the error.
    ///
    /// The note is the removal of a file: the disk of the marker may be full, and even btrfs needs
    /// no free space for a removal. If that disk is read-only, a note in memory is enough: after
    /// the next boot every marker is unclean.
    ///
    /// # Errors
    /// Names the marker, if no note could be made.
    pub(crate) fn note_losses(&mut self, systems: &[FileSystem]) -> Result<(), Error> {
        self.add_losses(systems);
        let noted = lost_writes::note(&self.name, systems, &self.known_places());
        let is_removed = self.has_intact
            && !mutant::is("hold-failure-in-memory")
            && replace::remove(&state_directory::intact(&self.name)).is_ok();
        // In the marker as well: a container that is made anew has no notes in memory.
        let written = self.write();
        if is_removed { Ok(()) } else { written.or_else(|error| noted.map_err(|_| error)) }
    }

    /// Adds losses of `systems`, without a note.
    pub(crate) fn add_losses(&mut self, systems: &[FileSystem]) {
        for loss in systems.iter().map(Loss::read) {
            if !self.losses.contains(&loss) {
                self.losses.push(loss);
            }
        }
    }

    /// Whether [`HoldRecord::note_losses`] was called for this hold, or may have been: the state
    /// directory cannot be looked at.
    pub(crate) fn has_noted_failure(&self) -> bool {
        let is_intact =
            !self.has_intact || exists(&state_directory::intact(&self.name)).unwrap_or(false);
        !self.losses.is_empty() || !is_intact || lost_writes::is_noted(&self.name)
    }

    /// Keeps the marker of the hold `name` under another name if it is damaged: what is in it may
    /// show why. A disk that is full or read-only has no room for the name.
    pub(crate) fn keep_damaged(name: &str) {
        if Self::read(name).is_err_and(|error| Self::is_damage(&error)) {
            let kept = state_directory::directory().join(format!("{name}{MARKER}.damaged"));
            let new = kept.with_extension("new");
            let _ = fs::remove_file(&new);
            // If the disk has no room for this name, an earlier damaged marker stays.
            let _ = fs::hard_link(state_directory::marker(name), &new)
                .and_then(|()| fs::rename(&new, &kept));
            // A rename over another name of the same file does nothing (rename(2)).
            let _ = fs::remove_file(&new);
        }
    }

    /// Removes the marker of the hold `name` durably.
    pub fn clear(name: &str) -> Result<(), Error> {
        replace::remove(&state_directory::marker(name))?;
        // The file means nothing without a marker, and the next start makes it anew.
        let _ = fs::remove_file(state_directory::intact(name));
        // After the marker: a marker whose notes are gone would say that no write was lost.
        lost_writes::forget(name)
    }

    /// Returns the names of the holds that have a marker, sorted.
    pub fn names() -> Result<Vec<String>, Error> {
        state_directory::names_with(MARKER)
    }
}
