//! Findings about a container engine.

use super::cause::{Action, Finding, NO_UNDO, WORTH};
use crate::engine::{ContainerEngine, EmulatedImages};
use crate::measure::Layers;
use crate::place::ExaminedPlace;
use crate::units::micros;

/// Makes the store of Podman anew.
const RESET: &str = "save each volume by podman volume export VOLUME --output FILE; then podman \
                     system reset";
const RESET_UNDO: &str = "none for containers; pull and build the images again, and podman volume \
                          import VOLUME FILE";
const RESET_RISK: &str = "all images, containers and volumes of Podman are removed";
const RISK: &str = "a build that a power cut ends has to be started again";

/// The workload of figures about containerd.
pub(super) const IMPORTS_OF: &str = "imports of 20 images of 8 layers";
/// The syncs of containerd's metadata in imports of 20 images of 8 layers, rounded down: 122 an
/// image. A hold of the databases saves more, because those of the snapshotter are held, too.
pub(super) const IMPORTS: (f64, &str) = (2_400.0, "containerd syncs its metadata 2,400 times");

/// Files of the workload of copy-ups in a step (docs/guide.md, the end of a step).
const CHOWNED: f64 = 1_000.0;

/// Removes the setting that leaves the roots of build steps as the engine mounts them. TOML lets a
/// key be indented and quoted.
const VOLATILE_ROOTS: &str =
    "sed -i '/^[[:space:]]*[^#]\\{0,1\\}step-root/d' /etc/synconce/oci.toml";
/// Puts the setting back: above all tables. A step that starts meanwhile reads the old file or the
/// new one.
const PLAIN_ROOTS: &str = "{ echo 'step-root = \"as-mounted\"' && cat /etc/synconce/oci.toml; } \
                           >/etc/synconce/oci.toml.new && \
                           mv /etc/synconce/oci.toml.new /etc/synconce/oci.toml";

/// Returns the causes that the engine's storage at `place` shows. None has seconds: they depend on
/// the images.
pub(super) fn of_storage(engine: &ContainerEngine, place: &ExaminedPlace) -> Vec<Finding> {
    let driver = &*engine.storage_driver;
    let shown = engine.summary();
    let finding = |name, cause: &str, remedy: &str, risk: &str| Finding {
        name,
        seconds: None,
        workload: None,
        cause: cause.to_owned(),
        evidence: shown.clone(),
        remedy: Action::words(remedy),
        undo: Action::words("take the change back"),
        risk: risk.to_owned(),
    };
    let unseen = "images and containers of the old driver are not seen until the undo";
    let (setting, file) = match engine.name {
        "docker" => ("\"storage-driver\": \"overlay2\"", "/etc/docker/daemon.json"),
        "buildkit" => ("worker.oci.snapshotter = \"overlayfs\"", "/etc/buildkit/buildkitd.toml"),
        "containerd" => ("--snapshotter overlayfs", "the commands of the client"),
        _ => ("driver = \"overlay\"", "/etc/containers/storage.conf"),
    };
    let kernel = match place.overlay {
        // The usual place of an engine in a container.
        Some(_) => format!(
            "put {} on another file system, such as a volume: the kernel's overlay cannot keep its \
             layers on an overlay",
            place.path.display()
        ),
        None => format!("set {setting} in {file}; the kernel's overlay copies no layer"),
    };
    let mut found = Vec::new();
    if driver == "vfs" {
        let cause = "each step of a build, and each container, copies all files of its image";
        found.push(finding("vfs", cause, &kernel, unseen));
    }
    if driver == "native" {
        let cause = "each step of a build, and each container, copies all files of its image";
        found.push(finding("native", cause, &kernel, unseen));
    }
    if engine.mount_program.is_some() {
        let cause = "each access to a file of a container goes through a program";
        let name = "fuse-overlayfs";
        found.push(if driver == name {
            finding(name, cause, &kernel, unseen)
        } else {
            let words = "the kernel mounts the overlay, as a user since 5.13";
            let remedy = format!("take mount_program out of {file}; {RESET}: {words}");
            let undo = Action::Words(format!("put mount_program back; {RESET_UNDO}"));
            Finding { undo, ..finding(name, cause, &remedy, RESET_RISK) }
        });
    }
    // In a user namespace dockerd never reads upper directories, whatever the options of overlays.
    let is_rootless_docker = engine.is_rootless && engine.name == "docker";
    let compares = engine.native_diff == Some(false) && engine.mount_program.is_none();
    if compares && !is_rootless_docker {
        found.push(no_native_diff(engine));
    }
    found
}

