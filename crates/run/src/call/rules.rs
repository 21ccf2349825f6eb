//! `--only` and `--except`: which files have their syncs held.
//!
//! A file is decided on by its place: the file system, and the path inside that file system.
//! The place does not depend on the mount, root or mount namespace through which a process
//! reached the file. The kernel keeps the path of an open file in memory
//! (`/proc/PID/fd/N`), and changes it at a rename of the file or of a directory above. So
//! the path is read again for each call, nothing is looked up, and no decision becomes stale.
//! Only mounts are cached ([`places`]).
//!
//! A sync is held if it is below an `--only` path, if there are any, and below no `--except`
//! path. In doubt the sync is real, which is safe.

mod checks;
mod error;
mod matches;
mod pattern;
mod places;
mod resolve;

pub use self::error::{RuleError, RuleKind, RuleReason};
use self::matches::{Inherited, Matches};
use self::pattern::Pattern;
pub(crate) use self::places::{Blocking, Candidate, MayBlock};
use self::places::{Located, MountFinder, points_above};
use rustix::fs::FileType;
use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use synconce_durable::mutant;
use synconce_probe::mounts::DeviceId;

/// The end of the kernel's path of an unlinked file (`d_path`, fs/d_path.c).
const DELETED: &[u8] = b" (deleted)";

/// A rule, resolved at the start of the run.
#[derive(Debug)]
struct Rule {
    kind: RuleKind,
    /// The path as it was typed.
    typed: PathBuf,
    /// The path of the rule as this process sees it.
    visible: Pattern,
    /// The places of the rule: its own, and those of mounts below it at the start.
    places: Vec<(DeviceId, Pattern)>,
}

impl Rule {
    fn matches<'a>(
        &self,
        device: DeviceId,
        path: impl Iterator<Item = Component<'a>> + Clone,
    ) -> bool {
        self.places.iter().any(|(on, place)| *on == device && place.matches(path.clone()))
    }
}

/// The rules of a run.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    places: MountFinder,
}

/// What the rules say about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleVerdict {
    /// Whether a sync of the file is held.
    pub file: bool,
    /// Whether a sync of the file's whole file system is held.
    pub system: bool,
}

impl RuleVerdict {
    /// The verdict without rules.
    pub(crate) const HOLD: Self = Self { file: true, system: true };
    /// The verdict if the place of the file is unknown.
    const PASS: Self = Self { file: false, system: false };
}

/// What a call syncs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SyncOf {
    File,
    FileSystem,
}

impl Rules {
    /// Returns the verdict on `file`.
    ///
    /// # Errors
    /// Finding it needs to look into file systems, and the calling thread may not (`blocking`).
    pub(crate) fn verdict(
        &self,
        file: &Candidate<'_>,
        blocking: Blocking,
    ) -> Result<RuleVerdict, MayBlock> {
        let located = self.places.find_mount(file, blocking, |points| self.inherited(points))?;
        Ok(located.map_or(RuleVerdict::PASS, |located| self.decide(file, &located)))
    }

    /// Returns a descriptor to poll for `POLLPRI`; then [`Rules::forget_mounts`] is to be called
    /// before the next call is decided on.
    pub(crate) fn mount_changes(&self) -> Option<BorrowedFd<'_>> {
        self.places.changes()
    }

    /// Forgets where mounts were: pivot_root(2) has moved the root of this process, for example.
    pub(crate) fn forget_mounts(&self) {
        self.places.forget();
    }

    fn decide(&self, file: &Candidate<'_>, located: &Located) -> RuleVerdict {
        if mutant::is("except-ignored") {
            return RuleVerdict::HOLD;
        }
        let system = self.hold_all_of(located, SyncOf::FileSystem);
        let (path, is_certain) = name_of(file);
        let Ok(below) = path.strip_prefix(&located.base) else { return RuleVerdict::PASS };
        let new_name = file.new_name.map(Component::Normal);
        let below = below.components().chain(new_name);
        let place = located.root.components().chain(below.clone());
        let matches = located.inherited.matches(below).or(self.matches(located.device, place));
        let held = matches.is_held(self.has(RuleKind::Only));
        RuleVerdict {
            file: held && (is_certain || self.hold_all_of(located, SyncOf::File)),
            system,
        }
    }

    /// Whether the rules hold each sync of the kind `sync` on the mount's file system. An overlay
    /// keeps its files on another file system, so for a sync of a whole file system any `--except`
    /// counts.
    fn hold_all_of(&self, located: &Located, sync: SyncOf) -> bool {
        let root = Path::new("/").components();
        let is_all = located.root == Path::new("/");
        let only = !self.has(RuleKind::Only)
            || (is_all && located.inherited.matches(root.clone()).only)
            || self.matches(located.device, root).only;
        let on_it = |rule: &Rule| rule.places.iter().any(|(device, _)| *device == located.device);
        let mut excepts = self.rules.iter().filter(|rule| rule.kind == RuleKind::Except);
        let counts = |rule: &Rule| sync == SyncOf::FileSystem || on_it(rule);
        only && !located.inherited.has_except() && !excepts.any(counts)
    }

    fn has(&self, kind: RuleKind) -> bool {
        self.rules.iter().any(|rule| rule.kind == kind)
    }

    fn matches<'a>(
        &self,
        device: DeviceId,
        path: impl Iterator<Item = Component<'a>> + Clone,
    ) -> Matches {
        let matching = self.rules.iter().filter(|rule| rule.matches(device, path.clone()));
        matching.fold(Matches::default(), |matches, rule| matches.with(rule.kind))
    }

    /// Returns what the rules demand of the paths in a mount, whose mount point is at `points`.
    fn inherited(&self, points: &[(DeviceId, PathBuf)]) -> Inherited {
        let of_rule = |rule: &Rule| {
            let kind = rule.kind;
            let places = rule.places.iter().flat_map(|(on, place)| below(*on, place, points));
            places.map(|pattern| (kind, pattern)).collect::<Vec<_>>()
        };
        Inherited(self.rules.iter().flat_map(of_rule).collect())
    }
}

/// Returns what the pattern `place` on the file system `device` demands of the paths in a mount,
/// whose mount point is at `points`.
fn below(device: DeviceId, place: &Pattern, points: &[(DeviceId, PathBuf)]) -> Vec<Pattern> {
    let on_device = points.iter().filter(|(on, _)| *on == device);
    on_device.flat_map(|(_, point)| place.below(point.components())).collect()
}

/// Returns the path of `file` without the kernel's mark of an unlinked file, and whether it
/// shows all names of the file: a file may have names (hard links) that are elsewhere.
fn name_of<'a>(file: &Candidate<'a>) -> (&'a Path, bool) {
    let bytes = file.path.as_os_str().as_bytes();
    let stripped = bytes.strip_suffix(DELETED);
    let plain = |bytes| Path::new(OsStr::from_bytes(bytes));
    match (file.links, stripped) {
        (0, Some(stripped)) => (plain(stripped), true),
        _ if file.file_type == FileType::Directory || file.new_name.is_some() => (file.path, true),
        // The name by which the file was opened is gone, and another name was given to it.
        (_, Some(stripped)) => (plain(stripped), false),
        (links, None) => (file.path, links <= 1),
    }
}
