//! `synconce hold` for the daemon of a row.

use super::world::World;
use crate::Result;
use crate::tool::held_path;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::Pid;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Finished};

const LIMIT: Duration = Duration::from_secs(60);
/// The name of the hold.
const NAME: &str = "held";

/// What a daemon's hold file says, for paths below the daemon's directory.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// The program `synconce`.
    pub program: PathBuf,
    /// The daemon's directory on the disk.
    pub root: PathBuf,
    /// Databases of bolt.
    pub databases: Vec<String>,
    /// What is set aside after a crash.
    pub set_aside: Vec<String>,
    /// The value of `docker_root`.
    pub docker_root: Option<PathBuf>,
}

impl Hold {
    /// Runs a verb of `synconce hold`.
    pub(super) fn verb(&self, verb: &str, world: &World) -> Result<Finished> {
        let path = world.memory().join(format!("{NAME}.toml"));
        fs::write(&path, self.file())?;
        if self.docker_root.is_some() {
            // dockerd mounts a directory on a private mount again, without the held files.
            mount_change(world.disk(), MountPropagationFlags::SHARED)?;
        }
        let mut command = Command::new(&self.program);
        command.env("SYNCONCE_STATE_DIR", world.markers());
        command.env("SYNCONCE_RUNTIME_DIR", runtime(world));
        command.args(["hold", verb]);
        // stop and settle take the name from the path as well.
        Ok(process::run(command.arg(&path), patiently(LIMIT))?)
    }

    /// Runs a verb that has to succeed.
    pub(super) fn must(&self, verb: &str, world: &World) -> Result<()> {
        let finished = self.verb(verb, world)?;
        if finished.status.success() {
            return Ok(());
        }
        Err(format!("hold {verb}: {}: {}", finished.status, output(&finished)).into())
    }

    /// Returns the process that locks the files below the hold.
    pub(super) fn guard(&self, world: &World) -> Option<Pid> {
        let text = fs::read(runtime(world).join(format!("holds/{NAME}.guard"))).ok()?;
        let guard: serde_json::Value = serde_json::from_slice(&text).ok()?;
        Pid::from_raw(i32::try_from(guard.get("pid")?.as_i64()?).ok()?)
    }

    fn file(&self) -> String {
        let path = |below: &String| format!("{:?}", self.root.join(below));
        let aside: Vec<String> = self.set_aside.iter().map(path).collect();
        let mut text = format!("after_crash = \"wipe\"\nset_aside = [{}]\n", aside.join(", "));
        if let Some(root) = &self.docker_root {
            text += &format!("docker_root = {root:?}\n");
        }
        for database in &self.databases {
            text += &held_path(&self.root.join(database), "bolt");
        }
        text
    }
}

fn runtime(world: &World) -> PathBuf {
    world.memory().join("synconce")
}

/// Returns what a command printed, in one line.
pub(super) fn output(finished: &Finished) -> String {
    let text = format!("{} {}", finished.stdout, finished.stderr);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
