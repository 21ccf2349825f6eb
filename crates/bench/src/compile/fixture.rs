//! The fixture of the compile scenario and its options: a fresh copy of the tree per iteration.

use crate::Error;
use crate::command::{fill, program, shell, show};
use crate::harness::Common;
use crate::launcher::Launcher;
use crate::mounts::remove_tree;
use crate::scenario::{Iteration, IterationConfig, Observation, Steps};
use crate::walk::walk;
use crate::work_dir::WorkDir;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What to build, where and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// The work directory, the variants and the rounds. One round of the baseline before the
    /// rounds fills the page cache with the compiler, and shows that the command builds
    /// something.
    pub common: Common,
    /// The source tree; it is copied and never written.
    pub source: PathBuf,
    /// The value of `{jobs}` in the commands.
    pub jobs: u32,
    /// The build command, a line for sh(1).
    pub command: String,
    /// The command that prepares the tree, once and untimed, a line for sh(1).
    pub prepare: Option<String>,
}

/// Copies, prepares and removes trees.
pub(super) struct CompileFixture {
    source: PathBuf,
    command: String,
    prepare: Option<String>,
    work: WorkDir,
    /// The entries of the tree before the first build; `None` once that build has ended.
    untouched: Option<TreeSnapshot>,
    seen: bool,
}

impl CompileFixture {
    pub(super) fn new(options: &CompileOptions) -> Result<Self, Error> {
        let source = fs::canonicalize(&options.source)
            .map_err(Error::io("open the source tree", &options.source))?;
        let work = WorkDir::new(&options.common.dir);
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
        let values = BTreeMap::from([("jobs", options.jobs.to_string())]);
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
    if launcher.run(&command, &launcher.log("programs"))?.status.success() {
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
    let command = ["cp", "-a", "--reflink=auto", "--", &show(&from.join(".")), &show(to)];
    launcher.run_helper(purpose, &command)
}

/// Path, inode, size and time of the last change of every entry of a tree.
type TreeSnapshot = BTreeSet<(PathBuf, u64, u64, (i64, i64))>;

fn state(tree: &Path, launcher: &Launcher) -> Result<TreeSnapshot, Error> {
    let mut found = TreeSnapshot::new();
    walk(tree, launcher, |path, metadata| {
        let time = (metadata.mtime(), metadata.mtime_nsec());
        found.insert((path, metadata.ino(), metadata.size(), time));
        Ok(())
    })?;
    Ok(found)
}

impl Steps for CompileFixture {
    fn prepare(&mut self, launcher: &Launcher) -> Result<(), Error> {
        for line in self.prepare.iter().chain([&self.command]) {
            require(line, launcher)?;
        }
        self.work.lock_and_clear()?;
        copy("copy the source tree", &self.source, &self.tree(), launcher)?;
        if let Some(line) = &self.prepare {
            launcher.run_helper_in(Some(&self.tree()), "prepare the tree", &shell(line))?;
        }
        fs::rename(self.tree(), self.template()).map_err(Error::io("rename", self.tree()))
    }

    fn reset(
        &mut self,
        _iteration: &Iteration<'_>,
        launcher: &Launcher,
    ) -> Result<IterationConfig, Error> {
        let tree = self.tree();
        copy("copy the prepared tree", &self.template(), &tree, launcher)?;
        if !self.seen {
            self.untouched = Some(state(&tree, launcher)?);
        }
        Ok(IterationConfig {
            values: BTreeMap::from([("tree", show(&tree))]),
            settle: Some(tree.clone()),
            dir: Some(tree),
            ..IterationConfig::default()
        })
    }

    fn check(&mut self, iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        self.seen = true;
        let Some(before) = self.untouched.take() else {
            return Ok(());
        };
        if before != state(&self.tree(), launcher)? {
            return Ok(());
        }
        let ending = "exit code 0, yet nothing in the tree has changed; is it built already?";
        Err(iteration.error(&iteration.variant.commands[0], ending, &iteration.log(launcher)))
    }

    fn clear(&mut self, _iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        // A server that a build has started would take time from the next build.
        launcher.kill_leftovers();
        remove_tree(&self.tree())
    }

    fn conclude(&mut self) -> Result<Vec<Observation>, Error> {
        self.work.remove()?;
        Ok(Vec::new())
    }
}