/// Shows the options of overlays, then turns them off until the next boot. dockerd looks at them
/// when it starts.
const NATIVE_DIFF: &str = "(cd /sys/module/overlay/parameters && grep . redirect_dir metacopy && \
                           echo N | tee redirect_dir metacopy) && systemctl restart docker";
const NATIVE_DIFF_UNDO: &str = "echo Y into those of both files that had Y before, then systemctl \
                                restart docker; a boot takes the change back, too, unless a file \
                                in /etc/modprobe.d has the options";
/// With metacopy off, the kernel refuses to follow a copy without data (`ovl_lookup` in
/// fs/overlayfs/namei.c).
const NATIVE_DIFF_RISK: &str = "the restart stops running containers unless live-restore is on; a \
                                container that has changed owners or modes under metacopy=Y may \
                                not read these files again; a rename or a chown of what is in a \
                                lower layer copies more";

/// Returns the finding that the engine compares trees where it could read an upper directory.
fn no_native_diff(engine: &ContainerEngine) -> Finding {
    let risk = "a rename or a chown of what is in a lower layer copies more";
    let (remedy, undo, risk) = if engine.name == "docker" {
        (Action::command(NATIVE_DIFF), Action::words(NATIVE_DIFF_UNDO), NATIVE_DIFF_RISK)
    } else if engine.had_mount_program {
        let words = "to remove the marker overlay/.has-mount-program alone need not be enough: \
                     layers may have files that only the program understands";
        (Action::Words(format!("{RESET}; {words}")), Action::words(RESET_UNDO), RESET_RISK)
    } else {
        let words = "take metacopy=on and redirect_dir=on out of mountopt in \
                     /etc/containers/storage.conf, and look at both in \
                     /sys/module/overlay/parameters";
        (Action::words(words), Action::words("put the options back"), risk)
    };
    Finding {
        name: "no-native-diff",
        seconds: None,
        workload: None,
        cause: "the end of each step compares the whole root with the layers below".to_owned(),
        evidence: engine.summary(),
        remedy,
        undo,
        risk: risk.to_owned(),
    }
}

/// Returns the finding that a set-up was made, and is not in force.
pub(super) fn of_set_up(engine: &ContainerEngine) -> Option<Finding> {
    let set_up = engine.set_up.as_ref().filter(|it| it.is_made && !it.is_in_force)?;
    let name = engine.name;
    Some(Finding {
        name: "set-up-not-in-force",
        seconds: None,
        workload: None,
        cause: format!("synconce is set up for {name}, and build steps are not held"),
        evidence: set_up.lines.first().cloned().unwrap_or_default(),
        // It prints the command of each fault.
        remedy: Action::Command(format!("synconce setup {name} --check")),
        undo: Action::Command(format!("synconce setup {name} --undo")),
        risk: "none".to_owned(),
    })
}

/// Returns the finding that images are of another architecture. It has no seconds: how long
/// the same programs take without the emulator is not known.
pub(super) fn of_images(engine: &ContainerEngine) -> Option<Finding> {
    let EmulatedImages { images, emulated, first, architecture, by } =
        engine.emulated_images.as_ref()?;
    Some(Finding {
        name: "emulated",
        seconds: None,
        workload: None,
        cause: format!("an emulator runs steps and containers of {emulated} of {images} images"),
        evidence: format!("{first} is for {architecture}, and the kernel starts {by}"),
        remedy: Action::words(
            "pull the image for this machine: leave out --platform; or build on a machine of \
             that architecture",
        ),
        undo: Action::words(NO_UNDO),
        risk: "none".to_owned(),
    })
}

