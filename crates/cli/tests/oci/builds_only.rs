//! dockerd with another default runtime: build steps are held, that runtime stays, and without
//! synconce-oci everything is as before.

use crate::check::assert_in_use;
use crate::dockerfile::{BARE, HELD, assert_prints};
use crate::engines::SHORT;
use crate::plain::{self, Dockerd};
use crate::set_up::{DAEMON_JSON, OURS, end, environment, setup, system};
use libtest_mimic::Trial;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use synconce_testkit::harness::{Need, Place, eventually, finish, trial};
use synconce_testkit::process::Group;

const NEEDS: [Need; 4] = [
    plain::DOCKER[0],
    plain::DOCKER[1],
    plain::DOCKER[2],
    Need::File("/usr/bin/containerd", "containerd"),
];
/// As nvidia's runtime: executes the first runc in its PATH.
const OTHER: &str = "/usr/local/bin/other-runtime";

pub fn trials() -> Vec<Trial> {
    vec![
        trial(builds_alone_are_held_and_without_us_nothing_fails, &plain::DOCKER),
        trial(beside_the_systems_containerd_buildkits_steps_alone_are_held, &NEEDS),
    ]
}

/// Makes a system whose default runtime is [`OTHER`], and sets it up. Returns the command of
/// dockerd, with the environment of the set-up.
fn dockerd(place: &Place) -> Command {
    system(place);
    fs::write(OTHER, "#!/bin/sh\nexec runc \"$@\"\n").unwrap();
    fs::set_permissions(OTHER, PermissionsExt::from_mode(0o755)).unwrap();
    let config = format!(
        "{{ \"default-runtime\": \"other\", \"runtimes\": {{ \"other\": {{ \"path\": \"{OTHER}\" }} }} }}\n"
    );
    fs::write(DAEMON_JSON, &config).unwrap();
    let done = setup(place, &["docker"]);
    assert!(
        done.stderr.contains("the default runtime stays other: only builds are held"),
        "{done:?}"
    );
    assert_eq!(fs::read_to_string(DAEMON_JSON).unwrap(), config);
    let (name, value) = environment(&done).expect("a variable");
    let mut dockerd = place.command("dockerd");
    dockerd.env(name, value);
    dockerd
}

fn builds_alone_are_held_and_without_us_nothing_fails(place: &Place) {
    let docker = Dockerd::start(place, dockerd(place));
    // This dockerd has started containerd, so the classic builder's steps are held, too.
    for buildkit in ["0", "1"] {
        assert_prints(&docker.build(buildkit), HELD);
    }
    assert_prints(&docker.run_probe(), BARE);
    assert_in_use(place, "docker", "dockerd");
    fs::remove_file(OURS).unwrap();
    for buildkit in ["0", "1"] {
        assert_prints(&docker.build(buildkit), BARE);
    }
    assert_prints(&docker.run_probe(), BARE);
    docker.stop();
}

fn beside_the_systems_containerd_buildkits_steps_alone_are_held(place: &Place) {
    let mut dockerd = dockerd(place);
    let socket = format!("{SHORT}/containerd.sock");
    let mut containerd = place.command("/usr/bin/containerd");
    containerd.args(["--config", "/dev/null", "--address", &socket, "--root"]);
    containerd.arg(place.path("containerd")).args(["--state", &format!("{SHORT}/containerd")]);
    let containerd = Group::spawn(&mut containerd).unwrap();
    let mut version = place.command("/usr/bin/ctr");
    version.args(["--address", &socket, "version"]);
    eventually("containerd answers", || finish(&mut version).status.success());
    dockerd.args(["--containerd", &socket]);
    let docker = Dockerd::start(place, dockerd);
    assert_prints(&docker.build("1"), HELD);
    assert_prints(&docker.build("0"), BARE);
    assert_prints(&docker.run_probe(), BARE);
    // A dockerd that is started without synconce-oci builds by runc, too.
    fs::remove_file(OURS).unwrap();
    assert_prints(&docker.build("1"), BARE);
    docker.stop();
    end(&containerd);
}
