//! Probe containers in the running containerd, by ctr: one that requests a hold, and an ordinary
//! one.
//!
//! Their root is a directory, so that no image is imported. The runtime is called as the CRI plugin
//! would call it. The plugin itself takes no part, because ctr does not reach it.

use super::FLAGS_OF_ADDRESS;
use crate::host::Host;
use crate::probe::program::PROGRAM;
use crate::probe::requests::{Probed, Removed, Requests, Tried, after_grace, unique, until_gone};
use crate::probe::{client, directory};
use crate::running::process::DaemonProcess;
use crate::toml::TomlFile;
use std::cell::Cell;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_durable::error::Context;

const SOCKET: &str = "/run/containerd/containerd.sock";
/// The namespace of the containers. containerd keeps an empty directory for each namespace that it
/// had.
const NAMESPACE: &str = "synconce-check";
/// The annotation by which a container requests a hold.
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
    let (socket, requests) = (socket(host, process)?, Requests::new(is_cancelled));
    let is_served = Cell::new(false);
    Ok(CtrProbe { ctr, socket, name, root, runtime, requests, is_served }.tried())
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
    requests: Requests<'a>,
    /// Whether containerd has run a container, and has made the namespace.
    is_served: Cell<bool>,
}

impl CtrProbe<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.ctr);
        command.args(["--address", &self.socket, "--namespace", NAMESPACE]).args(words);
        command
    }

    fn tried(&self) -> Tried {
        let made = self.make().on("cannot make", &self.root).map_err(|error| error.to_string());
        let (probed, mut left) = match made {
            Ok(()) => {
                let probed = self.run();
                (probed, self.remove())
            }
            Err(why) => (Err(why), Vec::new()),
        };
        left.extend(directory::remove(&self.root).err());
        let by_hand = format!("{} --address {} plugins ls", self.ctr.display(), self.socket);
        let removed = Removed { left, notes: Vec::new() };
        Tried { probed, last: "container", by_hand, removed }
    }

    /// Makes the root of the containers.
    fn make(&self) -> io::Result<()> {
        DirBuilder::new().mode(0o755).create(&self.root)?;
        directory::write_program(&self.root.join(PROGRAM))
    }

    fn run(&self) -> Result<Probed, String> {
        let is_held = self.is_held("held", &["--annotation", HOLD])?;
        let real = if is_held { Vec::new() } else { vec!["ctr"] };
        Ok(Probed { real, is_ordinary_held: Some(self.is_held("plain", &[])?) })
    }

    /// Returns whether a container with `options` was held.
    fn is_held(&self, kind: &str, options: &[&str]) -> Result<bool, String> {
        let id = format!("{}-{kind}", self.name);
        // containerd never removes the usual parent, a group with the namespace's name.
        let group = format!("/{id}");
        let own = ["run", "--rm", "--rootfs", "--cgroup", &group, "--runc-binary", &self.runtime];
        let root = self.root.to_string_lossy();
        let program = format!("/{PROGRAM}");
        let words = [&own[..], options, &[&root, &id, &program]].concat();
        let mut run = self.command(&words);
        let ended = self.requests.send(Some(&id), |it| client::run(&mut run, it))?;
        let is_held = client::is_held(&ended, "ctr run")?;
        self.is_served.set(true);
        Ok(is_held)
    }

    /// Removes the containers and their namespace. Returns what is left, each with the command that
    /// removes it.
    fn remove(&self) -> Vec<String> {
        let cut = self.requests.cut.borrow();
        let is_cancelled = after_grace(self.requests.is_cancelled);
        let own = || -> Result<Vec<String>, String> {
            let mut ids = self.list("containers", &is_cancelled)?;
            ids.retain(|id| id.starts_with(&self.name));
            Ok(ids)
        };
        let run = |words: &[&str]| client::run(&mut self.command(words), &is_cancelled);
        let containers = until_gone(cut.is_some(), || {
            let ids = own()?;
            for id in &ids {
                // The task may have ended, and be removed already.
                run(&["tasks", "rm", "--force", id])?;
                run(&["containers", "rm", id])?;
            }
            if ids.is_empty() { Ok(ids) } else { own() }
        });
        let removed = containers.and_then(|ids| {
            if ids.is_empty() {
                self.remove_namespace(&is_cancelled)?;
            }
            Ok(ids)
        });
        let client = format!("{} --address {}", self.ctr.display(), self.socket);
        let remedy = |id: &str| {
            let client = format!("{client} --namespace {NAMESPACE}");
            format!("remove it: {client} tasks rm --force {id}; {client} containers rm {id}")
        };
        match (removed, &*cut) {
            (Ok(ids), _) => {
                let left = |id: &String| format!("the container {id} is left; {}", remedy(id));
                ids.iter().map(left).collect()
            }
            (Err(why), Some(id)) => vec![format!("{why}; {}", remedy(id))],
            (Err(why), None) if self.is_served.get() => {
                vec![format!("{why}; remove it: {client} namespaces rm {NAMESPACE}")]
            }
            // The first container has failed for the same reason.
            (Err(_), None) => Vec::new(),
        }
    }

    /// Removes the namespace, unless another check has containers in it.
    fn remove_namespace(&self, is_cancelled: &dyn Fn() -> bool) -> Result<(), String> {
        let ended = client::run(&mut self.command(&["namespaces", "rm", NAMESPACE]), is_cancelled)?;
        let removed = client::succeed(ended, &format!("ctr namespaces rm {NAMESPACE}")).map(drop);
        if removed.is_err() {
            let is_in_use = !self.list("containers", is_cancelled)?.is_empty();
            let namespaces = self.list("namespaces", is_cancelled)?;
            if is_in_use || !namespaces.iter().any(|name| name == NAMESPACE) {
                return Ok(());
            }
        }
        removed
    }

    /// Returns the containers or the namespaces, as `kind` says.
    fn list(&self, kind: &str, is_cancelled: &dyn Fn() -> bool) -> Result<Vec<String>, String> {
        let ended = client::run(&mut self.command(&[kind, "ls", "--quiet"]), is_cancelled)?;
        let listed = client::succeed(ended, &format!("ctr {kind} ls"))?;
        Ok(listed.lines().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::client::tests::fake;
    use crate::probe::requests::SETTLE;
    use std::fs;
    use std::time::Instant;

    /// Runs the probe with a ctr that is the shell `script`.
    fn tried(script: &str) -> Tried {
        tried_until(script, |_| false)
    }

    /// Does what [`tried`] does, until `is_cancelled` by the state of the directory DIRECTORY.
    fn tried_until(script: &str, is_cancelled: impl Fn(&Path) -> bool) -> Tried {
        let directory = tempfile::tempdir().unwrap();
        let is_cancelled = &|| is_cancelled(directory.path());
        let ctr = fake(
            directory.path(),
            &script.replace("DIRECTORY", directory.path().to_str().unwrap()),
        );
        let name = "synconce-check-00c0ffee".to_owned();
        let root = directory.path().join(&name);
        let (socket, runtime, requests) =
            ("socket".into(), "runc".into(), Requests::new(is_cancelled));
        let is_served = Cell::new(false);
        CtrProbe { ctr, socket, name, root, runtime, requests, is_served }.tried()
    }

    #[test]
    fn a_container_that_is_removed_late_is_not_left() {
        // The first list takes longer than SETTLE.
        let script = "case $* in
            *'containers ls'*)
                [ -e DIRECTORY/late ] && exit
                >DIRECTORY/late; sleep 3.1; echo synconce-check-00c0ffee-held;;
        esac";
        assert_eq!(tried(script).removed, Removed::default());
    }

    #[test]
    fn a_container_that_was_not_made_is_not_named() {
        let begin = Instant::now();
        let Tried { probed, by_hand, removed, .. } = tried("echo 'connection refused' >&2; exit 1");
        assert_eq!(probed.unwrap_err(), "ctr run fails: connection refused");
        assert!(by_hand.ends_with("/client --address socket plugins ls"), "{by_hand}");
        assert_eq!(removed, Removed::default());
        assert!(begin.elapsed() < SETTLE);
    }

    #[test]
    fn after_a_signal_no_container_is_made_or_named() {
        let Tried { probed, removed, .. } = tried_until("exit 1", |_| true);
        assert_eq!(probed.unwrap_err(), "interrupted by a signal");
        assert_eq!(removed, Removed::default());
    }

    #[test]
    fn the_container_of_a_cut_call_is_named() {
        let script = "case $* in
            *' run '*-plain*) >DIRECTORY/runs; sleep 60;;
            *' run '*) ;;
            *) exit 1;;
        esac";
        // The signal arrives while the second container is made.
        let is_cancelled = |directory: &Path| directory.join("runs").exists();
        let Tried { removed, .. } = tried_until(script, is_cancelled);
        let [left] = &removed.left[..] else { panic!("{removed:?}") };
        assert!(left.ends_with(" containers rm synconce-check-00c0ffee-plain"), "{left}");
    }

    #[test]
    fn after_a_signal_between_the_containers_the_namespace_is_named() {
        let script = "case $* in
            *' run '*-held*) echo $$ >DIRECTORY/new; mv DIRECTORY/new DIRECTORY/pid;;
            *) exit 1;;
        esac";
        // The signal arrives once the end of the first client was seen.
        let is_cancelled = |directory: &Path| {
            let pid = fs::read_to_string(directory.join("pid"));
            pid.is_ok_and(|pid| !Path::new("/proc").join(pid.trim()).exists())
        };
        let Tried { probed, removed, .. } = tried_until(script, is_cancelled);
        assert_eq!(probed.unwrap_err(), "interrupted by a signal");
        let [left] = &removed.left[..] else { panic!("{removed:?}") };
        assert!(left.ends_with(" namespaces rm synconce-check"), "{left}");
    }

    #[test]
    fn a_namespace_that_is_left_is_named_with_a_command() {
        let script = |containers: &str| {
            format!(
                "case $* in
                    *'namespaces rm'*) echo 'must be empty' >&2; exit 1;;
                    *'namespaces ls'*) echo synconce-check;;
                    *'containers ls'*) printf '{containers}';;
                esac"
            )
        };
        let Tried { removed, .. } = tried(&script(""));
        let [left] = &removed.left[..] else { panic!("{removed:?}") };
        assert!(
            left.starts_with("ctr namespaces rm synconce-check fails: must be empty; remove it: "),
            "{left}"
        );
        assert!(left.ends_with(" --address socket namespaces rm synconce-check"), "{left}");
        // Another check runs.
        assert_eq!(tried(&script("synconce-check-other")).removed, Removed::default());
    }
}
