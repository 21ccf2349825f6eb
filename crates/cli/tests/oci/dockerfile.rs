//! Holds in a Dockerfile, without a set-up of the engine: the binary of synconce is copied or
//! mounted from its image, and runs the steps. The engines are real, with their own runtime and
//! their own seccomp profile.

use crate::engines::{LIMITS, SHORT, SOCKET};
use crate::our_image::{IMAGE, STRIP, make_image};
use crate::plain::{self, Dockerd, daemonless};
use libtest_mimic::Trial;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{Cgroups, Need, Place, engine, eventually, finish, limit, trial};
use synconce_testkit::process::{Finished, Group};

const BUSYBOX: Need = Need::File("/bin/busybox", "busybox-static");
const DOCKER: [Need; 5] = [plain::DOCKER[0], plain::DOCKER[1], plain::DOCKER[2], BUSYBOX, STRIP];
const PODMAN: [Need; 5] = [plain::PODMAN[0], plain::PODMAN[1], plain::PODMAN[2], BUSYBOX, STRIP];
const BUILDAH: [Need; 5] =
    [plain::BUILDAH[0], plain::BUILDAH[1], plain::BUILDAH[2], BUSYBOX, STRIP];
const BUILDKIT: [Need; 6] = [
    plain::BUILDKIT[0],
    plain::BUILDKIT[1],
    plain::BUILDKIT[2],
    plain::BUILDKIT[3],
    BUSYBOX,
    STRIP,
];

/// The line of the guide that copies the binary.
pub const COPY: &str =
    concat!("COPY --from=synconce:", env!("CARGO_PKG_VERSION"), " /synconce /usr/local/bin/\n");
/// The line of the guide that makes synconce the shell of the steps.
pub const SHELL: &str = "SHELL [\"synconce\", \"run\", \"--sealed\", \"--no-commit\", \"--\", \
                     \"/bin/sh\", \"-c\"]\n";
/// The words of a step that mounts the binary and is held by it; the step's command follows.
pub const MOUNT: &str = concat!(
    "RUN --mount=type=bind,from=synconce:",
    env!("CARGO_PKG_VERSION"),
    ",source=/synconce,target=/dev/synconce \\\n    \
     /dev/synconce run --sealed --no-commit -- "
);
/// The line of the guide that ends the last stage, so that containers of the image are not held.
pub const TAKEN_BACK: &str = "SHELL [\"/bin/sh\", \"-c\"]";
/// The first lines that the probe prints in a sealed run.
pub const HELD: &str = "fsync 0\nfdatasync 0\nsyncfs 0\nsync_file_range 0\n";
/// The first lines that the probe prints without a run.
pub const BARE: &str = "fsync EBADF\nfdatasync EBADF\nsyncfs EBADF\nsync_file_range EBADF\n";
/// An image with a shell and the probe, but without /tmp, /var and /proc.
const BASE: &str = "FROM scratch\nCOPY root /\n";
/// The name of that image with the binary in it.
const KEPT: &str = "kept";

pub fn trials() -> Vec<Trial> {
    vec![
        trial(our_shell_holds_the_steps_in_dockers_classic_builder, &DOCKER),
        trial(our_shell_holds_the_steps_in_dockers_own_buildkit, &DOCKER),
        trial(our_shell_holds_the_steps_in_podman, &PODMAN),
        trial(our_shell_holds_the_steps_in_buildah, &BUILDAH),
        trial(our_shell_holds_the_steps_in_buildkitd, &BUILDKIT),
    ]
}

/// An engine that builds `context/Dockerfile`.
trait DockerfileBuilder {
    /// Builds `context/Dockerfile` as `image`.
    fn build(&self, image: &str) -> Finished;
    /// Writes the image `result` in the format of `docker save`.
    fn save(&self, to: &Path);
    /// Whether the engine supports `RUN --mount`.
    fn mounts(&self) -> bool;
    /// Whether a Dockerfile can begin with an image that was built before.
    fn stores_images(&self) -> bool {
        true
    }
}

