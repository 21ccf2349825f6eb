//! buildkitd, which executes steps itself or through containerd.

use super::containerd::{ADDRESS, Containerd};
use super::{
    ImageBuilder, SOCKET, Site, USERS, assert_steps_bare, assert_steps_held, prepare, stop,
};
use std::path::PathBuf;
use std::process::Command;
use synconce_testkit::harness::{Need, engine};
use synconce_testkit::harness::{Place, eventually, finish};
use synconce_testkit::process::{Finished, Group};

pub const NEEDS: [Need; 4] = [
    Need::Engine("buildkitd"),
    Need::Engine("buildctl"),
    Need::Program("runc", "runc"),
    Need::Program("cc", "gcc libc6-dev"),
];
pub const NEEDS_CONTAINERD: [Need; 6] = [
    NEEDS[0],
    NEEDS[1],
    NEEDS[2],
    NEEDS[3],
    Need::Engine("containerd"),
    Need::Engine("containerd-shim-runc-v2"),
];

/// The program that starts the containers.
#[derive(Clone, Copy, Debug)]
pub enum Worker {
    /// buildkitd itself calls the runtime.
    Oci,
    /// The containerd at [`ADDRESS`], in this namespace.
    Containerd(&'static str),
}

/// The default namespace of the containerd worker.
pub const ON_CONTAINERD: Worker = Worker::Containerd("buildkit");

/// A running buildkitd.
pub struct BuildKit<'a> {
    site: &'a Site<'a>,
    daemon: Group,
}

impl<'a> BuildKit<'a> {
    pub fn start(site: &'a Site<'a>, worker: Worker) -> Self {
        Self::with_snapshotter(site, worker, "native")
    }

    pub fn with_snapshotter(site: &'a Site<'a>, worker: Worker, snapshotter: &str) -> Self {
        let runtime = site.runtime();
        let common = format!(
            "enabled = true\nsnapshotter = {snapshotter:?}\nnetworkMode = \"host\"\n\
             defaultCgroupParent = {:?}\n",
            site.cgroups.parent()
        );
        let config = match worker {
            Worker::Oci => format!(
                "[worker.containerd]\nenabled = false\n\
                 [worker.oci]\n{common}binary = {runtime:?}\n"
            ),
            Worker::Containerd(namespace) => format!(
                "[worker.oci]\nenabled = false\n\
                 [worker.containerd]\n{common}address = {ADDRESS:?}\nnamespace = {namespace:?}\n\
                 [worker.containerd.runtime]\nname = \"io.containerd.runc.v2\"\n\
                 [worker.containerd.runtime.options]\nBinaryName = {runtime:?}\n"
            ),
        };
        let config =
            format!("insecure-entitlements = [\"security.insecure\", \"network.host\"]\n{config}");
        Self::spawned(site, program(site, "buildkitd"), &config)
    }

    /// Starts it in the user and mount namespaces of the process `namespaces`.
    pub fn rootless(site: &'a Site<'a>, namespaces: u32) -> Self {
        let config = format!(
            "[worker.containerd]\nenabled = false\n\
             [worker.oci]\nenabled = true\nrootless = true\nsnapshotter = \"overlayfs\"\n\
             networkMode = \"host\"\nbinary = {:?}\n",
            site.runtime()
        );
        let mut command = site.command("nsenter");
        command.args(["--user", "--mount", "--target", &namespaces.to_string()]);
        command.arg(engine("buildkitd").unwrap()).arg("--rootless");
        Self::spawned(site, command, &config)
    }

    fn spawned(site: &'a Site<'a>, mut command: Command, config: &str) -> Self {
        let config = site.place.write("buildkitd.toml", config);
        command.arg("--config").arg(config).args(["--addr", SOCKET, "--root"]);
        let daemon = Group::spawn(command.arg(site.storage.join("buildkit"))).unwrap();
        let buildkit = Self { site, daemon };
        eventually("buildkitd answers", || {
            finish(buildkit.client().args(["debug", "workers"])).status.success()
        });
        buildkit
    }

    fn client(&self) -> Command {
        let mut client = program(self.site, "buildctl");
        client.args(["--addr", SOCKET]);
        client
    }

    /// Returns the command that builds the directory `context` anew, with options of buildctl.
    pub fn command(&self, options: &[&str]) -> Command {
        let archive = self.archive();
        let output = "type=docker,name=probed,rewrite-timestamp=true,dest=";
        let output = format!("{output}{}", archive.display());
        let words = "build --frontend dockerfile.v0 --local context=context \
                     --local dockerfile=context --progress plain --no-cache \
                     --opt build-arg:SOURCE_DATE_EPOCH=0 --output";
        let mut client = self.client();
        client.args(words.split_whitespace()).arg(output).args(options);
        client
    }

    /// Empties the build cache.
    pub fn prune(&self) -> Finished {
        finish(self.client().args(["prune", "--all"]))
    }

    fn archive(&self) -> PathBuf {
        self.site.storage.with_extension("tar")
    }

    pub fn stop(self) {
        stop("buildkitd", &self.daemon);
    }
}

fn program(site: &Site<'_>, name: &str) -> Command {
    site.command(engine(name).unwrap().to_str().unwrap())
}

impl ImageBuilder for BuildKit<'_> {
    fn build(&self, options: &[&str]) -> Finished {
        finish(&mut self.command(options))
    }

    fn save(&self) -> PathBuf {
        self.archive()
    }
}

pub fn its_steps_are_held(place: &Place) {
    prepare(place);
    let site = Site::new(place);
    let buildkit = BuildKit::start(&site, Worker::Oci);
    steps_are_held(&buildkit, place);
    buildkit.stop();
}

pub fn its_steps_are_held_on_containerd(place: &Place) {
    prepare(place);
    let site = Site::new(place);
    let containerd = Containerd::start(&site);
    let buildkit = BuildKit::start(&site, ON_CONTAINERD);
    steps_are_held(&buildkit, place);
    // A container that is no step, in the namespace of the steps.
    let other = containerd.run_in("buildkit", &[], &["/probe", "well"]);
    assert_steps_bare("beside the steps", &other, 1);
    buildkit.stop();
    containerd.stop();
}

pub fn in_another_namespace_its_steps_are_held_by_a_rule(place: &Place) {
    prepare(place);
    let site = Site::new(place);
    let containerd = Containerd::start(&site);
    let buildkit = BuildKit::start(&site, Worker::Containerd("ci"));
    assert_steps_bare("without a rule", &buildkit.build(&[]), USERS);
    place.write("oci.toml", "[[rule]]\nnamespace = \"ci\"\nhold = true\n");
    assert_steps_held("by a rule", &buildkit.build(&[]), USERS);
    buildkit.stop();
    containerd.stop();
}

fn steps_are_held(buildkit: &BuildKit<'_>, place: &Place) {
    assert_steps_held("a build", &buildkit.build(&[]), USERS);
    place.write(
        "context/Dockerfile",
        "FROM scratch\nCOPY probe /\nRUN --security=insecure [\"/probe\", \"well\"]\n",
    );
    let refused = buildkit.build(&[]);
    assert!(!refused.status.success(), "it must be allowed: {refused:?}");
    let insecure = buildkit.build(&["--allow", "security.insecure"]);
    assert_steps_held("insecure", &insecure, 1);
    // ENOSYS is not from BuildKit's profile: an insecure step has no profile but synconce's
    // filter.
    assert!(insecure.stderr.contains(" io_uring ENOSYS\n"), "{insecure:?}");
}
