//! dockerd: sets a runtime in daemon.json for `docker run` and the classic builder, and the
//! runc of its embedded BuildKit, for which daemon.json has no setting.

mod api;
pub(crate) mod builds;
pub(crate) mod daemon_json;
pub(crate) mod probe;

use self::builds::DefaultRuntime;
use crate::engine::BUILDS_ONLY;
use crate::error::{Error, NotEdited};
use crate::host::{Host, PathState, RUNTIME_NAME};
use crate::plan::Plan;
use crate::running::process::{DaemonProcess, Lack};
use crate::systemd::{self, DEFAULT_PATH, Said, Service};
use std::path::{Path, PathBuf};

/// The flags of dockerd that name its configuration file.
pub(crate) const FLAGS: [&str; 1] = ["--config-file"];
const DAEMON_JSON: &str = "/etc/docker/daemon.json";
const DATA: &str = "/var/lib/docker";
const DROP_IN: &str = "/etc/systemd/system/docker.service.d/synconce.conf";
/// A directory with nothing but a link named runc, to be first in the daemon's PATH.
const DIRECTORY: &str = "/usr/local/lib/synconce/docker";
const VARIABLE: &str = "DOCKER_BUILDKIT_RUNC_COMMAND";
/// The first version whose BuildKit takes its runc from [`VARIABLE`] (moby#47563).
const KNOWS_VARIABLE: u32 = 26;
pub(crate) const PLACES: [&str; 3] =
    ["/usr/bin/dockerd", "/usr/sbin/dockerd", "/usr/local/bin/dockerd"];

/// Plans the changes that make dockerd call `synconce-oci`: for all containers; or for builds
/// alone, if another default runtime is set or dockerd is set up for builds alone already.
pub(crate) fn plan(host: &Host) -> Result<Plan, Error> {
    let service = read_service(host)?;
    let default = default_runtime(host, &service)?;
    let other = default.as_ref().filter(|default| default.is_other());
    let is_ours = default.as_ref().is_some_and(|default| default.name == RUNTIME_NAME);
    if other.is_some() || !is_ours && builds::is_made(host) {
        builds::plan_instead(host, &service, other)
    } else {
        plan_all_containers(host, &service)
    }
}

/// Whether dockerd of this system calls `synconce-oci` for builds alone.
pub(crate) fn is_builds_only() -> bool {
    Path::new(builds::DIRECTORY).join("runc").is_symlink()
}

/// Plans the changes that make dockerd call `synconce-oci` for builds alone.
///
/// # Errors
/// As for [`crate::plan()`]; a set-up of all containers is refused.
pub(crate) fn plan_builds_only(host: &Host) -> Result<Plan, Error> {
    let service = read_service(host)?;
    match default_runtime(host, &service)? {
        Some(ours) if ours.name == RUNTIME_NAME => Err(builds::refusal_of_whole(host, &ours)),
        default => builds::plan(host, &service, default.filter(DefaultRuntime::is_other).as_ref()),
    }
}

fn read_service(host: &Host) -> Result<Service, Error> {
    let service = Service::read(host, "docker", Path::new(DROP_IN))?;
    service.check_program(host, "dockerd")?;
    Ok(service)
}

fn plan_all_containers(host: &Host, service: &Service) -> Result<Plan, Error> {
    for flag in ["--default-runtime", "--add-runtime"] {
        if let Some((said, _)) = service.flag(flag) {
            let reason = format!("gives dockerd {flag}, with which it takes none in daemon.json");
            let remedy = format!(
                "move the flag's value into daemon.json, and set up again; or hold builds only: {}",
                host.setup(BUILDS_ONLY)
            );
            return Err(said.refuse(host, &reason, &remedy).into());
        }
    }
    let mut plan = Plan::default();
    plan.edit(host, &daemon_json(host, service)?, |text| daemon_json::edit(text, host.runtime()))?;
    embedded(&mut plan, host, service)?;
    plan.notes.push(
        "containers made from now on are recorded with the runtime synconce; only those \
         of builds, and those that ask for it, are held"
            .to_owned(),
    );
    Ok(plan)
}

pub(crate) fn daemon_json(host: &Host, service: &Service) -> Result<PathBuf, Error> {
    service.file(host, &FLAGS, DAEMON_JSON)
}

