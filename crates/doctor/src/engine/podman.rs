//! Podman, by `podman info`: there is no daemon to ask.

use super::{Engine, layers};
use crate::error::Error;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const PROGRAM: &str = "podman";
/// The option of a store that names its mount program.
const MOUNT_PROGRAM: &str = "overlay.mount_program";

/// The output of `podman info --format json`, as far as it is used.
#[derive(Deserialize)]
struct Info {
    store: Store,
    version: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Store {
    graph_driver_name: String,
    graph_root: PathBuf,
    #[serde(default)]
    graph_options: Option<Map<String, Value>>,
    #[serde(default)]
    graph_status: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Version {
    version: String,
}

/// Asks the podman in the PATH about the storage of this user.
///
/// # Errors
/// podman is not installed, or fails.
pub fn ask_podman() -> Result<Engine, Error> {
    let failed = |error| Error::Engine { program: PROGRAM, at: None, error };
    let mut command = Command::new(PROGRAM);
    command.args(["info", "--format", "json"]).stdin(Stdio::null());
    let said = command.output().map_err(failed)?;
    if !said.status.success() {
        let text = String::from_utf8_lossy(&said.stderr);
        let last = text.lines().next_back().unwrap_or("it fails without a message");
        return Err(failed(io::Error::other(last.to_owned())));
    }
    let info: Info = serde_json::from_slice(&said.stdout).map_err(|error| failed(error.into()))?;
    Ok(engine(info))
}

fn engine(info: Info) -> Engine {
    let Store { graph_driver_name: driver, graph_root, graph_options, graph_status } = info.store;
    let status = |name: &str| Some(graph_status.as_ref()?.get(name)?.as_str()?.to_owned());
    let mount_program = graph_options.as_ref().and_then(|options| {
        let program = options.get(MOUNT_PROGRAM)?;
        // An object since Podman 2; a path before.
        let program = program.get("Executable").unwrap_or(program);
        Some(program.as_str()?.to_owned())
    });
    Engine {
        name: "podman",
        version: info.version.version,
        layers: layers(&graph_root, &driver),
        data_root: graph_root,
        builds_are_volatile: driver == "overlay" && mount_program.is_none(),
        storage_driver: driver,
        mount_program,
        backing: status("Backing Filesystem"),
        native_diff: status("Native Overlay Diff").map(|value| value == "true"),
        build_cache: None,
        set_up: None,
        unknown: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_program_takes_the_place_of_the_kernel() {
        let text = r#"{"store": {"graphDriverName": "overlay", "graphRoot": "/none", "graphOptions":
            {"overlay.mount_program": {"Executable": "/usr/bin/fuse-overlayfs", "Package": "x"}},
            "graphStatus": {"Backing Filesystem": "extfs", "Native Overlay Diff": "false"}},
            "version": {"Version": "4.3.1"}}"#;
        let engine = engine(serde_json::from_str(text).unwrap());
        assert_eq!(engine.mount_program.as_deref(), Some("/usr/bin/fuse-overlayfs"));
        assert!(!engine.builds_are_volatile && engine.native_diff == Some(false));
        let shown = "podman 4.3.1: overlay on extfs by /usr/bin/fuse-overlayfs, no native diff";
        assert_eq!(engine.summary(), shown);
    }
}
