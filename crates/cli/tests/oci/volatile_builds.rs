//! Builds by real engines whose roots are overlays, with `step-root = "volatile"`.

mod by_buildkitd;
mod dockerd_on_disk;
mod farm;
mod kills;

use crate::engines::daemonless::{self, Buildah, Podman};
use crate::engines::docker::{self, Docker};
use crate::engines::{ImageBuilder, SHORT, SOCKET, report};
use dockerd_on_disk::{DockerdOnDisk, assert_none_volatile, overlays, volatile_roots};
use kills::go_on_after_two_hundred_kills_of_everything;
use libtest_mimic::Trial;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use synconce_testkit::harness::{Need, Place, StartedCommand, eventually, trial};

const NEEDS: [Need; 4] = [
    docker::NEEDS[0],
    docker::NEEDS[1],
    docker::NEEDS[2],
    Need::File("/bin/busybox", "busybox-static"),
];

/// The first dockerd with containerd's image store.
const NEEDS_STORE: [Need; 5] = [Need::Since("dockerd", 24), NEEDS[0], NEEDS[1], NEEDS[2], NEEDS[3]];

const NEEDS_DAEMONLESS: [Need; 5] =
    [daemonless::BOTH[0], daemonless::BOTH[1], daemonless::BOTH[2], daemonless::BOTH[3], NEEDS[3]];

/// The files of the layer below.
const FILES: u64 = 300;
const CHOWN: &str = "FROM scratch\nCOPY busybox /bin/\nCOPY data /data\n\
                     RUN [\"/bin/busybox\", \"chown\", \"-R\", \"1:1\", \"/data\"]\n";
const COPIED: &str = "FROM scratch\nCOPY busybox /bin/\nCOPY data /data\n";
/// Waits until `/end` exists, or until dockerd ends the container.
const WAIT: &str = "[\"/bin/busybox\", \"sh\", \"-ec\", \"trap exit TERM; echo >/begun; \
                    until [ -e /end ]; do busybox sleep 0.1; done\"]";
/// Two stages, of which one has a cache; both steps run at once.
const STAGES: &str = "FROM scratch AS base\nCOPY busybox /bin/\nCOPY data /data\n\
    FROM base AS other\n\
    RUN --mount=type=cache,target=/cache [\"/bin/busybox\", \"sh\", \"-ec\", \
    \"busybox cp -r /data /cache/all; busybox cp -r /cache/all /copied\"]\n\
    FROM base\n\
    RUN [\"/bin/busybox\", \"chown\", \"-R\", \"1:1\", \"/data\"]\n\
    COPY --from=other /copied /copied\n\
    RUN [\"/bin/busybox\", \"rm\", \"/data/1\"]\n";

/// Prints how the root of a step is mounted.
const LOOK: &str = "[\"/bin/busybox\", \"grep\", \" / / \", \"/proc/self/mountinfo\"]";
/// Prints how many files have the owner that [`CHOWN`] sets.
const COUNT: &str = "[\"/bin/busybox\", \"sh\", \"-c\", \
                     \"busybox find /data -type f -user 1 | busybox wc -l\"]";

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial(of_docker_hardly_flush_and_are_whole, &NEEDS),
        trial(in_the_image_store_of_containerd_hardly_flush, &NEEDS_STORE),
        trial(that_fail_or_are_cancelled_leave_no_volatile_root, &NEEDS),
        trial(whose_file_stays_open_are_whole, &NEEDS),
        trial(with_mounts_have_the_same_files_and_keep_their_cache, &NEEDS),
        trial(go_on_after_a_kill_of_dockerd, &NEEDS),
        trial(by_the_classic_builder_hardly_flush_and_containers_are_as_before, &NEEDS),
        // Named in CONTRIBUTING.md.
        trial(go_on_after_two_hundred_kills_of_everything, &NEEDS).with_ignored_flag(true),
        trial(by_podman_and_buildah_stay_as_these_mount_them, &NEEDS_DAEMONLESS),
    ];
    trials.extend(by_buildkitd::trials());
    trials.extend(farm::trials());
    trials
}

/// Returns the output of a shell in the image that was built last.
fn shell(docker: &Docker<'_>, script: &str) -> String {
    let run = docker.run(&[], &["/bin/busybox", "sh", "-ec", script]);
    assert!(run.status.success(), "{run:?}");
    run.stdout
}

/// Asserts that the image has the files with the owner that [`CHOWN`] sets.
fn assert_owned(docker: &Docker<'_>) {
    let owned = "busybox find /data -type f -user 1 | busybox wc -l";
    assert_eq!(shell(docker, owned).trim(), FILES.to_string());
}

