//! The tool under which a workload runs, and what the tool reports about a recovered disk.

mod rivals;

use crate::Result;
use crate::check::Status;
use crate::config::{MarkerPlace, Mode, RunConfig, Scope};
use crate::work::Work;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_sys::process::FAILED;
use synconce_testkit::{patiently, process};

/// The tool under which a workload runs.
#[derive(Clone, Debug)]
pub(crate) enum Tool {
    /// The tool as it ships.
    Synconce(PathBuf),
    /// The tool as it ships, inside a run that commits nothing. Only for verbs of trees.
    InRun(PathBuf),
    /// The tool with one step removed.
    Mutant { program: PathBuf, mutant: &'static str, shipped: PathBuf },
    /// No tool.
    Plain,
    /// A preload that drops the syncs.
    Eatmydata,
    /// A container whose syncs are suppressed.
    Nspawn,
    /// An overlay that never syncs its upper.
    Volatile,
}

/// The paths of a recorded run, live or recovered.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// Where the disk that is written is mounted.
    pub disk: PathBuf,
    /// Where another disk that is written is mounted.
    pub second: Option<PathBuf>,
    /// The state directory: on that disk, on another, or lost with the machine.
    pub state: PathBuf,
    /// A directory on neither disk.
    pub control: PathBuf,
}

impl Paths {
    pub(crate) fn tree(&self) -> PathBuf {
        self.disk.join("tree")
    }

    pub(crate) fn disks(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.disk), self.second.as_ref()].into_iter().flatten()
    }

    /// Returns the background load's directory.
    pub(crate) fn background_load(&self) -> PathBuf {
        self.disk.join("background_load")
    }

    /// Returns the daemon's directory.
    pub(crate) fn daemon(&self) -> PathBuf {
        self.disk.join("daemon")
    }
}

/// Far longer than a status takes.
const LIMIT: Duration = Duration::from_secs(60);
const INTERRUPTED: i32 = 4;

