//! Command lines of OCI runtimes.
//!
//! runc (urfave/cli) takes `-flag` for `--flag`, crun (argp) `-bDIR` for
//! `-b DIR`; both take `--flag VALUE` and `--flag=VALUE`.

use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The parts of an engine's call of a runtime that are needed here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Invocation {
    /// `create`, `run`, `state`...; empty when there is none.
    pub(crate) verb: String,
    /// The bundle, if given.
    pub(crate) bundle: Option<PathBuf>,
    /// crun only: the file in place of `config.json`, relative to the working directory.
    pub(crate) config: Option<PathBuf>,
    /// The container's id.
    pub(crate) id: Option<String>,
    /// The runtime's log file.
    pub(crate) log: Option<PathBuf>,
    /// Whether the log format is JSON.
    pub(crate) logs_json: bool,
    /// The directory of the runtime's state.
    pub(crate) root: Option<PathBuf>,
    /// The file to which the runtime writes the container's pid.
    pub(crate) pid_file: Option<PathBuf>,
    /// Whether `run` returns once the container has started.
    pub(crate) detaches: bool,
    /// Whether `delete` ends the processes of the container.
    pub(crate) forces: bool,
}

/// Flags with a value, before the verb.
const GLOBAL: &[&str] = &["log", "log-format", "root", "criu", "rootless", "cgroup-manager"];
/// Flags with a value, of `create` and `run`.
const OF_CREATE: &[&str] =
    &["bundle", "b", "config", "f", "console-socket", "pid-file", "preserve-fds", "pidfd-socket"];

impl Invocation {
    /// Parses `arguments`, without the program's name.
    pub(crate) fn parse(arguments: &[OsString]) -> Self {
        let mut call = Self::default();
        let mut words = arguments.iter().map(OsString::as_os_str);
        while let Some(word) = words.next() {
            let verb = !call.verb.is_empty();
            match Flag::parse(word, if verb { OF_CREATE } else { GLOBAL }) {
                None if !verb => call.verb = word.to_string_lossy().into_owned(),
                None => {
                    // The rest of the command line is not the runtime's flags.
                    call.id = Some(word.to_string_lossy().into_owned());
                    break;
                }
                Some(Flag { name, value }) => {
                    let value = match value {
                        Some(Value::Here(value)) => Some(value),
                        Some(Value::Next) => words.next(),
                        None => None,
                    };
                    if let Some(value) = value {
                        call.set(&name, value);
                    }
                    call.detaches |= verb && matches!(&*name, "detach" | "d");
                    call.forces |= verb && name == "force";
                }
            }
        }
        call
    }

    /// Returns whether the call makes a container from a bundle.
    pub(crate) fn makes_container(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "run")
    }

    /// Returns the call with absolute paths without symbolic links, for a call in `directory`,
    /// so that paths can be compared.
    #[must_use]
    pub(crate) fn resolved(self, directory: &Path) -> Self {
        let whole = |path: PathBuf| {
            let path = directory.join(path);
            path.canonicalize().unwrap_or(path)
        };
        // A file that is still to be made can have links only in its directory.
        let file = |path: PathBuf| match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => whole(parent.to_owned()).join(name),
            _ => path,
        };
        Self {
            bundle: self.bundle.map(whole),
            config: self.config.map(whole),
            log: self.log.map(file),
            root: self.root.map(file),
            pid_file: self.pid_file.map(file),
            ..self
        }
    }

    /// Returns the bundle if a shim calls. A shim gives the log `BUNDLE/log.json` to each call, and
    /// the bundle has the name of the container (containerd 1.6 to 2.4).
    pub(crate) fn bundle_of_shim(&self) -> Option<&Path> {
        let log = self.log.as_deref().filter(|log| log.is_absolute())?;
        let bundle = log.parent()?;
        let is_bundle = log.file_name() == Some(OsStr::new("log.json"))
            && bundle.file_name() == self.id.as_ref().map(OsStr::new);
        is_bundle.then_some(bundle)
    }

    /// Writes a line for the operator to the runtime's log, if that is a JSON file, because
    /// standard error may be the container's own. Engines treat only lines of the level `error` as
    /// failures. Without such a log, warnings are written to standard error.
    pub(crate) fn note(&self, level: &str, message: &str) {
        let line = json!({
            "level": level,
            "msg": format!("synconce-oci: {message}"),
            "time": humantime::format_rfc3339_nanos(SystemTime::now()).to_string(),
        });
        // crun also logs to journald:NAME, syslog:NAME and file:PATH.
        let is_file = |log: &&PathBuf| self.logs_json && !log.to_string_lossy().contains(':');
        let log = self.log.as_ref().filter(is_file);
        let log = log.and_then(|log| OpenOptions::new().append(true).create(true).open(log).ok());
        // Best effort: there is no other place for an error.
        let _ = match log {
            // One write(2): the runtime and the engine use the same file.
            Some(mut log) => log.write_all(format!("{line}\n").as_bytes()),
            None if level == "info" => Ok(()),
            None => writeln!(std::io::stderr(), "synconce-oci: {message}"),
        };
    }

    fn set(&mut self, name: &str, value: &OsStr) {
        let path = Some(PathBuf::from(value));
        match (name, self.verb.is_empty()) {
            ("log", true) => self.log = path,
            ("log-format", true) => self.logs_json = value == "json",
            ("root", true) => self.root = path,
            ("bundle" | "b", false) => self.bundle = path,
            ("config" | "f", false) => self.config = path,
            ("pid-file", false) => self.pid_file = path,
            _ => {}
        }
    }
}