fn of_docker_hardly_flush_and_are_whole(place: &Place) {
    let world = DockerdOnDisk::new(place);
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
    assert_owned(&docker);
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
    let world = DockerdOnDisk::new(place);
    let docker = world.start();
    for buildkit in ["1", "0"] {
        let start = |step: &str| {
            place.write("context/Dockerfile", &format!("{CHOWN}RUN {step}\n"));
            let mut client = docker.command(buildkit);
            StartedCommand::new(client.args([
                "build",
                "--network",
                "none",
                "--no-cache",
                "context",
            ]))
        };
        let failed = start("[\"/bin/busybox\", \"false\"]");
        assert!(!failed.end().success());
        assert!(volatile_roots().is_empty());
        let cancelled = start(WAIT);
        begun();
        cancelled.signal(Signal::INT).unwrap();
        assert!(!cancelled.end().success());
        eventually("the roots are unmounted", || overlays().is_empty());
        match buildkit {
            "1" => world.flushes(&docker.buildkit(), CHOWN),
            _ => world.flushes(&docker.classic(), CHOWN),
        };
        assert_owned(&docker);
    }
    docker.stop();
    world.end();
}

/// Waits until the step [`WAIT`] is under way, and returns its root, which is volatile.
fn begun() -> PathBuf {
    let root = || volatile_roots().into_iter().find(|root| root.join("begun").exists());
    eventually("the step waits in a volatile root", || root().is_some());
    root().unwrap()
}

/// A process of the host has a file of the root open, during the step and after it.
fn whose_file_stays_open_are_whole(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let docker = world.start();
    for buildkit in ["1", "0"] {
        place.write("context/Dockerfile", &format!("{CHOWN}RUN {WAIT}\n"));
        let words = ["build", "--network", "none", "--no-cache", "--tag", "probed", "context"];
        let building = StartedCommand::new(docker.command(buildkit).args(words));
        let root = begun();
        let open = fs::File::open(root.join("data/1")).unwrap();
        fs::write(root.join("end"), "").unwrap();
        assert!(building.end().success(), "{}", building.text());
        assert_owned(&docker);
        assert_none_volatile();
        drop(open);
    }
    docker.stop();
    world.end();
}

/// A secret, a cache, an agent, a file and a writable directory of another stage, and a directory
/// in memory. BuildKit makes stubs for their mounts in the root. Each build adds a line to the
/// cache.
fn with_mounts_have_the_same_files_and_keep_their_cache(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let docker = world.start();
    let secret = place.write("secret", "the secret\n");
    let secret = format!("id=key,src={}", secret.display());
    // A client of BuildKit accepts any socket as the socket of an ssh agent.
    let agent = format!("{SHORT}/agent");
    let _agent = UnixListener::bind(&agent).unwrap();
    let agent = format!("default={agent}");
    let mounts = "--mount=type=secret,id=key,target=/run/key \
                  --mount=type=cache,target=/cache,sharing=locked \
                  --mount=type=ssh,required=true,target=/run/agent \
                  --mount=type=bind,from=base,source=/data/1,target=/etc/bound \
                  --mount=type=bind,from=base,source=/data,target=/thrown,rw=true \
                  --mount=type=tmpfs,target=/memory";
    let script = "set -e; busybox cat /run/key /etc/bound >/read; busybox cp /read /memory; \
                  busybox test -S /run/agent; busybox chown -R 1:1 /thrown; echo >/thrown/new; \
                  echo line >>/cache/lines; busybox chown -R 1:1 /data; busybox sync; \
                  busybox cat /cache/lines >/data/lines";
    let base = COPIED.replacen("scratch", "scratch AS base", 1);
    let found = |how: &str| {
        world.choose(how);
        // The step is not the one before, and `--no-cache` would begin a new cache.
        let step = format!("[\"/bin/busybox\", \"sh\", \"-c\", \"{script}\", \"{how}\"]");
        place.write("context/Dockerfile", &format!("{base}FROM base\nRUN {mounts} {step}\n"));
        let words = ["build", "--network", "none", "--tag", "probed", "--secret", &secret];
        let build = docker.client("1", &[&words[..], &["--ssh", &agent, "context"]].concat());
        assert!(build.status.success(), "{build:?}");
        let all = "busybox cat /read; busybox find / -xdev ! -name lines ! -path '/proc/*' \
                   -exec busybox stat -c '%n %F %a %u %s' {} + | busybox sort";
        (shell(&docker, all), shell(&docker, "busybox cat /data/lines"))
    };
    let (as_mounted, first) = found("as-mounted");
    let (volatile, second) = found("volatile");
    assert_eq!(world.steps(), (1, 0));
    assert!(as_mounted.starts_with("the secret\nfile 1") && !as_mounted.contains("/memory/read"));
    assert_eq!(volatile, as_mounted);
    assert_eq!((first.as_str(), second.as_str()), ("line\n", "line\nline\n"));
    assert_none_volatile();
    docker.stop();
    world.end();
}

