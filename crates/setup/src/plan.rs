//! What a set-up would change, and notes for the operator.

use crate::engine::{BUILDS_ONLY, Engine};
use crate::error::{Error, NotEdited};
use crate::host::{Host, PathState};
use std::path::{Path, PathBuf};

/// The changes that set an engine up; empty if the engine is set up already.
#[derive(Debug, Default)]
pub struct Plan {
    /// The changes in order.
    pub changes: Vec<PathChange>,
    /// Notes for the operator: choices with their reasons, and what will not work.
    pub notes: Vec<String>,
    /// Whether the default runtime of dockerd stays as it is.
    pub(crate) builds_only: bool,
    /// Why only builds are set up although all containers were requested, or the command that sets
    /// up all containers.
    pub instead: Option<String>,
}

/// A change of one path.
#[derive(Debug, PartialEq, Eq)]
pub struct PathChange {
    /// The path within the system, with its symbolic links resolved.
    pub path: PathBuf,
    /// The change.
    pub act: PlannedAct,
}

/// The kind of change.
#[derive(Debug, PartialEq, Eq)]
pub enum PlannedAct {
    /// Edits a configuration file of the operator.
    Edit {
        /// The content now.
        before: String,
        /// The content after the edit.
        after: String,
    },
    /// Makes a configuration file.
    Create(String),
    /// Writes a file that belongs to synconce. If the file exists and synconce did not write it,
    /// the set-up fails.
    Own(String),
    /// Makes a symbolic link that belongs to synconce.
    Link(PathBuf),
}

impl Plan {
    /// Returns the words after `synconce setup` for this plan of `engine`.
    pub fn command(&self, engine: Engine) -> &'static str {
        if self.builds_only { BUILDS_ONLY } else { engine.command() }
    }

    /// Returns whether the default runtime of dockerd stays as it is.
    pub fn builds_only(&self) -> bool {
        self.builds_only
    }

    /// Plans an edit of the file that `path` leads to. `editor` gets the file's text (`None` if
    /// there is no file) and returns the new text (`None` for no change).
    ///
    /// # Errors
    /// The errors of reading the file, and the editor's, with the name of the file.
    pub(crate) fn edit(
        &mut self,
        host: &Host,
        path: &Path,
        editor: impl FnOnce(Option<&str>) -> Result<Option<String>, NotEdited>,
    ) -> Result<(), Error> {
        let (path, before) = host.text(path)?;
        let after = editor(before.as_deref()).map_err(|fault| fault.in_file(&host.real(&path)))?;
        let act = match (before, after) {
            (_, None) => return Ok(()),
            (Some(before), Some(after)) => PlannedAct::Edit { before, after },
            (None, Some(after)) => PlannedAct::Create(after),
        };
        self.changes.push(PathChange { path, act });
        Ok(())
    }

    /// Plans to write `content` to the file `path`, which belongs to synconce.
    ///
    /// # Errors
    /// The errors of reading the file.
    pub(crate) fn own(&mut self, host: &Host, path: &Path, content: String) -> Result<(), Error> {
        let path = host.resolve(path)?;
        match host.look(&path)? {
            PathState::File(bytes, _) if bytes == content.as_bytes() => {}
            _ => self.changes.push(PathChange { path, act: PlannedAct::Own(content) }),
        }
        Ok(())
    }

    /// Plans a symbolic link to `target` at `path`, which belongs to synconce.
    ///
    /// # Errors
    /// The errors of reading the link.
    pub(crate) fn link(&mut self, host: &Host, path: &Path, target: &Path) -> Result<(), Error> {
        let above = host.resolve(path.parent().unwrap_or(path))?;
        let path = above.join(path.file_name().unwrap_or_default());
        match host.look(&path)? {
            PathState::Link(found) if found == target => {}
            _ => self.changes.push(PathChange { path, act: PlannedAct::Link(target.to_owned()) }),
        }
        Ok(())
    }
}