/// Returns the default runtime that a flag of the service or daemon.json sets.
fn default_runtime(host: &Host, service: &Service) -> Result<Option<DefaultRuntime>, Error> {
    if let Some((Said { path, line, .. }, Some(name))) = service.flag("--default-runtime") {
        return Ok(Some(DefaultRuntime { name, path, line }));
    }
    let (path, text) = host.text(&daemon_json(host, service)?)?;
    let found = daemon_json::default_runtime(&text.unwrap_or_default());
    let found = found.map_err(|fault| fault.in_file(&host.real(&path)))?;
    Ok(found.map(|(name, line)| DefaultRuntime { name, path, line }))
}

/// Sets the embedded BuildKit's runc, by a drop-in file for systemd.
fn embedded(plan: &mut Plan, host: &Host, service: &Service) -> Result<(), Error> {
    let dockerd = dockerd(host, service);
    let (way, why) = choose(dockerd, version(host, dockerd));
    let setting = setting(host, service, way, DIRECTORY)?;
    plan.notes.push(why);
    unless_overridden(host, service, setting.split_once('=').map_or("", |(name, _)| name))?;
    if way == RuncWay::Path {
        let link = Path::new(DIRECTORY).join("runc");
        plan.link(host, &link, Path::new(host.runtime()))?;
    }
    in_environment(plan, host, service, &setting, "docker")
}

/// Puts `setting` into dockerd's environment by a drop-in file of the set-up `command`, or says
/// how.
fn in_environment(
    plan: &mut Plan,
    host: &Host,
    service: &Service,
    setting: &str,
    command: &str,
) -> Result<(), Error> {
    if dockerd(host, service).is_some() && !service.is_there {
        plan.notes.push(format!(
            "there is no docker.service: start dockerd with {setting} in its environment"
        ));
        return Ok(());
    }
    let content = format!(
        "# Written by `synconce setup {command}`; `synconce setup docker --undo` takes it away.\n\
         [Service]\nEnvironment={}\n",
        systemd::quoted(setting)
    );
    if !host.has_systemd() {
        plan.notes.push(format!(
            "systemd does not run here: start dockerd with {setting} in its environment"
        ));
    }
    plan.own(host, Path::new(DROP_IN), content)
}

fn dockerd<'a>(host: &Host, service: &'a Service) -> Option<&'a str> {
    let dockerd = service.program().into_iter().chain(PLACES);
    host.first_executable(&dockerd.collect::<Vec<_>>())
}

fn version(host: &Host, dockerd: Option<&str>) -> Option<u32> {
    host.version(dockerd).map(|(major, _)| major)
}

/// Returns the environment variable, with its value, that makes the embedded BuildKit call
/// synconce-oci. If the variable is PATH, `directory` has the program.
fn setting(host: &Host, service: &Service, way: RuncWay, directory: &str) -> Result<String, Error> {
    Ok(match way {
        RuncWay::Variable => format!("{VARIABLE}={}", host.runtime()),
        RuncWay::Path => format!("PATH={}", path(host, service, directory)?),
    })
}

/// Returns what the running dockerd lacks of the set-up.
///
/// # Errors
/// A unit that cannot be read.
pub(crate) fn lacks(host: &Host, process: &DaemonProcess) -> Result<Option<Lack>, Error> {
    let service = Service::read(host, "docker", Path::new(DROP_IN))?;
    let dockerd = dockerd(host, &service);
    let version = version(host, dockerd);
    let is_builds_only = builds::is_made(host);
    let (way, directory) = if is_builds_only {
        (RuncWay::Path, builds::DIRECTORY)
    } else {
        (choose(dockerd, version).0, DIRECTORY)
    };
    let setting = setting(host, &service, way, directory)?;
    let first = |word: &str| word.strip_prefix("PATH=")?.split(':').next().map(str::to_owned);
    let has = |word: &String| match way {
        RuncWay::Variable => *word == setting,
        RuncWay::Path => first(word).is_some_and(|first| first == directory),
    };
    // Only root may read the environment of another user's process.
    let words = process.words("environ").unwrap_or_default();
    if !words.is_empty() && !words.iter().any(has) {
        let name = setting.split_once('=').map_or("", |(name, _)| name);
        let why = format!("its environment lacks the {name} of the set-up");
        return Ok(Some(if host.has_systemd() {
            Lack::Old(why)
        } else {
            Lack::Variable(why, setting)
        }));
    }
    if is_builds_only {
        let sets = |word: &String| word.starts_with(&format!("{VARIABLE}="));
        let is_other = version.is_none_or(|it| it >= KNOWS_VARIABLE) && words.iter().any(sets);
        let why = || format!("its environment has {VARIABLE}, which wins over PATH");
        return Ok(is_other.then(|| Lack::Old(why())));
    }
    lacks_default(host, &service, process)
}

