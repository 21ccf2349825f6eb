//! `synconce doctor --docker`, `--containerd` and `--buildkit`: the planted cause is named first.

use crate::engines::buildkit::{self, BuildKit, ON_CONTAINERD, Worker};
use crate::engines::containerd::{self, ADDRESS, Containerd};
use crate::engines::docker::{self, Docker};
use crate::engines::{Given, ImageBuilder, Site, prepare};
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, mount};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use synconce_testkit::harness::{Need, Place, binary, finish, trial};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Latency, Rig};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(causes_of_docker_are_named_first, &docker::NEEDS),
        trial(causes_of_containerd_are_named_first, &containerd::NEEDS),
        trial(causes_of_buildkit_are_named_first, &buildkit::NEEDS),
        trial(
            the_layers_of_a_buildkit_on_containerd_are_those_of_containerd,
            &buildkit::NEEDS_CONTAINERD,
        ),
        trial(a_dockerd_that_cannot_be_asked_is_one_line_and_a_hint, &docker::NEEDS),
        trial(an_engine_that_is_not_there_is_one_line_and_a_hint, &[]),
        trial(
            a_daemon_that_cannot_be_asked_is_one_line_and_a_hint,
            &[Need::Program("perl", "perl")],
        ),
    ]
}

const SOCKET_FILE: &str = "/run/engine/socket";

/// Returns the command `synconce doctor FLAG` about the engine of the test.
pub fn doctor(place: &Place, flag: &str) -> Command {
    let mut command = place.synconce(&["doctor", flag]);
    command.env("DOCKER_HOST", format!("unix://{SOCKET_FILE}"));
    command.env("CONTAINERS_STORAGE_CONF", place.path("storage.conf"));
    command.env("SYNCONCE_OCI_FILE", "/none");
    command
}

pub fn rig() -> Rig {
    Rig::builder().size(2 << 30).up().unwrap()
}

pub fn latency(milliseconds: u64) -> Latency {
    Latency::of_flush(Duration::from_millis(milliseconds))
}

/// Returns the report about an engine with data at `root`, where nothing may be left.
pub fn report(place: &Place, flag: &str, root: &Path) -> Value {
    report_by(&mut doctor(place, flag), root)
}

pub fn report_by(doctor: &mut Command, root: &Path) -> Value {
    let names = || {
        let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    };
    let before = names();
    let ended = finish(doctor.arg("--json"));
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(names(), before);
    serde_json::from_str(&ended.stdout).unwrap()
}

pub fn first(report: &Value) -> &str {
    report["findings"][0]["name"].as_str().unwrap_or("nothing")
}

fn causes_of_docker_are_named_first(place: &Place) {
    prepare(place);
    for (driver, flush, cause) in [("overlay2", 8, "slow-sync"), ("vfs", 0, "vfs")] {
        let rig = rig();
        let site = Site::with(place, Given::Runc, rig.path());
        let engine = Docker::with_storage(&site, driver);
        // Two layers, below an image of one.
        engine.import(&archive(place), "base");
        let made = engine.client("1", &["create", "base", "/none"]);
        assert!(made.status.success(), "{made:?}");
        rig.disk().set_latency(latency(flush)).unwrap();
        let root = rig.path().join("docker");
        let report = report(place, "--docker", &root);
        rig.disk().set_latency(latency(0)).unwrap();
        assert_eq!(first(&report), cause, "{report:#}");
        let said = &report["engine"];
        assert_eq!(said["data_root"], root.to_str().unwrap());
        assert_eq!((&said["storage_driver"], &said["backing"]), (&driver.into(), &backing(driver)));
        assert_eq!(said["native_diff"].as_bool(), (driver == "overlay2").then_some(true));
        // Of the image; of the container, one to begin with and one to write.
        assert_eq!(said["layers"], 3, "{report:#}");
        assert_eq!(said["set_up"]["is_made"], false, "{report:#}");
        assert_eq!(report["not_measured"][0]["what"], "build cache", "{report:#}");
        if cause == "slow-sync" {
            let finding = &report["findings"][0];
            assert_eq!(finding["remedy"], "synconce setup docker");
            assert_eq!(finding["undo"], "synconce setup docker --undo");
            assert_eq!(finding["workload"], "an install of 55 packages in a build step");
            assert!(finding["seconds"].as_f64() > Some(14.0), "{finding:#}");
            assert_copy_ups_wait(&report, LEAST_FLUSH);
        } else {
            assert_eq!(report["measured"]["layers"], Value::Null, "{report:#}");
        }
        engine.stop();
    }
}

