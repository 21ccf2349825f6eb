//! containerd and buildkitd: the daemon that listens at a socket, its command line and its
//! configuration.

use super::bolt::DatabasesOf;
use super::docker::{CONTAINERD, STORE};
use super::{ContainerEngine, is_elsewhere};
use crate::error::Error;
use crate::program::stdout_of;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_probe::docker::connect;
use synconce_sys::peer::Peer;
use synconce_sys::procfs::{process_name, words};
use toml::Table;

/// The prefix of containerd's snapshotters: of the plugins and of their directories.
const SNAPSHOTTER: &str = "io.containerd.snapshotter.v1.";
/// The prefix of the directories of buildkitd's OCI workers, whose snapshotter follows.
const OCI_WORKER: &str = "runc-";
/// The snapshotter of a daemon that has no snapshot yet.
const USUAL: &str = "overlayfs";
/// The option of a plugin that leaves out the syncs of its database.
const NO_SYNC: &str = "no_sync";

/// A daemon that listens at a socket.
struct ListeningDaemon {
    program: &'static str,
    pid: u32,
    words: Vec<String>,
}

/// A snapshotter with its number of snapshots.
type Snapshotter = (String, u64);

/// Asks for the containerd at `socket`.
///
/// # Errors
/// No containerd listens there, it runs in another container or on another host, or its
/// configuration cannot be read.
pub fn ask_containerd(socket: &Path) -> Result<ContainerEngine, Error> {
    let daemon = ListeningDaemon::find("containerd", socket)?;
    let configuration = daemon.dump().map_err(failure("containerd", socket))?;
    let root = daemon.root(&configuration, "/var/lib/containerd")?;
    let plugins = configuration.get("plugins").and_then(|it| it.as_table());
    let plugins: Vec<_> = plugins.into_iter().flatten().collect();
    let is_on = |plugin: &toml::Value| plugin.get(NO_SYNC).and_then(|it| it.as_bool());
    let no_sync = plugins.iter().filter(|(_, plugin)| is_on(plugin) == Some(true));
    let no_sync = no_sync.map(|(name, _)| (*name).clone()).collect();
    let elsewhere = |name: &str| {
        let (_, plugin) = plugins.iter().find(|(plugin, _)| *plugin == name)?;
        plugin.get("root_path")?.as_str().filter(|path| !path.is_empty()).map(PathBuf::from)
    };
    let snapshotters = names(&root, SNAPSHOTTER).into_iter().map(|(name, directory)| {
        let directory = elsewhere(&format!("{SNAPSHOTTER}{name}")).unwrap_or(directory);
        (name, count(&directory.join("snapshots")))
    });
    let (driver, layers) = most_used(snapshotters);
    let engine = daemon.engine("containerd", root.clone(), driver, layers);
    let mut engine = ContainerEngine { no_sync, ..engine };
    engine.add_databases(DatabasesOf::Containerd(&root));
    Ok(engine)
}

/// Asks for the buildkitd at `socket`.
///
/// # Errors
/// No buildkitd listens there, it runs in another container or on another host, or its
/// configuration cannot be read.
pub fn ask_buildkit(socket: &Path) -> Result<ContainerEngine, Error> {
    let daemon = ListeningDaemon::find("buildkitd", socket)?;
    let file = daemon.flag(&["config"]).unwrap_or_else(|| "/etc/buildkit/buildkitd.toml".into());
    let configuration = match fs::read_to_string(daemon.path("cwd").join(file)) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Table::new()),
        Err(error) => Err(error),
    };
    let configuration = configuration.map_err(failure("buildkitd", socket))?;
    let root = daemon.root(&configuration, "/var/lib/buildkit")?;
    let store = daemon.containerd(&configuration).map(|socket| ask_containerd(&socket));
    let of_worker = || {
        let workers = names(&root, OCI_WORKER).into_iter();
        let snapshots = |directory: PathBuf| count(&directory.join("snapshots/snapshots"));
        let (driver, layers) = most_used(workers.map(|(name, path)| (name, snapshots(path))));
        daemon.engine("buildkit", root.clone(), driver, layers)
    };
    let mut engine = match store {
        None => of_worker(),
        Some(Ok(store)) => {
            let snapshotter = daemon.setting(&configuration, "containerd", "snapshotter");
            let driver = snapshotter.unwrap_or_else(|| USUAL.to_owned());
            daemon.engine("buildkit", root.clone(), driver, 0).on(store)
        }
        Some(Err(error)) => {
            let mut engine = of_worker();
            engine.add_not_measured(STORE, error.to_string());
            engine
        }
    };
    engine.add_databases(DatabasesOf::Buildkit(&root));
    Ok(engine)
}

