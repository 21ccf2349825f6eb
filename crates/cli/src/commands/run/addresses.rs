//! Where the daemon of an engine's client is: its options and variables say so.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use synconce_durable::state_file;
use synconce_probe::mounts::Mount;
use synconce_setup::{Engine, HeldDaemon};

/// Returns the value of an environment variable.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The host of a daemon.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DaemonHost {
    /// This machine.
    Here,
    /// Behind this socket, which is not the usual one: a rootless daemon's, or that of a relay.
    Socket(String),
    /// The host of this name.
    Elsewhere(String),
}

/// Options that name the address of a daemon.
const ADDRESSES: [&str; 8] = [
    "-H",
    "--host",
    "--url",
    "--addr",
    "-a",
    "--address",
    "--runtime-endpoint",
    "--image-endpoint",
];
/// Options that name an entry in a file of the client, with the address of the daemon.
const CONTEXTS: [&str; 3] = ["-c", "--context", "--connection"];
/// Other options before the verb whose value is the next word.
const WITH_VALUE: [&str; 11] = [
    "-l",
    "--log-level",
    "--config",
    "-f",
    "--file",
    "-p",
    "--project-name",
    "--profile",
    "-n",
    "--namespace",
    "--kubeconfig",
];

/// Splits the words of an engine's client into the options before the verb, each with its value,
/// and the words from the verb on.
pub(super) fn split_at_verb<'w>(
    mut words: &'w [&'w str],
) -> (Vec<(&'w str, &'w str)>, &'w [&'w str]) {
    let has_value =
        |word| [&ADDRESSES[..], &CONTEXTS, &WITH_VALUE].iter().any(|list| list.contains(&word));
    let mut options = Vec::new();
    while let [word, rest @ ..] = words
        && word.starts_with('-')
    {
        words = rest;
        if let Some(option) = word.split_once('=') {
            options.push(option);
        } else if let ([value, rest @ ..], true) = (rest, has_value(*word)) {
            options.push((word, value));
            words = rest;
        } else {
            options.push((word, ""));
        }
    }
    (options, words)
}

/// The variable for the address that crictl asks. Its file is read if the variable is not set.
pub(super) const ENDPOINT: &str = "CONTAINER_RUNTIME_ENDPOINT";

/// The sockets of daemons that a set-up reaches.
const SOCKETS: [&str; 3] = [DOCKER, BUILDKIT, CONTAINERD];
const DOCKER: &str = "/run/docker.sock";
const BUILDKIT: &str = "/run/buildkit/buildkitd.sock";
const CONTAINERD: &str = "/run/containerd/containerd.sock";
const PODMAN: &str = "/run/podman/podman.sock";

/// Whether the usual socket of the daemon of `engine` is a mount: so a container gets the socket of
/// its host's daemon. On a host itself, no socket is a mount.
pub(super) fn is_daemon_of_host(engine: Engine, mounts: &[Mount]) -> bool {
    let socket = match engine {
        Engine::Docker | Engine::Held(HeldDaemon::Docker) => DOCKER,
        Engine::Podman => PODMAN,
        Engine::Buildkit | Engine::Held(HeldDaemon::Buildkit) => BUILDKIT,
        Engine::Containerd | Engine::Held(HeldDaemon::Containerd) => CONTAINERD,
    };
    let point = |mount: &Mount| {
        mount.point.strip_prefix("/var").map_or(mount.point.clone(), |it| Path::new("/").join(it))
    };
    mounts.iter().any(|mount| point(mount) == Path::new(socket))
}

/// Whether `variables` lead clients of `engine` to the daemon of this machine.
pub(super) fn is_asked_here(engine: Engine, variables: Variables<'_>) -> bool {
    host_of_engine("docker", engine, &[], variables) == Some(DaemonHost::Here)
}

