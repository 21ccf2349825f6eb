//! Limits of a run: control groups (cgroups(7)) that are made for the run and removed at its end.

mod place;
#[cfg(test)]
mod tests;

use self::place::{CgroupVersion, ParentGroup, passes_on, places};
use crate::session::Session;
use crate::store::{Store, encode, read, write_lightly};
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use synconce_durable::error::{Context, Error};

/// The file in a session's directory that names the session's control groups.
const NOTE: &str = "groups.json";
/// What the name of a control group begins with; the session's ID follows.
const PREFIX: &str = "synconce-";
/// The period in which processor time is limited (Documentation/scheduler/sched-bwc.rst), in
/// microseconds.
const PERIOD: u64 = 100_000;
/// How long a removal waits for processes that have been killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the processes of a run may use together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Bytes of memory. Swap is not used in addition.
    pub memory: Option<u64>,
    /// Processors, such as 1.5.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

/// How often a limit was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Processes that the kernel killed at the limit of memory.
    pub killed: u64,
    /// Forks that failed at the limit of processes.
    pub forks: u64,
}

/// The control groups of a run. [`Groups::remove`] or the drop removes them.
#[derive(Debug)]
pub struct Groups {
    directories: Vec<PathBuf>,
    note: PathBuf,
}

impl<State> Session<'_, State> {
    /// Makes control groups with these limits. A process joins those of [`Groups::directories`].
    ///
    /// # Errors
    /// There is no control group in which others can be made.
    pub fn limit(&self, limits: &Limits) -> Result<Groups, Error> {
        let wanted = limits.controllers();
        let places = places(&wanted)?;
        let directory = |place: &ParentGroup| place.parent.join(format!("{PREFIX}{}", self.id));
        let directories = places.iter().map(directory).collect();
        let groups = Groups { directories, note: self.directory().join(NOTE) };
        // Before the groups are made: they must be found after a kill.
        write_lightly(&groups.note, &encode(&groups.directories, &groups.note)?)?;
        for (place, directory) in places.iter().zip(&groups.directories) {
            fs::create_dir(directory).on("cannot make the control group", directory)?;
            limits.write_all(place, directory)?;
        }
        Ok(groups)
    }
}

impl Limits {
    fn controllers(&self) -> Vec<&'static str> {
        let all = [
            ("memory", self.memory.is_some()),
            ("cpu", self.cpus.is_some()),
            ("pids", self.pids.is_some()),
        ];
        all.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| name).collect()
    }

    /// Writes the limits to the control group `directory` in `place`.
    fn write_all(&self, place: &ParentGroup, directory: &Path) -> Result<(), Error> {
        let limits = place.left.iter().fold(*self, |limits, group| limits.within(group));
        let is_here = |controller: &&str| match place.version {
            CgroupVersion::One => place.controllers.contains(controller),
            CgroupVersion::Two => passes_on(&place.parent, controller),
        };
        let mut controllers = limits.controllers().into_iter().filter(is_here);
        controllers.try_for_each(|name| limits.write(name, place.version, directory))
    }

    /// Returns these limits, narrowed to the limits of the control group `group` of version 2. The
    /// run leaves that group, and a run with limits must not get more memory, processor time or
    /// processes than a run without.
    fn within(self, group: &Path) -> Self {
        let text = |file: &str| fs::read_to_string(group.join(file)).unwrap_or_default();
        // Without a limit the kernel writes "max".
        let number = |file: &str| text(file).trim().parse::<u64>().ok();
        let cpus = text("cpu.max");
        let mut cpus = cpus.split_whitespace().map_while(|word| word.parse::<f64>().ok());
        let cpus = cpus.next().zip(cpus.next()).map(|(quota, period)| quota / period);
        let narrower = |own: Option<u64>, other: Option<u64>| own.into_iter().chain(other).min();
        Self {
            memory: narrower(self.memory, number("memory.max")),
            cpus: self.cpus.into_iter().chain(cpus).reduce(f64::min),
            pids: narrower(self.pids, number("pids.max")),
        }
    }

    /// Writes the limits of `controller` to the control group `directory`.
    fn write(
        &self,
        controller: &str,
        version: CgroupVersion,
        directory: &Path,
    ) -> Result<(), Error> {
        let set = |file: &str, value: String| {
            let path = directory.join(file);
            fs::write(&path, value).on("cannot set the limit", &path)
        };
        // The kernel may not count swap.
        let set_if_there = |file: &str, value: String| {
            if directory.join(file).exists() { set(file, value) } else { Ok(()) }
        };
        let memory = self.memory.unwrap_or_default();
        let quota = (self.cpus.unwrap_or_default() * PERIOD as f64) as u64;
        match (controller, version) {
            ("memory", CgroupVersion::One) => {
                // Groups within count only then. Where the parent has it, it cannot be set.
                let _ = fs::write(directory.join("memory.use_hierarchy"), "1");
                set("memory.limit_in_bytes", memory.to_string())?;
                set_if_there("memory.memsw.limit_in_bytes", memory.to_string())
            }
            ("memory", CgroupVersion::Two) => {
                set("memory.max", memory.to_string())?;
                set_if_there("memory.swap.max", "0".to_owned())
            }
            ("cpu", CgroupVersion::One) => {
                set("cpu.cfs_period_us", PERIOD.to_string())?;
                set("cpu.cfs_quota_us", quota.to_string())
            }
            ("cpu", CgroupVersion::Two) => set("cpu.max", format!("{quota} {PERIOD}")),
            _ => set("pids.max", self.pids.unwrap_or_default().to_string()),
        }
    }
}

