//! Commands that are clients of a daemon: the daemon makes their syncs, outside of the run.

use super::addresses::{DaemonHost, Variables, has_builder, host_of_engine, split_at_verb};
use super::inner_command::find_in_inner_command;
use super::servers::asks_server;
use crate::commands::wrappers::file_name;
use std::ffi::OsString;
use std::path::Path;
use synconce_setup::{Engine, HeldDaemon};

/// The daemon that makes the syncs of a command.
#[derive(Debug)]
pub(super) struct DaemonOfClient {
    pub(super) name: &'static str,
    /// The engine whose set-up holds these syncs; None for a database server and a unit of systemd.
    pub(super) engine: Option<Engine>,
    pub(super) host: DaemonHost,
    pub(super) request: HoldRequest,
}

/// Whether a container has to request a hold, beside the set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldRequest {
    /// It is a build step, or the daemon itself syncs.
    NotNeeded,
    Made,
    /// It may have requested one when it was made (`docker exec`).
    Unknown(&'static str),
    /// It requests none. The value is the command line of a container or a unit that does.
    Missing(&'static str),
}

/// Returns the daemon that `command` has made sync. Returns None if only a file of the client says
/// on which host the daemon is.
pub(super) fn daemon_of(command: &[OsString], variables: Variables<'_>) -> Option<DaemonOfClient> {
    let words: Vec<_> = command.iter().filter_map(|word| word.to_str()).collect();
    find_in_inner_command(&words, variables, &of_client)
}

/// Returns the daemon of the client at `path` with the arguments `words`.
fn of_client(path: &str, words: &[&str], variables: Variables<'_>) -> Option<DaemonOfClient> {
    let program = file_name(path);
    if asks_server(program, words, variables) {
        // The hint for a server is the same on every host.
        let (name, host, request) = ("the server", DaemonHost::Here, HoldRequest::NotNeeded);
        return Some(DaemonOfClient { name, engine: None, host, request });
    }
    if program == "systemd-run" && !words.contains(&"--scope") {
        // The unit's own run holds its syncs, as the hint advises.
        if words.iter().any(|word| file_name(word) == "synconce") {
            return None;
        }
        let request = HoldRequest::Missing("systemd-run OPTIONS synconce run -- COMMAND");
        let (name, host) = ("the unit", DaemonHost::Here);
        return Some(DaemonOfClient { name, engine: None, host, request });
    }
    let (options, words) = split_at_verb(words);
    let container = container_of(program, words);
    let (name, engine, request) = match (container, engine_of(program, words)) {
        (Some((engine, request)), _) => ("the container", engine, request),
        (None, Some((_, Engine::Docker))) if has_builder(&options, variables) => return None,
        (None, found) => found.map(|(name, engine)| (name, engine, HoldRequest::NotNeeded))?,
    };
    let is_compose = program == "podman" && words.first() == Some(&"compose");
    let program = if is_compose { provider_of_compose(variables, &PLUGINS) } else { program };
    let host = host_of_engine(program, engine, &options, variables)?;
    Some(DaemonOfClient { name, engine: Some(engine), host, request })
}

/// The directories above those of the plugins of docker.
const PLUGINS: [&str; 4] = ["/usr/local/lib", "/usr/local/libexec", "/usr/lib", "/usr/libexec"];

/// Returns the program that `podman compose` starts, by the order of podman-compose(1).
/// docker-compose is a client of the service; podman-compose starts podman itself. A file may name
/// another one.
fn provider_of_compose(variables: Variables<'_>, plugins: &[&str]) -> &'static str {
    const OWN: &str = "podman-compose";
    const CLIENT: &str = "docker-compose";
    let path = variables("PATH").unwrap_or_default();
    // Podman starts no program of a relative directory (`os/exec` of Go).
    let directories = || path.split(':').map(Path::new).filter(|above| above.is_absolute());
    let has = |name: &str| directories().any(|above| above.join(name).is_file());
    let home = variables("HOME").map(|home| Path::new(&home).join(".docker"));
    let mut plugins = plugins.iter().map(|above| Path::new(above).join("docker")).chain(home);
    let is_named = |name: String| file_name(&name) == OWN;
    let is_own = variables("PODMAN_COMPOSE_PROVIDER").map_or_else(
        || {
            has(OWN)
                && !has(CLIENT)
                && !plugins.any(|above| above.join("cli-plugins").join(CLIENT).is_file())
        },
        is_named,
    );
    if is_own { OWN } else { CLIENT }
}

/// Whether the command `program` with `words` builds images before it creates containers.
fn builds_first(program: &str, words: &[&str]) -> bool {
    let verb = match words {
        ["compose", rest @ ..] => split_at_verb(rest).1.first(),
        _ if program.ends_with("-compose") => words.first(),
        _ => None,
    };
    matches!(verb, Some(&("up" | "create"))) && words.contains(&"--build")
}

/// The label, or annotation, by which a container requests a hold.
const HOLD: &str = "io.synconce.hold=true";

/// Returns the engine of the container in which `program` starts a command, and whether the
/// container requests a hold. `words` begins with the verb.
fn container_of(program: &str, words: &[&str]) -> Option<(Engine, HoldRequest)> {
    let (verb, rest) = words.split_first()?;
    let is_group = matches!(*verb, "container" | "compose");
    let verb = if is_group { split_at_verb(rest).1.first()? } else { verb };
    let is_compose = words.first() == Some(&"compose") || program.ends_with("-compose");
    let (engine, request) = match program {
        "docker" | "docker-compose" => {
            (Engine::Docker, "docker run --label io.synconce.hold=true IMAGE COMMAND")
        }
        // The containers of a podman without a service are descendants of the run.
        "podman" | "podman-remote" | "podman-compose" => {
            (Engine::Podman, "podman --remote run --annotation io.synconce.hold=true IMAGE COMMAND")
        }
        _ => return None,
    };
    let request = match engine {
        Engine::Docker if is_compose => "add to the service: labels: [io.synconce.hold=true]",
        _ if is_compose => "add to the service: annotations: [io.synconce.hold=true]",
        _ => request,
    };
    if builds_first(program, words) {
        return None;
    }
    let is_made = words.iter().any(|word| word.contains(HOLD));
    let request = match *verb {
        "run" if is_made => HoldRequest::Made,
        // The file of the services, which is not read, may request the hold.
        "run" | "up" if is_compose => HoldRequest::Unknown(request),
        "run" => HoldRequest::Missing(request),
        "exec" => HoldRequest::Unknown(request),
        _ => return None,
    };
    Some((engine, request))
}

/// Returns the daemon that makes the syncs of the client `program`, and the engine whose set-up
/// holds them. `words` begins with the verb. No set-up reaches the syncs of dockerd and of Podman
/// when an image is pulled or loaded, and a builder of buildx that is named may be anywhere.
fn engine_of(program: &str, words: &[&str]) -> Option<(&'static str, Engine)> {
    let (verb, rest) = words.split_first()?;
    let next = split_at_verb(rest).1.first();
    let builds = matches!(
        (*verb, next),
        ("build" | "bake", _)
            | ("builder" | "buildx" | "compose" | "image", Some(&("build" | "bake")))
    ) || builds_first(program, words);
    let stores = matches!(*verb, "pull" | "load" | "import" | "push" | "commit" | "rmi");
    let starts = matches!(*verb, "apply" | "replace" | "run" | "exec")
        || matches!((*verb, next), ("create", None | Some(&("deployment" | "job" | "cronjob"))));
    let is_trial = words.iter().any(|word| word.starts_with("--dry-run"));
    let of_images = matches!((*verb, next), ("images" | "image" | "i", Some(&("pull" | "import"))));
    let names_builder =
        words.iter().any(|word| *word == "--builder" || word.starts_with("--builder="));
    Some(match program {
        "docker" | "docker-buildx" | "docker-compose" if builds && !names_builder => {
            ("dockerd", Engine::Docker)
        }
        "podman" | "podman-remote" | "podman-compose" if builds => {
            ("the Podman service", Engine::Podman)
        }
        // nerdctl has images built by BuildKit.
        "buildctl" | "nerdctl" if builds => ("buildkitd", Engine::Buildkit),
        "nerdctl" if stores => ("containerd", Engine::Held(HeldDaemon::Containerd)),
        "crictl" if *verb == "pull" => ("containerd", Engine::Held(HeldDaemon::Containerd)),
        "ctr" if of_images => ("containerd", Engine::Held(HeldDaemon::Containerd)),
        "kubectl" if starts && !is_trial => ("the pod", Engine::Containerd),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the name of the daemon and its host, `-` for this machine.
    fn found(line: &str, variables: Variables<'_>) -> Option<(&'static str, String)> {
        let words: Vec<_> = line.split(' ').map(OsString::from).collect();
        let daemon = daemon_of(&words, variables)?;
        Some((daemon.name, host_name(daemon.host)))
    }

    fn host_name(host: DaemonHost) -> String {
        match host {
            DaemonHost::Here => "-".to_owned(),
            DaemonHost::Socket(path) => format!("at {path}"),
            DaemonHost::Elsewhere(name) => name,
        }
    }

    /// Command lines, with the name of the daemon and its host.
    type Clients = &'static [(&'static str, Option<(&'static str, &'static str)>)];
    const CLIENTS: Clients = &[
        ("docker build -t run .", Some(("dockerd", "-"))),
        ("docker buildx build .", Some(("dockerd", "-"))),
        ("docker builder build .", Some(("dockerd", "-"))),
        ("docker buildx bake", Some(("dockerd", "-"))),
        ("docker compose build", Some(("dockerd", "-"))),
        ("docker buildx build --builder far .", None),
        ("docker buildx --builder=far bake", None),
        ("docker builder prune", None),
        ("docker compose up", Some(("the container", "-"))),
        ("docker compose -f x.yml up", Some(("the container", "-"))),
        ("docker compose -f x.yml up --build -d", Some(("dockerd", "-"))),
        ("docker-compose create --build app", Some(("dockerd", "-"))),
        ("docker compose run app make --build", Some(("the container", "-"))),
        ("podman compose up --build", Some(("the Podman service", "-"))),
        ("docker compose -f x.yml run --rm app make", Some(("the container", "-"))),
        ("docker compose exec app make", Some(("the container", "-"))),
        ("docker-compose -p x up", Some(("the container", "-"))),
        ("docker-compose run app make", Some(("the container", "-"))),
        ("docker compose ps", None),
        ("podman compose build", Some(("the Podman service", "-"))),
        ("podman compose run app make", Some(("the container", "-"))),
        ("podman ps", None),
        ("docker-compose build", Some(("dockerd", "-"))),
        ("docker-compose ps", None),
        ("sudo /usr/bin/docker build .", Some(("dockerd", "-"))),
        ("docker pull debian", None),
        ("docker load -i x.tar", None),
        ("docker --context far build .", None),
        ("docker -H unix:///var/run/docker.sock build .", Some(("dockerd", "-"))),
        ("docker -H unix:///a/docker.sock build .", Some(("dockerd", "at /a/docker.sock"))),
        ("docker -H unix:///run/podman/podman.sock build .", None),
        ("buildctl --addr unix:///a/x build", Some(("buildkitd", "at /a/x"))),
        (
            "docker -H unix:///a/docker.sock run debian true",
            Some(("the container", "at /a/docker.sock")),
        ),
        ("docker --host=tcp://[fd00::1]:2375 build .", Some(("dockerd", "fd00::1"))),
        ("docker --host tcp://localhost:2375 build .", Some(("dockerd", "-"))),
        ("docker run debian true", Some(("the container", "-"))),
        ("docker -H tcp://far:1 run debian true", Some(("the container", "far"))),
        ("docker container exec x true", Some(("the container", "-"))),
        ("docker exec x true", Some(("the container", "-"))),
        ("docker start x", None),
        ("podman run debian true", None),
        ("podman --remote run debian true", Some(("the container", "-"))),
        ("podman-compose up", None),
        ("docker ps", None),
        ("podman --remote build .", Some(("the Podman service", "-"))),
        ("podman-remote build .", Some(("the Podman service", "-"))),
        ("podman --url ssh://me@far/run/podman build .", Some(("the Podman service", "far"))),
        ("podman --remote --connection far build .", None),
        ("podman build .", None),
        ("buildctl --addr tcp://far:1234 build", Some(("buildkitd", "far"))),
        ("nerdctl build .", Some(("buildkitd", "-"))),
        ("nerdctl -n k8s.io pull debian", Some(("containerd", "-"))),
        ("ctr images pull debian", Some(("containerd", "-"))),
        ("ctr -a /run/k3s/containerd/containerd.sock images pull debian", None),
        ("ctr images ls", None),
        ("kubectl -n x apply -f y", Some(("the pod", "the node"))),
        ("kubectl create -f y", Some(("the pod", "the node"))),
        ("kubectl create configmap x", None),
        ("kubectl apply --dry-run=client -f y", None),
        ("kubectl rollout status x", None),
        ("kubectl get pods", None),
        ("kubectl exec x -- make", Some(("the pod", "the node"))),
        ("kubectl -n x exec y -- make", Some(("the pod", "the node"))),
        ("kubectl run x --image y", Some(("the pod", "the node"))),
        ("createdb x", Some(("the server", "-"))),
        ("pg_restore -h db.example -d x dump", Some(("the server", "-"))),
        ("pg_restore --dbname=x dump", Some(("the server", "-"))),
        ("pg_restore -Cvd postgres dump", Some(("the server", "-"))),
        ("pg_restore -l dump", None),
        ("pg_restore -fdump.sql dump", None),
        ("pgbench -i -s 10 -hdb.example x", Some(("the server", "-"))),
        ("mysqladmin -h db.example create x", Some(("the server", "-"))),
        ("mariadb-import x y", Some(("the server", "-"))),
        ("pg_dump x", None),
        ("mysqldump x", None),
        ("psql -c select", Some(("the server", "-"))),
        ("psql -h db.example", Some(("the server", "-"))),
        ("sudo -u postgres psql -h db.example", Some(("the server", "-"))),
        ("env PGHOST=db.example psql", Some(("the server", "-"))),
        ("timeout 9 nice -n 5 psql -h db.example", Some(("the server", "-"))),
        ("runuser -u postgres -- psql -h db.example -c select", Some(("the server", "-"))),
        ("sudo env DOCKER_HOST=tcp://far:1 docker build .", Some(("dockerd", "far"))),
        ("DOCKER_HOST=tcp://far:1 docker build .", Some(("dockerd", "far"))),
        ("runuser --user=x psql -h far -c select", Some(("the server", "-"))),
        ("crictl pull debian", Some(("containerd", "-"))),
        ("crictl --runtime-endpoint unix:///run/crio/crio.sock pull debian", None),
        ("crictl ps", None),
        ("systemd-run --wait --pipe make check", Some(("the unit", "-"))),
        ("sudo systemd-run --user make", Some(("the unit", "-"))),
        ("systemd-run --user --scope make", None),
        ("systemd-run --pipe /usr/bin/synconce run -- make", None),
        ("make docker", None),
        ("sudo", None),
        ("sudo -u psql make", None),
    ];

    #[test]
    fn clients_of_daemons_are_known_and_their_hosts() {
        for (line, wanted) in CLIENTS {
            let wanted = wanted.map(|(name, host)| (name, host.to_owned()));
            assert_eq!(found(line, &|_| None), wanted, "{line}");
        }
    }

    #[test]
    fn podman_compose_starts_podman_compose_only_without_docker_compose() {
        let name = format!("synconce-compose-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let path = directory.to_str().unwrap().to_owned();
        let plugins = [path.as_str()];
        let of = |provider: Option<&str>| {
            let variables = |name: &str| match name {
                "PATH" => Some(format!(":{path}")),
                "PODMAN_COMPOSE_PROVIDER" => provider.map(str::to_owned),
                _ => None,
            };
            provider_of_compose(&variables, &plugins)
        };
        let (own, client) = ("podman-compose", "docker-compose");
        assert_eq!(of(None), client);
        assert_eq!(of(Some("/usr/bin/podman-compose")), own);
        std::fs::write(directory.join(own), "").unwrap();
        assert_eq!(of(None), own);
        assert_eq!(of(Some("docker-compose")), client);
        let plugins = directory.join("docker/cli-plugins");
        std::fs::create_dir_all(&plugins).unwrap();
        std::fs::write(plugins.join(client), "").unwrap();
        assert_eq!(of(None), client);
        std::fs::remove_file(plugins.join(client)).unwrap();
        assert_eq!(of(None), own);
        std::fs::write(directory.join(client), "").unwrap();
        assert_eq!(of(None), client);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_client_in_the_only_command_of_a_script_is_known() {
        let of = |script: &str| {
            let words = ["su", "postgres", "-c", script].map(OsString::from);
            daemon_of(&words, &|_| None).map(|daemon| host_name(daemon.host))
        };
        assert_eq!(of("psql -h db.example"), Some("-".to_owned()));
        assert_eq!(of("cd /; psql -h db.example"), None);
    }

    #[test]
    fn a_variable_of_a_client_names_the_host_unless_an_option_does() {
        for (line, name, value, host) in [
            ("docker build .", "DOCKER_HOST", "tcp://far:2375", Some("far")),
            ("docker -H tcp://near build .", "DOCKER_HOST", "tcp://far", Some("near")),
            ("sudo docker build .", "DOCKER_HOST", "tcp://far:2375", Some("-")),
            ("sudo -E docker build .", "DOCKER_HOST", "tcp://far:2375", Some("far")),
            ("sudo -nEu me docker build .", "DOCKER_HOST", "tcp://far:2375", Some("far")),
            ("sudo -uE docker build .", "DOCKER_HOST", "tcp://far:2375", Some("-")),
            ("docker build .", "DOCKER_HOST", "unix:///a/x", Some("at /a/x")),
            ("docker build .", "DOCKER_CONTEXT", "far", None),
            ("docker build .", "DOCKER_CONTEXT", "default", Some("-")),
            ("docker --context far build .", "DOCKER_HOST", "tcp://near", None),
            ("docker build .", "BUILDX_BUILDER", "far", None),
            ("docker run x make", "BUILDX_BUILDER", "far", Some("-")),
            ("podman build .", "CONTAINER_HOST", "ssh://me@far:22/run/x", Some("far")),
            ("podman compose up", "PODMAN_COMPOSE_PROVIDER", "/usr/bin/podman-compose", None),
            ("podman compose up", "PODMAN_COMPOSE_PROVIDER", "docker-compose", Some("-")),
            ("podman-compose up", "CONTAINER_HOST", "ssh://me@far:22/run/x", Some("far")),
            ("make check", "PGHOST", "db.example", Some("-")),
            ("env PGHOST=db.example pytest", "HOME", "/", Some("-")),
            ("make", "PGHOST", "db.example", None),
            ("podman build .", "CONTAINER_HOST", "unix:///run/podman/podman.sock", Some("-")),
            ("buildctl build", "BUILDKIT_HOST", "docker-container://x", None),
            ("nerdctl build .", "DOCKER_HOST", "tcp://far:2375", Some("-")),
            ("nerdctl pull x", "BUILDKIT_HOST", "tcp://far:1234", Some("-")),
            ("crictl pull x", "CONTAINER_RUNTIME_ENDPOINT", "unix:///run/crio/crio.sock", None),
            ("timeout 9 docker build .", "DOCKER_HOST", "tcp://far:2375", Some("far")),
            ("ctr images pull x", "CONTAINERD_ADDRESS", "/run/k3s/containerd.sock", None),
        ] {
            let variables = |asked: &str| (asked == name).then(|| value.to_owned());
            let found = found(line, &variables).map(|(_, host)| host);
            assert_eq!(found.as_deref(), host, "{line} {name}={value}");
        }
    }
}
