//! dockerd: the databases of its own BuildKit, which are a cache. Its volumes and networks are
//! not, so their databases keep their syncs.

use super::description::Description;
use crate::docker::{PLACES, daemon_json};
use crate::engine::{Engine, HeldDaemon};
use crate::error::{Error, NotEdited};
use crate::held::place::{Configured, place};
use crate::host::Host;
use crate::json::{parse, text_member};
use crate::plan::Plan;
use crate::systemd::Service;
use crate::text::without_mark;
use jsonc_parser::ast::Value;
use std::path::{Path, PathBuf};

const DATA: &str = "/var/lib/docker";
const COST: &str = "docker build has no cache: every step is run again; images and containers stay";
/// Databases of every version. The layers are in dockerd's own store.
const LAYERS: [&str; 4] = ["cache.db", "containerdmeta.db", "metadata_v2.db", "snapshots.db"];
/// The history of builds, since 24.0.
const HISTORY: &str = "history.db";
const HAS_HISTORY: u32 = 24;
/// Databases with the containerd image store, whose layers are in containerd.
const IMAGE_STORE: [&str; 2] = ["cache.db", "history_c8d.db"];
const WORKERS: &str = "containerd-";

/// Describes the hold of dockerd's BuildKit.
pub(super) fn describe(host: &Host, plan: &mut Plan) -> Result<Description, Error> {
    let root = root(host)?;
    let buildkit = root.join("buildkit");
    let workers = workers(host, &buildkit)?;
    let mut held: Vec<PathBuf> = Vec::new();
    let has_layers = workers.is_empty() || host.exists(&buildkit.join("snapshots.db"));
    if has_layers {
        held.extend(LAYERS.map(|name| buildkit.join(name)));
        let history = buildkit.join(HISTORY);
        if host.exists(&history) || has_history(host) {
            held.push(history);
        }
    }
    if !workers.is_empty() {
        held.extend(IMAGE_STORE.map(|name| buildkit.join(name)));
        held.extend(workers.iter().map(|worker| worker.join("metadata_v2.db")));
        plan.notes.push(
            "this dockerd uses the containerd image store: after a wipe, containerd keeps the \
             layers of the old build cache"
                .to_owned(),
        );
    }
    held.sort();
    held.dedup();
    Ok(Description {
        daemon: HeldDaemon::Docker,
        engine: Engine::Held(HeldDaemon::Docker),
        directories: vec![root.clone()],
        held,
        set_aside: vec![buildkit],
        cost: COST,
        docker_root: has_layers.then_some(root),
    })
}

/// Returns the directory of dockerd's data.
fn root(host: &Host) -> Result<PathBuf, Error> {
    let service = Service::read(host, "docker", Path::new(""))?;
    service.check_program(host, "dockerd")?;
    let file = daemon_json(host, &service)?;
    let (resolved, text) = host.text(&file)?;
    let text = text.unwrap_or_default();
    let in_file = |fault: NotEdited| Error::from(fault.in_file(&host.real(&resolved)));
    let remapped = |reason: &str| {
        let remedy = "keep the syncs of this dockerd; its data is in a directory of the user's";
        NotEdited::new(reason, remedy)
    };
    if let Some((said, _)) = service.flag("--userns-remap") {
        let fault = remapped("gives dockerd --userns-remap").on_line(said.line);
        return Err(fault.in_file(&host.real(&said.path)).into());
    }
    let settings = settings(without_mark(&text)).map_err(in_file)?;
    if let Some((user, line)) = &settings.remapped
        && !user.is_empty()
    {
        return Err(in_file(remapped("has \"userns-remap\"").on_line(*line)));
    }
    let configured = settings.data_root.map(|(directory, line)| Configured {
        directory,
        file: host.real(&resolved),
        line: Some(line),
    });
    place(host, &service, &["--data-root", "--graph", "-g"], configured, DATA)
}

/// What matters here in daemon.json, each with its line.
#[derive(Default)]
struct DaemonSettings {
    data_root: Option<(String, usize)>,
    remapped: Option<(String, usize)>,
}

fn settings(text: &str) -> Result<DaemonSettings, NotEdited> {
    let repair = "repair the file; dockerd does not start with it either";
    let value = parse(text)?;
    let object = match &value {
        None => return Ok(DaemonSettings::default()),
        Some(Value::Object(object)) => object,
        Some(_) => return Err(NotEdited::new("is no JSON object", repair).on_line(1)),
    };
    let named = |name| text_member(text, object, name);
    Ok(DaemonSettings { data_root: named("data-root")?, remapped: named("userns-remap")? })
}

/// Returns the directories of BuildKit's containerd workers.
fn workers(host: &Host, buildkit: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_worker = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(WORKERS) && host.is_directory(path)
    };
    Ok(host.list(buildkit, "")?.into_iter().filter(is_worker).collect())
}

fn has_history(host: &Host) -> bool {
    let version = host.version(host.first_executable(&PLACES));
    version.is_some_and(|(major, _)| major >= HAS_HISTORY)
}

/// Returns whether the system has a dockerd.
pub(super) fn has_dockerd(host: &Host) -> bool {
    host.first_executable(&PLACES).is_some() || super::units::is_usable(host, "docker")
}

/// Returns whether the directory of dockerd's data shows that dockerd keeps its images in
/// containerd.
pub(super) fn is_image_store(host: &Host) -> bool {
    // The set-up of containerd does not fail because of a dockerd that cannot be set up.
    let workers = root(host).and_then(|root| workers(host, &root.join("buildkit")));
    workers.is_ok_and(|workers| !workers.is_empty())
}