impl Tool {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Synconce(_) => "synconce",
            Self::InRun(_) => "synconce in a run",
            Self::Mutant { mutant, .. } => mutant,
            Self::Plain => "plain",
            Self::Eatmydata => "eatmydata",
            Self::Nspawn => "nspawn --suppress-sync",
            Self::Volatile => "overlay volatile",
        }
    }

    /// Returns why the tool cannot run here.
    pub(crate) fn missing(&self) -> Option<String> {
        match self {
            Self::Synconce(_) | Self::InRun(_) | Self::Mutant { .. } | Self::Plain => None,
            Self::Eatmydata => rivals::missing("eatmydata"),
            Self::Nspawn => rivals::missing("systemd-nspawn"),
            Self::Volatile => rivals::missing("unshare"),
        }
    }

    /// Returns the tree, the control directory and the path of what else the command writes
    /// (the daemon's directory, or the tree on the second disk), as a command under this tool
    /// sees them.
    pub(crate) fn sees(&self, paths: &Paths) -> [PathBuf; 3] {
        let own = paths.second.as_deref().map_or_else(|| paths.daemon(), tree);
        let real = [paths.tree(), paths.control.clone(), own];
        match self {
            Self::Nspawn => [rivals::inside::TREE, rivals::inside::CONTROL, rivals::inside::DAEMON]
                .map(Into::into),
            Self::Volatile => {
                let [_, control, daemon] = real;
                [rivals::merged(paths), control, daemon]
            }
            _ => real,
        }
    }

    /// Returns the directory that is checked on a disk mounted at `disk`.
    pub(crate) fn compared(&self, disk: &Path) -> PathBuf {
        match self {
            Self::Volatile => rivals::upper(disk),
            _ => tree(disk),
        }
    }

    /// Returns the command that runs `words`, the command line of `work`, in `config`.
    pub(crate) fn command(
        &self,
        config: RunConfig,
        paths: &Paths,
        work: Work,
        words: &[String],
    ) -> Result<Command> {
        let program = match self {
            Self::Synconce(program) | Self::InRun(program) | Self::Mutant { program, .. } => {
                program
            }
            Self::Plain | Self::Eatmydata => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                if matches!(self, Self::Eatmydata) {
                    command.env("LD_PRELOAD", "libeatmydata.so");
                }
                return Ok(command);
            }
            Self::Nspawn => return rivals::nspawn(paths, words),
            Self::Volatile => return rivals::volatile(paths, words),
        };
        let mut command = match work {
            Work::OtherUser => {
                let mut command = Command::new("setpriv");
                command.arg("--bounding-set=-sys_ptrace").arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.arg("run");
        match config.scope {
            Scope::Held => &mut command,
            Scope::Only => command.arg("--commit-only").arg(&paths.disk),
            Scope::All => command.arg("--commit-all"),
        };
        if config.mode == Mode::Sealed {
            command.arg("--sealed");
        }
        if config.marker == MarkerPlace::Root {
            command.arg("--root").arg(paths.tree());
        }
        if work == Work::Excepted {
            command.arg("--except").arg(paths.daemon());
        }
        command.arg("--").args(words);
        // For a workload that commits in the middle.
        command.env("SYNCONCE", program);
        environment(&mut command, paths);
        if let Self::Mutant { mutant, .. } = self {
            command.env("SYNCONCE_MUTANT", mutant);
        }
        Ok(command)
    }

    /// Returns the command that commits the run in flight with these `paths`.
    pub(crate) fn commit(&self, paths: &Paths) -> Command {
        let mut command = Command::new(self.program().unwrap_or(Path::new("false")));
        command.arg("commit");
        environment(&mut command, paths);
        command
    }

    /// Returns the tool as it ships, for a mutant.
    pub(crate) fn shipped(&self) -> Self {
        match self {
            Self::Mutant { shipped, .. } => Self::Synconce(shipped.clone()),
            _ => self.clone(),
        }
    }

    /// Returns the program of synconce.
    fn program(&self) -> Option<&Path> {
        match self {
            Self::Synconce(program) | Self::InRun(program) | Self::Mutant { program, .. } => {
                Some(program)
            }
            _ => None,
        }
    }

    /// Returns the command `tree --store STORE`, to which a verb is added; `control` is on no
    /// disk under test.
    pub(crate) fn tree(&self, store: &Path, control: &Path) -> Command {
        let program = self.program().unwrap_or(Path::new("false"));
        let mut command = Command::new(program);
        if matches!(self, Self::InRun(_)) {
            command.args(["run", "--no-commit", "--"]).arg(program);
        }
        command.arg("tree").arg("--store").arg(store);
        command.env("SYNCONCE_STATE_DIR", control.join("state"));
        command.env("SYNCONCE_REGISTRY_DIR", control.join("registry"));
        command.env("SYNCONCE_RUNTIME_DIR", control.join("runtime"));
        if let Self::Mutant { mutant, .. } = self {
            command.env("SYNCONCE_MUTANT", mutant);
        }
        command
    }

    /// Returns the command `hold`, to which a verb is added.
    pub(crate) fn hold(&self, state: &Path, runtime: &Path) -> Command {
        let mut command = Command::new(self.program().unwrap_or(Path::new("false")));
        command.arg("hold").env("SYNCONCE_STATE_DIR", state);
        command.env("SYNCONCE_RUNTIME_DIR", runtime);
        if let Self::Mutant { mutant, .. } = self {
            command.env("SYNCONCE_MUTANT", mutant);
        }
        command
    }

    /// Returns what the tool reports about the recovered disk; a rival reports nothing.
    /// `changed` are the mount points of the file systems that the run had begun to change.
    pub(crate) fn status(
        &self,
        config: RunConfig,
        paths: &Paths,
        changed: &[&Path],
    ) -> Result<Status> {
        let (Self::Synconce(program) | Self::Mutant { shipped: program, .. }) = self else {
            return Ok(Status::Nothing);
        };
        let mut command = Command::new(program);
        command.args(["status", "--json"]);
        if config.marker == MarkerPlace::Root {
            command.arg("--root").arg(paths.tree());
        }
        environment(&mut command, paths);
        let finished = process::run(&mut command, patiently(LIMIT))?;
        match finished.status.code() {
            Some(0) => Ok(Status::Nothing),
            Some(FAILED) => Ok(Status::Failed),
            Some(INTERRUPTED) => {
                let runs: Vec<Value> = serde_json::from_str(&finished.stdout)?;
                let is_named = |point: &&Path| runs.iter().any(|run| names(run, point));
                let all = changed.iter().all(is_named);
                Ok(if all { Status::Interrupted } else { Status::OtherFileSystems })
            }
            _ => Err(format!("{command:?}: {finished:?}").into()),
        }
    }
}

/// Returns the tree on a disk mounted at `disk`.
fn tree(disk: &Path) -> PathBuf {
    disk.join("tree")
}

/// Whether `run`, as printed by `status --json`, is interrupted and names the file system that
/// was mounted at `point`.
fn names(run: &Value, point: &Path) -> bool {
    let systems = run["run"]["file_systems"].as_array();
    let mut points = systems.into_iter().flatten().map(|system| &system["mount_point"]);
    run["state"] == "interrupted" && points.any(|named| named.as_str() == point.to_str())
}

pub(crate) fn environment(command: &mut Command, paths: &Paths) {
    command.env("SYNCONCE_STATE_DIR", &paths.state);
    command.env("SYNCONCE_REGISTRY_DIR", paths.control.join("registry"));
    command.env("SYNCONCE_RUNTIME_DIR", paths.control.join("runtime"));
}

/// Returns the part of a hold's file that holds `path`. It is typed as a user types it: with the
/// type of the product, a renamed field would go unnoticed.
pub(crate) fn held_path(path: &Path, kind: &str) -> String {
    format!("[[hold]]\npath = {path:?}\nkind = \"{kind}\"\n")
}
