//! A program that is diverted, and the steps from what is there to what is wanted.

use super::{diversion, wrapper};
use crate::error::{Error, NotEdited};
use crate::host::{Host, PathState};
use crate::owners;
use crate::undo::{self, Edits};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_durable::text::quote;

/// The real programs. They keep their names: apt reads its configuration by its own name. The
/// directory is on the file system of /usr/bin, as hard links must be.
pub(super) const DIRECTORY: &str = "/usr/lib/synconce/diverted";

/// A program, and where it is.
#[derive(Debug)]
pub(super) struct DivertedProgram {
    /// The path of the package, within the system and without links.
    pub path: PathBuf,
    /// The path of the real program while there is a wrapper at `path`.
    pub real: PathBuf,
    at_path: AtPath,
    at_real: AtReal,
    /// Whether dpkg diverts `path` to `real`.
    is_diverted: bool,
    /// Where dpkg diverts `path` to by a diversion of another tool.
    foreign_target: Option<PathBuf>,
    /// Where the file at `path` is saved before it is replaced, if synconce did not write that
    /// file.
    pub saved: Option<PathBuf>,
    /// The synconce that the wrapper calls, if other users than root can change that file.
    pub changeable: Option<PathBuf>,
}

/// What a set-up does with a wrapper that calls another copy of synconce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    Accept,
    /// The wrapper calls this synconce from then on.
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtPath {
    Nothing,
    Wrapper,
    /// A wrapper that differs only in the synconce that it calls, another copy.
    WrapperOfCopy,
    /// A wrapper of another version, with edits, or whose synconce is not there or can be changed by
    /// other users than root.
    OldWrapper,
    /// A link to a program of another name.
    Link,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtReal {
    Nothing,
    /// The file that is also at `path`.
    Same,
    Other,
}

/// A step of a set-up or of its undo. After each step, the path leads to a program that works, and
/// the files there show which of them belongs to the package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramStep {
    /// Keeps a copy of what is in the place of the program.
    Save,
    /// Gives the program its second name, in [`DIRECTORY`].
    Link,
    /// Puts the wrapper in the place of the program.
    Wrap,
    /// Has dpkg write the program to its second name.
    Divert,
    /// Has dpkg write the program to its own name again.
    Undivert,
    /// Puts the program in the place of the wrapper.
    Restore,
    /// Removes the wrapper of a program that is gone.
    Unwrap,
    /// Removes the second name: the program is at its own.
    Drop,
}

impl DivertedProgram {
    /// Reads the state of the program `name`.
    ///
    /// # Errors
    /// A file that cannot be read; dpkg-divert fails.
    pub fn read(name: &str, host: &Host) -> Result<Self, Error> {
        let typed = host.resolve(Path::new("/usr/bin"))?.join(name);
        // aptitude is a link to aptitude-curses, by update-alternatives(1). A link to a program of
        // another name, such as eatmydata or busybox, acts by the name of the link.
        let target = host.resolve(&typed)?;
        let target_name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_variant = target_name.strip_prefix(name).is_some_and(|it| it.starts_with('-'));
        let path = if target_name == name || is_variant { target } else { typed };
        let real = Path::new(DIRECTORY).join(path.file_name().unwrap_or_default());
        let found = host.look(&path)?;
        let synconce = match &found {
            PathState::File(content, _) => wrapper::synconce_of(content, &real),
            _ => None,
        };
        // If the synconce that a wrapper calls cannot be looked at, the wrapper counts as an old
        // one: a set-up makes the wrapper anew, and an undo removes it.
        let owned = |synconce: &Path| owners::changeable(synconce, host);
        let changeable = synconce.filter(|synconce| owned(synconce).is_ok_and(|it| it.is_some()));
        let is_good = |synconce: &&Path| {
            owned(synconce).is_ok_and(|it| it.is_none()) && host.is_executable(synconce)
        };
        let at_path = match &found {
            _ if synconce.filter(is_good) == Some(Path::new(host.synconce())) => AtPath::Wrapper,
            _ if synconce.is_some_and(|it| is_good(&it)) => AtPath::WrapperOfCopy,
            PathState::File(content, _) if wrapper::is_wrapper(content) => AtPath::OldWrapper,
            PathState::Absent => AtPath::Nothing,
            PathState::File(..) => AtPath::Other,
            PathState::Link(_) => AtPath::Link,
        };
        let at_real = match (identity(&real, host), identity(&path, host)) {
            (None, _) => AtReal::Nothing,
            (real, path) if real == path => AtReal::Same,
            _ => AtReal::Other,
        };
        let target = diversion::target(&path, host)?;
        let is_diverted = target == real;
        let foreign_target = (target != path && !is_diverted).then_some(target);
        let directory = host.state().join("setup/apt");
        let is_ours = match &found {
            PathState::File(content, _) => wrapper::is_unedited(content),
            PathState::Link(_) => false,
            PathState::Absent => true,
        };
        let saved = (!is_ours).then(|| undo::free_place(&directory, &path, 0));
        let changeable = changeable.map(Path::to_owned);
        Ok(Self { path, real, at_path, at_real, is_diverted, foreign_target, saved, changeable })
    }

    /// Returns whether the program is not installed.
    pub fn is_missing(&self) -> bool {
        self.at_real == AtReal::Nothing && !matches!(self.at_path, AtPath::Other | AtPath::Link)
    }

    /// Returns whether a set-up can write its wrapper anew.
    pub fn has_old_wrapper(&self) -> bool {
        matches!(self.at_path, AtPath::WrapperOfCopy | AtPath::OldWrapper)
    }

