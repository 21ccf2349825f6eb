//! A hold of two bbolt databases and a directory with an SQLite database, on a rig.

use super::database::Database;
use crate::Result;
use crate::config::MarkerPlace;
use crate::cuts::mount;
use crate::processes::{self, Process};
use crate::tool::{Tool, held_path};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::{Mounted, Replay};
use tempfile::TempDir;

/// The name of the hold.
pub(super) const NAME: &str = "t";
/// Far longer than a verb takes.
const LIMIT: Duration = Duration::from_secs(60);

/// The hold, and where its disks are mounted. The recorded disk and the disk after a cut are
/// mounted at the same path, because the marker has the paths of the held files.
pub(super) struct HoldFixture {
    pub tool: Tool,
    pub marker: MarkerPlace,
    control: TempDir,
    databases: [Database; 3],
}

impl HoldFixture {
    /// Makes the directories and the file of the hold.
    pub(super) fn new(tool: &Tool, marker: MarkerPlace) -> Result<Self> {
        let control = tempfile::Builder::new().prefix("synconce-prove-").tempdir_in("/dev/shm")?;
        let base = control.path().canonicalize()?;
        let data = base.join("disk/data");
        let databases = [
            Database::Bolt(data.join("meta.db")),
            Database::Bolt(data.join("snapshots/metadata.db")),
            Database::Sqlite(data.join("jobs")),
        ];
        let held = databases.iter().map(|database| held_path(database.held(), database.kind()));
        let text = format!("after_crash = \"wipe\"\n{}", held.collect::<String>());
        fs::write(base.join(format!("{NAME}.toml")), text)?;
        for directory in ["disk", "other", "runtime", "below"] {
            fs::create_dir(base.join(directory))?;
        }
        Ok(Self { tool: tool.clone(), marker, control, databases })
    }

    /// Returns the directory of everything, which is on neither disk.
    pub(super) fn base(&self) -> &Path {
        self.control.path()
    }

    /// Returns where the disk of the databases is mounted.
    pub(super) fn disk(&self) -> PathBuf {
        self.base().join("disk")
    }

    /// Returns where the other disk of the marker is mounted, if there is one.
    pub(super) fn other(&self) -> PathBuf {
        self.base().join("other")
    }

    /// Returns where the disk is mounted once more, without the holds.
    pub(super) fn below(&self) -> PathBuf {
        self.base().join("below")
    }

    /// Returns the directory of the databases.
    pub(super) fn data(&self) -> PathBuf {
        self.disk().join("data")
    }

    /// Returns the state directory.
    pub(super) fn state(&self) -> PathBuf {
        match self.marker {
            MarkerPlace::Other => self.other().join("state"),
            _ => self.disk().join("state"),
        }
    }

    /// Returns the path of the marker.
    pub(super) fn marker_path(&self) -> PathBuf {
        self.state().join(format!("holds/{NAME}.json"))
    }

    pub(super) fn databases(&self) -> &[Database] {
        &self.databases
    }

    /// Makes the directories on the disks, which are empty.
    pub(super) fn make_directories(&self) -> Result<()> {
        for directory in [self.data().join("snapshots"), self.data().join("jobs"), self.state()] {
            fs::create_dir_all(directory)?;
        }
        Ok(())
    }

    /// Makes transactions `from` to `to` in every database.
    pub(super) fn write(&self, from: usize, to: usize) -> Result<()> {
        self.databases.iter().try_for_each(|database| database.write(from, to))
    }

    /// Forgets what is in memory only, as a boot does.
    pub(super) fn boot(&self) -> Result<()> {
        let runtime = self.base().join("runtime");
        fs::remove_dir_all(&runtime)?;
        Ok(fs::create_dir(runtime)?)
    }

    /// Returns `synconce hold VERB` on the file of the hold.
    pub(super) fn command(&self, verb: &str) -> Command {
        let mut command = self.tool.hold(&self.state(), &self.base().join("runtime"));
        command.arg(verb).arg(self.base().join(format!("{NAME}.toml")));
        command
    }

    /// Runs a verb.
    pub(super) fn verb(&self, verb: &str) -> Result<Finished> {
        Ok(process::run(&mut self.command(verb), patiently(LIMIT))?)
    }

    /// Runs a verb that has to succeed.
    pub(super) fn must(&self, verb: &str) -> Result<()> {
        let finished = self.verb(verb)?;
        if finished.status.success() { Ok(()) } else { Err(failed(verb, &finished).into()) }
    }

    /// From now on mutants run only where the mutant is one of the recovery or the restore.
    pub(super) fn recover_by_shipped(&mut self) {
        if let Tool::Mutant { mutant, shipped, .. } = &self.tool
            && !["hold-recover-", "hold-restore-"].iter().any(|begin| mutant.starts_with(begin))
        {
            self.tool = Tool::Synconce(shipped.clone());
        }
    }

    /// Unmounts what is held, without the tool, and ends the guard.
    pub(super) fn release(&self) -> Result<()> {
        let unmounted = self.unmount();
        self.kill_guard().and(unmounted)
    }