/// Returns the address in the context that the client of Docker uses: DOCKER_CONTEXT names it, or
/// the file that `docker context use` writes. Returns None for a builder of buildx, which may be
/// anywhere. The files can be another user's, as under `sudo -E`.
fn host_of_context(options: &[(&str, &str)], variables: Variables<'_>) -> Option<String> {
    if variables("BUILDX_BUILDER").is_some() {
        return None;
    }
    let given = options.iter().rfind(|(option, _)| *option == "--config");
    let given = given.map(|(_, value)| PathBuf::from(value));
    let home = || Some(Path::new(&variables("HOME")?).join(".docker"));
    let configured = || variables("DOCKER_CONFIG").map(PathBuf::from);
    let directory = given.or_else(configured).or_else(home)?;
    let read = |path: PathBuf| {
        let file = state_file::open(&fs::canonicalize(path).ok()?).ok()?;
        state_file::read::<Value>(&file).ok()
    };
    let current = || Some(read(directory.join("config.json"))?["currentContext"].as_str()?.into());
    let name: String = variables("DOCKER_CONTEXT").or_else(current)?;
    let contexts = fs::read_dir(directory.join("contexts/meta")).ok()?.flatten();
    let mut contexts = contexts.filter_map(|context| read(context.path().join("meta.json")));
    let meta = contexts.find(|meta| meta["Name"] == *name)?;
    Some(meta["Endpoints"]["docker"]["Host"].as_str()?.to_owned())
}

/// Returns the host of the daemon of `engine` that `program` calls. Returns None if the address is
/// in a file of the client, or if no set-up reaches the daemon there.
pub(super) fn host_of_engine(
    program: &str,
    engine: Engine,
    options: &[(&str, &str)],
    variables: Variables<'_>,
) -> Option<DaemonHost> {
    let is_podman = engine == Engine::Podman;
    let variable = match engine {
        _ if program == "crictl" => ENDPOINT,
        Engine::Docker | Engine::Held(HeldDaemon::Docker) => "DOCKER_HOST",
        Engine::Podman => "CONTAINER_HOST",
        Engine::Buildkit | Engine::Held(HeldDaemon::Buildkit) => "BUILDKIT_HOST",
        Engine::Held(HeldDaemon::Containerd) => "CONTAINERD_ADDRESS",
        Engine::Containerd => return Some(DaemonHost::Elsewhere("the node".to_owned())),
    };
    let given = options.iter().rfind(|(option, _)| ADDRESSES.contains(option));
    let is_in_file = options.iter().any(|(option, _)| CONTEXTS.contains(option));
    if given.is_none() && is_in_file {
        return None;
    }
    let address = given
        .map(|(_, value)| (*value).to_owned())
        .or_else(|| variables(variable))
        .or_else(|| (variable == "DOCKER_HOST").then(|| host_of_context(options, variables))?);
    let Some(address) = address else {
        let is_set = |names: &[&str]| names.iter().any(|name| variables(name).is_some());
        let has_context = match variable {
            "DOCKER_HOST" => {
                let context = variables("DOCKER_CONTEXT");
                context.is_some_and(|name| name != "default") || is_set(&["BUILDX_BUILDER"])
            }
            _ => is_podman && is_set(&["CONTAINER_CONNECTION"]),
        };
        let is_remote = options.iter().any(|(option, _)| matches!(*option, "--remote" | "-r"));
        let has_service = !matches!(program, "podman" | "podman-compose") || is_remote;
        return (!has_context && has_service).then_some(DaemonHost::Here);
    };
    let path = address.strip_prefix("unix://").unwrap_or(&address);
    let path = path.strip_prefix("/var").unwrap_or(path);
    if SOCKETS.contains(&path) || (is_podman && path.starts_with('/')) {
        return Some(DaemonHost::Here);
    }
    if let Some(path) = address.strip_prefix("unix://") {
        // Podman answers clients of Docker, and CRI-O those of containerd, each at its own socket.
        let is_named = matches!(variable, "DOCKER_HOST" | "BUILDKIT_HOST");
        let is_certain = is_named && path.starts_with('/') && !path.ends_with("/podman.sock");
        return is_certain.then(|| DaemonHost::Socket(path.to_owned()));
    }
    // No set-up reaches a daemon in a container.
    let (_, rest) = address
        .split_once("://")
        .filter(|(scheme, _)| matches!(*scheme, "tcp" | "ssh" | "http" | "https"))?;
    let host = host_of_uri(rest);
    let is_here = matches!(host, "" | "localhost" | "::1") || host.starts_with("127.");
    Some(if is_here { DaemonHost::Here } else { DaemonHost::Elsewhere(host.to_owned()) })
}

/// Returns the host in a URI without its scheme, empty if it has none.
fn host_of_uri(rest: &str) -> &str {
    // A password may have a slash, and must not be printed.
    let place = rest.rsplit('@').next().unwrap_or_default();
    let host = place.split('/').next().unwrap_or_default();
    let end = if host.starts_with('[') { ']' } else { ':' };
    host.split(end).next().unwrap_or_default().trim_start_matches('[')
}