    /// Returns whether a wrapper is in the place of the program.
    pub fn has_wrapper(&self) -> bool {
        self.at_path == AtPath::Wrapper || self.has_old_wrapper()
    }

    /// Returns whether no set-up has touched the program.
    pub fn is_untouched(&self) -> bool {
        self.at_path == AtPath::Other && self.at_real == AtReal::Nothing && !self.is_diverted
    }

    /// Returns the steps of a set-up.
    ///
    /// # Errors
    /// A file that synconce did not write is in the place of the wrapper; a link to another
    /// program is in the place of the program; another tool has diverted the program.
    pub fn set_up(&self, host: &Host, copies: Copies) -> Result<Vec<ProgramStep>, Error> {
        use ProgramStep::{Divert, Drop, Link, Save, Wrap};
        if let Some(target) = &self.foreign_target {
            return Err(self.diverted_to(target, host));
        }
        if self.is_missing() {
            return self.undo(host, Edits::Refuse);
        }
        let mut steps = match (self.at_path, self.at_real) {
            (AtPath::Link, _) => {
                let reason = "is a link to another program, which acts by the name of the link";
                let fault = NotEdited::new(reason, "put the program itself there, and try again");
                return Err(fault.in_file(&host.real(&self.path)).into());
            }
            (AtPath::WrapperOfCopy, _) if copies == Copies::Replace => vec![Wrap],
            (AtPath::Wrapper | AtPath::WrapperOfCopy, _) => Vec::new(),
            (AtPath::OldWrapper, _) if self.saved.is_some() => vec![Save, Wrap],
            (AtPath::Nothing | AtPath::OldWrapper, _) | (AtPath::Other, AtReal::Same) => vec![Wrap],
            (AtPath::Other, AtReal::Nothing) => vec![Link, Wrap],
            (AtPath::Other, AtReal::Other) if self.is_diverted => return Err(self.foreign(host)),
            // dpkg has written the program to its own name meanwhile.
            (AtPath::Other, AtReal::Other) => vec![Drop, Link, Wrap],
        };
        steps.extend((!self.is_diverted).then_some(Divert));
        Ok(steps)
    }

    /// Returns the steps of an undo. `edits` decides about a file in the place of the wrapper that
    /// synconce did not write.
    ///
    /// # Errors
    /// As for [`Self::set_up`].
    pub fn undo(&self, host: &Host, edits: Edits) -> Result<Vec<ProgramStep>, Error> {
        use ProgramStep::{Drop, Restore, Save, Undivert, Unwrap};
        match &self.foreign_target {
            Some(target) if self.has_wrapper() || self.at_real != AtReal::Nothing => {
                return Err(self.diverted_to(target, host));
            }
            // Nothing of synconce is there.
            Some(_) => return Ok(Vec::new()),
            None => {}
        }
        let mut steps: Vec<_> = self.is_diverted.then_some(Undivert).into_iter().collect();
        let last = match (self.at_path, self.at_real) {
            (_, AtReal::Nothing) => self.has_wrapper().then_some(Unwrap),
            (AtPath::Other, AtReal::Same) => Some(Drop),
            (AtPath::Other, AtReal::Other) if !self.is_diverted => Some(Drop),
            (AtPath::Other | AtPath::Link, AtReal::Other) if edits == Edits::Refuse => {
                return Err(self.foreign(host));
            }
            (_, AtReal::Same | AtReal::Other) => Some(Restore),
        };
        steps.extend(last);
        // First: a full disk stops the undo before anything is changed.
        if self.saved.is_some() && matches!(last, Some(Restore | Unwrap)) {
            steps.insert(0, Save);
        }
        Ok(steps)
    }

    /// Returns the error for a diversion of another tool. Its remedy moves the program back itself:
    /// dpkg-divert replaces no file, and such a tool often has a script in the place of the program.
    fn diverted_to(&self, target: &Path, host: &Host) -> Error {
        let path = host.real(&self.path);
        let mut remedy = "take that away, by: ".to_owned();
        if host.exists(target) {
            remedy += &format!("mv {} {} && ", quote(&host.real(target)), quote(&path));
        }
        remedy += "dpkg-divert --no-rename";
        if !host.is_running() {
            remedy += &format!(" --root {}", quote(&host.real(Path::new("/"))));
        }
        remedy += &format!(" --remove {}", quote(&self.path));
        let reason = format!("is diverted to {} already", target.display());
        NotEdited::new(reason, remedy).in_file(&path).into()
    }

    /// Returns the error for dpkg whose program is gone, as after [`DIRECTORY`] was removed by hand.
    pub fn gone(&self, host: &Host) -> Error {
        let real = host.real(&self.real);
        let reason = format!("is a wrapper, and its program is gone: {}", real.display());
        let directory = real.parent().unwrap_or(&real);
        let remedy = format!(
            "put that file back from a package of dpkg: mkdir -p {} && dpkg-deb --fsys-tarfile \
             dpkg_VERSION.deb | tar -xO ./usr/bin/dpkg >{} && chmod 755 {}; a mirror of Debian has \
             that package in pool/main/d/dpkg/; the other programs that were there come back by the \
             same way, before synconce setup apt",
            quote(directory),
            quote(&real),
            quote(&real)
        );
        NotEdited::new(reason, remedy).in_file(&host.real(&self.path)).into()
    }

    fn foreign(&self, host: &Host) -> Error {
        let reason = format!(
            "is neither synconce's wrapper nor the program of its package, which is {}",
            host.real(&self.real).display()
        );
        NotEdited::new(reason, "move it away, and try again").in_file(&host.real(&self.path)).into()
    }
}

fn identity(path: &Path, host: &Host) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(host.real(path)).ok()?;
    Some((found.dev(), found.ino()))
}