/// The least time of a flush of 8 ms, in microseconds: the kernel may count a little less.
const LEAST_FLUSH: f64 = 7_500.0;

/// Asserts that the kernel's own syncs wait for a flush of `least` microseconds, that the second
/// finding says so, and that an overlay without them does not wait.
fn assert_copy_ups_wait(report: &Value, least: f64) {
    let layers = &report["measured"]["layers"];
    assert!(layers["file"]["fastest"].as_f64() > Some(least), "{layers:#}");
    assert!(layers["unmount"].as_f64() > Some(least), "{layers:#}");
    assert!(layers["volatile"]["fastest"].as_f64() < Some(least), "{layers:#}");
    // The kernel decides whether it syncs a directory.
    assert!(layers["directory"]["samples"].as_u64() > Some(0), "{layers:#}");
    let finding = &report["findings"][1];
    assert_eq!(finding["name"], "step-copy-up", "{report:#}");
    let workload = "a chown -R of 1,000 files of a lower layer in a build step";
    assert_eq!(finding["workload"], workload);
    // 1,000 flushes of 8 ms, less what a volatile overlay takes on a busy machine.
    assert!(finding["seconds"].as_f64() > Some(3.0), "{finding:#}");
    // The roots of held steps are volatile by default.
    assert_eq!(finding["remedy"], "synconce setup docker");
}

/// Returns the file system of the layers, as dockerd names that of ext4.
fn backing(driver: &str) -> Value {
    if driver == "overlay2" { "extfs".into() } else { Value::Null }
}

/// Returns an archive of a root with one file.
pub fn archive(place: &Place) -> String {
    let made =
        finish(place.command("tar").args(["-cf", "root.tar", "-C", "context", "Dockerfile"]));
    assert!(made.status.success(), "{made:?}");
    place.text("root.tar")
}

/// Makes the socket `file` of the engine that of the system's daemon of `name`.
fn link_socket(file: &str, name: &str) {
    let usual = Path::new("/run").join(name);
    fs::create_dir_all(usual.parent().unwrap()).unwrap();
    symlink(file, usual).unwrap();
}

fn causes_of_containerd_are_named_first(place: &Place) {
    prepare(place);
    link_socket(ADDRESS, "containerd/containerd.sock");
    let rig = rig();
    let site = Site::with(place, Given::Runc, rig.path());
    let root = rig.path().join("containerd");
    let no_sync = "[plugins.\"io.containerd.metadata.v1.bolt\"]\nno_sync = true\n";
    for (added, cause) in [("", "slow-sync"), (no_sync, "no-sync")] {
        let engine = Containerd::with_configuration(&site, added);
        rig.disk().set_latency(latency(8)).unwrap();
        let mut doctor = doctor(place, "--containerd");
        let is_other = cause == "no-sync";
        if is_other {
            doctor.env("CONTAINERD_ADDRESS", ADDRESS);
        }
        let report = report_by(&mut doctor, &root);
        rig.disk().set_latency(latency(0)).unwrap();
        assert_eq!(first(&report), cause, "{report:#}");
        let not_measured = &report["not_measured"];
        assert_eq!(not_measured[0]["what"] == "set-up", is_other, "{report:#}");
        let said = &report["engine"];
        assert_eq!(said["data_root"], root.to_str().unwrap());
        assert_eq!((&said["storage_driver"], &said["layers"]), (&"overlayfs".into(), &0.into()));
        let is_made = (!is_other).then_some(false);
        assert_eq!(said["databases"]["is_made"].as_bool(), is_made, "{report:#}");
        let finding = &report["findings"][0];
        if cause == "slow-sync" {
            assert_eq!(finding["remedy"], "synconce setup containerd --hold");
            assert_eq!(finding["workload"], "imports of 20 images of 8 layers");
            // 2,400 flushes of 8 ms.
            assert!(finding["seconds"].as_f64() > Some(16.0), "{finding:#}");
        } else {
            let wanted = "no_sync is on for io.containerd.metadata.v1.bolt";
            assert_eq!(finding["evidence"], wanted);
            assert_eq!(report["findings"].as_array().unwrap().len(), 1, "{report:#}");
        }
        engine.stop();
    }
}

