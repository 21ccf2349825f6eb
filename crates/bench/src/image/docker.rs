//! The benchmark's own dockerd, and its client.

use super::cgroup;
use crate::command::{fill, show};
use crate::daemon::Daemon;
use crate::launcher::Launcher;
use crate::mounts::{self, RUN, TmpfsMount};
use crate::{CommandFailure, Error, files, hold, work_dir};
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use synconce_probe::version::numbers;
use synconce_sys::search;

/// dockerd stores a key there.
const SETTINGS: &str = "/etc/docker";
const SOCKET_FILE: &str = "/run/docker.sock";
const SOCKET: &str = "unix:///run/docker.sock";

/// Prefixes of the user's variables that would redirect clients and daemons.
const OVERRIDES: [&str; 4] = ["DOCKER_", "BUILDX_", "BUILDKIT_", "SYNCONCE_OCI_"];
/// Characters with a special meaning in an option of overlay, in PATH or in a command.
const UNSUPPORTED: [char; 6] = [':', ',', '{', '}', '\\', '\n'];
/// The first version whose client cannot build without a plugin.
const NEEDS_BUILDX: u32 = 23;

/// The runtime of a build's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    /// The daemon's own runc.
    Plain,
    /// `synconce-oci`, which wraps runc, with `step-root = "as-mounted"`.
    Wrapped,
    /// `synconce-oci` with `step-root = "volatile"`, which is also the default.
    Volatile,
}

/// The databases of BuildKit in a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Databases {
    /// With real syncs.
    Plain,
    Held,
}

/// The state on the disk under test, and the daemon while it runs.
pub(super) struct DockerState {
    dir: PathBuf,
    synconce: PathBuf,
    client: PathBuf,
    daemon: Daemon,
    /// The cgroup of its containers, which no other process uses.
    cgroup: String,
    /// Unmounted after the daemon has exited.
    _mounts: [TmpfsMount; 2],
}

impl DockerState {
    /// Prepares the state in `dir`; starts no process.
    pub(super) fn new(dir: &Path, synconce: &Path) -> Result<Self, Error> {
        if let Some(odd) = dir.to_string_lossy().chars().find(|letter| UNSUPPORTED.contains(letter))
        {
            return Err(Error::Unsuitable {
                what: dir.display().to_string(),
                reason: format!("dockerd cannot have its images in a path with {odd:?}"),
            });
        }
        let mounts = [TmpfsMount::new(Path::new(RUN))?, TmpfsMount::new(Path::new(SETTINGS))?];
        let before = dir.join("before");
        for made in [&dir.join("client"), &before] {
            files::create_dir(made)?;
        }
        // Empty settings, so that neither dockerd nor synconce-oci reads the host's.
        for (name, text) in [("daemon.json", "{}\n"), ("oci.toml", "")] {
            let file = dir.join(name);
            files::write(&file, text)?;
        }
        for name in ["runc", "synconce-oci"] {
            let link = before.join(name);
            symlink(synconce, &link).map_err(Error::io("link", &link))?;
        }
        let cgroup = work_dir::unique_name(dir.parent().unwrap_or(dir))?;
        let (client, daemon) = (PathBuf::from("docker"), Daemon::new("dockerd", SOCKET_FILE));
        let (dir, synconce) = (dir.to_owned(), synconce.to_owned());
        Ok(Self { dir, synconce, client, daemon, cgroup, _mounts: mounts })
    }

