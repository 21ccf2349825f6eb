//! Engines that read what `synconce setup` wrote, without flags from the test: their steps are
//! held when the engine is set up, and bare again when the set-up is undone. The system's `/etc`
//! and `/usr/local` are as Debian's packages leave them, and changes to them stay in memory.

use crate::check::{assert_check_of_podman, assert_in_use, assert_not_in_use};
use crate::dockerfile::{BARE, HELD, assert_prints};
use crate::engines::{LIMITS, SHORT, SOCKET, prepare};
use crate::groups::GroupsOfEngines;
use crate::plain::{self, Dockerd, daemonless};
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, mount, mount_bind};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_testkit::harness::Cgroups;
use synconce_testkit::harness::{Need, engine, trial};
use synconce_testkit::harness::{Place, binary, contents_below, eventually, finish};
use synconce_testkit::process::{Finished, Group};

pub const PODMAN: [Need; 4] =
    [plain::PODMAN[0], plain::BUILDAH[0], plain::PODMAN[1], plain::PODMAN[2]];
pub const CONTAINERD: [Need; 4] = [
    Need::File("/usr/bin/containerd", "containerd"),
    Need::Program("ctr", "containerd"),
    plain::BUILDAH[0],
    plain::BUILDAH[2],
];
pub const CONTAINERD_2: [Need; 7] = [
    CONTAINERD[0],
    CONTAINERD[1],
    CONTAINERD[2],
    CONTAINERD[3],
    Need::Engine("containerd"),
    Need::Engine("ctr"),
    Need::Engine("containerd-shim-runc-v2"),
];

pub const OURS: &str = "/usr/local/bin/synconce-oci";
pub const DAEMON_JSON: &str = "/etc/docker/daemon.json";
pub const CONTAINERD_FILE: &str = "/etc/containerd/config.toml";
const CRI_2: [&str; 2] = ["io.containerd.cri.v1", "runtime"];
const UNITS: &str = "/usr/lib/systemd/system";
const DROP_IN: &str = "/etc/systemd/system/docker.service.d/synconce.conf";

pub fn trials() -> Vec<Trial> {
    vec![
        trial(dockerd_reads_what_was_set_up_and_undone, &plain::DOCKER),
        trial(podman_and_buildah_read_what_was_set_up_and_undone, &PODMAN),
        trial(buildkitd_reads_what_was_set_up_and_undone, &plain::BUILDKIT),
        trial(debians_containerd_reads_what_was_set_up_and_undone, &CONTAINERD),
        trial(containerd_2_reads_what_was_set_up_and_undone, &CONTAINERD_2),
    ]
}

/// Makes a system of this test alone, with synconce installed.
pub fn system(place: &Place) {
    prepare(place);
    make_private("/etc", &Path::new(SHORT).join("etc-changes"));
    // Empty, as no package puts a file there: `files` would read gigabytes of the machine's own
    // files again and again.
    mount("test", "/usr/local", "tmpfs", MountFlags::empty(), None).unwrap();
    for directory in ["bin", "sbin"] {
        fs::create_dir(Path::new("/usr/local").join(directory)).unwrap();
    }
    // A directory of the package docker.io.
    fs::create_dir_all("/etc/docker").unwrap();
    // A checkout may belong to another user, whose programs `setup` refuses.
    let ours = format!("{SHORT}/synconce");
    fs::copy(binary(), &ours).unwrap();
    symlink(ours, OURS).unwrap();
}

/// Mounts an overlay over `directory`, so that its changes go to the new directory `place` and only
/// this test sees them.
pub fn make_private(directory: &str, place: &Path) {
    let at = |kind: &str| {
        let path = place.join(kind);
        fs::create_dir_all(&path).unwrap();
        path.display().to_string()
    };
    let options = format!("lowerdir={directory},upperdir={},workdir={}", at("upper"), at("work"));
    let options = CString::new(options).unwrap();
    mount("test", directory, "overlay", MountFlags::empty(), options.as_c_str()).unwrap();
}

/// Runs `synconce setup WORDS`, with the state of this test.
pub fn setup(place: &Place, words: &[&str]) -> Finished {
    let done = finish(place.synconce(&["setup"]).args(words));
    assert!(done.status.success(), "{words:?}: {done:?}");
    done
}

/// Returns every file below `/etc` and `/usr/local`, with its content or the target of a link.
fn files() -> BTreeMap<PathBuf, Vec<u8>> {
    let all = ["/etc", "/usr/local"].into_iter().flat_map(|top| contents_below(Path::new(top)));
    all.map(|(path, (_, content))| (path, content)).collect()
}