fn failure(program: &'static str, socket: &Path) -> impl Fn(io::Error) -> Error {
    let socket = socket.to_owned();
    move |error| Error::Engine { program, at: Some(socket.clone()), error }
}

impl ListeningDaemon {
    /// Finds the process that listens at `socket`, which has to be `program`.
    fn find(program: &'static str, socket: &Path) -> Result<Self, Error> {
        let failed = failure(program, socket);
        let Peer { pid, user } = connect(socket).and_then(Peer::read).map_err(&failed)?;
        if pid == 0 {
            return Err(Error::Elsewhere(program));
        }
        let daemon = Self { program, pid, words: words(pid, "cmdline").map_err(&failed)? };
        let refuse = |why: String| Err(failed(io::Error::new(ErrorKind::InvalidInput, why)));
        let name = process_name(pid).map_err(&failed)?;
        if name != program {
            return refuse(format!("{name} listens there"));
        }
        // Its usual directory depends on the environment of rootlesskit.
        if user != 0 {
            return refuse(format!("it is rootless, of user {user}"));
        }
        // Its program is started below. A program of a container would have all rights here.
        if is_elsewhere(pid, Path::new("/")).map_err(&failed)? {
            return Err(Error::Elsewhere(program));
        }
        Ok(daemon)
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.pid.to_string()).join(name)
    }

    /// Returns the last value of one of `flags` on its command line. Go's flags begin with one
    /// dash or with two.
    fn flag(&self, flags: &[&str]) -> Option<String> {
        let found = self.words.iter().enumerate().rev().find_map(|(at, word)| {
            let word = word.strip_prefix('-')?;
            let word = word.strip_prefix('-').unwrap_or(word);
            flags.iter().find_map(|flag| match word.strip_prefix(flag)? {
                "" => self.words.get(at + 1).map(String::as_str),
                rest => rest.strip_prefix('='),
            })
        });
        found.map(str::to_owned)
    }

    /// Returns the socket of the containerd that executes the steps of buildkitd: the first worker
    /// executes them, and that is buildkitd's own unless it is off.
    fn containerd(&self, configuration: &Table) -> Option<PathBuf> {
        self.setting(configuration, "oci", "enabled").filter(|it| it == "false")?;
        let address = self.setting(configuration, "containerd", "address");
        Some(address.map_or_else(|| PathBuf::from(CONTAINERD), PathBuf::from))
    }

    /// Returns a setting of a worker of buildkitd, which a flag overrides.
    fn setting(&self, configuration: &Table, worker: &str, name: &str) -> Option<String> {
        let flag = match name {
            "enabled" => format!("{worker}-worker"),
            "address" => format!("{worker}-worker-addr"),
            _ => format!("{worker}-worker-{name}"),
        };
        let configured = configuration.get("worker").and_then(|it| it.get(worker)?.get(name));
        let configured = configured.and_then(|it| match it.as_bool() {
            Some(value) => Some(value.to_string()),
            None => it.as_str().map(str::to_owned),
        });
        self.flag(&[&flag]).or(configured)
    }

    /// Returns a command that starts its program again. A program of many names, such as k3s,
    /// looks at the name that it is called by.
    fn command(&self) -> Command {
        let mut command = Command::new(self.path("exe"));
        command.arg0(self.program);
        command
    }

    /// Returns its whole configuration: `config dump` follows the imports.
    fn dump(&self) -> io::Result<Table> {
        let mut command = self.command();
        if let Some(file) = self.flag(&["config", "c"]) {
            command.arg("--config").arg(self.path("cwd").join(file));
        }
        let said = stdout_of(command.args(["config", "dump"]))?;
        parse(&String::from_utf8_lossy(&said))
    }

    /// Returns the directory of its data.
    fn root(&self, configuration: &Table, usual: &str) -> Result<PathBuf, Error> {
        let configured = configuration.get("root").and_then(|root| root.as_str());
        let configured = configured.filter(|root| !root.is_empty()).unwrap_or(usual);
        let root = self.flag(&["root"]).unwrap_or_else(|| configured.to_owned());
        let root = Path::new("/").join(root);
        let failed = |error| Error::Engine { program: self.program, at: None, error };
        if is_elsewhere(self.pid, &root).map_err(failed)? {
            Err(Error::Elsewhere(self.program))
        } else {
            Ok(root)
        }
    }

    /// Returns the version that its program prints, such as `1.6.20`.
    fn version(&self) -> String {
        let said = stdout_of(self.command().arg("--version")).unwrap_or_default();
        let text = String::from_utf8_lossy(&said);
        let is_number = |word: &&str| word.trim_start_matches('v').starts_with(char::is_numeric);
        text.split_whitespace().find(is_number).unwrap_or("of an unknown version").to_owned()
    }

    fn engine(
        &self,
        name: &'static str,
        root: PathBuf,
        driver: String,
        layers: u64,
    ) -> ContainerEngine {
        ContainerEngine {
            mount_program: (driver == "fuse-overlayfs").then(|| driver.clone()),
            layers: Some(layers),
            ..ContainerEngine::new(name, self.version(), root, driver)
        }
    }
}