fn prepare(place: &Place) {
    crate::engines::prepare(place);
    for directory in ["bin", "run", "etc", "open"] {
        std::fs::create_dir_all(place.path("context/root").join(directory)).unwrap();
    }
    // BuildKit refuses even a numeric user if it cannot look up the groups of the user.
    place.write("context/root/etc/passwd", "user:x:1000:1000::/nowhere:/bin/sh\n");
    place.write("context/root/etc/group", "user:x:1000:\n");
    std::fs::set_permissions(place.path("context/root/open"), Permissions::from_mode(0o777))
        .unwrap();
    std::fs::copy("/bin/busybox", place.path("context/root/bin/busybox")).unwrap();
    for name in ["sh", "mkdir", "touch", "sleep", "id", "grep"] {
        symlink("busybox", place.path("context/root/bin").join(name)).unwrap();
    }
    std::fs::copy(place.path("probe"), place.path("context/root/probe")).unwrap();
}

/// Checks everything that the guide promises, with `engine`.
fn all(place: &Place, engine: &dyn DockerfileBuilder) {
    let build = |image: &str, dockerfile: String| {
        place.write("context/Dockerfile", &dockerfile);
        engine.build(image)
    };
    let well_as = |image: &str, dockerfile: String| {
        let built = build(image, dockerfile);
        assert!(built.status.success(), "{built:?}");
        built
    };
    let well = |dockerfile: String| well_as("result", dockerfile);
    let whole = format!("{BASE}{COPY}");
    let held = well(format!("{whole}{SHELL}RUN /probe well\n"));
    assert_prints(&held, HELD);
    assert_quiet(&held);
    // A stored image saves the copies of the other Dockerfiles: a copy takes an engine a second.
    let base = if engine.stores_images() {
        well_as(KEPT, whole);
        format!("FROM {KEPT}\n")
    } else {
        whole
    };
    let step = |shell: &str, step: &str| well(format!("{base}{shell}{step}\n"));

    // The engine's own seccomp profile is active, and does not hold syncs.
    assert_prints(&step("", "RUN grep ^Seccomp: /proc/self/status"), "Seccomp:\t2\n");
    assert_prints(&step("", "RUN /probe well"), BARE);
    let user = step(SHELL, "USER 1000\nRUN id -u && /probe well");
    assert_prints(&user, HELD);
    assert_prints(&user, "1000\n");
    assert_quiet(&user);
    // A process that outlives the step's command ends with the container: no notice is printed.
    assert_quiet(&step(SHELL, "RUN sleep 1000 &"));
    let failed = build("result", format!("{base}{SHELL}RUN exit 39\n"));
    assert!(!failed.status.success());
    let is_told = |words: &&str| both(&failed).contains(*words);
    assert!(["code: 39", "status 39"].iter().any(is_told), "{failed:?}");
    assert_quiet(&failed);
    let alone =
        "RUN [\"/synconce\", \"run\", \"--sealed\", \"--no-commit\", \"--\", \"/probe\", \"well\"]";
    let from = COPY.replace("/usr/local/bin/", "/");
    let alone = well(format!("FROM scratch\nCOPY probe /probe\n{from}{alone}\n"));
    assert_prints(&alone, HELD);
    assert_quiet(&alone);
    nothing_is_left_in_the_layer(engine, &step);
    if engine.mounts() {
        a_mounted_binary_holds_its_step(engine, &well);
    }
}

fn a_mounted_binary_holds_its_step(
    engine: &dyn DockerfileBuilder,
    well: &dyn Fn(String) -> Finished,
) {
    let mount = format!("{MOUNT}/probe well");
    let mounted = well(format!("{BASE}{mount}\nRUN /probe well\n"));
    assert_prints(&mounted, &[HELD, BARE].concat());
    assert_quiet(&mounted);
    let layer = |step: &str| {
        well(format!("{BASE}{step}\n"));
        last_layer(engine)
    };
    // A subset: without a mount, buildkitd leaves the mount point /dev in the layer.
    let (held, bare) = (layer(&mount), layer("RUN /probe well"));
    assert!(held.is_subset(&bare), "{held:?} {bare:?}");
}

fn nothing_is_left_in_the_layer(
    engine: &dyn DockerfileBuilder,
    step: &dyn Fn(&str, &str) -> Finished,
) {
    let layer = |shell: &str, user: &str| {
        step(shell, &format!("{user}RUN mkdir /open/made && touch /open/made/file"));
        last_layer(engine)
    };
    for user in ["", "USER 1000\n"] {
        let bare = layer("", user);
        assert!(bare.contains("open/made/file"), "{bare:?}");
        assert_eq!(layer(SHELL, user), bare, "{user}");
    }
}

