//! What the workload is run under, and what it has to say of a recovered disk.

use crate::Result;
use crate::judge::Status;
use crate::scene::{MarkerPlace, Mode, Scene};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::process;

/// What the workload is run under.
#[derive(Clone, Debug)]
pub(crate) enum Tool {
    /// The tool as it ships.
    Synconce(PathBuf),
    /// The tool with one step taken away.
    Mutant { program: PathBuf, mutant: &'static str, shipped: PathBuf },
    /// Nothing.
    Plain,
    /// A preload that drops the syncs.
    Eatmydata,
}

/// The places of a take, live or recovered.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Where the disk that is written is mounted.
    pub disk: PathBuf,
    /// The state directory: on that disk, on another, or lost with the machine.
    pub state: PathBuf,
    /// A directory that is on neither.
    pub control: PathBuf,
}

impl Places {
    pub(crate) fn tree(&self) -> PathBuf {
        self.disk.join("tree")
    }

    /// The bystander's directory.
    pub(crate) fn bystander(&self) -> PathBuf {
        self.disk.join("bystander")
    }

    /// The daemon's directory.
    pub(crate) fn daemon(&self) -> PathBuf {
        self.disk.join("daemon")
    }
}

/// Far more than a status takes.
const LIMIT: Duration = Duration::from_secs(60);
const INTERRUPTED: i32 = 4;
const FAILED: i32 = 125;

impl Tool {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Synconce(_) => "synconce",
            Self::Mutant { mutant, .. } => mutant,
            Self::Plain => "plain",
            Self::Eatmydata => "eatmydata",
        }
    }

    /// The command that runs `words` in `scene`.
    pub(crate) fn command(&self, scene: Scene, places: &Places, words: &[String]) -> Command {
        let program = match self {
            Self::Synconce(program) | Self::Mutant { program, .. } => program,
            Self::Plain | Self::Eatmydata => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                if matches!(self, Self::Eatmydata) {
                    command.env("LD_PRELOAD", "libeatmydata.so");
                }
                return command;
            }
        };
        let mut command = Command::new(program);
        command.arg("run").arg("--commit-only").arg(&places.disk);
        if scene.mode == Mode::Sealed {
            command.arg("--sealed");
        }
        if scene.marker == MarkerPlace::Root {
            command.arg("--root").arg(places.tree());
        }
        command.arg("--").args(words);
        environment(&mut command, places);
        if let Self::Mutant { mutant, .. } = self {
            command.env("SYNCONCE_MUTANT", mutant);
        }
        command
    }

    /// What the tool says of the recovered disk in its own words; a rival says nothing.
    pub(crate) fn status(&self, scene: Scene, places: &Places) -> Result<Status> {
        let (Self::Synconce(program) | Self::Mutant { shipped: program, .. }) = self else {
            return Ok(Status::Nothing);
        };
        let mut command = Command::new(program);
        command.arg("status");
        if scene.marker == MarkerPlace::Root {
            command.arg("--root").arg(places.tree());
        }
        environment(&mut command, places);
        let finished = process::run(&mut command, LIMIT)?;
        match finished.status.code() {
            Some(0) => Ok(Status::Nothing),
            Some(FAILED) => Ok(Status::CannotTell),
            Some(INTERRUPTED) if finished.stdout.contains("interrupted") => Ok(Status::Interrupted),
            _ => Err(format!("{command:?}: {finished:?}").into()),
        }
    }
}

fn environment(command: &mut Command, places: &Places) {
    command.env("SYNCONCE_STATE_DIR", &places.state);
    command.env("SYNCONCE_RUNTIME_DIR", places.control.join("runtime"));
}
