//! dockerd with its own BuildKit, whose databases are held.

use super::engine::{
    DaemonKind, DatabaseSyncs, RunningDaemon, SeenImages, StepRootKind, spawn, succeed, terminate,
    with_end,
};
use super::fixture::{IMAGES, ImageArchives, name};
use super::hold::Hold;
use super::script::StepAct;
use super::world::World;
use crate::{Error, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_testkit::process::{self, Group};

/// The image from which all others are built.
const BASE: &str = "base:1";
/// Debian's client, by its path: another client may have no builder.
const CLIENT: &str = "/usr/bin/docker";
/// The exit code of a step whose root is not volatile.
const KEPT: u8 = 77;
/// How often an image is built until all its roots were volatile. A root in use cannot become
/// volatile; the next attempt has the layers before that root in the cache.
const ATTEMPTS: usize = 6;
/// Prints the digests of the files that an image has from its layers.
const DIGESTS: &str = "cd / && /bin/busybox find data -type f | /bin/busybox sort | \
                       /bin/busybox xargs /bin/busybox sha256sum";

/// dockerd 20.10 or later.
#[derive(Debug)]
pub(super) struct Docker {
    pub way: DatabaseSyncs,
    /// The program `synconce` of the steps.
    pub program: PathBuf,
}

struct RunningDockerd<'a> {
    engine: &'a Docker,
    world: &'a World,
    daemon: Group,
}

fn root(world: &World) -> PathBuf {
    world.disk().join("docker")
}

fn socket(world: &World) -> String {
    format!("unix://{}", world.memory().join("d").display())
}

impl DaemonKind for Docker {
    fn name(&self) -> String {
        format!("docker: {}", self.way.name())
    }

    fn keeps_images(&self) -> bool {
        true
    }

    fn hold(&self, world: &World, program: &Path) -> Hold {
        let databases = ["cache.db", "containerdmeta.db", "metadata_v2.db", "snapshots.db"];
        Hold {
            program: program.to_owned(),
            root: root(world),
            databases: databases.map(|database| format!("buildkit/{database}")).to_vec(),
            set_aside: vec!["buildkit".to_owned()],
            docker_root: Some(root(world)),
        }
    }

    fn root(&self, world: &World) -> PathBuf {
        root(world)
    }

    fn prepare(&self, world: &World, fixture: &ImageArchives) -> Result<()> {
        let DatabaseSyncs::Steps(_) = self.way else { return Ok(()) };
        world.boot()?;
        let daemon = self.launch(world)?;
        daemon.import(0, fixture)?;
        terminate(&daemon.daemon)
    }

    fn start<'a>(&'a self, world: &'a World) -> Result<Box<dyn RunningDaemon + 'a>> {
        Ok(Box::new(self.launch(world)?))
    }
}

impl Docker {
    fn launch<'a>(&'a self, world: &'a World) -> Result<RunningDockerd<'a>> {
        let memory = world.memory();
        let mut config = json!({
            "data-root": root(world), "exec-root": memory.join("x"),
            "hosts": [socket(world)], "pidfile": memory.join("pid"),
            "storage-driver": "overlay2", "cgroup-parent": world.group,
            "deprecated-key-path": memory.join("key.json"),
            "bridge": "none", "iptables": false,
        });
        let file = memory.join("daemon.json");
        let mut command = Command::new("dockerd");
        if let DatabaseSyncs::Steps(StepRootKind::Volatile | StepRootKind::Unsynced) = self.way {
            self.wrap_runtime(&memory, &mut config, &mut command)?;
        }
        fs::write(&file, config.to_string())?;
        command.env("TMPDIR", &memory).arg("--config-file").arg(file);
        let answers = || {
            let ended = process::run(self.client(world).arg("version"), Duration::from_secs(20));
            ended.is_ok_and(|ended| ended.status.success())
        };
        let daemon = spawn(&mut command, answers)?;
        Ok(RunningDockerd { engine: self, world, daemon })
    }

    /// Puts synconce before the runtime of both builders.
    fn wrap_runtime(&self, memory: &Path, config: &mut Value, daemon: &mut Command) -> Result<()> {
        let programs = memory.join("bin");
        fs::create_dir_all(&programs)?;
        for name in ["runc", "synconce-oci"] {
            let link = programs.join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(&self.program, link)?;
            }
        }
        config["runtimes"] = json!({"synconce": {"path": programs.join("synconce-oci")}});
        config["default-runtime"] = json!("synconce");
        let settings = memory.join("oci.toml");
        fs::write(&settings, "step-root = \"volatile\"\n")?;
        let path = std::env::var("PATH").unwrap_or_default();
        daemon.env("PATH", format!("{}:{path}", programs.display()));
        daemon.env("SYNCONCE_OCI_FILE", settings);
        if self.way == DatabaseSyncs::Steps(StepRootKind::Unsynced) {
            daemon.env("SYNCONCE_MUTANT", "step-root-unsynced");
        }
        Ok(())
    }

    /// Returns the instructions for one layer of an image.
    fn instructions(&self, layer: usize) -> String {
        let DatabaseSyncs::Steps(root) = self.way else {
            return format!(
                "COPY {layer} /\nRUN [\"/bin/busybox\", \"touch\", \"/tmp/{layer}\"]\n"
            );
        };
        // The step itself writes the files that are looked at.
        let mut script = format!("cd /new{layer}; busybox cp -a data/. /data; busybox rm -r data");
        if root != StepRootKind::AsMounted {
            let volatile = "busybox grep -q ' / / .*volatile' /proc/self/mountinfo";
            script += &format!("; {volatile} || exit {KEPT}");
        }
        let shell = "\"/bin/busybox\", \"sh\", \"-ec\"";
        format!("COPY {layer} /new{layer}/\nRUN [{shell}, \"{script}\"]\n")
    }

    fn client(&self, world: &World) -> Command {
        let mut command = Command::new(CLIENT);
        command.env("DOCKER_BUILDKIT", "1").env("HOME", world.memory());
        command.args(["--host", &socket(world)]);
        command
    }
}