    /// Returns the directory of the images.
    pub(super) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Returns the values of the placeholders in the client's words.
    pub(super) fn values(&self) -> BTreeMap<&'static str, String> {
        let client = show(&self.dir.join("client"));
        BTreeMap::from([("client", client), ("docker", show(&self.client))])
    }

    /// Returns the daemon's pid while it runs.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.daemon.pid()
    }

    /// Starts the daemon with a runtime and BuildKit's databases, and waits until the daemon
    /// answers.
    pub(super) fn start(
        &mut self,
        runtime: Runtime,
        databases: Databases,
        launcher: &Launcher,
    ) -> Result<(), Error> {
        let started = self.start_and_wait(runtime, databases, launcher);
        if started.is_err() {
            // The error of the start matters more than one of the stop.
            let _ = self.stop(launcher);
        }
        started
    }

    fn start_and_wait(
        &mut self,
        runtime: Runtime,
        databases: Databases,
        launcher: &Launcher,
    ) -> Result<(), Error> {
        // dockerd mounts its directory on itself unless its mount is shared: that would cover
        // the files that are held below it.
        mounts::share(&self.data())?;
        let words = self.daemon_words(runtime, databases)?;
        // Its socket exists long before it answers.
        let is_ready = || synconce_probe::docker::get(Path::new(SOCKET_FILE), "/_ping").is_ok();
        self.daemon.start(&words, launcher, || Ok(is_ready()))
    }

    fn daemon_words(&self, runtime: Runtime, databases: Databases) -> Result<Vec<String>, Error> {
        let mut words = own_environment();
        if runtime != Runtime::Plain {
            let roots = if runtime == Runtime::Volatile { "volatile" } else { "as-mounted" };
            let settings = format!("step-root = \"{roots}\"\n");
            files::write(self.dir.join("oci.toml"), settings.as_bytes())?;
            // BuildKit inside dockerd uses the runc found in PATH; from 26.0 on a variable
            // names it.
            let path = std::env::var("PATH").unwrap_or_default();
            let before = show(&self.dir.join("before"));
            words.push(format!("PATH={before}:{path}"));
            words.push(format!("DOCKER_BUILDKIT_RUNC_COMMAND={before}/synconce-oci"));
            words.push(format!("SYNCONCE_OCI_FILE={}", show(&self.dir.join("oci.toml"))));
        }
        if databases == Databases::Held {
            let file = hold::write_file(&self.dir, &self.databases()?)?;
            words.extend(hold::daemon_words(&self.synconce, &file));
        }
        // dockerd is killed when its parent exits. It has its own network namespace: its steps
        // have no network, and the host's configuration must not be changed.
        let before = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "dockerd"];
        let flags = ["--pidfile=/run/docker.pid", "--exec-root=/run/docker", "--host", SOCKET];
        let network =
            ["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"];
        let storage = ["--storage-driver=overlay2", "--config-file"];
        words.extend(
            [&before[..], &flags, &network, &storage].concat().into_iter().map(str::to_owned),
        );
        words.push(show(&self.dir.join("daemon.json")));
        words.push(format!("--data-root={}", show(&self.data())));
        words.push(format!("--cgroup-parent=/{}", self.cgroup));
        Ok(words)
    }

    /// Returns the databases of BuildKit, which its first start has made.
    fn databases(&self) -> Result<Vec<(PathBuf, &'static str)>, Error> {
        let dir = self.data().join("buildkit");
        let mut found = Vec::new();
        for entry in fs::read_dir(&dir).map_err(Error::io("list", &dir))? {
            let path = entry.map_err(Error::io("list", &dir))?.path();
            if path.extension().is_some_and(|it| it == "db") {
                found.push((path, "bolt"));
            }
        }
        Ok(found)
    }

    /// Stops the daemon if it runs, and ends the processes that it leaves.
    pub(super) fn stop(&mut self, launcher: &Launcher) -> Result<(), Error> {
        let stopped = self.daemon.stop(launcher);
        cgroup::remove(&self.cgroup);
        // Unmounts what a killed daemon has left mounted, for instance after an interrupt.
        stopped.and(mounts::unmount_below(&self.dir))
    }

    /// Runs the client to prepare the fixture.
    pub(super) fn client(
        &self,
        purpose: &str,
        words: &[&str],
        launcher: &Launcher,
    ) -> Result<(), Error> {
        launcher.run_helper(purpose, &self.words(words))
    }

    /// Returns the client's output, without the final newline.
    pub(super) fn output(&self, words: &[&str], launcher: &Launcher) -> Result<String, Error> {
        let log = launcher.log("docker");
        let words = self.words(words);
        let (outcome, text) = launcher.output(&words, &log)?;
        if !outcome.status.success() {
            let failure = CommandFailure::new(&words, outcome.status.to_string(), &log);
            return Err(Error::Helper { purpose: "ask dockerd".to_owned(), failure });
        }
        Ok(text.trim_end().to_owned())
    }

    /// Selects the first client in PATH that can build: Docker's own packages have the builder
    /// as a plugin, which some machines lack.
    pub(super) fn choose_client(&mut self, launcher: &Launcher) -> Result<(), Error> {
        let path = std::env::var_os("PATH");
        let all = search::candidates(OsStr::new("docker"), path.as_deref());
        for client in all.filter(|client| search::is_executable(client)) {
            self.client = client;
            let log = launcher.log("docker");
            let plugin = launcher.run(&self.words(&["buildx", "version"]), &log)?;
            let version = self.output(&["--version"], launcher)?;
            if plugin.status.success()
                || numbers(&version).is_some_and(|(major, _)| major < NEEDS_BUILDX)
            {
                return Ok(());
            }
        }
        Err(Error::Unsuitable {
            what: "this host".to_owned(),
            reason: "no docker in PATH has a builder; the package docker-buildx-plugin, or Debian's docker-buildx, brings one".to_owned(),
        })
    }

    fn words(&self, words: &[&str]) -> Vec<String> {
        let mut all = client_words();
        all.extend(words.iter().map(|word| (*word).to_owned()));
        fill(&all, &self.values())
    }
}

impl Drop for DockerState {
    fn drop(&mut self) {
        self.daemon.kill();
        cgroup::remove(&self.cgroup);
        // `stop` reports errors; a tree with mounts is not removed.
        let _ = mounts::unmount_below(&self.dir);
    }
}

/// Returns the client's words before those of a command; [`DockerState::values`] fills them.
pub(super) fn client_words() -> Vec<String> {
    let mut words = own_environment();
    let rest = ["DOCKER_BUILDKIT=1", "DOCKER_CONFIG={client}", "{docker}", "--host", SOCKET];
    words.extend(rest.map(str::to_owned));
    words
}

/// Returns an `env` command that unsets the user's variables.
fn own_environment() -> Vec<String> {
    let mut words = vec!["env".to_owned()];
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if OVERRIDES.iter().any(|begin| name.starts_with(begin)) {
            words.extend(["--unset".to_owned(), name.into_owned()]);
        }
    }
    words
}
