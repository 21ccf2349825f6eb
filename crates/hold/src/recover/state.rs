//! Whether the end of a hold was clean.

use super::RecoverError;
use crate::boot::kernel_boot_id;
use crate::config::Config;
use crate::error::Unclean;
use crate::file_system::FileSystem;
use crate::lost;
use crate::lost_writes::Loss;
use crate::note;
use crate::record::HoldRecord;
use crate::resolved_path::ResolvedPath;
use crate::state_directory;
use crate::unclean::unclean;
use synconce_sys::reason;

/// The state of a hold, by its marker.
#[derive(Debug)]
pub(super) enum MarkedState {
    /// There is no marker.
    Clean,
    /// The kernel has every write since the start.
    Untouched,
    /// Writes may be lost.
    Unclean {
        /// Why, in words.
        reason: String,
        /// The marker, or a replacement of a damaged marker.
        record: Box<HoldRecord>,
        /// Whether writes may be lost for certain: see [`crate::error::Unclean::is_certain`].
        is_certain: bool,
    },
}

impl MarkedState {
    /// Reads the state of the hold of `config`.
    ///
    /// # Errors
    /// Names the marker, which may be in order but cannot be read now. [`RecoverError::Boot`] if
    /// there is a marker.
    pub(super) fn read(config: &Config) -> Result<Self, RecoverError> {
        let found = HoldRecord::read(&config.name);
        if !matches!(found, Ok(None)) {
            require_boot()?;
        }
        match found {
            Ok(None) => Ok(Self::Clean),
            Ok(Some(record)) => Ok(Self::from_record(record)),
            Err(error) if HoldRecord::is_damage(&error) => {
                let path = state_directory::marker(&config.name);
                let reason =
                    format!("the marker {} is damaged: {}", path.display(), reason(error.io()));
                let record = Box::new(in_place_of_lost(config, LOST));
                let reason = with_loss(reason, record.has_noted_failure());
                Ok(Self::Unclean { reason, record, is_certain: true })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the state of the hold of `config`, which has no marker. If the marker is lost,
    /// writes one: the recovery removes what shows that the marker is lost, and may be cut short.
    ///
    /// # Errors
    /// Names the act and path. [`RecoverError::Boot`] if the marker is lost.
    pub(super) fn without_marker(config: &Config) -> Result<Self, RecoverError> {
        let Some(why) = lost::unclean(config)? else { return Ok(Self::Clean) };
        require_boot()?;
        let boot = if why.is_certain() { LOST } else { MAYBE_LOST };
        let record = in_place_of_lost(config, boot);
        record.write()?;
        Ok(Self::from_record(record))
    }

    fn from_record(record: HoldRecord) -> Self {
        let Some(why) = unclean(&record) else { return Self::Untouched };
        let since =
            if record.lost { String::new() } else { format!(" (since {})", record.started) };
        // An earlier recovery may have found a lost write.
        let is_unsaid = why != Unclean::WriteBack && record.has_noted_failure();
        Self::Unclean {
            reason: with_loss(format!("{why}{since}"), is_unsaid),
            record: Box::new(record),
            is_certain: why.is_certain(),
        }
    }
}

/// Fails if the boot id is unknown. Without the boot id, a crash could not be told from the kill of
/// a container, and a lost write would be noted without its boot.
fn require_boot() -> Result<(), RecoverError> {
    kernel_boot_id().map(drop).map_err(RecoverError::Boot)
}

/// The boot in a replacement of a lost or damaged marker, if it is certain that writes may be lost.
/// No boot has this id.
const LOST: &str = "lost";

/// The boot in a replacement of a lost marker, if nothing shows that the machine has stopped. An
/// older version of synconce asks for a decision if the marker has no boot.
const MAYBE_LOST: &str = "";

/// Returns the marker of the hold of `config` that takes the place of a lost or damaged one. It has
/// the losses that are noted beside the files. `boot` is [`LOST`] or [`MAYBE_LOST`].
fn in_place_of_lost(config: &Config, boot: &str) -> HoldRecord {
    let places = config.hold.iter().filter_map(|held| ResolvedPath::find(held).ok());
    let lost = places.filter(note::has_lost_writes);
    let systems = lost.filter_map(|place| FileSystem::of(place.parent()).ok());
    let losses = systems.map(|system| Loss::read(&system)).collect();
    HoldRecord { losses, lost: true, ..HoldRecord::new(config, boot) }
}

/// Returns `reason`, and says that writes were lost if `is_lost`.
fn with_loss(reason: String, is_lost: bool) -> String {
    if is_lost { format!("{reason}, and the disk lost writes") } else { reason }
}
