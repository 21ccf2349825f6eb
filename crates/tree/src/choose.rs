//! Chooses the strategy of a tree on this host.

use crate::layer;
use crate::overlay;
use crate::record::Layer;
use crate::store::{SESSIONS, Store, open_directory};
use crate::strategy::{Choice, Strategy};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use synconce_durable::error::Error;
use synconce_sys::btrfs::is_subvolume as ask_btrfs;
use synconce_sys::reason;

/// The strategies that are tried in order; a copy, which always works, is the fallback.
const BY_CHOICE: [Strategy; 3] = [Strategy::Snapshot, Strategy::Overlay, Strategy::Reflink];

const WHITEOUTS: &str = "it has character devices 0:0, which are removed files to an overlay";
const OVERLAY_DATA: &str = "it has character devices 0:0 or attributes of overlays, which an overlay \
                            would take for its own data";
const SUBVOLUME: &str = "the tree is a btrfs subvolume; one that is imported with --strategy \
                         overlay is not";

/// Returns the strategy for clones of the stack `layers`: `wanted`, or the first of
/// snapshot, overlay, reflink and copy that works.
///
/// # Errors
/// `wanted` does not work; the error gives the reason.
pub fn choose(store: &Store, layers: &[Layer], wanted: Option<Strategy>) -> Result<Choice, Error> {
    match wanted {
        Some(strategy) => match can(store, strategy, layers) {
            Ok(_) => Ok(Choice { strategy, reason: "it was asked for".to_owned() }),
            Err(why) => Err(unsuitable(strategy, store.path(), why)),
        },
        None => Ok(first_of(store, layers, &BY_CHOICE)),
    }
}

/// Returns `choice` if its strategy works for the stack `layers`, or else the first one that does.
pub(crate) fn fitting(store: &Store, layers: &[Layer], choice: Choice) -> Result<Choice, Error> {
    let works = match choice.strategy {
        // A snapshot needs exactly one layer.
        Strategy::Snapshot => layers.len() == 1,
        Strategy::Overlay => why_no_overlay(store, layers)?.is_none(),
        Strategy::Reflink | Strategy::Copy => true,
    };
    if works { Ok(choice) } else { choose(store, layers, None) }
}

/// Returns the strategy for the directory `whole`, which is not a layer yet; otherwise
/// like [`choose`].
pub(crate) fn choose_for(
    store: &Store,
    whole: BorrowedFd<'_>,
    wanted: Option<Strategy>,
) -> Result<Choice, Error> {
    if wanted.is_none() && is_subvolume(whole) {
        return Ok(snapshot());
    }
    match wanted {
        Some(Strategy::Snapshot) if store.is_btrfs() => {
            Ok(Choice { strategy: Strategy::Snapshot, reason: "it was asked for".to_owned() })
        }
        _ => choose(store, &[], wanted),
    }
}

/// Returns the strategy for a tree with character devices 0:0, which an overlay would hide
/// as removed files.
pub(crate) fn choose_despite_whiteouts(
    store: &Store,
    wanted: Option<Strategy>,
) -> Result<Choice, Error> {
    let why = WHITEOUTS;
    if let Some(strategy) = wanted {
        return Err(unsuitable(strategy, store.path(), why.to_owned()));
    }
    let Choice { strategy, reason } = first_of(store, &[], &[Strategy::Reflink]);
    Ok(Choice { strategy, reason: format!("{reason}; no overlay: {why}") })
}

fn first_of(store: &Store, layers: &[Layer], strategies: &[Strategy]) -> Choice {
    let mut refused = Vec::new();
    for &strategy in strategies {
        match can(store, strategy, layers) {
            Ok(reason) if refused.is_empty() => return Choice { strategy, reason },
            Ok(reason) => {
                let reason = format!("{reason}; {}", refused.join("; "));
                return Choice { strategy, reason };
            }
            Err(why) => refused.push(format!("no {strategy}: {why}")),
        }
    }
    Choice { strategy: Strategy::Copy, reason: refused.join("; ") }
}

