//! Builds by a real dockerd with overlay2 and `step-root = "volatile"`.

use crate::engines::docker::{self, Docker};
use crate::engines::{Builder, Given, Site, prepare, report};
use libtest_mimic::Trial;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use synconce_testkit::harness::{Need, Place, Started, eventually, trial};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::Rig;

const NEEDS: [Need; 4] = [
    docker::NEEDS[0],
    docker::NEEDS[1],
    docker::NEEDS[2],
    Need::File("/bin/busybox", "busybox-static"),
];

/// The files of the layer below.
const FILES: u64 = 300;
const CHOWN: &str = "FROM scratch\nCOPY busybox /bin/\nCOPY data /data\n\
                     RUN [\"/bin/busybox\", \"chown\", \"-R\", \"1:1\", \"/data\"]\n";
/// Two stages, of which one has a cache; both steps run at once.
const STAGES: &str = "FROM scratch AS base\nCOPY busybox /bin/\nCOPY data /data\n\
    FROM base AS other\n\
    RUN --mount=type=cache,target=/cache [\"/bin/busybox\", \"sh\", \"-ec\", \
    \"busybox cp -r /data /cache/all; busybox cp -r /cache/all /copied\"]\n\
    FROM base\n\
    RUN [\"/bin/busybox\", \"chown\", \"-R\", \"1:1\", \"/data\"]\n\
    COPY --from=other /copied /copied\n\
    RUN [\"/bin/busybox\", \"rm\", \"/data/1\"]\n";

pub fn trials() -> Vec<Trial> {
    vec![
        trial(of_docker_hardly_flush_and_are_whole, &NEEDS),
        trial(that_fail_or_are_cancelled_leave_no_volatile_root, &NEEDS),
        trial(by_the_classic_builder_are_as_before, &NEEDS),
    ]
}

/// A dockerd on a disk of its own.
struct World<'a> {
    site: Site<'a>,
    rig: Rig,
}

impl<'a> World<'a> {
    fn new(place: &'a Place) -> Self {
        prepare(place);
        let rig = Rig::builder().size(1 << 30).up().unwrap();
        let site = Site::with(place, Given::Us, &rig.path().join("ours"));
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
    fn choose(&self, how: &str) {
        self.site.place.write("oci.toml", &format!("step-root = {how:?}\n"));
    }

    fn start(&self) -> Docker<'_> {
        Docker::with_storage(&self.site, "overlay2")
    }

    fn build(&self, builder: &impl Builder, text: &str) -> Finished {
        self.site.place.write("context/Dockerfile", text);
        builder.build(&[])
    }

    /// Returns the flushes of a build of `text`, which must succeed.
    fn flushes(&self, builder: &impl Builder, text: &str) -> u64 {
        let flushes = || self.rig.disk().stats().unwrap().flushes;
        let before = flushes();
        let build = self.build(builder, text);
        assert!(build.status.success(), "{build:?}");
        flushes() - before
    }

    /// Returns how many steps the runtime's log of BuildKit says had a volatile root, and how many
    /// had not.
    fn steps(&self) -> (usize, usize) {
        let log: PathBuf = self.site.storage.join("docker/buildkit/executor/runc-log.json");
        let text = fs::read_to_string(log).unwrap_or_default();
        let count = |words: &str| text.matches(words).count();
        (count("root of this step is volatile"), count("root of this step is as the engine"))
    }

    fn end(self) {
        drop(self.site);
        self.rig.down().unwrap();
    }
}

/// Returns the output of a shell in the image that was built last.
fn shell(docker: &Docker<'_>, script: &str) -> String {
    let run = docker.run(&[], &["/bin/busybox", "sh", "-ec", script]);
    assert!(run.status.success(), "{run:?}");
    run.stdout
}

fn assert_none_volatile() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let left: Vec<_> = mounts.lines().filter(|line| line.contains("volatile")).collect();
    assert!(left.iter().all(|line| !line.contains(" - overlay ")), "{left:?}");
}

fn of_docker_hardly_flush_and_are_whole(place: &Place) {
    let world = World::new(place);
    let docker = world.start();
    world.choose("as-mounted");
    let as_mounted = world.flushes(&docker.buildkit(), CHOWN);
    assert_eq!(world.steps(), (0, 0));
    world.choose("volatile");
    let volatile = world.flushes(&docker.buildkit(), CHOWN);
    report(&format!(
        "chown of {FILES} files: {as_mounted} flushes as mounted, {volatile} volatile"
    ));
    assert_eq!(world.steps(), (1, 0));
    assert!(as_mounted > volatile + FILES, "{as_mounted} and {volatile}");
    let owned = "busybox find /data -type f -user 1 | busybox wc -l";
    assert_eq!(shell(&docker, owned).trim(), FILES.to_string());
    world.flushes(&docker.buildkit(), STAGES);
    assert_eq!(world.steps().0 + world.steps().1, 4, "{:?}", world.steps());
    let all = "busybox find /data /copied -type f | busybox xargs busybox grep -l '^file ' | \
               busybox wc -l; busybox find /copied -type f -user 0 | busybox wc -l";
    assert_eq!(shell(&docker, all), format!("{}\n{FILES}\n", 2 * FILES - 1));
    assert_none_volatile();
    docker.stop();
    world.end();
}

fn that_fail_or_are_cancelled_leave_no_volatile_root(place: &Place) {
    let world = World::new(place);
    let docker = world.start();
    let fails = format!("{CHOWN}RUN [\"/bin/busybox\", \"false\"]\n");
    let failed = world.build(&docker.buildkit(), &fails);
    assert!(!failed.status.success(), "{failed:?}");
    assert_none_volatile();
    let waits = format!("{CHOWN}RUN [\"/bin/busybox\", \"sleep\", \"100000\"]\n");
    place.write("context/Dockerfile", &waits);
    let mut command = docker.command("1");
    let running = Started::new(command.args(["build", "--network", "none", "context"]));
    eventually("the step waits", || world.steps().0 >= 3);
    running.signal(Signal::INT).unwrap();
    assert!(!running.end().success());
    let overlays = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.lines().filter(|line| line.contains(" - overlay ")).count()
    };
    eventually("the roots are unmounted", || overlays() == 0);
    world.flushes(&docker.buildkit(), CHOWN);
    let owned = "busybox find /data -type f -user 1 | busybox wc -l";
    assert_eq!(shell(&docker, owned).trim(), FILES.to_string());
    docker.stop();
    world.end();
}

fn by_the_classic_builder_are_as_before(place: &Place) {
    let world = World::new(place);
    let docker = world.start();
    let flushes = world.flushes(&docker.classic(), CHOWN);
    assert!(flushes >= FILES, "{flushes}");
    assert_eq!(world.steps(), (0, 0));
    let owned = "busybox find /data -type f -user 1 | busybox wc -l";
    assert_eq!(shell(&docker, owned).trim(), FILES.to_string());
    docker.stop();
    world.end();
}