impl RunningDockerd<'_> {
    fn docker(&self, words: &[&str]) -> Result<String> {
        let finished = succeed(self.engine.client(self.world).args(words));
        Ok(finished.map_err(|error| with_end(&self.daemon, error))?.stdout)
    }

    fn images(&self) -> Result<String> {
        self.docker(&["image", "ls", "--format", "{{.Repository}}:{{.Tag}}"])
    }

    /// Builds an image, with the cache: one step for each layer, and one that runs.
    fn build(&self, image: usize, fixture: &ImageArchives) -> Result<()> {
        self.import(image, fixture)?;
        let file = self.world.memory().join("Dockerfile");
        let mut text = format!("FROM {BASE}\n");
        for layer in fixture.own_layers() {
            text += &self.engine.instructions(layer);
        }
        fs::write(&file, text)?;
        let context = fixture.context(image);
        let mut client = self.engine.client(self.world);
        // Every other image of a build is by the classic builder.
        if matches!(self.engine.way, DatabaseSyncs::Steps(_)) && image % 2 == 1 {
            client.env("DOCKER_BUILDKIT", "0").arg("build");
        } else {
            client.args(["build", "--progress", "plain"]);
        }
        client.args(["--network", "none", "--tag", &name(image), "--file"]).arg(&file);
        client.arg(context);
        let mut attempts = 0;
        loop {
            let built = succeed(&mut client).map(drop);
            let is_kept = |error: &Error| error.to_string().contains(&format!("code: {KEPT}"));
            attempts += 1;
            if attempts == ATTEMPTS || !built.as_ref().is_err_and(is_kept) {
                return built.map_err(|error| with_end(&self.daemon, error));
            }
        }
    }

    /// Imports the image from which all others are built.
    fn import(&self, image: usize, fixture: &ImageArchives) -> Result<()> {
        if !self.images()?.lines().any(|line| line == BASE) {
            let archive = fixture.layer_archive(image, 0);
            self.docker(&["import", &archive.to_string_lossy(), BASE])?;
        }
        Ok(())
    }

    fn run(&self, options: &[&str], image: usize, script: &str) -> Result<String> {
        let (own, name) = (["run", "--network", "none"], name(image));
        self.docker(&[&own, options, &[&name, "/bin/busybox", "sh", "-c", script]].concat())
    }

    /// Notes images that do not run, or whose files are not those of their layers.
    fn look_at(&self, image: usize, fixture: &ImageArchives, faults: &mut Vec<String>) {
        match self.run(&["--rm"], image, DIGESTS) {
            Err(error) => faults.push(format!("image {image}: {error}")),
            Ok(found) => {
                let expected = &fixture.digests[image];
                let wrong = expected.lines().find(|line| !found.lines().any(|has| has == *line));
                if found != *expected {
                    faults.push(format!("image {image}: {wrong:?} is not found"));
                }
            }
        }
    }
}

impl RunningDaemon for RunningDockerd<'_> {
    fn act(&self, act: StepAct, fixture: &ImageArchives) -> Result<()> {
        match act {
            StepAct::Add(image) => self.build(image, fixture),
            StepAct::Start(image) => {
                self.run(&["--detach"], image, "while :; do echo x >/tmp/x; done").map(drop)
            }
            StepAct::End => {
                for id in self.docker(&["ps", "--all", "--quiet"])?.split_whitespace() {
                    self.docker(&["rm", "--force", id])?;
                }
                Ok(())
            }
            StepAct::Remove(image) => {
                self.docker(&["image", "rm", "--force", &name(image)]).map(drop)
            }
            StepAct::Collect => self.docker(&["builder", "prune", "--all", "--force"]).map(drop),
        }
    }

    fn examine(&self, fixture: &ImageArchives) -> Result<SeenImages> {
        let mut seen = SeenImages::default();
        let listed = self.images()?;
        for image in 0..IMAGES {
            if listed.lines().any(|line| line == name(image)) {
                seen.listed.insert(image);
                self.look_at(image, fixture, &mut seen.faults);
            }
        }
        if let Err(error) = self.docker(&["system", "df"]) {
            match self.engine.way {
                DatabaseSyncs::Steps(_) => seen.strays.push(error.to_string()),
                _ => seen.faults.push(error.to_string()),
            }
        }
        Ok(seen)
    }

    fn stop(self: Box<Self>) -> Result<()> {
        terminate(&self.daemon)
    }
}
