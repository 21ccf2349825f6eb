//! containerd, with its own client.

use super::engine::{
    DaemonKind, DatabaseSyncs, RunningDaemon, SeenImages, spawn, succeed, terminate,
};
use super::fixture::{IMAGES, ImageArchives, content, name, sha256};
use super::hold::Hold;
use super::script::StepAct;
use super::world::World;
use crate::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use synconce_probe::architecture::architecture_of_images;
use synconce_testkit::manifest::{Manifest, diff};
use synconce_testkit::process::{self, Group};

/// How many differences of a snapshot are shown.
const SHOWN: usize = 2;

const DATABASES: [&str; 3] = [
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
    "io.containerd.snapshotter.v1.erofs/metadata.db",
];
const SET_ASIDE: [&str; 5] = [
    "io.containerd.metadata.v1.bolt",
    "io.containerd.content.v1.content",
    "io.containerd.grpc.v1.cri",
    "io.containerd.sandbox.controller.v1.shim",
    "io.containerd.snapshotter.v1.*",
];
/// How often the content of a snapshot is read until it is right.
const ATTEMPTS: usize = 4;

/// containerd with one of its snapshotters.
#[derive(Debug)]
pub(super) struct Containerd {
    /// The directory of containerd, ctr, the shim and mkfs.erofs.
    pub programs: PathBuf,
    pub snapshotter: &'static str,
    pub way: DatabaseSyncs,
}

struct RunningContainerd<'a> {
    engine: &'a Containerd,
    world: &'a World,
    daemon: Group,
}

impl DaemonKind for Containerd {
    fn name(&self) -> String {
        format!("containerd {}: {}", self.snapshotter, self.way.name())
    }

    fn hold(&self, world: &World, program: &Path) -> Hold {
        Hold {
            program: program.to_owned(),
            root: root(world),
            // As `synconce setup containerd` writes them. The mount manager's database is in
            // memory.
            databases: DATABASES.iter().map(ToString::to_string).collect(),
            set_aside: SET_ASIDE.map(str::to_owned).to_vec(),
            docker_root: None,
        }
    }

    fn root(&self, world: &World) -> PathBuf {
        root(world)
    }

    fn start<'a>(&'a self, world: &'a World) -> Result<Box<dyn RunningDaemon + 'a>> {
        let config = world.memory().join("containerd.toml");
        fs::write(&config, self.config(world))?;
        let mut command = self.program("containerd");
        command.arg("--config").arg(config);
        let limit = std::time::Duration::from_secs(20);
        let answers = || {
            let mut version = self.client(world);
            process::run(version.arg("version"), limit).is_ok_and(|ended| ended.status.success())
        };
        let daemon = spawn(&mut command, answers)?;
        let running = RunningContainerd { engine: self, world, daemon };
        running.plugins()?;
        Ok(Box::new(running))
    }
}

/// Returns a new name of a view or a container. runc keeps the names of killed containers, in a
/// directory that all worlds share.
fn next(prefix: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("{prefix}{}", COUNT.fetch_add(1, SeqCst))
}

fn root(world: &World) -> PathBuf {
    world.disk().join("containerd")
}

fn socket(world: &World) -> PathBuf {
    world.memory().join("c")
}

impl Containerd {
    /// The configuration without the plugins of Kubernetes, which need a network.
    fn config(&self, world: &World) -> String {
        let (root, socket) = (root(world), socket(world));
        let state = world.memory().join("s");
        let mut text = format!(
            "version = 3\nroot = {root:?}\nstate = {state:?}\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\", \
             \"io.containerd.cri.v1.images\", \"io.containerd.cri.v1.runtime\"]\n\
             [grpc]\naddress = {socket:?}\n[ttrpc]\naddress = \"{0}.t\"\n\
             [plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true\n",
            socket.display()
        );
        for (snapshotter, differ) in [("overlayfs", "walking"), ("erofs", "erofs")] {
            text += &format!(
                "[[plugins.\"io.containerd.transfer.v1.local\".unpack_config]]\n\
                 platform = \"linux/{}\"\nsnapshotter = \"{snapshotter}\"\n\
                 differ = \"{differ}\"\n",
                architecture_of_images()
            );
        }
        text += "[plugins.\"io.containerd.service.v1.diff-service\"]\n\
                 default = [\"erofs\", \"walking\"]\n";
        if self.way == DatabaseSyncs::SyncFs {
            text += "sync_fs = true\n";
        }
        if self.way.leaves_out() {
            text += "[plugins.\"io.containerd.metadata.v1.bolt\"]\nno_sync = true\n";
        }
        text
    }

