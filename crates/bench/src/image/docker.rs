//! A dockerd of the benchmark's own, and its client.

use crate::launcher::{Daemon, Launcher};
use crate::mounts::{self, Hidden};
use crate::scenario::fill;
use crate::{Error, Failure};
use rustix::process::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Sockets, locks and the state of containers. A containerd that the host runs
/// is not seen, or dockerd would make it its own.
pub(super) const RUN: &str = "/run";
/// dockerd keeps a key there.
const SETTINGS: &str = "/etc/docker";
const SOCKET: &str = "unix:///run/docker.sock";

/// The client's words. Its user's contexts, aliases and builders are not seen.
pub(super) const CLIENT: [&str; 10] = [
    "env",
    "-u",
    "DOCKER_HOST",
    "-u",
    "DOCKER_CONTEXT",
    "DOCKER_BUILDKIT=1",
    "DOCKER_CONFIG={client}",
    "{docker}",
    "--host",
    SOCKET,
];

/// Where cgroups are mounted, by either version.
const CGROUPS: &str = "/sys/fs/cgroup";

/// How long dockerd may take to answer or to end.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a killed process may take to be gone.
const SOON: Duration = Duration::from_secs(5);

/// What runs the steps of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    /// The daemon's own runc.
    Plain,
    /// `synconce-oci` before it.
    Wrapped,
}

/// State on the disk under test, and the daemon while it runs.
pub(super) struct Docker {
    dir: PathBuf,
    client: PathBuf,
    running: Option<Daemon>,
    /// The cgroup of its containers, which nobody else has.
    cgroup: String,
    /// Unmounted after the daemon has ended.
    _hidden: [Hidden; 2],
}

impl Docker {
    /// Prepares state in `dir`; nothing runs yet.
    pub(super) fn new(dir: &Path, synconce: &Path) -> Result<Self, Error> {
        let hidden = [Hidden::new(Path::new(RUN))?, Hidden::new(Path::new(SETTINGS))?];
        let before = dir.join("before");
        for made in [&dir.join("client"), &before] {
            fs::create_dir_all(made).map_err(Error::io("create", made))?;
        }
        let config = dir.join("daemon.json");
        fs::write(&config, "{}\n").map_err(Error::io("write", &config))?;
        for name in ["runc", "synconce-oci"] {
            let link = before.join(name);
            symlink(synconce, &link).map_err(Error::io("link", &link))?;
        }
        let own = fs::metadata(dir).map_err(Error::io("stat", dir))?;
        let cgroup = format!("synconce-bench-{:x}-{:x}", own.dev(), own.ino());
        let client = PathBuf::from("docker");
        Ok(Self { dir: dir.to_owned(), client, running: None, cgroup, _hidden: hidden })
    }

    /// Where the images are.
    pub(super) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// What the client's words stand for.
    pub(super) fn values(&self) -> BTreeMap<String, String> {
        let show = |path: &Path| path.display().to_string();
        let client = show(&self.dir.join("client"));
        BTreeMap::from([("client".to_owned(), client), ("docker".to_owned(), show(&self.client))])
    }