/// Returns the finding that build steps wait for syncs of the kernel: each file of a lower layer
/// is synced when it is copied up.
pub(super) fn of_copy_up(engine: &ContainerEngine, layers: &Layers) -> Option<Finding> {
    let name = engine.name;
    let is_in_force = engine.set_up.as_ref().is_some_and(|set_up| set_up.is_in_force);
    let is_done = is_in_force && engine.step_roots_are_volatile;
    // The others build no images, or mount the roots of build steps volatile.
    if is_done || engine.builds_are_volatile || !["docker", "buildkit"].contains(&name) {
        return None;
    }
    let (file, volatile) = (layers.file.quarter, layers.volatile.quarter);
    let seconds = CHOWNED * (file - volatile) / 1e6;
    let set_up = format!("synconce setup {name}");
    let (remedy, undo) = if !engine.can_be_set_up() {
        let copy = "COPY --chown=USER in place of RUN chown -R";
        (Action::words(copy), Action::words("not needed"))
    } else if is_in_force {
        (Action::command(VOLATILE_ROOTS), Action::command(PLAIN_ROOTS))
    } else if engine.step_roots_are_volatile {
        let undo = Action::Command(format!("{set_up} --undo"));
        (Action::Command(set_up), undo)
    } else {
        let undo = format!("{PLAIN_ROOTS} && {set_up} --undo");
        (Action::Command(format!("{set_up} && {VOLATILE_ROOTS}")), Action::Command(undo))
    };
    (seconds >= WORTH).then(|| Finding {
        name: "step-copy-up",
        seconds: Some(seconds),
        workload: Some("a chown -R of 1,000 files of a lower layer in a build step".to_owned()),
        cause: "the kernel syncs each file that it copies up, which no hold of calls reaches"
            .to_owned(),
        evidence: format!(
            "in an overlay here, a chmod of a file takes {}, and {} if the overlay is volatile",
            micros(file),
            micros(volatile)
        ),
        remedy,
        undo,
        risk: RISK.to_owned(),
    })
}

/// Returns the finding that containerd does not sync databases, which nothing makes good.
pub(super) fn of_no_sync(engine: &ContainerEngine) -> Option<Finding> {
    if engine.no_sync.is_empty() {
        return None;
    }
    let plugins = engine.no_sync.join(", ");
    Some(Finding {
        name: "no-sync",
        seconds: None,
        workload: None,
        cause: "containerd never syncs its databases, and a crash of the machine can damage them"
            .to_owned(),
        evidence: format!("no_sync is on for {plugins}"),
        remedy: Action::words(format!(
            "take no_sync of {plugins} out of the configuration of containerd; then \
             synconce setup containerd --hold"
        )),
        undo: Action::words("synconce setup containerd --hold --undo, and put no_sync back"),
        risk: "after a crash containerd starts empty: images are pulled again".to_owned(),
    })
}

/// Turns the finding about slow syncs into a finding about the engine's build steps.
pub(super) fn of_steps(engine: &ContainerEngine, finding: Finding) -> Finding {
    let name = engine.name;
    if name == "containerd" {
        return Finding {
            workload: Some(IMPORTS_OF.to_owned()),
            remedy: Action::command("synconce setup containerd --hold"),
            undo: Action::command("synconce setup containerd --hold --undo"),
            risk: "after a crash containerd starts empty: images are pulled again".to_owned(),
            ..finding
        };
    }
    if !engine.can_be_set_up() {
        return Finding {
            workload: finding.workload.map(|workload| format!("{workload} in a build step")),
            remedy: Action::words(format!(
                "hold the steps in the Dockerfile: no set-up reaches a rootless {name}"
            )),
            undo: Action::words("take the lines out of the Dockerfile"),
            risk: RISK.to_owned(),
            ..finding
        };
    }
    let made = engine.set_up.as_ref().is_some_and(|set_up| set_up.is_made);
    let words = if made { format!("{name} --check") } else { name.to_owned() };
    Finding {
        workload: finding.workload.map(|workload| format!("{workload} in a build step")),
        remedy: Action::Command(format!("synconce setup {words}")),
        undo: Action::Command(format!("synconce setup {name} --undo")),
        risk: RISK.to_owned(),
        ..finding
    }
}

/// Returns the command that frees space of the engine.
pub(super) fn prune(engine: &ContainerEngine) -> String {
    match engine.name {
        "docker" => "docker builder prune --filter until=168h".to_owned(),
        "buildkit" => "buildctl prune --keep-duration 168h".to_owned(),
        "containerd" => "ctr --namespace NAMESPACE images rm IMAGE".to_owned(),
        name => format!("{name} image prune"),
    }
}
