//! Files with any content: undone to the byte, or refused and not changed.

use super::support::TestSystem;
use std::fs;
use synconce_fuzz::arbitrary::{self, Arbitrary};
use synconce_setup::undo::Edits;
use synconce_setup::{Engine, HeldDaemon};

const JSON: &str = "/etc/docker/daemon.json";
const BUILDKIT: &str = "/etc/buildkit/buildkitd.toml";
const CONTAINERD: &str = "/etc/containerd/config.toml";
/// The file that each set-up reads.
const KINDS: [(Engine, &str); 7] = [
    (Engine::Docker, JSON),
    (Engine::Held(HeldDaemon::Docker), JSON),
    (Engine::Podman, "/etc/containers/containers.conf"),
    (Engine::Buildkit, BUILDKIT),
    (Engine::Containerd, CONTAINERD),
    (Engine::Held(HeldDaemon::Buildkit), BUILDKIT),
    (Engine::Held(HeldDaemon::Containerd), CONTAINERD),
];

/// Writes bytes, sets up, and undoes.
fn there_and_back(at: usize, content: &[u8]) {
    let (engine, path) = KINDS[at % KINDS.len()];
    let tree =
        TestSystem::new().program("/usr/bin/crun").program("/usr/bin/containerd").with(path, "");
    fs::write(tree.real(path), content).unwrap();
    let before = (tree.snapshot(), fs::read(tree.real(path)).unwrap());
    if tree.set_up(engine, "").is_ok() {
        // A second set-up finds nothing to change.
        assert_eq!(tree.set_up(engine, "").unwrap(), 0);
        tree.undo(engine, Edits::Refuse).unwrap();
    }
    assert_eq!(before, (tree.snapshot(), fs::read(tree.real(path)).unwrap()));
}

#[test]
fn any_bytes_are_edited_and_undone_or_refused_and_left() {
    synconce_fuzz::target("setup-bytes", 120, |bytes| {
        let Some((first, content)) = bytes.split_first() else { return };
        there_and_back(usize::from(*first), content);
    });
}

/// A piece of a file; some pieces together are a valid file.
#[derive(Debug, Arbitrary)]
enum FilePiece {
    Comment(u8),
    Blank,
    Header(u8),
    Value(u8, bool),
    Junk(String),
}

const HEADERS: [&str; 9] = [
    "[plugins.'io.containerd.metadata.v1.bolt']",
    "[worker.oci]",
    "[worker.containerd]",
    "  [worker.containerd.runtime]",
    "[engine]",
    "[engine.runtimes]",
    "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]",
    "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]",
    "[[registry]]",
];
const VALUES: [&str; 12] = [
    "root = '/srv/data'",
    "no_sync = false # yet",
    "version = 2",
    "enabled = true",
    "binary = \"runc\" # ours",
    "runtime = 'crun'",
    "crun = [ \"/usr/bin/crun\", # first\n  '/bin/crun' ]",
    "SystemdCgroup = true",
    "worker.oci.gc = false",
    "options = { BinaryName = \"\" }",
    "runtimes = {}",
    "text = \"\"\"\na\n\"\"\"",
];

impl FilePiece {
    fn text(&self) -> String {
        match self {
            Self::Comment(n) => format!("# {n}"),
            Self::Blank => String::new(),
            Self::Header(n) => HEADERS[usize::from(*n) % HEADERS.len()].to_owned(),
            Self::Value(n, indent) => {
                let indent = if *indent { "    " } else { "" };
                format!("{indent}{}", VALUES[usize::from(*n) % VALUES.len()])
            }
            Self::Junk(text) => text.chars().take(8).collect(),
        }
    }
}

#[derive(Debug, Arbitrary)]
struct Whole {
    engine: u8,
    pieces: Vec<FilePiece>,
    returns: bool,
    ends: bool,
}

#[test]
fn any_toml_is_edited_and_undone_or_refused_and_left() {
    synconce_fuzz::values("setup-toml", 120, |whole: Whole| {
        let lines: Vec<String> = whole.pieces.iter().map(FilePiece::text).collect();
        let end = if whole.returns { "\r\n" } else { "\n" };
        let mut text = lines.join("\n").replace('\n', end);
        if whole.ends {
            text += end;
        }
        there_and_back(2 + usize::from(whole.engine) % 6, text.as_bytes());
    });
}

/// A member of daemon.json.
#[derive(Debug, Arbitrary)]
enum Member {
    DefaultRuntime(bool),
    Runtimes(bool),
    DataRoot(bool),
    Other(u8),
    Text(String),
}

#[test]
fn any_json_is_edited_and_undone_or_refused_and_left() {
    synconce_fuzz::values("setup-json", 120, |file: (Vec<Member>, bool, u8)| {
        let (members, is_wide, around) = file;
        let text = |member: &Member| match member {
            Member::DefaultRuntime(own) => {
                format!("\"default-runtime\": \"{}\"", if *own { "synconce" } else { "runc" })
            }
            Member::Runtimes(empty) => {
                let other = if *empty { "" } else { "\"crun\":{\"path\":\"/usr/bin/crun\"}" };
                format!("\"runtimes\":{{{other}}}")
            }
            Member::DataRoot(plain) => {
                format!("\"data-root\": \"{}\"", if *plain { "/srv/docker" } else { "srv" })
            }
            Member::Other(n) => format!("\"k{n}\": [1, {{ }}, -0.5e{n}]"),
            Member::Text(text) => format!("\"t\" : {}", serde_json::Value::from(text.as_str())),
        };
        let members: Vec<String> = members.iter().map(text).collect();
        let (between, edge) = if is_wide { (",\n\t", "\n") } else { (",", "") };
        let (left, right) =
            [("", ""), ("\n", "\r\n"), (" ", "\n\n"), ("\u{feff}", "")][usize::from(around) % 4];
        let engine = usize::from(around / 4) % 2;
        let whole = format!("{left}{{{edge}{}{edge}}}{right}", members.join(between));
        there_and_back(engine, whole.as_bytes());
    });
}
