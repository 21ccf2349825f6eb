//! containerd and its client, ctr.

use super::{HOLD, SHORT, Site, assert_steps_bare, assert_steps_held, prepare, stop};
use crate::bundles::probe;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use synconce_testkit::harness::{Need, engine};
use synconce_testkit::harness::{Place, eventually, finish};
use synconce_testkit::process::{Finished, Group};

pub const NEEDS: [Need; 5] = [
    Need::Engine("containerd"),
    Need::Engine("containerd-shim-runc-v2"),
    Need::Engine("ctr"),
    Need::Program("runc", "runc"),
    Need::Program("cc", "gcc libc6-dev"),
];

/// The socket of containerd.
pub const ADDRESS: &str = "/run/engine/containerd";

/// A running containerd.
pub struct Containerd<'a> {
    site: &'a Site<'a>,
    daemon: Group,
    /// The directory of containerd, its shim and its client.
    programs: PathBuf,
    /// How many containers were started.
    count: Cell<u32>,
}

impl<'a> Containerd<'a> {
    /// Starts containerd, without the plugins for Kubernetes, which need a network.
    pub fn start(site: &'a Site<'a>) -> Self {
        Self::with_configuration(site, "")
    }

    /// Starts Debian's containerd, with `added` at the end of its configuration.
    pub fn debians(site: &'a Site<'a>, added: &str) -> Self {
        Self::of(site, Path::new("/usr/bin"), "version = 2", added)
    }

    /// Starts containerd with `added` at the end of its configuration.
    pub fn with_configuration(site: &'a Site<'a>, added: &str) -> Self {
        let program = engine("containerd").unwrap();
        Self::of(site, program.parent().unwrap(), "version = 3", added)
    }

    fn of(site: &'a Site<'a>, programs: &Path, version: &str, added: &str) -> Self {
        let root = site.storage.join("containerd");
        let config = format!(
            "{version}\nroot = {root:?}\nstate = \"{SHORT}/state\"\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\", \
             \"io.containerd.cri.v1.images\", \"io.containerd.cri.v1.runtime\"]\n\
             [grpc]\naddress = \"{ADDRESS}\"\n[ttrpc]\naddress = \"{ADDRESS}.ttrpc\"\n\
             [plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true\n{added}"
        );
        let config = site.place.write("containerd.toml", &config);
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", programs.display());
        let mut command = site.command(programs.join("containerd").to_str().unwrap());
        command.env("PATH", path).arg("--config").arg(config);
        let daemon = Group::spawn(&mut command).unwrap();
        let containerd = Self { site, daemon, programs: programs.to_owned(), count: Cell::new(0) };
        eventually("containerd answers", || containerd.ctr(&["version"]).status.success());
        containerd
    }

    /// Runs the client with `words`.
    pub fn ctr(&self, words: &[&str]) -> Finished {
        let mut command = self.site.command(self.programs.join("ctr").to_str().unwrap());
        finish(command.args(["--address", ADDRESS]).args(words))
    }

    /// Runs the command `words` in a container, and waits for the end.
    pub fn run(&self, options: &[&str], words: &[&str]) -> Finished {
        self.run_in("default", options, words)
    }

    /// Runs the command `words` in a container in `namespace` of containerd, and waits for the end.
    pub fn run_in(&self, namespace: &str, options: &[&str], words: &[&str]) -> Finished {
        self.count.set(self.count.get() + 1);
        let id = format!("c{}", self.count.get());
        let (runtime, root) = (self.site.runtime(), self.root());
        let group = format!("{}/{id}", self.site.cgroups.parent());
        let own = ["--namespace", namespace, "run", "--rm", "--rootfs", "--cgroup", &group];
        let own = [&own[..], &["--runc-binary", runtime.to_str().unwrap()]].concat();
        let container = [root.to_str().unwrap(), &id];
        self.ctr(&[&own, options, &container, words].concat())
    }

    /// Returns the root of all containers. Makes the root on the first call.
    fn root(&self) -> PathBuf {
        let root = self.site.storage.join("root");
        if !root.exists() {
            std::fs::create_dir_all(&root).unwrap();
            std::fs::copy(probe(self.site.place), root.join("probe")).unwrap();
            std::fs::copy(self.site.place.path("step"), root.join("step")).unwrap();
        }
        root
    }

    pub fn stop(self) {
        stop("containerd", &self.daemon);
    }
}

pub fn its_containers_keep_their_syncs_unless_they_ask(place: &Place) {
    prepare(place);
    let site = Site::new(place);
    let containerd = Containerd::start(&site);
    // By default ctr sets no seccomp profile.
    for options in [&[][..], &["--privileged"], &["--seccomp"], &["--user", "1000"]] {
        let run = |asks: &[&str]| containerd.run(&[options, asks].concat(), &["/probe", "well"]);
        assert_steps_bare(&format!("run {options:?}"), &run(&[]), 1);
        let asked = run(&["--annotation", HOLD]);
        assert_steps_held(&format!("asked for {options:?}"), &asked, 1);
    }
    place.write("oci.toml", "[[rule]]\nnamespace = \"ci\"\nhold = true\n");
    let ruled = |namespace| containerd.run_in(namespace, &[], &["/probe", "well"]);
    assert_steps_held("by the operator's rule", &ruled("ci"), 1);
    assert_steps_bare("beside it", &ruled("default"), 1);
    containerd.stop();
}