/// Reads a configuration. The error repeats no line of it: the file may have passwords.
fn parse(text: &str) -> io::Result<Table> {
    text.parse().map_err(|error: toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
        let why = error.message().lines().next().unwrap_or_default();
        io::Error::other(format!("line {line} of its configuration: {why}"))
    })
}

/// Returns the directories in `root` whose names begin with `prefix`, and the rests of the names.
fn names(root: &Path, prefix: &str) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let named = |entry: fs::DirEntry| {
        let name = entry.file_name().to_str()?.strip_prefix(prefix)?.to_owned();
        Some((name, entry.path()))
    };
    entries.filter_map(named).collect()
}

fn count(directory: &Path) -> u64 {
    fs::read_dir(directory).map_or(0, |entries| entries.flatten().count() as u64)
}

/// Returns the snapshotter with the most snapshots.
fn most_used(all: impl Iterator<Item = Snapshotter>) -> Snapshotter {
    let used = all.filter(|(_, count)| *count > 0).max_by_key(|(_, count)| *count);
    used.unwrap_or((USUAL.to_owned(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_read_is_not_repeated() {
        for text in
            ["a = 1\npassword = se-cret\n", "\n[x]\npass = \"se-cret\nb = 1", "a\nse-cret 1"]
        {
            let error = parse(text).unwrap_err().to_string();
            assert!(!error.contains("cret") && !error.contains('\n'), "{error}");
            assert!(error.starts_with("line "), "{error}");
        }
    }

    #[test]
    fn a_flag_has_one_dash_or_two_and_the_last_one_counts() {
        let value = |line: &str| {
            let words = line.split(' ').map(str::to_owned).collect();
            ListeningDaemon { program: "containerd", pid: 1, words }.flag(&["config", "c"])
        };
        for (line, wanted) in [
            ("containerd --config /a", Some("/a")),
            ("containerd -config=/a --log-level info", Some("/a")),
            ("containerd -c /a -c /b", Some("/b")),
            ("containerd --configuration /a --root /c", None),
            ("containerd --config", None),
        ] {
            assert_eq!(value(line).as_deref(), wanted, "{line}");
        }
    }
}
