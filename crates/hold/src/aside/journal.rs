//! The journal of what is set aside.

mod path;

use super::{README, REPLACED, directory_name, exists, split};
use crate::file_id::FileId;
use crate::lost_writes::Loss;
use crate::open_files::stop_by_unit;
use crate::state_directory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::replace::{self, Rights};
use synconce_durable::text::quote;
use synconce_durable::{mutant, state_file};

/// What is set aside for one hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// The name of the hold.
    pub name: String,
    /// What was set aside, oldest first. Empty if nothing is.
    pub sets: Vec<Set>,
    /// The commands that put everything back, for a reader without synconce.
    #[serde(default)]
    pub put_back: Vec<String>,
    /// The disks that lost writes of the hold: a restore waits until they are mounted anew.
    #[serde(default)]
    pub losses: Vec<Loss>,
}

/// What was set aside at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// The number in the names of its directories.
    pub number: u32,
    /// When, RFC 3339 in UTC.
    pub time: String,
    /// Why.
    pub reason: String,
    /// The systemd unit of the daemon.
    pub unit: Option<String>,
    /// The renames.
    pub moves: Vec<Move>,
    /// The directories with the files, as they were made.
    pub made: Vec<AsideDirectory>,
    /// Whether all renames are durable.
    pub finished: bool,
    /// Whether a restore has put files back since. What is still set aside is then only to be
    /// removed.
    #[serde(default)]
    pub restored: bool,
}

/// A directory for files that are set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsideDirectory {
    /// Its path.
    #[serde(with = "path")]
    pub path: PathBuf,
    /// Its identity: another directory can get its name later.
    pub id: FileId,
}

/// One rename.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Where the file belongs.
    #[serde(with = "path")]
    pub from: PathBuf,
    /// Where the file is set aside.
    #[serde(with = "path")]
    pub to: PathBuf,
    /// Whether a restore undoes the rename.
    #[serde(default)]
    pub put_back: bool,
    /// Whether the file was not to be put back any more when a later set was made: it was back, or
    /// an older one was.
    #[serde(default)]
    pub is_past: bool,
}

impl Move {
    /// Returns the rename of `from` into the directory `number` beside it.
    pub(super) fn beside(name: &str, number: u32, from: PathBuf) -> Self {
        let mut last = from.file_name().unwrap_or_default().to_owned();
        if last == README {
            last.push(".aside");
        }
        let to = from.with_file_name(directory_name(name, number)).join(last);
        Self { from, to, put_back: false, is_past: false }
    }
}

impl Set {
    /// Returns the renames that are still to be done. If both names exist, the file was renamed
    /// and made anew.
    pub(super) fn pending(&self) -> Result<Vec<&Move>, Error> {
        let mut pending = Vec::new();
        for one in &self.moves {
            if exists(&one.from)? && !exists(&one.to)? {
                pending.push(one);
            }
        }
        Ok(pending)
    }

    /// Returns what the directory `path` was when it was made.
    pub(super) fn identity_of(&self, path: &Path) -> Option<&FileId> {
        self.made.iter().find(|one| one.path == path).map(|one| &one.id)
    }

    /// Returns the directories with the files, sorted.
    pub fn directories(&self) -> BTreeSet<PathBuf> {
        self.moves.iter().filter_map(|one| one.to.parent().map(Path::to_owned)).collect()
    }
}

impl Journal {
    /// Reads the journal of the hold `name`; empty if nothing is set aside.
    pub fn read(name: &str) -> Result<Self, Error> {
        let path = state_directory::journal(name);
        match state_file::open(&path) {
            Err(error) if error == rustix::io::Errno::NOENT => {
                let name = name.to_owned();
                Ok(Self { name, sets: Vec::new(), put_back: Vec::new(), losses: Vec::new() })
            }
            file => {
                let journal = state_file::read::<Self>(&file.on("cannot open", &path)?);
                Ok(Self { name: name.to_owned(), ..journal.on("cannot read", &path)? })
            }
        }
    }

    /// Returns the names of the holds that have a journal, sorted.
    pub fn names() -> Result<Vec<String>, Error> {
        state_directory::names_with(state_directory::ASIDE)
    }

    /// Returns the files that a restore would put back, where they belong. Of a restore that has
    /// not ended, all files are returned: the disk may not have them. Of a recovery that has not
    /// ended, as on a full disk, only files that were moved. Empty if nothing is set aside, or if
    /// only what a restore has left is.
    pub fn to_put_back(&self) -> Vec<&Path> {
        let moves: Vec<_> = if self.is_restoring() {
            self.chosen().collect()
        } else {
            let is_moved =
                |(set, one): &(&Set, &Move)| set.finished || exists(&one.to).unwrap_or(true);
            self.to_undo(self.sets.len()).into_iter().filter(is_moved).collect()
        };
        moves.into_iter().map(|(_, one)| one.from.as_path()).collect()
    }

