//! The state of a hold.

use crate::config::{AfterCrash, Config, Held};
use crate::error::{HoldFailure, Unclean};
use crate::live::{Obstacle, View};
use crate::lost;
use crate::open_files::{FileUser, OpenFile};
use crate::overlaps;
use crate::read_only::is_read_only;
use crate::record::HoldRecord;
use crate::resolved_path::ResolvedPath;
use crate::runtime::{self, Lock};
use crate::safe_directory::Astray;
use crate::start::is_mounted;
use crate::unclean::unclean;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;
use std::cell::OnceCell;
use std::io::ErrorKind;
use std::path::PathBuf;
use synconce_durable::error::Error;

/// The state of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HoldState {
    /// Not in force, and stopped in order.
    Off,
    /// In force.
    Held,
    /// In force, but not every path is mounted, or a stop is under way or was cut short.
    Incomplete,
    /// A write-back error: every sync fails, until the hold is stopped and recovered.
    Failed,
    /// The machine, the disk or a file system stopped while the files were held.
    Interrupted,
}

impl HoldState {
    /// Returns the word for the state.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Held => "held",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A hold, as `status` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct HoldStatus {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: HoldState,
    /// When it began, RFC 3339 in UTC.
    pub started: Option<String>,
    /// The held paths.
    pub paths: Vec<PathBuf>,
    /// The paths that are not mounted.
    pub missing: Vec<PathBuf>,
    /// Whether a second daemon that opens a file without the hold is kept out.
    pub guarded: bool,
    /// The daemon's unit.
    pub unit: Option<String>,
    /// What happens after a crash.
    pub after_crash: AfterCrash,
    /// What a crash costs, in words.
    pub cost: Option<String>,
    /// Processes that have a held file open with `O_SYNC` or `O_DSYNC`, which is not held.
    pub synced_at_open: Vec<FileUser>,
    /// Why the hold is failed or interrupted, where the overlays are, or what only root can see.
    pub reason: Option<String>,
    /// Whether another command makes the hold complete, or ends it, now.
    #[serde(skip)]
    pub is_changing: bool,
}

/// A look at all processes, for the states of several holds.
#[derive(Debug, Default)]
pub struct Look(OnceCell<View>);

impl Look {
    fn view(&self) -> Result<&View, Error> {
        match self.0.get() {
            Some(view) => Ok(view),
            None => View::take().map(|view| self.0.get_or_init(|| view)),
        }
    }
}

/// Returns the state of the hold of `name`: by its marker, or by `config` if it has none.
pub fn status(
    name: &str,
    config: Option<&Config>,
    look: &Look,
) -> Result<Option<HoldStatus>, Error> {
    let mut record = HoldRecord::read(name)?;
    // `recover` decides by the file as it is then.
    let by_file = |status: HoldStatus| match config {
        Some(file) => {
            HoldStatus { after_crash: file.after_crash, cost: file.cost.clone(), ..status }
        }
        None => status,
    };
    if let Some(found) = &record {
        let status = of_record(found, look, OtherChange::Unknown)?;
        if status.state == HoldState::Held {
            return Ok(Some(by_file(status)));
        }
    }
    // Another command may start or end the hold. The lock keeps the hold as it is for the second
    // look.
    let lock = Lock::share(name);
    let change = OtherChange::from_lock(&lock);
    if record.is_some() {
        record = HoldRecord::read(name)?;
    }
    match (record, config) {
        (Some(record), _) => Ok(Some(by_file(of_record(&record, &Look::default(), change)?))),
        (None, Some(config)) => Ok(Some(without_marker(config)?)),
        (None, None) => Ok(None),
    }
}

fn without_marker(config: &Config) -> Result<HoldStatus, Error> {
    let found = match lost::unclean(config) {
        // Not every user may look, and no hold made what is astray.
        Err(error)
            if Errno::from_io_error(error.io()) == Some(Errno::ACCESS)
                || Astray::from_error(&error).is_some() =>
        {
            None
        }
        found => found?,
    };
    let (state, reason) = match found {
        Some(why) => (HoldState::Interrupted, Some(why.to_string())),
        None => match overlaps::refuse_unmarked(config) {
            Err(HoldFailure::Unmarked(path, _)) => (
                HoldState::Incomplete,
                Some(format!("{} is held, and has no marker", path.display())),
            ),
            _ => (HoldState::Off, None),
        },
    };
    Ok(HoldStatus { reason, ..status_in(config, state) })
}

/// Whether another command changes the hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OtherChange {
    No,
    Yes,
    /// Only root may ask.
    Unknown,
}

