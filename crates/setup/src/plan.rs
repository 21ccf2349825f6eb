//! What would be changed, and what the operator has to know.

use crate::error::{Error, Fault};
use crate::host::{Found, Host};
use std::path::{Path, PathBuf};

/// The changes that set an engine up; none when it is.
#[derive(Debug, Default)]
pub struct Plan {
    /// In the order in which they are made.
    pub changes: Vec<Change>,
    /// What was chosen, and why; what will not work.
    pub notes: Vec<String>,
}

/// One name that changes.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// As the system sees it, without links.
    pub path: PathBuf,
    /// What becomes of it.
    pub act: Act,
}

/// What becomes of a name.
#[derive(Debug, PartialEq, Eq)]
pub enum Act {
    /// A configuration file of the engine's operator is edited.
    Edit {
        /// Its content now.
        before: String,
        /// Its content then.
        after: String,
    },
    /// A configuration file is made.
    Create(String),
    /// A file that is ours alone is written. One that is there and that we did not
    /// write is not touched.
    Own(String),
    /// A symbolic link that is ours alone is made.
    Link(PathBuf),
}

impl Plan {
    /// Edits the file that `path` leads to by `editor`, which is given its text
    /// (`None`: there is no file) and returns the new one (`None`: nothing to change).
    ///
    /// # Errors
    /// Those of reading it; the editor's, with the name of the file.
    pub fn edit(
        &mut self,
        host: &Host,
        path: &Path,
        editor: impl FnOnce(Option<&str>) -> Result<Option<String>, Fault>,
    ) -> Result<(), Error> {
        let (path, before) = host.text(path)?;
        let after = editor(before.as_deref()).map_err(|fault| fault.in_file(&host.real(&path)))?;
        let act = match (before, after) {
            (_, None) => return Ok(()),
            (Some(before), Some(after)) => Act::Edit { before, after },
            (None, Some(after)) => Act::Create(after),
        };
        self.changes.push(Change { path, act });
        Ok(())
    }

    /// The file `path` is ours, and is to be `content`.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn own(&mut self, host: &Host, path: &Path, content: String) -> Result<(), Error> {
        let path = host.resolve(path)?;
        match host.look(&path)? {
            Found::File(bytes, _) if bytes == content.as_bytes() => {}
            _ => self.changes.push(Change { path, act: Act::Own(content) }),
        }
        Ok(())
    }

    /// The link `path` is ours, and is to lead to `target`.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn link(&mut self, host: &Host, path: &Path, target: &Path) -> Result<(), Error> {
        let above = host.resolve(path.parent().unwrap_or(path))?;
        let path = above.join(path.file_name().unwrap_or_default());
        match host.look(&path)? {
            Found::Link(found) if found == target => {}
            _ => self.changes.push(Change { path, act: Act::Link(target.to_owned()) }),
        }
        Ok(())
    }
}