/// Returns why `strategy` works for the stack, or the reason why it does not.
fn can(store: &Store, strategy: Strategy, layers: &[Layer]) -> Result<String, String> {
    match strategy {
        Strategy::Snapshot => can_snapshot(store, layers),
        Strategy::Overlay => can_overlay(store, layers),
        Strategy::Reflink => can_reflink(store),
        Strategy::Copy => Ok("a copy can be had everywhere".to_owned()),
    }
}

fn can_snapshot(store: &Store, layers: &[Layer]) -> Result<String, String> {
    if !store.is_btrfs() {
        return Err("the store is not on btrfs".to_owned());
    }
    if layers.is_empty() {
        return Ok("trees are imported as btrfs subvolumes".to_owned());
    }
    let [only] = layers else {
        return Err("the tree is a stack of layers".to_owned());
    };
    let content = open_directory(&store.content(&only.id)).map_err(|error| error.to_string())?;
    if is_subvolume(content.as_fd()) {
        Ok(snapshot().reason)
    } else {
        Err("the tree is no btrfs subvolume".to_owned())
    }
}

/// Returns why an overlay would not show `layers` as they are. Files in two subvolumes of btrfs can
/// have the same inode number, and an overlay shows the files under one device number: a program
/// that preserves hard links would treat the two files as one.
fn why_no_overlay(store: &Store, layers: &[Layer]) -> Result<Option<&'static str>, Error> {
    for layer in layers {
        if is_subvolume(open_directory(&store.content(&layer.id))?.as_fd()) {
            return Ok(Some(SUBVOLUME));
        }
        if layer::has_overlay_data(store, &layer.id)? {
            return Ok(Some(OVERLAY_DATA));
        }
    }
    Ok(None)
}

fn can_overlay(store: &Store, layers: &[Layer]) -> Result<String, String> {
    if let Some(why) = why_no_overlay(store, layers).map_err(|error| error.to_string())? {
        return Err(why.to_owned());
    }
    let directory =
        open_directory(&store.path().join(SESSIONS)).map_err(|error| error.to_string())?;
    let features = overlay::trial(directory.as_fd()).map_err(|error| reason(&error))?;
    let missing = [
        ("hard links break when they are written to", features.index),
        ("directories of the base cannot be renamed", features.redirect_dir),
    ];
    let missing = missing.iter().filter(|(_, works)| !works);
    let missing: String = missing.map(|(what, _)| format!("; {what}")).collect();
    Ok(format!("a trial mount worked{missing}"))
}

fn can_reflink(store: &Store) -> Result<String, String> {
    let directory =
        open_directory(&store.path().join(SESSIONS)).map_err(|error| error.to_string())?;
    let unnamed = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        rustix::fs::openat(&directory, ".", flags, Mode::RUSR | Mode::WUSR)
    };
    let shared = unnamed().and_then(|source| {
        rustix::io::write(&source, &[0; 4096])?;
        rustix::fs::ioctl_ficlone(unnamed()?, &source)
    });
    match shared {
        Ok(()) => Ok("files can share their extents".to_owned()),
        Err(errno) => Err(reason(&errno.into())),
    }
}

fn is_subvolume(directory: BorrowedFd<'_>) -> bool {
    ask_btrfs(directory).unwrap_or(false)
}

fn snapshot() -> Choice {
    Choice { strategy: Strategy::Snapshot, reason: "the tree is a btrfs subvolume".to_owned() }
}

fn unsuitable(strategy: Strategy, path: &Path, why: String) -> Error {
    let act = match strategy {
        Strategy::Snapshot => "cannot make snapshots in",
        Strategy::Overlay => "cannot mount overlays in",
        Strategy::Reflink => "cannot share extents in",
        Strategy::Copy => "cannot copy in",
    };
    Error::new(act, path, io::Error::other(why))
}
