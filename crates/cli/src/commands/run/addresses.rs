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
        && !(engine == Engine::Docker && has_builder(&[], variables))
}

/// Whether a builder of buildx, which may be anywhere, makes the builds of the client of Docker:
/// BUILDX_BUILDER names it, or the file that `docker buildx use` writes.
pub(super) fn has_builder(options: &[(&str, &str)], variables: Variables<'_>) -> bool {
    let current = || {
        let buildx = variables("BUILDX_CONFIG").map(PathBuf::from);
        let buildx =
            buildx.or_else(|| Some(directory_of_client(options, variables)?.join("buildx")));
        Some(read(buildx?.join("current"))?["Name"].as_str()?.to_owned())
    };
    let name = variables("BUILDX_BUILDER").or_else(current);
    name.is_some_and(|name| !name.is_empty() && name != "default")
}

/// Returns the name of the context that the client of Docker uses, unless it is the default one: an
/// option or DOCKER_CONTEXT names it, or the file that `docker context use` writes.
fn context_of(options: &[(&str, &str)], variables: Variables<'_>) -> Option<String> {
    let current = || {
        let config = read(directory_of_client(options, variables)?.join("config.json"))?;
        Some(config["currentContext"].as_str()?.to_owned())
    };
    let named = value_of(options, &CONTEXTS).map(str::to_owned);
    let name = named.or_else(|| variables("DOCKER_CONTEXT")).or_else(current)?;
    (name != "default").then_some(name)
}

/// Returns the address in the context `name` of the client of Docker.
fn address_in_context(
    name: &str,
    options: &[(&str, &str)],
    variables: Variables<'_>,
) -> Option<String> {
    let contexts = directory_of_client(options, variables)?.join("contexts/meta");
    let mut contexts = fs::read_dir(contexts).ok()?.flatten();
    let meta = contexts.find_map(|context| {
        read(context.path().join("meta.json")).filter(|meta| meta["Name"] == *name)
    })?;
    Some(meta["Endpoints"]["docker"]["Host"].as_str()?.to_owned())
}

/// Returns the directory of the files of the client of Docker.
fn directory_of_client(options: &[(&str, &str)], variables: Variables<'_>) -> Option<PathBuf> {
    let given = value_of(options, &["--config"]).map(PathBuf::from);
    let home = || Some(Path::new(&variables("HOME")?).join(".docker"));
    given.or_else(|| variables("DOCKER_CONFIG").map(PathBuf::from)).or_else(home)
}

/// Reads a file of the client. The file can be another user's, as under `sudo -E`.
fn read(path: PathBuf) -> Option<Value> {
    let file = state_file::open(&fs::canonicalize(path).ok()?).ok()?;
    state_file::read(&file).ok()
}

/// Returns the value of the last of `options` whose name is among `names`.
fn value_of<'w>(options: &[(&str, &'w str)], names: &[&str]) -> Option<&'w str> {
    options.iter().rfind(|(option, _)| names.contains(option)).map(|(_, value)| *value)
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
    let given = value_of(options, &ADDRESSES).map(str::to_owned);
    let named = value_of(options, &CONTEXTS).filter(|_| given.is_none());
    let is_docker = variable == "DOCKER_HOST";
    if named.is_some() && !is_docker {
        return None;
    }
    // A context that an option names comes before the variable, but the default one.
    let of_variable = || variables(variable).filter(|_| named.is_none_or(|it| it == "default"));
    let mut address = given.or_else(of_variable);
    if address.is_none()
        && is_docker
        && let Some(name) = context_of(options, variables)
    {
        address = Some(address_in_context(&name, options, variables)?);
    }
    let Some(address) = address else {
        let has_context = is_podman && variables("CONTAINER_CONNECTION").is_some();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_builder_of_buildx_makes_the_builds_unless_it_is_the_default_one() {
        let home = std::env::temp_dir().join(format!("synconce-builders-{}", std::process::id()));
        let directory = home.join(".docker/buildx");
        fs::create_dir_all(&directory).unwrap();
        let has_builder = |current: &str, builder: Option<&str>| {
            let text = format!(r#"{{"Key": "unix:///run/docker.sock", "Name": "{current}"}}"#);
            fs::write(directory.join("current"), text).unwrap();
            has_builder(&[], &|name: &str| match name {
                "HOME" => Some(home.display().to_string()),
                "BUILDX_BUILDER" => builder.map(str::to_owned),
                _ => None,
            })
        };
        for (current, builder, expected) in [
            ("far", None, true),
            ("", None, false),
            ("default", None, false),
            ("far", Some("default"), false),
            ("", Some("far"), true),
        ] {
            assert_eq!(has_builder(current, builder), expected, "{current} {builder:?}");
        }
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn a_context_that_is_named_and_not_there_leads_to_no_host() {
        let home = std::env::temp_dir().join(format!("synconce-contexts-{}", std::process::id()));
        let meta = home.join(".docker/contexts/meta/1");
        fs::create_dir_all(&meta).unwrap();
        let far = r#"{"Name": "far", "Endpoints": {"docker": {"Host": "ssh://far"}}}"#;
        fs::write(meta.join("meta.json"), far).unwrap();
        let host = |options: &[(&str, &str)], current: &str, variable: Option<&str>| {
            let config = format!(r#"{{"currentContext": "{current}"}}"#);
            fs::write(home.join(".docker/config.json"), config).unwrap();
            let variables = |name: &str| match name {
                "HOME" => Some(home.display().to_string()),
                "DOCKER_HOST" => variable.map(str::to_owned),
                _ => None,
            };
            host_of_engine("docker", Engine::Docker, options, &variables)
        };
        let elsewhere = |name: &str| Some(DaemonHost::Elsewhere(name.to_owned()));
        for (options, current, variable, expected) in [
            (&[][..], "far", None, elsewhere("far")),
            (&[], "gone", None, None),
            (&[], "gone", Some("ssh://near"), elsewhere("near")),
            (&[], "default", None, Some(DaemonHost::Here)),
            (&[("--context", "far")], "default", Some("ssh://near"), elsewhere("far")),
            (&[("-c", "gone")], "far", None, None),
            (&[("--context", "default")], "far", None, Some(DaemonHost::Here)),
            (&[("--context", "default")], "far", Some("ssh://near"), elsewhere("near")),
        ] {
            assert_eq!(host(options, current, variable), expected, "{options:?} {current}");
        }
        fs::remove_dir_all(home).unwrap();
    }
}