fn causes_of_buildkit_are_named_first(place: &Place) {
    prepare(place);
    link_socket(SOCKET_FILE, "buildkit/buildkitd.sock");
    let rig = rig();
    let site = Site::with(place, Given::Runc, rig.path());
    let engine = BuildKit::start(&site, Worker::Oci);
    let built = engine.build(&[]);
    assert!(built.status.success(), "{built:?}");
    let root = rig.path().join("buildkit");
    for (flush, cause) in [(8, "slow-sync"), (0, "native")] {
        rig.disk().set_latency(latency(flush)).unwrap();
        // The usual socket is the system's, whether it is named or not.
        let mut doctor = doctor(place, "--buildkit");
        doctor.env("BUILDKIT_HOST", "unix:///run/buildkit/buildkitd.sock");
        let report = report_by(&mut doctor, &root);
        rig.disk().set_latency(latency(0)).unwrap();
        assert_eq!(first(&report), cause, "{report:#}");
        let said = &report["engine"];
        assert_eq!(said["data_root"], root.to_str().unwrap());
        assert_eq!(said["storage_driver"], "native");
        assert_eq!(said["set_up"]["is_made"], false, "{report:#}");
        assert!(said["layers"].as_u64() >= Some(1), "{said:#}");
        if cause == "slow-sync" {
            assert_eq!(report["findings"][0]["remedy"], "synconce setup buildkit");
        }
    }
    engine.stop();
}

fn the_layers_of_a_buildkit_on_containerd_are_those_of_containerd(place: &Place) {
    prepare(place);
    link_socket(SOCKET_FILE, "buildkit/buildkitd.sock");
    let site = Site::with(place, Given::Runc, &place.path("theirs"));
    let containerd = Containerd::start(&site);
    let engine = BuildKit::with_snapshotter(&site, ON_CONTAINERD, "overlayfs");
    let built = engine.build(&[]);
    assert!(built.status.success(), "{built:?}");
    let root = site.storage.join("containerd");
    let report = report(place, "--buildkit", &root);
    let said = &report["engine"];
    assert_eq!(said["data_root"], root.to_str().unwrap(), "{said:#}");
    assert_eq!(said["storage_driver"], "overlayfs", "{said:#}");
    assert!(said["layers"].as_u64() >= Some(1), "{said:#}");
    containerd.stop();
    let report = self::report(place, "--buildkit", &site.storage.join("buildkit"));
    let what = "the directory of containerd, which has the layers";
    assert_eq!(report["not_measured"][0]["what"], what, "{report:#}");
    engine.stop();
}

/// Asserts that doctor failed with the lines `wanted`, and printed nothing else.
fn assert_fails(ended: &Finished, wanted: [&str; 2]) {
    let lines: Vec<_> = ended.stderr.lines().collect();
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(125), ""), "{ended:?}");
    assert_eq!(lines, wanted.map(|line| format!("synconce: {line}")), "{ended:?}");
}

