//! The fixture of the compile scenario: a fresh copy of the tree per iteration.

use super::{Options, program, shell};
use crate::launcher::Launcher;
use crate::mounts::remove_tree;
use crate::scenario::{Finding, Iteration, Place, Steps, fill};
use crate::workplace::Workplace;
use crate::{Error, Failure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Copies, prepares and removes trees.
pub(super) struct Stage {
    source: PathBuf,
    command: String,
    prepare: Option<String>,
    work: Workplace,
    /// The entries of the tree before the first build; `None` once that build has ended.
    untouched: Option<State>,
    seen: bool,
}

impl Stage {
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        let source = fs::canonicalize(&options.source)
            .map_err(Error::io("open the source tree", &options.source))?;
        let work = Workplace::new(&options.dir, false);
        let refuse = |reason: String| Error::Unsuitable {
            what: format!("the source tree {}", source.display()),
            reason,
        };
        if !source.is_dir() {
            return Err(refuse("it is not a directory".to_owned()));
        }
        if work.path().starts_with(&source) || source.starts_with(work.path()) {
            let work = work.path().display();
            return Err(refuse(format!(
                "it and the place for copies, {work}, are inside each other"
            )));
        }
        let values = BTreeMap::from([("jobs".to_owned(), options.jobs.to_string())]);
        let filled = |line: &String| fill(std::slice::from_ref(line), &values).concat();
        Ok(Self {
            command: filled(&options.command),
            prepare: options.prepare.as_ref().map(filled),
            source,
            work,
            untouched: None,
            seen: false,
        })
    }

    /// Returns the build command with the number of jobs filled in.
    pub(super) fn command(&self) -> &str {
        &self.command
    }

    /// Returns the directory of all builds. All use the same path, because a prepared tree may
    /// contain its own path.
    fn tree(&self) -> PathBuf {
        self.work.path().join("tree")
    }

    /// Returns the tree that is copied for each iteration.
    fn template(&self) -> PathBuf {
        self.work.path().join("template")
    }
}

/// Checks that the program is installed, before the long copy.
fn require(line: &str, launcher: &Launcher) -> Result<(), Error> {
    let Some(program) = program(line) else {
        return Ok(());
    };
    let mut command = shell("command -v -- \"$1\"");
    command.extend(["sh", program].map(str::to_owned));
    if launcher.run(&command, &launcher.log("programs"), None)?.status.success() {
        return Ok(());
    }
    Err(Error::Unsuitable {
        what: format!("the command `{line}`"),
        reason: format!("{program} is not installed"),
    })
}

/// Copies a tree with all metadata. Times matter most, because make decides by them.
fn copy(purpose: &str, from: &Path, to: &Path, launcher: &Launcher) -> Result<(), Error> {
    fs::create_dir(to).map_err(Error::io("create", to))?;
    let words = ["cp", "-a", "--reflink=auto", "--"].map(str::to_owned);
    let ends = [from.join("."), to.to_path_buf()].map(|path| path.display().to_string());
    launcher.help(purpose, &[&words[..], &ends].concat())
}

/// Path, inode, size and time of the last change of every entry of a tree.
type State = BTreeSet<(PathBuf, u64, u64, (i64, i64))>;

fn state(tree: &Path) -> Result<State, Error> {
    let mut found = State::new();
    let mut pending = vec![tree.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).map_err(Error::io("list", &dir))? {
            let path = entry.map_err(Error::io("list", &dir))?.path();
            let metadata = fs::symlink_metadata(&path).map_err(Error::io("stat", &path))?;
            if metadata.is_dir() {
                pending.push(path.clone());
            }
            let time = (metadata.mtime(), metadata.mtime_nsec());
            found.insert((path, metadata.ino(), metadata.size(), time));
        }
    }
    Ok(found)
}

impl Steps for Stage {
    fn prepare(&mut self, launcher: &Launcher) -> Result<(), Error> {
        for line in self.prepare.iter().chain([&self.command]) {
            require(line, launcher)?;
        }
        self.work.occupy()?;
        copy("copy the source tree", &self.source, &self.tree(), launcher)?;
        if let Some(line) = &self.prepare {
            launcher.help_in(Some(&self.tree()), "prepare the tree", &shell(line))?;
        }
        fs::rename(self.tree(), self.template()).map_err(Error::io("rename", self.tree()))
    }

    fn reset(&mut self, _turn: &Iteration<'_>, launcher: &Launcher) -> Result<Place, Error> {
        let tree = self.tree();
        copy("copy the prepared tree", &self.template(), &tree, launcher)?;
        if !self.seen {
            self.untouched = Some(state(&tree)?);
        }
        // Write-back of the copy must not fall into the build.
        let dir = File::open(&tree).map_err(Error::io("open", &tree))?;
        rustix::fs::syncfs(&dir).map_err(Error::io("sync", &tree))?;
        Ok(Place {
            values: BTreeMap::from([("tree".to_owned(), tree.display().to_string())]),
            settle: Some(tree.clone()),
            dir: Some(tree),
            ..Place::default()
        })
    }

    fn check(&mut self, turn: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        self.seen = true;
        let Some(before) = self.untouched.take() else {
            return Ok(());
        };
        if before != state(&self.tree())? {
            return Ok(());
        }
        let ending = "exit code 0, yet nothing in the tree has changed; is it built already?";
        Err(Error::Variant {
            variant: turn.variant.name.clone(),
            phase: turn.phase.to_string(),
            failure: Failure::new(
                &turn.variant.commands[0],
                ending,
                &launcher.log(&turn.file_name()),
            ),
        })
    }

    fn clear(&mut self, _turn: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        // A server that a build has started would take time from the next build.
        launcher.end_strays();
        remove_tree(&self.tree())
    }

    fn conclude(&mut self) -> Result<Vec<Finding>, Error> {
        self.work.vacate()?;
        Ok(Vec::new())
    }
}
