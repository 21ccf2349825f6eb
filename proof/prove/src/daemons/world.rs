//! The directories of one row, and the processes and mounts below them.

use crate::Result;
use crate::config::MarkerPlace;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where all worlds are. The path is short, because the length of a socket's path is limited.
pub(super) const WORLDS: &str = "/run/daemons";

/// The directories of one row. The recorded disk and each cut one are mounted at the same path.
#[derive(Debug)]
pub(super) struct World {
    base: PathBuf,
    marker: MarkerPlace,
    /// The parent of the control groups of containers.
    pub group: String,
}

impl World {
    /// Makes the directories of row number `index`.
    pub(super) fn new(index: usize, marker: MarkerPlace, group: &str) -> Result<Self> {
        let base = Path::new(WORLDS).join(index.to_string());
        let world = Self { base, marker, group: format!("{group}/{index}") };
        for directory in [world.disk(), world.other()] {
            fs::create_dir_all(directory)?;
        }
        Ok(world)
    }

    /// Returns where the disk of the daemon is mounted.
    pub(super) fn disk(&self) -> PathBuf {
        self.base.join("disk")
    }

    /// Returns where the disk of the marker is mounted, if that is another disk.
    pub(super) fn other(&self) -> PathBuf {
        self.base.join("other")
    }

    /// Returns the state directory of synconce.
    pub(super) fn markers(&self) -> PathBuf {
        match self.marker {
            MarkerPlace::Other => self.other().join("synconce"),
            _ => self.disk().join("synconce"),
        }
    }

    /// Returns the directory in memory, which does not survive a cut.
    pub(super) fn memory(&self) -> PathBuf {
        self.base.join("m")
    }

    /// Makes the directory in memory anew, as a boot does.
    pub(super) fn boot(&self) -> Result<()> {
        if self.memory().exists() {
            fs::remove_dir_all(self.memory())?;
        }
        Ok(fs::create_dir_all(self.memory())?)
    }

    /// Kills every process of the world and `guard`, and removes every mount, but for the
    /// disks' own.
    pub(super) fn halt(&self, guard: Option<Pid>) -> Result<()> {
        let mut doomed = self.processes()?;
        doomed.extend(guard);
        for pid in &doomed {
            // It may have ended meanwhile.
            let _ = kill_process(*pid, Signal::KILL);
        }
        let ended = || doomed.iter().all(|pid| has_ended(*pid));
        crate::recording::wait_until("killed processes end", Duration::from_secs(30), ended)?;
        let own = [self.disk(), self.other()];
        for mount in synconce_probe::mounts::read("self")?.iter().rev() {
            let is_inside = mount.point.starts_with(&self.base);
            if is_inside && !own.contains(&mount.point) {
                unmount(&mount.point, UnmountFlags::DETACH).map_err(|errno| {
                    format!("cannot unmount {}: {errno}", mount.point.display())
                })?;
            }
        }
        Ok(())
    }

    /// Returns the processes that have the world's path in their words, and their descendants.
    fn processes(&self) -> Result<Vec<Pid>> {
        let base = format!("{}/", self.base.display());
        let mut all = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
            let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let stat = read("stat");
            let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
            let parent = fields.split_whitespace().nth(1).and_then(|pid| pid.parse().ok());
            // The words of a guard are its title.
            let is_guard = read("comm") == "synconce-guard\n";
            let words = read(if is_guard { "environ" } else { "cmdline" });
            all.push((pid, parent.unwrap_or(0), words.contains(&base)));
        }
        let own = rustix::process::getpid().as_raw_pid();
        let named = all.iter().filter(|(pid, _, named)| *named && *pid != own);
        let mut found: BTreeSet<i32> = named.map(|(pid, ..)| *pid).collect();
        loop {
            let below = all.iter().filter(|(pid, parent, _)| {
                found.contains(parent) && !found.contains(pid) && *parent != own
            });
            let below: Vec<i32> = below.map(|(pid, ..)| *pid).collect();
            if below.is_empty() {
                return Ok(found.into_iter().filter_map(Pid::from_raw).collect());
            }
            found.extend(below);
        }
    }
}

/// Whether a process is gone, or is a zombie.
fn has_ended(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with(['Z', 'X']))
}