/// A step is under way when dockerd is killed. The next dockerd starts, and builds.
fn go_on_after_a_kill_of_dockerd(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let waits = format!("{COPIED}RUN {WAIT}\n");
    for buildkit in ["1", "0"] {
        let docker = world.start();
        place.write("context/Dockerfile", &waits);
        let mut client = docker.command(buildkit);
        client.args(["build", "--network", "none", "--no-cache", "context"]);
        let client = StartedCommand::new(&mut client);
        let root = begun();
        // The next dockerd ends only a container that this one has recorded as running.
        let recorded = || !docker.client("1", &["ps", "--quiet"]).stdout.is_empty();
        eventually("dockerd has recorded the step", || buildkit == "1" || recorded());
        docker.kill();
        assert!(!client.end().success());
        let docker = world.start();
        if buildkit == "1" {
            // As with runc alone: no process ends the step, and its root stays mounted.
            assert!(volatile_roots().contains(&root));
            world.flushes(&docker.buildkit(), CHOWN);
            fs::write(root.join("end"), "").unwrap();
        } else {
            // dockerd ends the step's container.
            eventually("no root is volatile", || volatile_roots().is_empty());
            world.flushes(&docker.classic(), CHOWN);
        }
        assert_owned(&docker);
        docker.stop();
        eventually("the roots are unmounted", || {
            let left = overlays();
            for root in left.iter().rev() {
                // The engine or the step may have it still.
                let _ = unmount(root, UnmountFlags::empty());
            }
            overlays().is_empty()
        });
    }
    world.end();
}

fn by_the_classic_builder_hardly_flush_and_containers_are_as_before(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let docker = world.start();
    world.choose("as-mounted");
    let as_mounted = world.flushes(&docker.classic(), CHOWN);
    world.choose("volatile");
    let volatile = world.flushes(&docker.classic(), CHOWN);
    report(&format!("classic builder: {as_mounted} flushes as mounted, {volatile} volatile"));
    assert!(as_mounted > volatile + FILES, "{as_mounted} and {volatile}");
    assert_owned(&docker);
    assert_none_volatile();
    // The step sees its own root.
    let looks = format!("{CHOWN}RUN {LOOK}\n");
    let build = world.build(&docker.classic(), &looks, &[]);
    assert!(build.status.success() && build.stdout.contains("volatile"), "{build:?}");
    a_container_of_the_api_is_no_step(&world, &docker);
    docker.stop();
    world.end();
}

/// A client of the API can make a container whose records are those of a step. Such a container is
/// held. Its root is not volatile, because dockerd builds no image meanwhile.
fn a_container_of_the_api_is_no_step(world: &DockerdOnDisk<'_>, docker: &Docker<'_>) {
    let image = docker.client("1", &["inspect", "--format", "{{.Id}}", "probed"]);
    let alike = json!({
        "Image": image.stdout.trim_end(),
        "Cmd": ["/bin/busybox", "sh", "-c", "busybox grep ' / / ' /proc/self/mountinfo >/look"],
        "Entrypoint": [],
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {"LogConfig": {"Type": "none"}, "NetworkMode": "none"},
    });
    let post = |path: &str, body: &str| {
        let mut socket = UnixStream::connect(SOCKET.trim_start_matches("unix://")).unwrap();
        let head = "HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length:";
        write!(socket, "POST {path} {head} {}\r\n\r\n{body}", body.len()).unwrap();
        std::io::read_to_string(socket).unwrap()
    };
    let made = post("/containers/create?name=alike", &alike.to_string());
    assert!(made.contains(" 201 "), "{made}");
    post("/containers/alike/start", "");
    post("/containers/alike/wait", "");
    let to = world.site.place.path("look");
    let copied = docker.client("1", &["cp", "alike:/look", to.to_str().unwrap()]);
    assert!(copied.status.success(), "{copied:?}");
    let look = fs::read_to_string(to).unwrap();
    assert!(look.contains(" overlay ") && !look.contains("volatile"), "{look}");
}

fn in_the_image_store_of_containerd_hardly_flush(place: &Place) {
    let world = DockerdOnDisk::new(place);
    let docker = Docker::with_storage(&world.site, "overlayfs");
    world.assert_hardly_flush("dockerd with containerd's image store", &docker.buildkit());
    assert_owned(&docker);
    docker.stop();
    world.end();
}

/// Podman and Buildah mount the roots of steps volatile themselves.
fn by_podman_and_buildah_stay_as_these_mount_them(place: &Place) {
    let mut world = DockerdOnDisk::new(place);
    world.site.driver = "overlay";
    let site = &world.site;
    let builders: [(&str, &dyn ImageBuilder); 2] =
        [("Buildah", &Buildah(site)), ("Podman", &Podman(site))];
    for (name, builder) in builders {
        for how in ["as-mounted", "volatile"] {
            world.choose(how);
            let flushes = world.flushes(builder, CHOWN);
            report(&format!("{name}, step-root = {how:?}: {flushes} flushes"));
            assert!(flushes < FILES, "{name}, {how}: {flushes}");
            let build = world.build(builder, &format!("{CHOWN}RUN {LOOK}\nRUN {COUNT}\n"), &[]);
            let printed = format!("{}{}", build.stdout, build.stderr);
            let is_own = printed.contains("volatile") && !printed.contains("synconce-step");
            assert!(build.status.success() && is_own, "{build:?}");
            assert!(printed.contains(&format!("{FILES}\n")), "{build:?}");
        }
    }
    let status = place.status(&[]).stdout;
    assert!(
        status.starts_with("podman: 16 build steps held since the boot, the last "),
        "{status}"
    );
    assert_none_volatile();
    world.end();
}