/// Sets `name` up and undoes the set-up. Calls `steps` after each, with whether build steps must be
/// held now. Asserts that the undo leaves nothing.
fn set_up_and_undo(place: &Place, name: &str, steps: &dyn Fn(&Finished, bool)) {
    let before = files();
    let done = setup(place, &[name]);
    assert_ne!(files(), before);
    steps(&done, true);
    let again = setup(place, &[name]);
    assert!(again.stderr.contains("is set up already"), "{again:?}");
    let undone = setup(place, &[name, "--undo"]);
    assert_eq!(files(), before);
    steps(&undone, false);
}

fn expected_line(is_held: bool) -> &'static str {
    if is_held { HELD } else { BARE }
}

fn dockerd_reads_what_was_set_up_and_undone(place: &Place) {
    system(place);
    let steps = |done: &Finished, is_held: bool| {
        let mut dockerd = place.command("dockerd");
        if let Some((name, value)) = environment(done) {
            // No systemd runs here, so a drop-in file has no effect.
            let said = format!("start dockerd with {name}={value} in its environment\n");
            assert!(!is_held || done.stderr.contains(&said), "{done:?}");
            dockerd.env(name, value);
        } else {
            assert!(!is_held, "dockerd gets no PATH: {done:?}");
        }
        dockerd_steps(place, dockerd, is_held);
    };
    // As Debian's package leaves it: with a unit, without a daemon.json.
    assert!(Path::new(UNITS).join("docker.service").exists() && !Path::new(DAEMON_JSON).exists());
    set_up_and_undo(place, "docker", &steps);
    fs::write(DAEMON_JSON, "{\n    \"debug\": true,\n    \"log-level\": \"warn\"\n}\n").unwrap();
    set_up_and_undo(place, "docker", &steps);
    fs::remove_file(DAEMON_JSON).unwrap();
    // Without a unit, setup only prints the environment.
    mount("test", UNITS, "tmpfs", MountFlags::empty(), None).unwrap();
    set_up_and_undo(place, "docker", &steps);
}

/// Returns the variable for dockerd's environment: from the drop-in file, or else from the
/// output.
pub fn environment(done: &Finished) -> Option<(String, String)> {
    let drop_in = fs::read_to_string(DROP_IN).unwrap_or_default();
    let written = drop_in.lines().find_map(|line| line.strip_prefix("Environment="));
    let printed = done.stderr.lines().find_map(|line| {
        line.split_once("start dockerd with ")?.1.strip_suffix(" in its environment")
    });
    let (name, value) = written.or(printed)?.split_once('=')?;
    Some((name.to_owned(), value.to_owned()))
}

fn dockerd_steps(place: &Place, dockerd: Command, is_held: bool) {
    let before = files();
    let docker = Dockerd::start(place, dockerd);
    for buildkit in ["0", "1"] {
        assert_prints(&docker.build(buildkit), expected_line(is_held));
    }
    assert_prints(&docker.run_probe(), BARE);
    if is_held {
        assert_in_use(place, "docker", "dockerd");
        let mut doctor = place.synconce(&["doctor", "--docker", "--json"]);
        doctor.env("DOCKER_HOST", SOCKET).env("SYNCONCE_OCI_FILE", "/none");
        let report: Value = serde_json::from_str(&finish(&mut doctor).stdout).unwrap();
        assert_eq!(report["engine"]["set_up"]["is_in_force"], true, "{report:#}");
    } else {
        assert_not_in_use(place, "docker", "dockerd", "its environment lacks the ");
    }
    docker.stop();
    // dockerd has written its own key.
    for new in files().keys().filter(|path| !before.contains_key(*path)) {
        fs::remove_file(new).unwrap();
    }
}

