//! The benchmark's own containerd, and its client.

use super::variants::ImportVariant;
use crate::command::show;
use crate::daemon::Daemon;
use crate::launcher::Launcher;
use crate::mounts::{self, RUN, TmpfsMount};
use crate::{Error, files, hold};
use rustix::process::Pid;
use std::path::{Path, PathBuf};
use synconce_probe::version::numbers;
use synconce_sys::search;

/// The socket of the benchmark's containerd.
pub(super) const SOCKET: &str = "/run/synconce-bench/containerd.sock";
/// The first version with all options that are measured.
const NEEDED: (u32, u32) = (2, 1);

/// The databases of containerd, relative to its root.
const DATABASES: [&str; 4] = [
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.mount-manager.v1.bolt/mounts.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
    "io.containerd.snapshotter.v1.erofs/metadata.db",
];

/// Plugins that need a network or write outside of the root and /run.
const DISABLED: [&str; 5] = [
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.images",
    "io.containerd.cri.v1.runtime",
    "io.containerd.internal.v1.opt",
    "io.containerd.nri.v1.nri",
];

/// The root on the disk under test, and the daemon while it runs.
pub(super) struct ContainerdState {
    work: PathBuf,
    program: PathBuf,
    synconce: PathBuf,
    daemon: Daemon,
    /// Unmounted after the daemon has exited.
    _run: TmpfsMount,
}

impl ContainerdState {
    /// Prepares the state in the work directory, and checks the version of containerd. Starts no
    /// daemon.
    pub(super) fn new(
        work: &Path,
        program: &Path,
        synconce: &Path,
        launcher: &Launcher,
    ) -> Result<Self, Error> {
        let program = search::find(program).unwrap_or_else(|| program.to_owned());
        let version = [&show(&program), "--version"];
        let (_, version) = launcher.output(&version, &launcher.log("containerd-version"))?;
        if numbers(&version).is_none_or(|version| version < NEEDED) {
            let (major, minor) = NEEDED;
            let reason = format!("its version is {:?}; {major}.{minor} is needed", version.trim());
            return Err(Error::Unsuitable { what: show(&program), reason });
        }
        let _run = TmpfsMount::new(Path::new(RUN))?;
        let (work, synconce) = (work.to_owned(), synconce.to_owned());
        Ok(Self { work, program, synconce, daemon: Daemon::new("containerd", SOCKET), _run })
    }

    /// Returns containerd's root, which has the images.
    pub(super) fn root(&self) -> PathBuf {
        self.work.join("root")
    }

    /// Returns the client: the one beside the daemon, or the one in PATH.
    pub(super) fn client(&self) -> PathBuf {
        let beside = self.program.with_file_name("ctr");
        if beside.is_file() { beside } else { PathBuf::from("ctr") }
    }

    /// Starts the daemon with an empty root, and waits until it answers.
    pub(super) fn start(&mut self, way: ImportVariant, launcher: &Launcher) -> Result<(), Error> {
        files::create_dir(&self.root())?;
        let words = self.words(way)?;
        let ask = [&show(&self.client()), "--address", SOCKET, "version"].map(str::to_owned);
        // ctr would wait ten seconds for a socket that does not exist.
        self.daemon.start(&words, launcher, || {
            Ok(Path::new(SOCKET).exists()
                && launcher.run(&ask, &launcher.log("ctr-version"))?.status.success())
        })
    }

    fn words(&self, way: ImportVariant) -> Result<Vec<String>, Error> {
        let config = self.work.join("containerd.toml");
        files::write(&config, config_text(&self.root(), way))?;
        let mut words = Vec::new();
        if way.held {
            let held = DATABASES.map(|path| (self.root().join(path), "bolt"));
            let file = hold::write_file(&self.work, &held)?;
            words = hold::daemon_words(&self.synconce, &file);
        }
        // Kills the daemon when the daemon's parent exits.
        let program = show(&self.program);
        let own = ["setpriv", "--pdeathsig", "KILL", &program, "--config", &show(&config)];
        words.extend(own.map(str::to_owned));
        Ok(words)
    }

    /// Returns the daemon's pid while it runs.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.daemon.pid()
    }

    /// Stops the daemon if it runs, and removes its root.
    pub(super) fn stop(&mut self, launcher: &Launcher) -> Result<(), Error> {
        let stopped = self.daemon.stop(launcher);
        // A killed daemon or hold leaves mounts.
        mounts::unmount_below(&self.work)?;
        let removed = [self.root(), Path::new(SOCKET).with_file_name("")];
        stopped.and(removed.iter().try_for_each(|path| mounts::remove_tree(path)))
    }
}

impl Drop for ContainerdState {
    fn drop(&mut self) {
        self.daemon.kill();
        // `stop` reports errors; a tree with mounts is not removed.
        let _ = mounts::unmount_below(&self.work);
    }
}

fn config_text(root: &Path, way: ImportVariant) -> String {
    let quoted = |text: &str| serde_json::Value::String(text.to_owned()).to_string();
    let disabled = DISABLED.map(quoted).join(", ");
    let root = quoted(&show(root));
    let state = Path::new(SOCKET).with_file_name("state");
    let differs = if way.snapshotter == "erofs" { "\"erofs\", \"walking\"" } else { "\"walking\"" };
    format!(
        "version = 3\nimports = []\nroot = {root}\nstate = {:?}\ndisabled_plugins = [{disabled}]\n\
         [grpc]\naddress = \"{SOCKET}\"\n[ttrpc]\naddress = \"{SOCKET}.ttrpc\"\n\
         [plugins.\"io.containerd.service.v1.diff-service\"]\n\
         default = [{differs}]\nsync_fs = {}\n\
         [plugins.\"io.containerd.metadata.v1.bolt\"]\nno_sync = {}\n\
         [plugins.\"io.containerd.snapshotter.v1.overlayfs\"]\nmount_options = {:?}\n",
        show(&state),
        way.sync_fs,
        way.no_sync,
        way.mount_options,
    )
}

#[cfg(test)]
mod tests {
    use super::super::variants;
    use super::*;

    #[test]
    fn all_options_leave_out_the_syncs_that_containerd_can_leave_out() {
        let text = |name: &str| {
            let way = variants::ways().find(|way| way.variant_name() == name).expect("a variant");
            config_text(Path::new("/root"), way)
        };
        let options = ["sync_fs = false", "no_sync = true", "mount_options = [\"volatile\"]"];
        let all = text("overlayfs/all-options");
        assert!(options.iter().all(|option| all.contains(option)), "{all}");
        let plain = text("overlayfs/plain");
        let off = ["no_sync = false", "mount_options = []"];
        assert!(off.iter().all(|option| plain.contains(option)), "{plain}");
    }
}