    fn unmount(&self) -> Result<()> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let is_mounted = |path: &Path| mounts.contains(&format!(" {} ", path.display()));
        for database in self.databases.iter().filter(|database| is_mounted(database.held())) {
            // A child that another row forks has this process's files open until it executes.
            let last = Cell::new(Ok(()));
            waited(|| {
                last.set(unmount(database.held(), UnmountFlags::NOFOLLOW));
                last.get() != Err(Errno::BUSY)
            });
            last.get().map_err(|error| format!("cannot unmount {database}: {error}"))?;
        }
        Ok(())
    }

    /// Kills the guard.
    pub(super) fn kill_guard(&self) -> Result<()> {
        for guard in self.processes().iter().filter(|process| process.is_guard) {
            // It may have ended meanwhile.
            let _ = Pid::from_raw(guard.pid.cast_signed())
                .map(|guard| kill_process(guard, Signal::KILL));
        }
        if waited(|| !self.processes().iter().any(|process| process.is_guard)) {
            Ok(())
        } else {
            Err("a guard does not end".into())
        }
    }

    /// Removes what a stop without a marker leaves beside the databases. With the kernel's marks
    /// there, the next start would be refused.
    pub(super) fn remove_marks(&self) -> Result<()> {
        let parents = self.databases.iter().filter_map(|database| database.held().parent());
        for scratch in parents.map(|parent| parent.join(".synconce-hold")) {
            match fs::remove_dir_all(&scratch) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Leaves the files of a hold in force as a crash does: without its mounts, with a marker
    /// of another boot.
    pub(super) fn crash(&self) -> Result<()> {
        self.release()?;
        self.boot()?;
        let path = self.marker_path();
        let mut marker: Value = serde_json::from_slice(&fs::read(&path)?)?;
        marker["boot"] = "another".into();
        Ok(fs::write(&path, serde_json::to_vec(&marker)?)?)
    }

    /// Returns the content of all held files by path.
    pub(super) fn content(&self) -> Result<HeldContent> {
        content(self.databases.iter().map(Database::held))
    }

    /// Changes the held files as a daemon does, an hour later: the times of files have ticks.
    pub(super) fn touch(&self) -> Result<()> {
        for (path, _) in self.content()?.iter().filter(|(_, bytes)| bytes.is_ok()) {
            let file = fs::File::options().write(true).open(path)?;
            file.set_modified(SystemTime::now() + Duration::from_secs(3600))?;
        }
        Ok(())
    }

    /// Returns the commands that put back what is set aside, from the journal.
    pub(super) fn put_back(&self) -> Result<Vec<String>> {
        let path = self.state().join(format!("holds/{NAME}.aside.json"));
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            text => text?,
        };
        let journal: Value = serde_json::from_slice(&text)?;
        let commands = journal["put_back"].as_array().ok_or("the journal has no commands")?;
        Ok(commands.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect())
    }

    /// Returns what a hold that has ended must not leave: mounts, guards, and files of its own;
    /// what is set aside is left only if the hold is not settled.
    pub(super) fn leftovers(&self) -> Result<Vec<String>> {
        let base = self.base().display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mut left: Vec<String> = mounts
            .lines()
            .filter(|line| line.contains(&base) && line.contains(" overlay "))
            .map(|line| format!("mounted: {line}"))
            .collect();
        left.extend(self.processes().into_iter().map(|one| format!("running: {}", one.words)));
        for directory in [self.data(), self.data().join("snapshots")] {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                left.extend(name.starts_with(".synconce-").then_some(name));
            }
        }
        Ok(left)
    }

    /// Returns the processes whose words have a path of this fixture, and its guards, whose words
    /// have no path but whose environment has. An ended process has neither.
    pub(super) fn processes(&self) -> Vec<Process> {
        processes::with_path(&self.base().display().to_string())
    }
}

impl Drop for HoldFixture {
    /// Leaves no guard, also where an error ends the row.
    fn drop(&mut self) {
        let _ = self.kill_guard();
    }
}

/// Held files by path, with their bytes. A file that cannot be read has the error instead.
pub(super) type HeldContent = BTreeMap<PathBuf, std::result::Result<Vec<u8>, ErrorKind>>;

/// Returns the content of the files at and below `paths`.
pub(super) fn content<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<HeldContent> {
    let mut found = HeldContent::new();
    let mut open: Vec<PathBuf> = paths.filter(|path| path.exists()).map(Into::into).collect();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(&path)? {
                open.push(entry?.path());
            }
        } else {
            let bytes = fs::read(&path).map_err(|error| error.kind());
            found.insert(path, bytes);
        }
    }
    Ok(found)
}

/// Describes a verb that failed.
pub(super) fn failed(verb: &str, finished: &Finished) -> String {
    format!("hold {verb}: {}: {}", finished.status, finished.stderr.trim())
}

/// Mounts the disks after a cut. The inner error is that of a file system that does not
/// recover.
pub(super) fn mounted<'a>(
    replays: impl Iterator<Item = &'a Replay>,
) -> std::result::Result<Vec<Mounted<'a>>, String> {
    let all = replays.map(|replay| mount(|| replay.mount()));
    all.collect::<std::result::Result<_, _>>().map_err(|error| error.to_string())
}

/// Waits until `holds` returns true; returns whether it did.
pub(super) fn waited(holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + patiently(LIMIT);
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Runs the commands of a shell one after the other.
pub(super) fn shell(commands: &[String]) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", &commands.join("\n")]);
    crate::recording::finish("putting back", patiently(LIMIT), &mut command)
}