impl OtherChange {
    fn from_lock(lock: &Result<Lock, Errno>) -> Self {
        match lock {
            Ok(_) | Err(Errno::NOENT) => Self::No,
            Err(Errno::WOULDBLOCK) => Self::Yes,
            Err(_) => Self::Unknown,
        }
    }
}

fn status_in(config: &Config, state: HoldState) -> HoldStatus {
    HoldStatus {
        name: config.name.clone(),
        state,
        started: None,
        paths: config.hold.iter().map(|held| held.path.clone()).collect(),
        missing: Vec::new(),
        guarded: false,
        unit: config.unit.clone(),
        after_crash: config.after_crash,
        cost: config.cost.clone(),
        synced_at_open: Vec::new(),
        reason: None,
        is_changing: false,
    }
}

fn of_record(record: &HoldRecord, look: &Look, change: OtherChange) -> Result<HoldStatus, Error> {
    let mut status = status_in(&record.config, HoldState::Held);
    status.name.clone_from(&record.name);
    status.started = (!record.lost).then(|| record.started.clone());
    status.guarded = runtime::guard(&record.name).is_some();
    if let Some(why) = unclean(record) {
        // While the overlays are mounted, `recover` cannot begin.
        let is_held = why == Unclean::WriteBack && is_mounted(record)?;
        let state = if is_held { HoldState::Failed } else { HoldState::Interrupted };
        return Ok(HoldStatus { state, reason: Some(why.to_string()), ..status });
    }
    let (mut has_moved, mut is_fenced, mut unseen) = (false, false, None);
    for (overlay, held) in look.view()?.overlays(record)?.iter().zip(record.held()) {
        let place = &overlay.place;
        if let (None, Some(at)) = (overlay.mount, overlay.home()) {
            status.reason = Some(at.to_string());
        } else if let Some(at @ Obstacle::Moved(_)) = overlay.obstacle_here() {
            has_moved = true;
            status.reason = Some(format!("{} is still held: {at}", held.path.display()));
        } else if overlay.mount.is_none() || leads_to(held, place) == Some(false) {
            status.missing.push(held.path.clone());
        } else if has_write_back_error(place)? {
            status.state = HoldState::Failed;
        } else if overlay.mount.is_some_and(is_read_only) {
            is_fenced = true;
            let path = held.path.display();
            status.reason = Some(match change {
                OtherChange::No => {
                    format!("{path} can only be read: a start or stop was cut short")
                }
                _ => format!("{path} can only be read: a start or stop goes on, or was cut short"),
            });
        } else {
            unseen = unseen.or_else(|| find_unseen(held, place));
            status.synced_at_open.extend(overlay.users_that(OpenFile::is_synced));
        }
    }
    if status.state == HoldState::Failed {
        status.reason = Some(Unclean::WriteBack.to_string());
    } else if has_moved || is_fenced || !status.missing.is_empty() {
        status.state = HoldState::Incomplete;
        if change == OtherChange::Yes {
            status.is_changing = true;
            status.reason = Some("another command starts or stops the hold now".to_owned());
        }
    } else {
        status.reason = status.reason.or(unseen);
    }
    Ok(status)
}

/// Whether `held` leads to `place`, where an overlay is mounted. `None` if this user may not look.
fn leads_to(held: &Held, place: &ResolvedPath) -> Option<bool> {
    match ResolvedPath::find(held) {
        Ok(now) => Some(now.path() == place.path()),
        Err(error) if !is_denied(&error) => Some(false),
        // No component of a mount point is a link.
        Err(_) => (held.path == place.path()).then_some(true),
    }
}

/// As [`ResolvedPath::has_write_back_error`]. `false` if this user may not look: see
/// [`find_unseen`].
fn has_write_back_error(place: &ResolvedPath) -> Result<bool, Error> {
    match place.has_write_back_error() {
        Err(error) if is_denied(&error) => Ok(false),
        found => found,
    }
}

/// Returns what this user cannot see of `held`, whose overlay is mounted at `place`.
fn find_unseen(held: &Held, place: &ResolvedPath) -> Option<String> {
    let open = || place.open_parent()?.open_file(place.name(), OFlags::RDONLY);
    let what = if leads_to(held, place).is_none() {
        format!("{} leads to the held files", held.path.display())
    } else if open().is_err_and(|error| is_denied(&error)) {
        // Only a sync of the file shows that: see `ResolvedPath::has_write_back_error`.
        "the disk has lost writes".to_owned()
    } else {
        return None;
    };
    Some(format!("only root can see whether {what}"))
}

fn is_denied(error: &Error) -> bool {
    error.io().kind() == ErrorKind::PermissionDenied
}
