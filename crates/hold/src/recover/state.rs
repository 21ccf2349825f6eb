//! Whether the end of a hold was clean.

use crate::config::Config;
use crate::error::Unclean;
use crate::lost;
use crate::lost_writes;
use crate::overlay::ResolvedPath;
use crate::record::{self, HoldRecord};
use crate::unclean::unclean;
use synconce_durable::error::Error;
use synconce_durable::record::now;
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
        /// The marker, unless it is damaged.
        record: Option<Box<HoldRecord>>,
        /// Whether writes may be lost for certain: see [`crate::error::Unclean::is_certain`].
        is_certain: bool,
    },
}

impl MarkedState {
    /// Reads the state of the hold `name`.
    ///
    /// # Errors
    /// Names the marker, which may be in order but cannot be read now.
    pub(super) fn read(name: &str) -> Result<Self, Error> {
        match HoldRecord::read(name) {
            Ok(None) => Ok(Self::Clean),
            Ok(Some(record)) => Ok(Self::of(record)),
            Err(error) if HoldRecord::is_damage(&error) => {
                let path = record::path(name);
                let reason =
                    format!("the marker {} is damaged: {}", path.display(), reason(error.io()));
                let reason = with_loss(reason, lost_writes::is_noted(name));
                Ok(Self::Unclean { reason, record: None, is_certain: true })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the state of the hold of `config`, which has no marker. If the marker is lost,
    /// writes one: the recovery removes what shows that the marker is lost, and may be cut short.
    ///
    /// # Errors
    /// Names the act and path.
    pub(super) fn without_marker(config: &Config) -> Result<Self, Error> {
        let Some(why) = lost::unclean(config)? else { return Ok(Self::Clean) };
        let is_certain = why.is_certain();
        let has_lost_writes =
            |held| ResolvedPath::of(held).is_ok_and(|place| lost::has_lost_writes(&place));
        let record = HoldRecord {
            name: config.name.clone(),
            started: now(),
            // No boot has this id. An older version asks for a decision if there is none.
            boot: if is_certain { "lost".to_owned() } else { String::new() },
            file_systems: Vec::new(),
            config: config.clone(),
            failed: config.hold.iter().any(has_lost_writes),
            has_intact: false,
            lost: true,
            ending: false,
            aside_in: Vec::new(),
            spots: Vec::new(),
            namespace: 0,
        };
        record.write()?;
        Ok(Self::of(record))
    }

    /// Notes durably that this recovery removes the marks beside the files: see
    /// [`HoldRecord::restored`]. On a full disk it does not: if the machine then stops before the end,
    /// the next recovery asks.
    pub(super) fn note_ending(&self) {
        if let Self::Unclean { record: Some(record), .. } = self {
            let _ = HoldRecord { ending: true, ..HoldRecord::clone(record) }.write();
        }
    }

    /// Notes that this recovery, of the hold `name` at `places`, met a lost write: see
    /// [`HoldRecord::note_failure`].
    ///
    /// # Errors
    /// If no note could be made.
    pub(super) fn note_loss(&mut self, name: &str, places: &[ResolvedPath]) -> Result<(), Error> {
        match self {
            Self::Unclean { record: Some(record), .. } => record.note_failure(),
            _ => lost_writes::note(name, places),
        }
    }

    fn of(record: HoldRecord) -> Self {
        let Some(why) = unclean(&record) else { return Self::Untouched };
        let since =
            if record.lost { String::new() } else { format!(" (since {})", record.started) };
        // An earlier recovery can have met the loss.
        let is_unsaid = why != Unclean::WriteBack && record.has_noted_failure();
        Self::Unclean {
            reason: with_loss(format!("{why}{since}"), is_unsaid),
            record: Some(Box::new(record)),
            is_certain: why.is_certain(),
        }
    }
}

/// Returns `reason`, and says that writes were lost if `is_lost`.
fn with_loss(reason: String, is_lost: bool) -> String {
    if is_lost { format!("{reason}, and the disk lost writes") } else { reason }
}
