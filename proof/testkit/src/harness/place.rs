//! A directory for one test, with state and runtime directories of its own.

use super::{binary, eventually, limit};
use crate::build;
use crate::process::{self, Finished, Group};
use rustix::mount::{MountFlags, mount};
use std::ffi::{CString, OsStr};
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// The directory of one test.
pub struct Place {
    dir: PathBuf,
}

impl Place {
    /// Makes an empty directory for the test `name`.
    pub fn new(name: &str) -> Self {
        let parent = build::temporary().expect("a test in a build directory");
        let dir = parent.join(name.replace("::", "-"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a directory for the test");
        Self { dir }
    }

    /// Removes the directory. After a failed test it is kept for inspection.
    pub fn down(self) {
        let _ = fs::remove_dir_all(&self.dir);
    }

    /// Returns the path of `name` in the directory, which is on a disk.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns [`Self::path`] as text for a script.
    pub fn text(&self, name: &str) -> String {
        self.path(name).into_os_string().into_string().expect("a path of ours is UTF-8")
    }

    /// Returns the content of the file `name`; empty if there is none.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Writes the file `name`; returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file in our own directory");
        path
    }

    /// Removes the file `name`.
    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("a file that was written");
    }

    /// Waits until the file `name` has a whole line; returns its content.
    pub fn wait_for(&self, name: &str) -> String {
        eventually(&format!("{name} is written"), || self.read(name).ends_with('\n'));
        self.read(name)
    }

    /// Returns a command for `program` in the directory, with the test's state and runtime
    /// directories.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.dir)
            .env_remove("SYNCONCE_RUN")
            .env("SYNCONCE_STATE_DIR", self.path("state"))
            .env("SYNCONCE_REGISTRY_DIR", self.path("registry"))
            .env("SYNCONCE_RUNTIME_DIR", self.path("runtime"));
        command
    }

    /// Mounts an overlay of `lower`, with its upper directory on `disk`, at `merged`.
    pub fn overlay(&self, lower: &Path, disk: &Path, options: &str) -> PathBuf {
        let merged = self.path("merged");
        let [upper, work] = ["upper", "work"].map(|name| disk.join(name));
        for directory in [lower, &upper, &work, &merged] {
            fs::create_dir_all(directory).expect("a directory of an overlay");
        }
        let [lower, upper, work] = [lower, &upper, &work].map(|path| path.display());
        let data = format!("lowerdir={lower},upperdir={upper},workdir={work}{options}");
        let data = CString::new(data).expect("options");
        mount("overlay", &merged, "overlay", MountFlags::empty(), data.as_c_str())
            .expect("an overlay");
        merged
    }

    /// Returns the command `synconce ARGUMENTS`.
    pub fn synconce(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(binary());
        command.args(arguments);
        command
    }

    /// Returns the command `synconce run OPTIONS -- WORDS`.
    pub fn held(&self, options: &[&str], words: &[impl AsRef<OsStr>]) -> Command {
        let mut command = self.synconce(&["run"]);
        command.args(options).arg("--").args(words);
        command
    }

    /// Runs `synconce run OPTIONS -- WORDS` to its end.
    pub fn run(&self, options: &[&str], words: &[impl AsRef<OsStr>]) -> Finished {
        finish(&mut self.held(options, words))
    }

    /// Runs `synconce run -- sh -c SCRIPT` to its end.
    pub fn sh(&self, script: &str) -> Finished {
        self.run(&[], &["sh", "-c", script])
    }

    /// Runs `WORDS` without synconce to their end.
    pub fn bare(&self, words: &[impl AsRef<str>]) -> Finished {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        finish(self.command(words[0]).args(&words[1..]))
    }

    /// Starts `synconce run -- sh -c SCRIPT`.
    pub fn start(&self, script: &str) -> StartedCommand {
        StartedCommand::new(&mut self.held(&[], &["sh", "-c", script]))
    }

    /// Runs `synconce status ARGUMENTS`.
    pub fn status(&self, arguments: &[&str]) -> Finished {
        finish(self.synconce(&["status"]).args(arguments))
    }

    /// Returns the public files of the markers in the state directory.
    pub fn markers(&self) -> Vec<PathBuf> {
        files(&self.path("state/runs"), "json")
    }

    /// Returns the public run files in the runtime directory.
    pub fn run_files(&self) -> Vec<PathBuf> {
        files(&self.path("runtime"), "json")
    }

    /// Returns the pid of the supervisor of the only living run.
    pub fn supervisor(&self) -> u32 {
        let files = self.run_files();
        assert_eq!(files.len(), 1, "one run is alive: {files:?}");
        let text = fs::read(&files[0]).expect("a run file");
        let content: serde_json::Value = serde_json::from_slice(&text).expect("a whole one");
        content["run"]["supervisor"].as_u64().expect("a process id") as u32
    }
}

/// Returns the files in `directory` with the extension `suffix`.
pub fn files(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|it| it == suffix)).collect();
    paths.sort();
    paths
}

/// Runs `command` to its end; panics after [`limit`].
pub fn finish(command: &mut Command) -> Finished {
    process::run(command, limit()).unwrap()
}

/// A command that was started.
pub struct StartedCommand(Group);

impl StartedCommand {
    /// Starts `command` in a process group of its own.
    pub fn new(command: &mut Command) -> Self {
        Self(Group::spawn(command).unwrap())
    }

    /// Waits for the end of the command itself.
    pub fn end(&self) -> ExitStatus {
        let status = self.0.wait(limit()).unwrap();
        status.unwrap_or_else(|| panic!("it did not end:\n{}", self.text()))
    }

    /// Like [`Place::wait_for`], for a file that the command writes: panics with the output of the
    /// command if the command ends without the file.
    pub fn wait_for(&self, place: &Place, name: &str) -> String {
        eventually(&format!("{name} is written"), || {
            let has_ended = self.0.wait(Duration::ZERO).unwrap().is_some();
            let is_written = place.read(name).ends_with('\n');
            assert!(is_written || !has_ended, "it ended without {name}:\n{}", self.text());
            is_written
        });
        place.read(name)
    }

    /// Returns what the command has written so far.
    pub fn text(&self) -> String {
        self.0.stdout().unwrap() + &self.0.stderr().unwrap()
    }
}

impl Deref for StartedCommand {
    type Target = Group;
    fn deref(&self) -> &Group {
        &self.0
    }
}