    fn program(&self, name: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(self.programs.join(name));
        command.env("PATH", format!("{}:{path}", self.programs.display()));
        command.env("CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS", "1");
        command
    }

    fn client(&self, world: &World) -> Command {
        let mut command = self.program("ctr");
        command.arg("--address").arg(socket(world));
        command
    }
}

impl RunningContainerd<'_> {
    fn ctr(&self, words: &[&str]) -> Result<String> {
        Ok(succeed(self.engine.client(self.world).args(words))?.stdout)
    }

    /// Fails if the databases' plugins did not load: containerd starts without them.
    fn plugins(&self) -> Result<()> {
        let text = self.ctr(&["plugins", "ls"])?;
        for wanted in ["snapshotter.v1", "metadata.v1", "content.v1"] {
            let is_it = |words: &[&str]| {
                words.first().is_some_and(|kind| kind.ends_with(wanted))
                    && (wanted != "snapshotter.v1"
                        || words.get(1) == Some(&self.engine.snapshotter))
            };
            let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let found = lines.into_iter().find(|words| is_it(words)).unwrap_or_default();
            if found.last() != Some(&"ok") {
                let log = self.daemon.stderr()?;
                let why = log.lines().find(|line| line.contains("failed to load plugin"));
                return Err(format!("plugin {wanted}: {found:?} {why:?}").into());
            }
        }
        Ok(())
    }

    fn add(&self, image: usize, fixture: &ImageArchives) -> Result<()> {
        let archive = fixture.archive(image);
        let archive = archive.to_string_lossy();
        let import = ["images", "import", "--snapshotter", self.engine.snapshotter];
        let sync_fs: &[&str] =
            if self.engine.way == DatabaseSyncs::SyncFs { &["--sync-fs", "--local"] } else { &[] };
        self.ctr(&[&import, sync_fs, &[&*archive]].concat()).map(drop)
    }

    fn begin(&self, image: usize) -> Result<()> {
        let (id, image) = (next("c"), name(image));
        let group = format!("{}/{id}", self.world.group);
        let script = "i=0; while :; do i=$((i+1)); echo $i >/tmp/$((i%50)); done";
        let words = ["run", "--detach", "--snapshotter", self.engine.snapshotter, "--cgroup"];
        let container = [&*group, &*image, &*id, "/bin/busybox", "sh", "-c", script];
        self.ctr(&[&words[..], &container].concat()).map(drop)
    }

    fn end(&self) -> Result<()> {
        for id in self.ctr(&["tasks", "ls", "--quiet"])?.split_whitespace() {
            self.ctr(&["tasks", "rm", "--force", id])?;
        }
        for id in self.ctr(&["containers", "ls", "--quiet"])?.split_whitespace() {
            self.ctr(&["containers", "rm", id])?;
        }
        Ok(())
    }

    /// Notes blobs whose content is not that of their name.
    fn blobs(&self, faults: &mut Vec<String>) -> Result<()> {
        let blobs = root(self.world).join("io.containerd.content.v1.content/blobs");
        let list = || self.ctr(&["content", "ls", "--quiet"]);
        let mut wrong = Vec::new();
        for digest in list()?.split_whitespace() {
            match fs::read(blobs.join(digest.replace(':', "/"))) {
                Ok(bytes) if sha256(&bytes) == digest => {}
                Ok(bytes) => {
                    wrong.push((digest.to_owned(), format!("{} wrong bytes", bytes.len())));
                }
                Err(error) => wrong.push((digest.to_owned(), error.to_string())),
            }
        }
        if !wrong.is_empty() {
            // A collection of garbage may have removed the blob meanwhile.
            let listed = list()?;
            wrong.retain(|(digest, _)| listed.contains(&**digest));
            faults.extend(wrong.iter().map(|(digest, what)| format!("blob {digest}: {what}")));
        }
        Ok(())
    }

    /// Notes images that are listed and not complete.
    fn images(&self, seen: &mut SeenImages) -> Result<()> {
        let check = ["images", "check", "--snapshotter", self.engine.snapshotter];
        for line in self.ctr(&check)?.lines().skip(1) {
            let reference = line.split_whitespace().next().unwrap_or_default();
            let Some(image) = (0..IMAGES).find(|image| name(*image) == reference) else {
                seen.faults.push(format!("an unknown image: {line}"));
                continue;
            };
            seen.listed.insert(image);
            if !line.contains(" complete (") {
                seen.faults.push(format!("image: {line}"));
            }
        }
        Ok(())
    }

    fn snapshots(&self, words: &[&str]) -> Result<String> {
        let snapshots = ["snapshots", "--snapshotter", self.engine.snapshotter];
        self.ctr(&[&snapshots[..], words].concat())
    }

    /// Notes committed snapshots whose content is not that of their layers.
    fn committed(&self, fixture: &ImageArchives, faults: &mut Vec<String>) -> Result<()> {
        let listed = self.snapshots(&["ls"])?;
        for line in listed.lines().filter(|line| line.trim_end().ends_with("Committed")) {
            let chain = line.split_whitespace().next().unwrap_or_default();
            let short = chain.get(..19).unwrap_or(chain);
            let Some(expected) = fixture.chains.get(chain) else {
                faults.push(format!("an unknown snapshot: {line}"));
                continue;
            };
            if let Some(fault) = self.fault_of(chain, expected)? {
                faults.push(format!("snapshot {short}: {fault}"));
            }
        }
        Ok(())
    }

    /// Returns what is wrong with a committed snapshot. Nothing refers to a view or to its mount,
    /// so a collection of garbage may remove either while it is read. What is wrong each time is
    /// wrong on the disk.
    fn fault_of(&self, chain: &str, expected: &Manifest) -> Result<Option<String>> {
        let mut fault = None;
        for _ in 0..ATTEMPTS {
            fault = match self.view(chain) {
                Ok(found) => match diff(expected, &found) {
                    differences if differences.is_empty() => return Ok(None),
                    differences => {
                        let shown = differences.iter().take(SHOWN).map(ToString::to_string);
                        let first = shown.collect::<Vec<_>>().join("; ");
                        Some(format!("{} wrong: {first}", differences.len()))
                    }
                },
                Err(error) => Some(error.to_string()),
            };
            if !self.snapshots(&["ls"])?.contains(chain) {
                return Ok(None);
            }
        }
        Ok(fault)
    }

    /// Returns the content of a committed snapshot, as containerd mounts it.
    fn view(&self, chain: &str) -> Result<Manifest> {
        let view = next("view");
        self.snapshots(&["view", &view, chain])?;
        // "mount -t bind SOURCE /mnt -o rbind": the daemon has mounted the view at SOURCE.
        let shown = self.snapshots(&["mounts", "--temp", "/mnt", &view])?;
        content(Path::new(shown.split_whitespace().nth(3).ok_or("no mount is shown")?))
    }
}

impl RunningDaemon for RunningContainerd<'_> {
    fn act(&self, act: StepAct, fixture: &ImageArchives) -> Result<()> {
        match act {
            StepAct::Add(image) => self.add(image, fixture),
            StepAct::Start(image) => self.begin(image),
            StepAct::End => self.end(),
            StepAct::Remove(image) => self.ctr(&["images", "rm", &name(image)]).map(drop),
            // "content prune references" would remove the layers of images that are listed.
            StepAct::Collect => {
                let lease = next("lease");
                self.ctr(&["leases", "create", "--id", &lease])?;
                self.ctr(&["leases", "delete", "--sync", &lease]).map(drop)
            }
        }
    }

    fn examine(&self, fixture: &ImageArchives) -> Result<SeenImages> {
        let mut seen = SeenImages::default();
        self.images(&mut seen)?;
        self.blobs(&mut seen.faults)?;
        self.committed(fixture, &mut seen.faults)?;
        Ok(seen)
    }

    fn stop(self: Box<Self>) -> Result<()> {
        terminate(&self.daemon)
    }
}