struct Flag<'a> {
    name: String,
    value: Option<Value<'a>>,
}

enum Value<'a> {
    Here(&'a OsStr),
    Next,
}

impl<'a> Flag<'a> {
    /// Returns `None` when `word` is no flag.
    fn parse(word: &'a OsStr, with_value: &[&str]) -> Option<Self> {
        let bytes = word.as_bytes();
        let text = bytes.strip_prefix(b"--").or_else(|| bytes.strip_prefix(b"-"))?;
        if bytes == b"-" {
            return None;
        }
        let (name, value) = match text.iter().position(|byte| *byte == b'=') {
            Some(at) => (&text[..at], Some(Value::Here(OsStr::from_bytes(&text[at + 1..])))),
            None => (text, None),
        };
        let name = String::from_utf8_lossy(name).into_owned();
        if value.is_some() {
            return Some(Self { name, value });
        }
        if with_value.contains(&name.as_str()) {
            return Some(Self { name, value: Some(Value::Next) });
        }
        let short = name.get(..1).filter(|short| with_value.contains(short));
        if let (Some(short), false) = (short, bytes.starts_with(b"--")) {
            let value = Value::Here(OsStr::from_bytes(&text[1..]));
            return Some(Self { name: short.to_owned(), value: Some(value) });
        }
        Some(Self { name, value: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Invocation {
        Invocation::parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn buildkits_line_is_read() {
        let call = parse(
            "--log /v/executor/runc-log.json --log-format json run --bundle /v/executor/abc --keep abc",
        );
        assert_eq!(call.verb, "run");
        assert_eq!(call.bundle, Some("/v/executor/abc".into()));
        assert_eq!(call.log, Some("/v/executor/runc-log.json".into()));
        assert_eq!(call.id.as_deref(), Some("abc"));
    }

    #[test]
    fn every_spelling_of_the_bundle_is_read() {
        for spelling in ["--bundle /b", "--bundle=/b", "-b /b", "-b=/b", "-bundle /b", "-b/b"] {
            let call = parse(&format!("--root=/run/x create {spelling} --pid-file /p c1"));
            assert_eq!(call.bundle, Some("/b".into()), "{spelling}");
            assert_eq!(call.pid_file, Some("/p".into()), "{spelling}");
            assert_eq!(call.id.as_deref(), Some("c1"), "{spelling}");
        }
    }

    #[test]
    fn a_flag_without_a_value_takes_none() {
        let call = parse("--systemd-cgroup --debug create --no-pivot -d c1");
        assert_eq!((call.verb.as_str(), call.id.as_deref()), ("create", Some("c1")));
        assert!(call.detaches && parse("run --detach=true c1").detaches);
        assert!(!parse("run --bundle /d c1 -d").detaches);
        assert_eq!(parse("--version"), Invocation::default());
    }

    #[test]
    fn what_a_container_executes_is_not_read() {
        let call = parse("exec --bundle /x c1 run --bundle /b");
        assert_eq!((call.verb.as_str(), call.makes_container()), ("exec", false));
    }
}
