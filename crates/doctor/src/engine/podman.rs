//! Podman, by `podman info`: there is no daemon to ask.

use super::images::{EmulatedImages, Emulators, ImageOf};
use super::{ContainerEngine, layers};
use crate::error::Error;
use crate::host;
use crate::program::stdout_of;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use synconce_sys::reason;

const PROGRAM: &str = "podman";
/// The option of a store that names its mount program.
const MOUNT_PROGRAM: &str = "overlay.mount_program";
/// The file that says `true` in a store whose roots such a program has mounted. Podman then
/// compares whole trees, also without the program.
const HAD_MOUNT_PROGRAM: &str = "overlay/.has-mount-program";

/// The output of `podman info --format json`, as far as it is used.
#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    host: PodmanHost,
    store: PodmanStore,
    version: PodmanVersion,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodmanHost {
    /// Such as `amd64`.
    arch: String,
    /// `podman` is the client of a service, such as one of another host.
    service_is_remote: bool,
    security: Security,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Security {
    rootless: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodmanStore {
    graph_driver_name: String,
    graph_root: PathBuf,
    #[serde(default)]
    graph_options: Option<Map<String, Value>>,
    #[serde(default)]
    graph_status: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PodmanVersion {
    version: String,
}

/// Asks the podman in the PATH about the storage of this user.
///
/// # Errors
/// podman is not installed, fails, or is the client of a service.
pub fn ask_podman() -> Result<ContainerEngine, Error> {
    let failed = |error| Error::Engine { program: PROGRAM, at: None, error };
    let mut command = Command::new(PROGRAM);
    let said = stdout_of(command.args(["info", "--format", "json"])).map_err(failed)?;
    let info: Info = serde_json::from_slice(&said).map_err(|error| failed(error.into()))?;
    if info.host.service_is_remote {
        return Err(Error::Elsewhere(PROGRAM));
    }
    let (emulated, native) = (Emulators::of_kernel(), info.host.arch.clone());
    let mut engine = engine(info, &host::Host::read());
    let emulated = emulated.map(|it| emulated_images(&it, &native)).transpose();
    match emulated {
        Ok(found) => engine.emulated_images = found.flatten(),
        Err(error) => engine.add_not_measured("architectures of images", reason(&error)),
    }
    Ok(engine)
}

/// Asks for the architectures of images; `native` is that of this machine.
fn emulated_images(emulators: &Emulators, native: &str) -> io::Result<Option<EmulatedImages>> {
    let list = ["images", "--quiet", "--no-trunc"];
    let ids = text_of(Command::new(PROGRAM).args(list))?;
    // An image is listed once for each of its names.
    let ids: BTreeSet<_> = ids.lines().collect();
    if ids.is_empty() {
        return Ok(None);
    }
    let format = "{{.Architecture}} {{.Id}} {{range .RepoTags}}{{.}} {{end}}";
    let inspect = ["image", "inspect", "--format", format];
    let lines = text_of(Command::new(PROGRAM).args(inspect).args(ids))?;
    let image = |line: &str| {
        let mut words = line.split(' ').filter(|word| !word.is_empty());
        let architecture = words.next()?.to_owned();
        let id = words.next()?;
        Some(ImageOf { name: words.next().unwrap_or(id).to_owned(), architecture })
    };
    let all: Vec<_> = lines.lines().filter_map(image).collect();
    Ok(emulators.run_among(&all, native))
}

fn text_of(command: &mut Command) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&stdout_of(command)?).into_owned())
}

/// Whether `podman build` of `version` asks the kernel of `host` for volatile overlays.
fn builds_are_volatile(version: &str, host: &host::Host) -> bool {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // Buildah 1.20, and Linux 5.10.
    version >= (3, 1) && host.version() >= (5, 10)
}

fn engine(info: Info, host: &host::Host) -> ContainerEngine {
    let PodmanStore { graph_driver_name: driver, graph_root, graph_options, graph_status } =
        info.store;
    let status = |name: &str| Some(graph_status.as_ref()?.get(name)?.as_str()?.to_owned());
    let mount_program = graph_options.as_ref().and_then(|options| {
        let program = options.get(MOUNT_PROGRAM)?;
        // An object since Podman 2; a path before.
        let program = program.get("Executable").unwrap_or(program);
        Some(program.as_str()?.to_owned())
    });
    ContainerEngine {
        is_rootless: info.host.security.rootless,
        layers: layers(&graph_root, &driver),
        had_mount_program: fs::read(graph_root.join(HAD_MOUNT_PROGRAM))
            .is_ok_and(|text| text == b"true"),
        builds_are_volatile: driver == "overlay"
            && mount_program.is_none()
            && builds_are_volatile(&info.version.version, host),
        mount_program,
        backing: status("Backing Filesystem"),
        native_diff: status("Native Overlay Diff").map(|value| value == "true"),
        ..ContainerEngine::new("podman", info.version.version, graph_root, driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(kernel: &str) -> host::Host {
        host::Host { kernel: kernel.to_owned(), cpus: 1, ..host::Host::default() }
    }

    #[test]
    fn builds_are_volatile_since_podman_3_1_and_linux_5_10() {
        for (podman, kernel, wanted) in [
            ("3.0.1", "5.10.0-28-amd64", false),
            ("3.1.0", "5.10.0-28-amd64", true),
            ("3.1.0", "5.4.0", false),
            ("4.3.1", "6.1.0", true),
            ("5.0.0-dev", "6.1.0", true),
            ("", "6.1.0", false),
        ] {
            assert_eq!(builds_are_volatile(podman, &host(kernel)), wanted, "{podman} {kernel}");
        }
    }

    #[test]
    fn a_mount_program_takes_the_place_of_the_kernel() {
        let text = r#"{"store": {"graphDriverName": "overlay", "graphRoot": "/none", "graphOptions":
            {"overlay.mount_program": {"Executable": "/usr/bin/fuse-overlayfs", "Package": "x"}},
            "graphStatus": {"Backing Filesystem": "extfs", "Native Overlay Diff": "false"}},
            "version": {"Version": "4.3.1"}}"#;
        let engine = engine(serde_json::from_str(text).unwrap(), &host("6.1.0"));
        assert_eq!(engine.mount_program.as_deref(), Some("/usr/bin/fuse-overlayfs"));
        assert!(!engine.builds_are_volatile && engine.native_diff == Some(false));
        let shown = "podman 4.3.1: overlay on extfs by /usr/bin/fuse-overlayfs, no native diff";
        assert_eq!(engine.summary(), shown);
    }
}