    /// The daemon, while it runs.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.running.as_ref().map(Daemon::pid)
    }

    /// Starts the daemon with a runtime, and waits until it answers.
    pub(super) fn start(&mut self, runtime: Runtime, launcher: &Launcher) -> Result<(), Error> {
        let show = |path: PathBuf| path.display().to_string();
        let mut words = vec!["env".to_owned()];
        if runtime == Runtime::Wrapped {
            // BuildKit inside dockerd has the runc of PATH, or from 26.0 on of a variable.
            let path = std::env::var("PATH").unwrap_or_default();
            let before = show(self.dir.join("before"));
            words.push(format!("PATH={before}:{path}"));
            words.push(format!("DOCKER_BUILDKIT_RUNC_COMMAND={before}/synconce-oci"));
        }
        let flags = ["--pidfile=/run/docker.pid", "--exec-root=/run/docker", "--host", SOCKET];
        // The host's network is not to be changed: steps have none.
        let network =
            ["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"];
        let storage = ["--storage-driver=overlay2", "--config-file"];
        words.push("dockerd".to_owned());
        words.extend([&flags[..], &network, &storage].concat().into_iter().map(str::to_owned));
        words.push(show(self.dir.join("daemon.json")));
        words.push(format!("--data-root={}", show(self.data())));
        words.push(format!("--cgroup-parent=/{}", self.cgroup));
        let log = launcher.log("dockerd");
        let daemon = self.running.insert(launcher.start(&words, &log)?);
        let start = Instant::now();
        loop {
            launcher.check()?;
            if Path::new("/run/docker.sock").exists() {
                return Ok(());
            }
            let ended = daemon.has_ended()?;
            if ended || start.elapsed() > PATIENCE {
                let why = if ended { "it ended" } else { "it does not answer" };
                let failure = Failure::new(&words, why, &log);
                return Err(Error::Helper { purpose: "start dockerd".to_owned(), failure });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the daemon and what it leaves, if it runs.
    pub(super) fn stop(&mut self, launcher: &Launcher) -> Result<(), Error> {
        if let Some(mut daemon) = self.running.take() {
            daemon.stop(PATIENCE)?;
            launcher.end_strays();
        }
        // What it had mounted when it was killed, as by an interrupt.
        mounts::unmount_below(&self.dir)?;
        self.remove_cgroups();
        Ok(())
    }

    /// Runs the client, to set the stage.
    pub(super) fn client(
        &self,
        purpose: &str,
        words: &[&str],
        launcher: &Launcher,
    ) -> Result<(), Error> {
        launcher.help(purpose, &self.words(words))
    }

    /// What the client says, without the line's end.
    pub(super) fn ask(&self, words: &[&str], launcher: &Launcher) -> Result<String, Error> {
        let log = launcher.log("docker");
        let out = log.with_extension("out");
        let words = self.words(words);
        let outcome = launcher.run(&words, &log, Some(&out))?;
        if !outcome.status.success() {
            let failure = Failure::new(&words, outcome.status.to_string(), &log);
            return Err(Error::Helper { purpose: "ask dockerd".to_owned(), failure });
        }
        let said = fs::read_to_string(&out).map_err(Error::io("read", &out))?;
        Ok(said.trim_end().to_owned())
    }

    /// Takes the first client that has a builder, and builds by it: Docker's own
    /// packages have one as a plugin, which some machines lack.
    pub(super) fn build_by_any(
        &mut self,
        purpose: &str,
        words: &[&str],
        launcher: &Launcher,
    ) -> Result<(), Error> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|dir| dir.join("docker"));
        let mut result = Ok(());
        for client in found.filter(|client| client.is_file()) {
            self.client = client;
            result = self.client(purpose, words, launcher);
            if !matches!(result, Err(Error::Helper { .. })) {
                break;
            }
        }
        result
    }

    /// Removes what containers leave in every hierarchy; runc knows one of two.
    fn remove_cgroups(&self) {
        let top = Path::new(CGROUPS);
        let hierarchies = directories(top).into_iter().chain([top.to_owned()]);
        let groups: Vec<PathBuf> = hierarchies.map(|place| place.join(&self.cgroup)).collect();
        let start = Instant::now();
        // Who was killed is in his group until he is gone.
        while groups.iter().map(|group| remove_group(group)).sum::<usize>() > 0
            && start.elapsed() < SOON
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn words(&self, words: &[&str]) -> Vec<String> {
        let all = CLIENT.iter().chain(words).map(|word| (*word).to_owned());
        fill(&all.collect::<Vec<_>>(), &self.values())
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        drop(self.running.take());
        self.remove_cgroups();
        // Whoever wants the reason calls stop; a tree with mounts is not removed.
        let _ = mounts::unmount_below(&self.dir);
    }
}

/// Removes a cgroup with those below it, and says how many are in use.
fn remove_group(group: &Path) -> usize {
    let below: usize = directories(group).iter().map(|group| remove_group(group)).sum();
    let removed = fs::remove_dir(group);
    below + usize::from(removed.is_err_and(|error| error.kind() == ErrorKind::ResourceBusy))
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path()).collect()
}