/// Returns the names in the last layer of the image `result`.
fn last_layer(engine: &dyn DockerfileBuilder) -> BTreeSet<String> {
    let path = Path::new(SHORT).join("saved.tar");
    engine.save(&path);
    let script = "set -e; cd \"$(mktemp -d)\"; tar -xf \"$1\"; \
                  tar -tf \"$(sed 's/.*\"\\([^\"]*\\)\"\\].*/\\1/' manifest.json)\"";
    let listed = finish(Command::new("sh").args(["-c", script, "sh"]).arg(path));
    assert!(listed.status.success(), "{listed:?}");
    listed.stdout.lines().map(str::to_owned).collect()
}

fn both(finished: &Finished) -> String {
    format!("{}{}", finished.stdout, finished.stderr)
}

/// Returns the output lines of the steps, without BuildKit's step numbers and times.
fn lines(finished: &Finished) -> Vec<String> {
    let is_prefix =
        |word: &str| word.starts_with('#') || word.contains('.') && word.parse::<f64>().is_ok();
    let own = |line: &str| {
        let words = line.split(' ').skip_while(|word| is_prefix(word));
        words.collect::<Vec<_>>().join(" ")
    };
    both(finished).lines().map(own).collect()
}

/// Asserts that a step printed the lines of `wanted`, in their order.
pub fn assert_prints(finished: &Finished, wanted: &str) {
    let printed = lines(finished);
    let mut printed = printed.iter();
    for line in wanted.lines() {
        assert!(printed.any(|printed| printed == line), "{line}: {finished:?}");
    }
}

pub fn assert_quiet(finished: &Finished) {
    assert!(!both(finished).contains("synconce: "), "{finished:?}");
}

struct DockerBuilds<'a> {
    docker: Dockerd<'a>,
    buildkit: &'static str,
}

impl DockerfileBuilder for DockerBuilds<'_> {
    fn build(&self, image: &str) -> Finished {
        let mut client = self.docker.client(self.buildkit);
        client.args(["build", "--network", "none", "--no-cache", "--tag", image]);
        if self.buildkit == "1" {
            client.args(["--progress", "plain"]);
        }
        finish(client.arg("context"))
    }

    fn save(&self, to: &Path) {
        let saved = finish(self.docker.client("1").arg("save").arg("-o").arg(to).arg("result"));
        assert!(saved.status.success(), "{saved:?}");
    }

    fn mounts(&self) -> bool {
        self.buildkit == "1"
    }
}

fn in_docker(place: &Place, buildkit: &'static str) {
    prepare(place);
    let docker = Dockerd::start(place, place.command("dockerd"));
    make_image(place, Command::new("docker").env("DOCKER_HOST", SOCKET), Path::new("docker"));
    let engine = DockerBuilds { docker, buildkit };
    all(place, &engine);
    the_shell_of_the_steps_is_the_containers_until_it_is_taken_back(place, &engine);
    engine.docker.stop();
}

fn the_shell_of_the_steps_is_the_containers_until_it_is_taken_back(
    place: &Place,
    engine: &DockerBuilds<'_>,
) {
    for (end, printed) in [("", HELD), (TAKEN_BACK, BARE)] {
        let dockerfile = format!("FROM {KEPT}\n{SHELL}{end}\nCMD /probe well\n");
        place.write("context/Dockerfile", &dockerfile);
        let built = engine.build("result");
        assert!(built.status.success(), "{built:?}");
        let run = ["run", "--rm", "--network", "none", LIMITS[0], LIMITS[1], "result"];
        assert_prints(&engine.docker.run("1", &run), printed);
    }
}

fn our_shell_holds_the_steps_in_dockers_classic_builder(place: &Place) {
    in_docker(place, "0");
}

fn our_shell_holds_the_steps_in_dockers_own_buildkit(place: &Place) {
    in_docker(place, "1");
}

/// Podman or Buildah.
struct Daemonless<'a> {
    place: &'a Place,
    program: &'static str,
    build: &'static [&'static str],
    cgroups: Cgroups,
}

impl Daemonless<'_> {
    fn build_as(&self, format: &str, image: &str) -> Finished {
        let mut command = daemonless(self.place, self.program);
        command.args(self.build).args(["--format", format, "--network", "none", "--no-cache"]);
        command.args(["--cgroup-parent", &self.cgroups.step()]);
        finish(command.args(LIMITS).args(["--tag", image, "context"]))
    }
}

