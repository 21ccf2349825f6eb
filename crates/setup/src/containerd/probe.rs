//! Probe containers in the running containerd, by ctr: one that asks for a hold, and an ordinary one.
//!
//! Their root is a directory, so that no image is imported. The runtime is called as the CRI plugin calls it;
//! the plugin itself is not asked, because ctr cannot ask it.

use super::FLAGS_OF_ADDRESS;
use crate::host::Host;
use crate::probe::{
    PROGRAM, Probed, Removed, Tried, after_grace, client, directory, unique, until_gone,
};
use crate::running::process::DaemonProcess;
use crate::toml::TomlFile;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
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
    Ok(probe.tried())
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

    fn tried(&self) -> Tried {
        let probed = self.run();
        let removed = [self.remove(probed.is_err()), directory::remove(&self.root)];
        let left = removed.into_iter().filter_map(Result::err).collect();
        Tried { probed, removed: Removed { left, notes: Vec::new() } }
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

    /// Removes the containers and their namespace.
    fn remove(&self, is_cut: bool) -> Result<(), String> {
        let is_cancelled = after_grace(self.is_cancelled);
        let run = |words: &[&str]| client::run(&mut self.command(words), &is_cancelled);
        let list = || -> Result<Vec<String>, String> {
            let listed = run(&["containers", "ls", "--quiet"])?;
            let listed = client::succeed(listed, "ctr containers ls")?;
            let own = listed.lines().filter(|id| id.starts_with(&self.name));
            Ok(own.map(str::to_owned).collect())
        };
        let left = until_gone(is_cut, || {
            let ids = list()?;
            for id in &ids {
                // The task may have ended, and be removed already.
                run(&["tasks", "rm", "--force", id])?;
                run(&["containers", "rm", id])?;
            }
            if ids.is_empty() { Ok(ids) } else { list() }
        });
        let client =
            format!("{} --address {} --namespace {NAMESPACE}", self.ctr.display(), self.socket);
        let remedy = |id: &str| {
            format!("remove it: {client} tasks rm --force {id}; {client} containers rm {id}")
        };
        match left {
            Ok(ids) => match ids.first() {
                Some(id) => Err(format!("the container {id} is left; {}", remedy(id))),
                // Another check may have containers in it.
                None => run(&["namespaces", "rm", NAMESPACE]).map(drop),
            },
            Err(why) => Err(format!("{why}; {}", remedy(&format!("{}-held", self.name)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::client::tests::fake;

    /// Returns what the probe of containerd returns whose ctr is the shell `script`.
    fn tried(script: &str, is_cancelled: &dyn Fn() -> bool) -> Tried {
        let directory = tempfile::tempdir().unwrap();
        let ctr = fake(
            directory.path(),
            &script.replace("DIRECTORY", directory.path().to_str().unwrap()),
        );
        let name = "synconce-check-00c0ffee".to_owned();
        let (socket, root, runtime) =
            ("socket".into(), directory.path().join(&name), "runc".into());
        CtrProbe { ctr, socket, name, root, runtime, is_cancelled }.tried()
    }

    #[test]
    fn a_container_that_is_removed_late_is_not_left() {
        // The first list takes longer than SETTLE.
        let script = "case $* in
            *'containers ls'*) [ -e DIRECTORY/late ] || { >DIRECTORY/late; sleep 3.1; echo synconce-check-00c0ffee-held; };;
        esac";
        assert_eq!(tried(script, &|| false).removed, Removed::default());
    }
}