fn a_dockerd_that_cannot_be_asked_is_one_line_and_a_hint(place: &Place) {
    prepare(place);
    let site = Site::new(place);
    let engine = Docker::start(&site);
    // The user of a group may ask, and may not write.
    fs::set_permissions(SOCKET_FILE, fs::Permissions::from_mode(0o666)).unwrap();
    let root = site.storage.join("docker");
    let sudo = format!("hint: sudo --preserve-env=DOCKER_HOST {} doctor --docker", binary());
    let hint = sudo.as_str();
    let denied = finish(doctor(place, "--docker").uid(65534).gid(65534));
    let why = format!("cannot write in {}: Permission denied", root.display());
    assert_fails(&denied, [&why, hint]);
    fs::set_permissions(SOCKET_FILE, fs::Permissions::from_mode(0o600)).unwrap();
    let denied = finish(doctor(place, "--docker").uid(65534).gid(65534));
    let why = format!("cannot ask dockerd at {SOCKET_FILE}: Permission denied");
    assert_fails(&denied, [&why, hint]);
    // As in a container that has the socket, without and with the host's processes, and as with
    // the socket of another host.
    let other_root = format!("mount -t tmpfs none {}; exec \"$@\"", root.display());
    let other_host = "hostname other; exec \"$@\"";
    for apart in [
        &["--pid", "--fork", "--mount-proc"][..],
        &["--mount", "sh", "-ec", &other_root, "sh"],
        &["--uts", "sh", "-ec", other_host, "sh"],
    ] {
        let doctor = doctor(place, "--docker");
        let mut command = place.command("unshare");
        command.args(apart).arg(doctor.get_program()).args(doctor.get_args());
        command.envs(doctor.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let why = "cannot measure the disk of dockerd: it runs in another container or on another \
                   host";
        let hint = "hint: synconce doctor --docker, where the engine runs";
        assert_fails(&finish(&mut command), [why, hint]);
    }
    engine.stop();
}

fn an_engine_that_is_not_there_is_one_line_and_a_hint(place: &Place) {
    let ended = finish(&mut doctor(place, "--docker"));
    let why = format!("cannot ask dockerd at {SOCKET_FILE}: No such file or directory");
    assert_fails(
        &ended,
        [&why, "hint: start the dockerd that DOCKER_HOST names, or unset DOCKER_HOST"],
    );
    let ended = finish(doctor(place, "--docker").env("DOCKER_HOST", "tcp://10.0.0.1:2375"));
    let why = "cannot ask dockerd at tcp://10.0.0.1:2375: only unix://PATH can be asked";
    assert_fails(&ended, [why, "hint: synconce doctor --docker, where the engine runs"]);
    // The client of Docker takes no path alone.
    let ended = finish(doctor(place, "--docker").env("DOCKER_HOST", SOCKET_FILE));
    let why = format!("cannot ask dockerd at {SOCKET_FILE}: only unix://PATH can be asked");
    let hint = format!("hint: DOCKER_HOST=unix://{SOCKET_FILE} synconce doctor --docker");
    assert_fails(&ended, [&why, &hint]);
    let ended = finish(doctor(place, "--podman").env("PATH", "/none"));
    let why = "cannot ask podman: No such file or directory";
    assert_fails(&ended, [why, "hint: install podman, or add its directory to PATH"]);
    let both = finish(doctor(place, "--docker").arg("--podman"));
    assert_eq!(both.status.code(), Some(125), "{both:?}");
}

fn a_daemon_that_cannot_be_asked_is_one_line_and_a_hint(place: &Place) {
    // No daemon of this machine, and a directory of this test alone: the path of the place is too
    // long for a socket.
    mount("test", "/run", "tmpfs", MountFlags::empty(), None).unwrap();
    for (flag, program, variable) in [
        ("--containerd", "containerd", "CONTAINERD_ADDRESS"),
        ("--buildkit", "buildkitd", "BUILDKIT_HOST"),
    ] {
        let socket = format!("unix:///run/{program}");
        let doctor = |flag: &str, socket: &str| {
            let mut doctor = doctor(place, flag);
            doctor.env(variable, socket);
            doctor
        };
        let at = format!("cannot ask {program} at /run/{program}");
        let ended = finish(&mut doctor(flag, &socket));
        let why = format!("{at}: No such file or directory");
        let hint = format!("hint: start the {program} that {variable} names, or unset {variable}");
        assert_fails(&ended, [&why, &hint]);
        let ended = finish(&mut doctor(flag, "tcp://10.0.0.1:1"));
        let why =
            format!("cannot ask {program} at tcp://10.0.0.1:1: only unix://PATH can be asked");
        let elsewhere = format!("hint: synconce doctor {flag}, where the engine runs");
        assert_fails(&ended, [&why, &elsewhere]);
        // The socket of systemd; of rootlesskit; of a container, whose program is not started.
        let directory = "hint: synconce doctor DIRECTORY, with the directory of its data";
        let named = format!("$0 = '{program}'");
        for (act, why, hint) in [
            ("$0 = 'systemd'", format!("{at}: systemd listens there"), directory),
            (
                &format!("{named}; $> = 65534"),
                format!("{at}: it is rootless, of user 65534"),
                directory,
            ),
            (
                &format!("{named}; chroot '/proc' or die"),
                format!(
                    "cannot measure the disk of {program}: it runs in another container or on \
                     another host"
                ),
                &elsewhere,
            ),
        ] {
            let listener = Listener::start(&format!("/run/{program}"), act);
            assert_fails(&finish(&mut doctor(flag, &socket)), [&why, hint]);
            listener.stop();
        }
    }
    let ended = finish(doctor(place, "--buildkit").env("BUILDKIT_HOST", "docker-container://b"));
    let why = "cannot ask buildkitd at docker-container://b: only unix://PATH can be asked";
    assert_fails(&ended, [why, "hint: synconce doctor --docker: its volumes have the cache"]);
}

/// A process that listens at a socket and answers nothing. It ends with this process.
struct Listener(Child);

impl Listener {
    /// Starts it; it does `act`, in Perl, after it has made `socket`.
    fn start(socket: &str, act: &str) -> Self {
        let script = format!(
            "unlink '{socket}'; socket(S, AF_UNIX, SOCK_STREAM, 0) or die; \
             bind(S, sockaddr_un('{socket}')) or die; {act}; listen(S, 1) or die; \
             $| = 1; print \"ready\\n\"; <STDIN>;"
        );
        let mut perl = Command::new("perl");
        perl.args(["-MSocket", "-e", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = perl.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn stop(mut self) {
        // `wait` closes its standard input.
        assert!(self.0.wait().unwrap().success());
    }
}