impl DockerfileBuilder for Daemonless<'_> {
    fn build(&self, image: &str) -> Finished {
        self.build_as("docker", image)
    }

    fn save(&self, to: &Path) {
        let _ = std::fs::remove_file(to);
        let mut command = daemonless(self.place, self.program);
        let archive = format!("docker-archive:{}:result", to.display());
        let saved = finish(command.args(["push", "--quiet", "result", &archive]));
        assert!(saved.status.success(), "{saved:?}");
    }

    fn mounts(&self) -> bool {
        true
    }
}

fn in_daemonless(place: &Place, program: &'static str, build: &'static [&'static str]) {
    prepare(place);
    let storage = format!(
        "[storage]\ndriver = \"vfs\"\ngraphroot = {:?}\nrunroot = {SHORT:?}\n",
        place.text("storage")
    );
    let storage = place.write("storage.conf", &storage);
    let mut command = Command::new(program);
    make_image(place, command.env("CONTAINERS_STORAGE_CONF", storage), Path::new(program));
    let engine = Daemonless { place, program, build, cgroups: Cgroups::unique() };
    all(place, &engine);
    // `oci` is the default format of Podman and Buildah, and ignores SHELL.
    place.write("context/Dockerfile", &format!("FROM {KEPT}\n{SHELL}RUN /probe well\n"));
    let ignored = engine.build_as("oci", "result");
    assert_prints(&ignored, BARE);
    assert!(ignored.stderr.contains("SHELL is not supported for OCI"), "{ignored:?}");
}

fn our_shell_holds_the_steps_in_podman(place: &Place) {
    in_daemonless(place, "podman", &["--cgroup-manager", "cgroupfs", "build"]);
}

fn our_shell_holds_the_steps_in_buildah(place: &Place) {
    in_daemonless(place, "buildah", &["bud", "--layers", "--isolation", "oci"]);
}

/// buildkitd, which stores no images: it reads the image of synconce from a directory.
struct Buildkit<'a> {
    place: &'a Place,
    daemon: Group,
    digest: String,
    /// Dropped after the daemon.
    cgroups: Cgroups,
}

impl Buildkit<'_> {
    fn client(&self) -> Command {
        let mut command = self.place.command(engine("buildctl").unwrap().to_str().unwrap());
        command.args(["--addr", SOCKET]);
        command
    }
}

impl DockerfileBuilder for Buildkit<'_> {
    fn build(&self, image: &str) -> Finished {
        let mut client = self.client();
        client
            .args(["build", "--frontend", "dockerfile.v0", "--no-cache", "--progress", "plain"])
            .args(["--local", "context=context", "--local", "dockerfile=context"])
            .args(["--oci-layout", "ours=image", "--opt"])
            .arg(format!("context:{IMAGE}=oci-layout://ours@sha256:{}", self.digest))
            .args(["--opt", &format!("cgroup-parent={}", self.cgroups.parent())])
            .args(["--output", &format!("type=docker,name={image},dest={image}.tar")]);
        finish(&mut client)
    }

    fn save(&self, to: &Path) {
        std::fs::copy(self.place.path("result.tar"), to).unwrap();
    }

    fn mounts(&self) -> bool {
        true
    }

    fn stores_images(&self) -> bool {
        false
    }
}

fn our_shell_holds_the_steps_in_buildkitd(place: &Place) {
    prepare(place);
    let image = place.path("image");
    make_image(place, &mut Command::new("buildkitd"), &image);
    let index = place.read("image/index.json");
    let digest = index.split("sha256:").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let mut daemon = place.command(engine("buildkitd").unwrap().to_str().unwrap());
    daemon
        .arg("--root")
        .arg(place.path("root"))
        .args(["--addr", SOCKET, "--oci-worker-net", "host"])
        .args(["--containerd-worker=false", "--oci-worker-snapshotter", "native"]);
    let daemon = Group::spawn(&mut daemon).unwrap();
    let engine = Buildkit { place, daemon, digest: digest.to_owned(), cgroups: Cgroups::unique() };
    eventually("buildkitd answers", || {
        finish(engine.client().args(["debug", "workers"])).status.success()
    });
    all(place, &engine);
    engine.daemon.signal(Signal::TERM).unwrap();
    assert!(engine.daemon.wait(limit()).unwrap().is_some(), "buildkitd does not end");
}