impl Groups {
    /// Returns the directories of the groups, one for each hierarchy.
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Removes the groups. Returns those that are there after five seconds.
    pub fn remove(mut self) -> Vec<PathBuf> {
        let mut directories = mem::take(&mut self.directories);
        directories.retain(|directory| !remove(directory));
        directories
    }

    /// Returns how often the run has reached a limit.
    pub fn reached(&self) -> Reached {
        let count = |file: &str, key: &str| -> u64 {
            let of = |directory: &PathBuf| {
                let text = fs::read_to_string(directory.join(file)).ok()?;
                text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
            };
            self.directories.iter().filter_map(of).sum()
        };
        let killed = count("memory.events", "oom_kill ") + count("memory.oom_control", "oom_kill ");
        Reached { killed, forks: count("pids.events", "max ") }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for directory in &self.directories {
            let _ = remove(directory);
        }
        let _ = fs::remove_file(&self.note);
    }
}

/// Moves the calling process to the control group `directory`.
pub(crate) fn join(directory: &Path) -> Result<(), Error> {
    fs::write(directory.join("cgroup.procs"), "0").on("cannot enter the control group", directory)
}

/// Removes the control groups of the interrupted session `id`. Returns those that are there after
/// five seconds.
pub(crate) fn remove_left(store: &Store, id: &str) -> Vec<PathBuf> {
    let noted = read::<Vec<PathBuf>>(&store.session(id).join(NOTE));
    let name = format!("{PREFIX}{id}");
    let mut ours = noted.ok().flatten().unwrap_or_default();
    ours.retain(|directory| directory.ends_with(&name) && !remove(directory));
    ours
}

/// Removes a control group and the groups in it, whose processes have been killed. Returns `false`
/// if the group is there afterwards: it is still in use after five seconds, or cannot be removed.
fn remove(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        if !remove(&entry.path()) {
            return false;
        }
    }
    let since = Instant::now();
    // A process that was killed is in its group until it has ended.
    while let Err(error) = fs::remove_dir(directory) {
        match error.kind() {
            io::ErrorKind::NotFound => return true,
            io::ErrorKind::ResourceBusy if since.elapsed() < PATIENCE => {
                sleep(Duration::from_millis(5));
            }
            _ => return false,
        }
    }
    true
}
