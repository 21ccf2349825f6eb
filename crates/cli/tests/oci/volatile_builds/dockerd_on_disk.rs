//! A dockerd with overlays on a disk of its own, and the overlays that are mounted.

use super::{CHOWN, COUNT, FILES, LOOK};
use crate::engines::docker::Docker;
use crate::engines::{Given, ImageBuilder, Site, prepare, report};
use std::fs;
use std::path::PathBuf;
use synconce_testkit::harness::Place;
use synconce_testkit::process::Finished;
use synconce_testkit::rig::Rig;

/// A dockerd on a disk of its own.
pub struct DockerdOnDisk<'a> {
    pub site: Site<'a>,
    rig: Rig,
}

impl<'a> DockerdOnDisk<'a> {
    pub fn new(place: &'a Place) -> Self {
        Self::with(place, Given::Us)
    }

    /// Makes one with the runtime `given`.
    pub fn with(place: &'a Place, given: Given) -> Self {
        prepare(place);
        let rig = Rig::builder().size(1 << 30).up().unwrap();
        let site = Site::with(place, given, &rig.path().join("ours"));
        let context = place.path("context");
        fs::copy("/bin/busybox", context.join("busybox")).unwrap();
        fs::create_dir(context.join("data")).unwrap();
        for at in 0..FILES {
            fs::write(context.join(format!("data/{at}")), format!("file {at}")).unwrap();
        }
        let world = Self { site, rig };
        world.choose("volatile");
        world
    }

    /// Sets `step-root`; read at each step.
    pub fn choose(&self, how: &str) {
        self.site.place.write("oci.toml", &format!("step-root = {how:?}\n"));
    }

    pub fn start(&self) -> Docker<'_> {
        Docker::with_storage(&self.site, "overlay2")
    }

    pub fn build(&self, builder: &dyn ImageBuilder, text: &str, options: &[&str]) -> Finished {
        self.site.place.write("context/Dockerfile", text);
        builder.build(options)
    }

    /// Returns the flushes of a build of `text`, which must succeed.
    pub fn flushes(&self, builder: &dyn ImageBuilder, text: &str) -> u64 {
        let flushes = || self.rig.disk().stats().unwrap().flushes;
        let before = flushes();
        let build = self.build(builder, text, &[]);
        assert!(build.status.success(), "{build:?}");
        flushes() - before
    }

    /// Returns how many steps the runtime's log of BuildKit says had a volatile root, and how many
    /// had not.
    pub fn steps(&self) -> (usize, usize) {
        let log: PathBuf = self.site.storage.join("docker/buildkit/executor/runc-log.json");
        let text = fs::read_to_string(log).unwrap_or_default();
        let count = |words: &str| text.matches(words).count();
        (count("root of this step is volatile"), count("root of this step is as the engine"))
    }

    /// Asserts that a build has far fewer flushes with a volatile root, and sees this root.
    pub fn assert_hardly_flush(&self, what: &str, builder: &dyn ImageBuilder) {
        self.choose("as-mounted");
        let as_mounted = self.flushes(builder, CHOWN);
        self.choose("volatile");
        let volatile = self.flushes(builder, CHOWN);
        report(&format!("{what}: {as_mounted} flushes as mounted, {volatile} volatile"));
        assert!(as_mounted > volatile + FILES, "{as_mounted} and {volatile}");
        let build = self.build(builder, &format!("{CHOWN}RUN {LOOK}\nRUN {COUNT}\n"), &[]);
        let printed = format!("{}{}", build.stdout, build.stderr);
        assert!(build.status.success() && printed.contains("volatile"), "{build:?}");
        // BuildKit puts the time before every line.
        let is_count = |line: &str| line.split(' ').next_back() == Some(&FILES.to_string());
        assert!(printed.lines().any(is_count), "{build:?}");
        assert_none_volatile();
    }

    pub fn end(self) {
        drop(self.site);
        self.rig.down().unwrap();
    }
}

pub fn assert_none_volatile() {
    assert_eq!(volatile_roots(), Vec::<PathBuf>::new());
}

/// Returns where overlays are mounted.
pub fn overlays() -> Vec<PathBuf> {
    mounted(|_| true)
}

/// Returns where volatile overlays are mounted.
pub fn volatile_roots() -> Vec<PathBuf> {
    mounted(|options| options.contains("volatile"))
}

fn mounted(is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut mounts = synconce_probe::mounts::read("self").unwrap();
    mounts.retain(|mount| mount.type_name == "overlay" && is_wanted(&mount.options));
    mounts.into_iter().map(|mount| mount.point).collect()
}