/// Returns whether the default runtime of the running dockerd is another than synconce's.
fn lacks_default(
    host: &Host,
    service: &Service,
    process: &DaemonProcess,
) -> Result<Option<Lack>, Error> {
    let unknown = |why: String| {
        let ask = "docker info --format '{{.DefaultRuntime}}'";
        Ok(Some(Lack::Unknown(format!("its default runtime is not known: {why}; ask it: {ask}"))))
    };
    let Some(socket) = socket(host, service, process)? else {
        return unknown("it serves no unix socket".to_owned());
    };
    match api::default_runtime(&socket) {
        Ok(runtime) if runtime == RUNTIME_NAME => Ok(None),
        Ok(other) => Ok(Some(Lack::Old(format!("its default runtime is {other}")))),
        Err(why) => unknown(why),
    }
}

/// Returns the socket at which `process` answers; `None` if it serves none.
fn socket(
    host: &Host,
    service: &Service,
    process: &DaemonProcess,
) -> Result<Option<PathBuf>, Error> {
    let (_, text) = host.text(&daemon_json(host, service)?)?;
    let hosts = daemon_json::hosts(&text.unwrap_or_default());
    Ok(api::socket(&process.words("cmdline").unwrap_or_default(), &hosts))
}

/// Returns what `process` still has of a set-up that was undone: this dockerd was not restarted
/// since.
///
/// # Errors
/// A unit that cannot be read.
pub(crate) fn still_has(host: &Host, process: &DaemonProcess) -> Result<Option<String>, Error> {
    let service = Service::read(host, "docker", Path::new(DROP_IN))?;
    let default = socket(host, &service, process)?.map(|socket| api::default_runtime(&socket));
    if default.is_some_and(|name| name.as_deref() == Ok(RUNTIME_NAME)) {
        return Ok(Some(format!("its default runtime is {RUNTIME_NAME}")));
    }
    let is_ours = |name: &str, value: &str| match name {
        VARIABLE => value == host.runtime(),
        "PATH" => {
            value.split(':').next().is_some_and(|it| [DIRECTORY, builds::DIRECTORY].contains(&it))
        }
        _ => false,
    };
    let words = process.words("environ").unwrap_or_default();
    let mut variables = words.iter().filter_map(|word| word.split_once('='));
    let found = variables.find(|(name, value)| is_ours(name, value));
    Ok(found.map(|(name, _)| format!("its environment has the {name} of the set-up")))
}

/// How the embedded BuildKit is given its runc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuncWay {
    /// The environment variable that names its runc.
    Variable,
    /// The first runc in PATH.
    Path,
}

fn choose(dockerd: Option<&str>, version: Option<u32>) -> (RuncWay, String) {
    let by_path = "the runc first in dockerd's PATH, which every version's BuildKit takes";
    match (dockerd, version) {
        (Some(_), Some(major)) if major >= KNOWS_VARIABLE => {
            (RuncWay::Variable, format!("dockerd {major}: its BuildKit is reached by {VARIABLE}"))
        }
        (Some(_), Some(major)) => {
            let why = format!("it knows {VARIABLE} only from v{KNOWS_VARIABLE}");
            let way = "its BuildKit is reached by the runc first in dockerd's PATH";
            (RuncWay::Path, format!("dockerd {major}: {way}, because {why}"))
        }
        (Some(path), None) => (
            RuncWay::Path,
            format!("{path} does not say its version: BuildKit is reached by {by_path}"),
        ),
        (None, _) => (
            RuncWay::Path,
            format!("without a dockerd that says its version: BuildKit is reached by {by_path}"),
        ),
    }
}

