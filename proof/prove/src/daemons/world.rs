//! The directories of one row, and the processes and mounts below them.

use crate::Result;
use crate::config::MarkerPlace;
use crate::processes;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use synconce_sys::procfs::{self, Stat};

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
        let mut doomed = self.processes();
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
    fn processes(&self) -> Vec<Pid> {
        let own = std::process::id();
        let named = processes::with_path(&format!("{}/", self.base.display()));
        let mut found: BTreeSet<u32> = named.iter().map(|named| named.pid).collect();
        found.remove(&own);
        let of_parent = |pid| Some((pid, Stat::read(pid)?.parent()?));
        let all: Vec<_> = procfs::pids().filter_map(of_parent).collect();
        loop {
            let below = all.iter().filter(|(pid, parent)| {
                found.contains(parent) && !found.contains(pid) && *parent != own
            });
            let below: Vec<u32> = below.map(|(pid, _)| *pid).collect();
            if below.is_empty() {
                let found = found.into_iter();
                return found.filter_map(|pid| Pid::from_raw(pid.cast_signed())).collect();
            }
            found.extend(below);
        }
    }
}

/// Whether a process is gone, or is a zombie.
fn has_ended(pid: Pid) -> bool {
    let state = Stat::read(pid.as_raw_pid().unsigned_abs()).and_then(|stat| stat.state());
    state.is_none_or(|state| matches!(state, 'Z' | 'X'))
}