    /// Writes the journal durably.
    pub(super) fn write(&mut self) -> Result<(), Error> {
        if mutant::is("hold-recover-journal-late") && self.is_setting_aside() {
            return Ok(());
        }
        self.put_back = self.commands();
        let path = state_directory::journal(&self.name);
        replace::make_directories_above(&path)?;
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::from);
        let text = text.on("cannot write", &path)?;
        replace::write(&path, &text, Rights::common())
    }

    /// Adds `losses`. Returns whether there are new ones.
    pub(super) fn add_losses(&mut self, losses: &[Loss]) -> bool {
        let count = self.losses.len();
        for loss in losses.iter().filter(|_| !mutant::is("hold-loss-unjournaled")) {
            if !self.losses.contains(loss) {
                self.losses.push(loss.clone());
            }
        }
        self.losses.len() > count
    }

    /// Chooses the renames that a restore undoes: of a file that was set aside more than once, the
    /// first. What an operator has put back is at its old name.
    pub(super) fn choose(&mut self) {
        let froms: BTreeSet<_> = self
            .to_undo(self.sets.len())
            .into_iter()
            .map(|(set, one)| (set.number, one.from.clone()))
            .collect();
        for set in &mut self.sets {
            for one in &mut set.moves {
                one.put_back = froms.contains(&(set.number, one.from.clone()));
            }
        }
    }

    /// Returns the renames that a restore undoes.
    pub(super) fn chosen(&self) -> impl Iterator<Item = (&Set, &Move)> {
        let all = self.moves(self.sets.len());
        all.filter(|(set, one)| one.put_back && !set.restored)
    }

    /// Whether files are being set aside, or a crash left some of them at their places.
    pub(crate) fn is_setting_aside(&self) -> bool {
        self.sets.iter().any(|set| !set.finished)
    }

    /// Whether a restore has begun, and is not over.
    pub fn is_restoring(&self) -> bool {
        self.chosen().next().is_some()
    }

    /// Notes the end of a restore. It also ends a recovery that was cut short: the marker alone
    /// says whether the hold is interrupted.
    pub(super) fn end_restore(&mut self) {
        for set in &mut self.sets {
            (set.finished, set.restored) = (true, true);
        }
    }

    /// Gives up a restore that has renamed nothing.
    pub(super) fn give_up_restore(&mut self) {
        let moves = self.sets.iter_mut().flat_map(|set| &mut set.moves);
        moves.for_each(|one| one.put_back = false);
    }

    /// Returns what is set aside, where it belongs, sorted.
    pub fn paths(&self) -> Vec<PathBuf> {
        let moves = self.moves(self.sets.len()).filter(|(set, _)| !set.restored);
        let paths: BTreeSet<_> = moves.map(|(_, one)| one.from.clone()).collect();
        paths.into_iter().collect()
    }

    /// Returns where the file that belongs at `path` may be, if it or a directory above is set
    /// aside.
    pub(crate) fn places_of<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
        self.moves(self.sets.len()).filter_map(move |(_, one)| {
            let below = path.strip_prefix(&one.from).ok()?;
            // Not `join`, which would add a slash to the name of a file.
            Some(one.to.iter().chain(below).collect())
        })
    }

    /// Returns the renames of the first `sets` sets, oldest first.
    fn moves(&self, sets: usize) -> impl Iterator<Item = (&Set, &Move)> {
        self.sets[..sets].iter().flat_map(|set| set.moves.iter().map(move |one| (set, one)))
    }

    /// Returns the commands of a shell that put everything back, in their order. They need no
    /// synconce. What is at the old names by then is moved out of the way.
    ///
    /// If a file was set aside more than once, the first is put back: it is the original, and
    /// the later ones were made after a crash.
    pub fn commands(&self) -> Vec<String> {
        self.commands_of(self.sets.len())
    }

    fn commands_of(&self, sets: usize) -> Vec<String> {
        let units: BTreeSet<_> =
            self.sets[..sets].iter().filter_map(|set| set.unit.as_deref()).collect();
        let stop = |unit| {
            let stop = stop_by_unit(Some(unit));
            stop.unwrap_or_else(|| format!("# first stop the daemon of {unit}"))
        };
        let mut commands: Vec<_> = units.into_iter().map(stop).collect();
        for (set, one) in self.to_undo(sets) {
            let directory = one.to.parent().unwrap_or(&one.to);
            // Nothing is in a directory before the journal has its identity.
            let Some(made) = set.identity_of(directory) else { continue };
            commands.push(command(one, directory, made.inode));
        }
        commands
    }

    /// Returns the renames of the first `sets` sets that have to be undone, in their order: the
    /// first of each file, and none below an earlier one.
    fn to_undo(&self, sets: usize) -> Vec<(&Set, &Move)> {
        let (mut chosen, mut froms) = (Vec::new(), BTreeSet::new());
        for (set, one, is_back) in self.looked_at(sets).into_iter().filter(|(_, it, _)| !it.is_past)
        {
            if one.from.ancestors().any(|above| froms.contains(above)) {
                continue;
            }
            if !is_back {
                chosen.push((set, one));
            }
            // The original is there again, so that none of the later ones is put back.
            if !is_back || matches!(exists(&one.from), Ok(true)) {
                froms.insert(one.from.as_path());
            }
        }
        Self::sort_outer_first(&mut chosen);
        chosen
    }

    /// Notes which files are not to be put back any more, before a later set is made.
    pub(super) fn note_past(&mut self) {
        let kept = self.to_undo(self.sets.len()).into_iter();
        let kept: BTreeSet<_> = kept.map(|(_, one)| one.to.clone()).collect();
        for one in self.sets.iter_mut().flat_map(|set| &mut set.moves) {
            one.is_past |= !kept.contains(&one.to);
        }
    }

    /// Returns the renames of the first `sets` sets that no restore has undone, oldest first, and
    /// whether an operator has put the file back.
    fn looked_at(&self, sets: usize) -> Vec<(&Set, &Move, bool)> {
        let mut all = Vec::new();
        for (index, set) in self.sets[..sets].iter().enumerate().filter(|(_, it)| !it.restored) {
            let place = |path: PathBuf| (self.place_of_directory(index, &path), path);
            let places: Vec<_> = set.directories().into_iter().map(place).collect();
            all.extend(set.moves.iter().map(|one| {
                let (directory, name) = split(&one.to);
                let place = places.iter().find(|(_, path)| path == directory);
                let to = place.map_or(directory, |(place, _)| place).join(name);
                (set, one, set.finished && matches!(exists(&to), Ok(false)))
            }));
        }
        all
    }

    /// Sorts renames that are to be undone. A directory comes before what was set aside in it
    /// earlier: the files are with the directory.
    pub(super) fn sort_outer_first(chosen: &mut [(&Set, &Move)]) {
        chosen.sort_by_key(|(_, one)| one.from.components().count());
    }

    /// Returns where the directory `path` of the set `index` is now. A later set may have set aside
    /// a directory above it.
    pub(super) fn place_of_directory(&self, index: usize, path: &Path) -> PathBuf {
        let mut place = path.to_owned();
        for (later, set) in self.sets.iter().enumerate().skip(index + 1) {
            let above = set.moves.iter().find(|one| place.starts_with(&one.from));
            let Some(one) = above else { continue };
            let (directory, name) = split(&one.to);
            let to = self.place_of_directory(later, directory).join(name);
            if let (Ok(true), Ok(below)) = (exists(&to), place.strip_prefix(&one.from)) {
                place = to.join(below);
            }
        }
        place
    }

    /// Returns whether `path`, a directory of the set `index`, lies in what was made anew in the
    /// place of a directory that an earlier set has.
    pub(super) fn is_in_successor(&self, index: usize, path: &Path) -> bool {
        let mut earlier = self.moves(index).filter(|(set, _)| !set.restored);
        earlier.any(|(_, one)| !one.is_past && path.starts_with(&one.from))
    }

    /// Returns the text beside the files of the set `at`.
    pub(super) fn readme(&self, at: usize) -> String {
        let Set { time, reason, .. } = &self.sets[at];
        let name = &self.name;
        let commands = self.commands_of(at + 1).join("\n");
        format!(
            "synconce set these files aside for the hold {name} at {time}:\n{reason}\n\n\
             After the daemon has started once, \"synconce hold settle {name}\" removes them.\n\
             To put the files back, stop the daemon and the hold, and type as root\n\
             \"synconce hold restore {name}\", or these commands, which need no synconce. What the\n\
             daemon has made meanwhile is moved away, and removed by \"synconce hold settle {name}\":\n\n\
             {commands}\n"
        )
    }
}