/// Returns dockerd's PATH with `directory` first.
fn path(host: &Host, service: &Service, directory: &str) -> Result<String, Error> {
    let set = service.variable("PATH");
    if let Some(said) = set.as_ref().filter(|said| said.text.contains(['%', '$', '"', '\'', '\\']))
    {
        let reason = "sets a PATH whose value only systemd knows";
        let remedy = "write the directories out, and set up again";
        return Err(said.refuse(host, reason, remedy).into());
    }
    Ok(format!("{directory}:{}", set.as_ref().map_or(DEFAULT_PATH, |said| &said.text)))
}

/// Refuses a setting that would override the drop-in file.
fn unless_overridden(host: &Host, service: &Service, name: &str) -> Result<(), Error> {
    let own = Path::new(DROP_IN).file_name();
    let is_later = |path: &Path| {
        path.extension().is_some_and(|suffix| suffix == "conf") && path.file_name() > own
    };
    if let Some(said) = service.reset().filter(|said| is_later(&said.path)) {
        let reason = format!("empties Environment=, and wins over the drop-in file {DROP_IN}");
        let remedy = "take the empty line out of it, or put it in an earlier drop-in file, and set \
                      up again";
        return Err(said.refuse(host, &reason, remedy).into());
    }
    let later = service.variable(name).filter(|said| is_later(&said.path));
    let Some(said) = service.variable_of_files(name).or(later) else { return Ok(()) };
    let reason = format!("sets {name}, and wins over the drop-in file {DROP_IN}");
    let remedy = "take the variable out of it, or put it in an earlier drop-in file, \
                  and set up again";
    Err(said.refuse(host, &reason, remedy).into())
}

/// Returns an error about containers that are recorded with the runtime `synconce`: without it
/// they could not be started again.
pub(crate) fn still_in_use(host: &Host) -> Result<Option<Error>, Error> {
    let service = Service::read(host, "docker", Path::new(DROP_IN))?;
    let (_, text) = host.text(&daemon_json(host, &service)?)?;
    // A set-up of all containers that was later made one of builds alone has left its runtime in
    // daemon.json.
    let has_runtime = text.as_deref().is_some_and(daemon_json::has_runtime);
    if builds::is_made(host) && !has_runtime {
        return Ok(None);
    }
    let data = service.flag("--data-root").and_then(|(_, value)| value);
    let data = data.or_else(|| daemon_json::data_root(&text.unwrap_or_default()));
    let data = Path::new(data.as_deref().unwrap_or(DATA));
    let remapped = host.list(data, "")?.into_iter().filter(|path| is_of_remapped_root(path));
    for data in std::iter::once(data.to_owned()).chain(remapped) {
        let refusal = still_recorded(host, &data.join("containers"))?;
        if refusal.is_some() {
            return Ok(refusal);
        }
    }
    Ok(None)
}

/// Whether `path` is the directory `UID.GID` in which dockerd with `userns-remap` has its data
/// (`setupDaemonRoot` of dockerd).
fn is_of_remapped_root(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let numbers =
        name.split_once('.').map(|(user, group)| (user.parse::<u32>(), group.parse::<u32>()));
    matches!(numbers, Some((Ok(_), Ok(_))))
}

/// Returns an error if `containers` has records of containers with the runtime `synconce`.
fn still_recorded(host: &Host, containers: &Path) -> Result<Option<Error>, Error> {
    let mut names = Vec::new();
    for container in host.list(containers, "")? {
        let path = host.resolve(&container.join("hostconfig.json"))?;
        let Ok(PathState::File(bytes, _)) = host.look(&path) else { continue };
        let config: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if config["Runtime"] == RUNTIME_NAME {
            let id = container.file_name().unwrap_or_default().to_string_lossy();
            names.push(id.chars().take(12).collect::<String>());
        }
    }
    if names.is_empty() {
        return Ok(None);
    }
    let reason = format!(
        "holds containers that are recorded with the runtime synconce, and could not be started \
         without it: {}",
        names.join(", ")
    );
    let remedy = "remove them, or make them again with --runtime runc; or give --force as well";
    Ok(Some(NotEdited::new(reason, remedy).in_file(&host.real(containers)).into()))
}
