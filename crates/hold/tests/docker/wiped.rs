//! BuildKit's databases are set aside after a crash, with the layers that only they knew.

use crate::engine::{Dockerd, prepare};
use std::fs;
use std::path::Path;
use synconce_hold::aside::settle;
use synconce_hold::config::Config;
use synconce_hold::docker_layers::find;
use synconce_hold::record::HoldRecord;
use synconce_hold::recover::{Decision, Layers, Recovered, SetAside, recover};
use synconce_testkit::harness::Place;

/// Each step writes 1 MiB. The image `kept` has the first steps, the others only BuildKit knows.
const FIRST: &str = "FROM base\n\
                     RUN [\"busybox\", \"dd\", \"if=/dev/urandom\", \"of=/one\", \"bs=1M\", \"count=1\"]\n\
                     RUN [\"busybox\", \"dd\", \"if=/dev/urandom\", \"of=/two\", \"bs=1M\", \"count=1\"]\n";
const MORE: &str = "RUN [\"busybox\", \"dd\", \"if=/dev/urandom\", \"of=/three\", \"bs=1M\", \"count=8\"]\n\
                    RUN [\"busybox\", \"dd\", \"if=/dev/urandom\", \"of=/four\", \"bs=1M\", \"count=8\"]\n";

/// Builds, runs a container and removes an image, so that layers of every kind exist. Returns
/// the digests of the files of the image `kept`.
fn fill(docker: &Dockerd<'_>, place: &Place) -> String {
    docker.works(&["import", &place.text("base.tar"), "base"]);
    place.write("context/Dockerfile", FIRST);
    build(docker, "kept");
    place.write("context/Dockerfile", &format!("{FIRST}{MORE}"));
    build(docker, "removed");
    docker.works(&["rmi", "removed"]);
    place.write("context/Dockerfile", &format!("{FIRST}{MORE}RUN [\"busybox\", \"false\"]\n"));
    let failed = docker.client(&["build", "--network=none", "context"]);
    assert!(!failed.status.success(), "{failed:?}");
    docker.works(&["run", "--name=box", "--network=none", "base", "busybox", "touch", "/written"]);
    digests(docker)
}

pub fn build(docker: &Dockerd<'_>, tag: &str) {
    docker.works(&["build", "--network=none", "--tag", tag, "context"]);
}

fn digests(docker: &Dockerd<'_>) -> String {
    docker.works(&["run", "--rm", "--network=none", "kept", "busybox", "sha256sum", "/one", "/two"])
}

fn used(path: &Path) -> u64 {
    let system = rustix::fs::statvfs(path).unwrap();
    (system.f_blocks - system.f_bfree) * system.f_frsize
}

/// Returns the hold of the BuildKit of the dockerd whose data directory is `root`.
pub fn hold(place: &Place, root: &Path) -> Config {
    let root = root.display();
    let text = format!(
        "after_crash = \"wipe\"\nset_aside = [\"{root}/buildkit\"]\ndocker_root = \"{root}\"\n\
         [[hold]]\npath = \"{root}/buildkit/cache.db\"\nkind = \"bolt\"\n"
    );
    Config::read(place.write("docker.toml", &text).as_os_str()).unwrap()
}

/// Recovers the hold as after a crash of the machine.
pub fn recover_from_crash(config: &Config) -> SetAside {
    HoldRecord::new(config, "another").write().unwrap();
    match recover(config, Decision::ByFile, &|_| {}).unwrap() {
        Recovered::SetAside(aside) => aside,
        other => panic!("{other:?}"),
    }
}

/// Stops dockerd, which must have logged no error, after its last image and container were
/// removed. Checks that no layer is left.
pub fn expect_nothing_left(docker: Dockerd<'_>, root: &Path) {
    docker.works(&["builder", "prune", "--all", "--force"]);
    let log = docker.stop();
    // A stop can end containerd before dockerd has let go of its events.
    let errors = log.lines().filter(|line| line.contains("level=error"));
    let errors: Vec<_> = errors.filter(|line| !line.contains("Failed to get event")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    fs::remove_dir_all(root.join("buildkit")).unwrap();
    let left = fs::read_dir(root.join("overlay2")).unwrap();
    let left = left.map(|entry| entry.unwrap()).filter(|entry| entry.path().is_dir());
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["l"], "{left:?}");
}

pub fn layers_of_buildkit_are_set_aside_and_all_else_works(place: &Place) {
    let (cgroups, rig, root, _unmounted) = prepare(place);
    let docker = Dockerd::start(place, &root, &cgroups);
    let digests_before = fill(&docker, place);
    let running = find(&root).unwrap_err().to_string();
    assert!(running.contains("open") || running.contains("mounted"), "{running}");
    docker.stop();
    let with_databases = find(&root).unwrap_err().to_string();
    assert!(with_databases.contains("buildkit"), "{with_databases}");

    let config = hold(place, &root);
    let layers = recover_from_crash(&config).layers;
    // Two steps of the image that was removed, at least.
    assert!(matches!(layers, Layers::SetAside { unreferenced: 2.., damaged: 0, .. }), "{layers:?}");
    let before = used(rig.path());
    let docker = Dockerd::start(place, &root, &cgroups);
    settle(&config.name, &|_| {}).unwrap();
    let returned = before.saturating_sub(used(rig.path()));
    assert!(returned >= 15 << 20, "{returned} bytes");

    assert_eq!(digests(&docker), digests_before);
    docker.works(&["start", "--attach", "box"]);
    docker.works(&["commit", "box", "of-box"]);
    place.write("context/Dockerfile", &format!("{FIRST}{MORE}"));
    build(&docker, "again");
    let pruned = docker.works(&["image", "prune", "--force"]);
    assert!(pruned.contains("Total reclaimed"), "{pruned}");
    docker.works(&["rm", "box"]);
    docker.works(&["rmi", "kept", "of-box", "again", "base"]);
    expect_nothing_left(docker, &root);
}
