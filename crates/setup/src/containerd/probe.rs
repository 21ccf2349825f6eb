//! Probe containers in the running containerd, by ctr: one that asks for a hold, and an ordinary one.
//!
//! Their root is a directory, so that no image is imported. The runtime is called as the CRI plugin calls it;
//! the plugin itself is not asked, because ctr cannot ask it.

use super::FLAGS_OF_ADDRESS;
use crate::host::Host;
use crate::probe::{
    GRACE, PAUSE, PROGRAM, Probed, Removed, SETTLE, Tried, client, directory, unique,
};
use crate::running::process::DaemonProcess;
use crate::toml::TomlFile;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use synconce_durable::error::Context;

const SOCKET: &str = "/run/containerd/containerd.sock";
/// The namespace of the containers. containerd keeps an empty directory for each namespace that it had.
const NAMESPACE: &str = "synconce-check";
/// The annotation by which a container asks for a hold.
const HOLD: &str = "io.synconce.hold=true";

/// Runs the containers in the containerd `process`, and removes them.
///
/// # Errors
/// There is no ctr.
pub(crate) fn probe(
    host: &Host,
    process: &DaemonProcess,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Tried, String> {
    let ctr = client::find(host, process, "ctr")?;
    let name = format!("{NAMESPACE}-{}", unique());
    let (root, runtime) = (Path::new(directory::PARENT).join(&name), host.runtime().to_owned());
    let probe = CtrProbe { ctr, socket: socket(host, process)?, name, root, runtime, is_cancelled };
    let probed = probe.run();
    let removed = [probe.remove(probed.is_err()), directory::remove(&probe.root)];
    let left = removed.into_iter().filter_map(Result::err).collect();
    Ok(Tried { probed, removed: Removed { left, notes: Vec::new() } })
}

/// Returns the socket of `process`: of its command line, or else of its configuration file.
fn socket(host: &Host, process: &DaemonProcess) -> Result<String, String> {
    if let Some(said) = process.values(&FLAGS_OF_ADDRESS).into_iter().next() {
        return Ok(said);
    }
    let file = TomlFile::read(host, &process.configuration()).map_err(|error| error.to_string())?;
    let said = file.text(&["grpc", "address"]).map_err(|error| error.to_string())?;
    Ok(said.map_or(SOCKET, |(socket, _)| socket).to_owned())
}

struct CtrProbe<'a> {
    ctr: PathBuf,
    socket: String,
    /// What the IDs of the containers begin with.
    name: String,
    /// The root of the containers.
    root: PathBuf,
    runtime: String,
    is_cancelled: &'a dyn Fn() -> bool,
}

impl CtrProbe<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.ctr);
        command.args(["--address", &self.socket, "--namespace", NAMESPACE]).args(words);
        command
    }

    fn run(&self) -> Result<Probed, String> {
        let make = || {
            fs::create_dir(&self.root)?;
            directory::write_program(&self.root.join(PROGRAM))
        };
        make().on("cannot make", &self.root).map_err(|error| error.to_string())?;
        let is_held = self.is_held("held", &["--annotation", HOLD])?;
        let real = if is_held { Vec::new() } else { vec!["ctr"] };
        Ok(Probed { real, is_ordinary_held: Some(self.is_held("plain", &[])?) })
    }

    /// Returns whether a container with `options` was held.
    fn is_held(&self, kind: &str, options: &[&str]) -> Result<bool, String> {
        let id = format!("{}-{kind}", self.name);
        // The parent of the usual group would stay.
        let group = format!("/{id}");
        let own = ["run", "--rm", "--rootfs", "--cgroup", &group, "--runc-binary", &self.runtime];
        let root = self.root.to_string_lossy();
        let program = format!("/{PROGRAM}");
        let words = [&own[..], options, &[&root, &id, &program]].concat();
        let ended = client::run(&mut self.command(&words), self.is_cancelled)?;
        client::is_held(&ended, "ctr run")
    }

    /// Removes the containers and their namespace. A container whose start was cut appears within
    /// [`SETTLE`].
    fn remove(&self, is_cut: bool) -> Result<(), String> {
        let begin = Instant::now();
        let is_cancelled = || begin.elapsed() > GRACE && (self.is_cancelled)();
        let run = |words: &[&str]| client::run(&mut self.command(words), &is_cancelled);
        let left = || -> Result<Option<String>, String> {
            let listed =
                client::succeed(run(&["containers", "ls", "--quiet"])?, "ctr containers ls")?;
            let mut ids = listed.lines().filter(|id| id.starts_with(&self.name));
            let Some(id) = ids.next() else { return Ok(None) };
            // The task may have ended, and be removed already.
            run(&["tasks", "rm", "--force", id])?;
            run(&["containers", "rm", id])?;
            Ok(Some(id.to_owned()))
        };
        let client = format!("{} --address {}", self.ctr.display(), self.socket);
        let remedy = |id: &str| {
            let client = format!("{client} --namespace {NAMESPACE}");
            format!("remove it: {client} tasks rm --force {id}; {client} containers rm {id}")
        };
        loop {
            match left() {
                Ok(None) if !is_cut || begin.elapsed() >= SETTLE => break,
                Ok(Some(id)) if begin.elapsed() >= SETTLE => {
                    return Err(format!("the container {id} is left; {}", remedy(&id)));
                }
                Ok(_) => std::thread::sleep(PAUSE),
                Err(why) => {
                    return Err(format!("{why}; {}", remedy(&format!("{}-held", self.name))));
                }
            }
        }
        // Another check may have containers in it.
        run(&["namespaces", "rm", NAMESPACE]).map(drop)
    }
}