/// Returns the command that undoes `one`, whose `directory` has the number `inode`. A second run
/// changes nothing.
///
/// The daemon's user can rename any directory, or a link, to a name beside the files. After a
/// `chown -R` that user can also do so in `directory`. So the command enters `directory` first,
/// makes root the owner of what it has entered, looks once more where that is, and uses only names
/// from there.
fn command(one: &Move, directory: &Path, inode: u64) -> String {
    let to = Path::new(".").join(one.to.file_name().unwrap_or_default());
    let from = Path::new("..").join(one.from.file_name().unwrap_or_default());
    let away = Path::new(REPLACED).join(one.to.file_name().unwrap_or_default());
    let [to, from, away, path, directory] =
        [&to, &from, &away, one.from.as_path(), directory].map(quote);
    let is_there = |name: &str| format!("[ -e {name} ] || [ -L {name} ]");
    let (to_is_there, from_is_there) = (is_there(&to), is_there(&from));
    format!(
        "(cd -P -- {directory} && [ \"$(pwd -P)\" = {directory} ] && \
         [ \"$(stat -c %i .)\" = {inode} ] && chown 0:0 . && chmod 700 . && \
         [ \"$(readlink /proc/self/cwd)\" = {directory} ] && ! [ -L {REPLACED} ] && if {to_is_there}; then \
         if {from_is_there}; then mkdir -p {REPLACED} && mv -T {from} {away}; fi && \
         mv -T {to} {from}; else {from_is_there}; fi) || \
         {{ printf '%s was not put back: look at %s\\n' {path} {directory} >&2; false; }}"
    )
}