fn podman_and_buildah_read_what_was_set_up_and_undone(place: &Place) {
    system(place);
    let cgroups = Cgroups::unique();
    let build = |program: &str, words: &[&str]| {
        let mut command = daemonless(place, program);
        command.args(words).args(["--network", "none", "--no-cache", "--tag", "probed"]);
        command.args(["--cgroup-parent", &cgroups.step()]);
        let built = finish(command.arg("context"));
        assert!(built.status.success(), "{built:?}");
        built
    };
    let steps = |_: &Finished, is_held: bool| {
        assert_check_of_podman(place, is_held);
        let podman = ["--cgroup-manager", "cgroupfs"];
        assert_prints(
            &build("podman", &[&podman[..], &["build"]].concat()),
            expected_line(is_held),
        );
        assert_prints(&build("buildah", &["bud"]), expected_line(is_held));
        let mut run = daemonless(place, "podman");
        run.args(podman).args(["run", "--rm", "--network", "none"]).args(LIMITS);
        run.args(["--cgroup-parent", &cgroups.parent()]);
        assert_prints(&finish(run.args(["probed", "/probe"])), BARE);
    };
    let (stock, own) = ("/usr/share/containers/containers.conf", "/etc/containers/containers.conf");
    assert!(Path::new(stock).exists() && !Path::new(own).exists());
    assert_check_of_podman(place, false);
    set_up_and_undo(place, "podman", &steps);
    // The operator's file begins as a copy of the stock file.
    fs::copy(stock, own).unwrap();
    set_up_and_undo(place, "podman", &steps);
    let runc = "[engine]\nruntime = \"runc\"\n[engine.runtimes]\nrunc = [\"/usr/sbin/runc\"]\n";
    fs::write(own, runc).unwrap();
    set_up_and_undo(place, "podman", &steps);
}

fn buildkitd_reads_what_was_set_up_and_undone(place: &Place) {
    system(place);
    let cgroups = Cgroups::unique();
    let _groups = GroupsOfEngines::shared();
    let program = |name: &str| place.command(engine(name).unwrap().to_str().unwrap());
    let steps = |_: &Finished, is_held: bool| {
        let daemon = start_buildkitd(place, &[], &[]);
        let client =
            |words: &[&str]| finish(program("buildctl").args(["--addr", SOCKET]).args(words));
        // No option for the runtime: the daemon's configuration file is under test.
        let parent = format!("cgroup-parent={}", cgroups.parent());
        let built = client(
            &[
                &["build", "--frontend", "dockerfile.v0", "--no-cache", "--progress", "plain"][..],
                &["--local", "context=context", "--local", "dockerfile=context"],
                &["--opt", &parent],
            ]
            .concat(),
        );
        assert!(built.status.success(), "{built:?}");
        assert_prints(&built, expected_line(is_held));
        if is_held {
            assert_in_use(place, "buildkit", "buildkitd");
        } else {
            let why = "it started before /etc/buildkit/buildkitd.toml was written";
            assert_not_in_use(place, "buildkit", "buildkitd", why);
        }
        end(&daemon);
    };
    let file = Path::new("/etc/buildkit/buildkitd.toml");
    assert!(!file.exists(), "no package of Debian's brings it");
    set_up_and_undo(place, "buildkit", &steps);
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(file, "# of the operator\ndebug = true\n\n[worker.oci]\n  gc = false # here\n")
        .unwrap();
    set_up_and_undo(place, "buildkit", &steps);
}

/// Starts buildkitd with its configuration file and the words `more`, in `environment`, and waits
/// until it answers.
pub fn start_buildkitd(place: &Place, more: &[&str], environment: &[(&str, &Path)]) -> Group {
    let program = |name: &str| place.command(engine(name).unwrap().to_str().unwrap());
    let mut daemon = program("buildkitd");
    daemon.arg("--root").arg(place.path("root")).args(["--addr", SOCKET]);
    daemon.args(["--oci-worker-net", "host", "--containerd-worker=false"]);
    daemon.args(["--oci-worker-snapshotter", "native"]).args(more);
    daemon.envs(environment.iter().copied());
    let daemon = Group::spawn(&mut daemon).unwrap();
    eventually("buildkitd answers", || {
        let mut client = program("buildctl");
        finish(client.args(["--addr", SOCKET, "debug", "workers"])).status.success()
    });
    daemon
}

/// Starts the containerd in `/usr/bin`, in `environment`, and waits until it answers.
pub fn start_containerd(place: &Place, environment: &[(&str, &Path)]) -> Group {
    let mut daemon = place.command("/usr/bin/containerd");
    daemon.arg("--root").arg(place.path("containerd")).args(["--state", "/run/containerd"]);
    daemon.envs(environment.iter().copied());
    let daemon = Group::spawn(&mut daemon).unwrap();
    let version = || finish(place.command("/usr/bin/ctr").arg("version"));
    eventually("containerd answers", || version().status.success());
    daemon
}

pub fn end(daemon: &Group) {
    daemon.signal(Signal::TERM).unwrap();
    let ended = daemon.wait(synconce_testkit::harness::limit()).unwrap();
    assert!(ended.is_some(), "it does not end: {:?}", daemon.stderr());
}

fn debians_containerd_reads_what_was_set_up_and_undone(place: &Place) {
    system(place);
    containerd(place, &["io.containerd.grpc.v1", "cri"]);
}

fn containerd_2_reads_what_was_set_up_and_undone(place: &Place) {
    system(place);
    install_containerd_2();
    containerd(place, &CRI_2);
}

/// Puts containerd 2 in the place of Debian's, for this test alone.
pub fn install_containerd_2() {
    for name in ["containerd", "ctr", "containerd-shim-runc-v2"] {
        mount_bind(engine(name).unwrap(), Path::new("/usr/bin").join(name)).unwrap();
    }
}

/// Tests the containerd in `/usr/bin`, whose CRI plugin has the type and id `cri`.
fn containerd(place: &Place, cri: &[&str]) {
    let (image, cgroups) = (place.path("image.tar"), Cgroups::unique());
    let mut build = daemonless(place, "buildah");
    build.args(["bud", "--network", "none", "--cgroup-parent", &cgroups.step()]);
    let built = finish(build.args(["--tag", "probed", "context"]));
    assert!(built.status.success(), "{built:?}");
    let mut push = daemonless(place, "buildah");
    let archive = format!("docker-archive:{}:probed:1", image.display());
    let pushed = finish(push.args(["push", "probed", &archive]));
    assert!(pushed.status.success(), "{pushed:?}");

    let steps = |_: &Finished, is_held: bool| containerd_steps(place, cri, &cgroups, is_held);
    let file = Path::new(CONTAINERD_FILE);
    assert!(fs::read_to_string(file).unwrap().contains("/usr/lib/cni"), "Debian's own");
    set_up_and_undo(place, "containerd", &steps);
    fs::remove_file(file).unwrap();
    set_up_and_undo(place, "containerd", &steps);
    fs::remove_dir(file.parent().unwrap()).unwrap();
    set_up_and_undo(place, "containerd", &steps);
    if cri == CRI_2 {
        // Here the set-up writes a file of its own.
        fs::create_dir_all("/etc/containerd/conf.d").unwrap();
        fs::write(file, "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n").unwrap();
        set_up_and_undo(place, "containerd", &steps);
    }
}

fn containerd_steps(place: &Place, cri: &[&str], cgroups: &Cgroups, is_held: bool) {
    // Without a file containerd 1.x has nothing to dump and uses its defaults.
    let words = if Path::new(CONTAINERD_FILE).exists() { "dump" } else { "default" };
    let dump = finish(place.command("/usr/bin/containerd").args(["config", words]));
    assert!(dump.status.success(), "{dump:?}");
    let name = dump.stdout.lines().filter_map(|line| line.trim().strip_prefix("BinaryName = "));
    let name = name.map(|name| name.trim_matches(['"', '\''])).find(|name| *name == OURS);
    assert_eq!(name.is_some(), is_held, "{dump:?}");

    let daemon = start_containerd(place, &[]);
    let ctr = |words: &[&str]| finish(place.command("/usr/bin/ctr").args(words));
    let plugins = ctr(&["plugins", "ls"]);
    let is_well = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.starts_with(cri) && words.ends_with(&["ok"])
    };
    assert!(plugins.stdout.lines().any(is_well), "{plugins:?}");
    // containerd logs its configuration.
    let log = daemon.stderr().unwrap();
    let mut started = log.lines().filter(|line| line.contains(" cri plugin"));
    assert_eq!(started.any(|line| line.contains(OURS)), is_held, "{log}");
    let imported = ctr(&["images", "import", "--no-unpack", "image.tar"]);
    assert!(imported.status.success(), "{imported:?}");
    let listed = ctr(&["images", "ls", "--quiet"]);
    let image = listed.stdout.lines().find(|name| name.contains("probed")).unwrap();
    let group = format!("{}/probe", cgroups.parent());
    let run = |options: &[&str]| {
        let begin = ["run", "--rm", "--snapshotter", "native", "--cgroup", &group];
        let begin = [&begin[..], &["--runc-binary", name.unwrap_or("runc")], options];
        ctr(&[begin.concat(), vec![image, "probe", "/probe", "well"]].concat())
    };
    assert_prints(&run(&[]), BARE);
    assert_prints(&run(&["--annotation", "io.synconce.hold=true"]), expected_line(is_held));
    if is_held {
        assert_in_use(place, "containerd", "containerd");
    } else {
        assert_not_in_use(place, "containerd", "containerd", "it started before /etc/containerd/");
    }
    end(&daemon);
}
