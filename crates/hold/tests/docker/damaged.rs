//! A crash takes the directory of a layer of an imported image, and leaves dockerd's record of it.

use crate::engine::{Dockerd, prepare};
use crate::wiped::{build, expect_nothing_left, hold, recover_from_crash};
use std::fs;
use std::path::{Path, PathBuf};
use synconce_hold::aside::settle;
use synconce_hold::recover::Layers;
use synconce_testkit::harness::{Place, finish};

/// Makes an archive that differs from that of `base`.
const OTHER: &str = "cp -r root other && echo other >other/mark && \
                     tar --create --file=other.tar --directory=other .";

/// Imports the images `base` and `imported`, and builds `kept` from the first and `above` from
/// the second. Returns the directory of the layer of `imported`.
fn fill(docker: &Dockerd<'_>, place: &Place) -> PathBuf {
    let made = finish(place.command("sh").args(["-ec", OTHER]));
    assert!(made.status.success(), "{made:?}");
    docker.works(&["import", &place.text("base.tar"), "base"]);
    build_from(docker, place, "base", "kept");
    import(docker, place);
    build_from(docker, place, "imported", "above");
    let format = "--format={{.GraphDriver.Data.UpperDir}}";
    let content = PathBuf::from(docker.works(&["image", "inspect", format, "imported"]));
    content.parent().unwrap().to_owned()
}

fn import(docker: &Dockerd<'_>, place: &Place) {
    docker.works(&["import", &place.text("other.tar"), "imported"]);
}

fn build_from(docker: &Dockerd<'_>, place: &Place, base: &str, tag: &str) {
    let steps = "RUN [\"busybox\", \"touch\", \"/step\"]\nRUN [\"busybox\", \"true\"]\n";
    place.write("context/Dockerfile", &format!("FROM {base}\n{steps}"));
    build(docker, tag);
}

/// Runs a container that needs what is in all layers of a built image.
fn look_at(docker: &Dockerd<'_>, image: &str) {
    docker.works(&["run", "--rm", "--network=none", image, "busybox", "ls", "/step"]);
}

fn images(docker: &Dockerd<'_>) -> Vec<String> {
    let listed = docker.works(&["image", "ls", "--format={{.Repository}}"]);
    let mut listed: Vec<_> = listed.lines().map(str::to_owned).collect();
    listed.sort();
    listed
}

/// Returns all paths below the data directory, without those of what is set aside.
fn listing(place: &Place, root: &Path) -> String {
    let mut find = place.command("find");
    let found = finish(find.arg(root).args(["-name", ".synconce-*", "-prune", "-o", "-print"]));
    assert!(found.status.success(), "{found:?}");
    let mut lines: Vec<_> = found.stdout.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

pub fn images_with_damaged_layers_are_set_aside_and_can_be_made_again(place: &Place) {
    let (cgroups, _rig, root, _unmounted) = prepare(place);
    let docker = Dockerd::start(place, &root, &cgroups);
    let layer = fill(&docker, place);
    docker.works(&["run", "--name=box", "--network=none", "kept", "busybox", "touch", "/written"]);
    docker.stop();
    fs::remove_dir_all(&layer).unwrap();
    // Without a recovery dockerd lists the images, and none of them can be used.
    let docker = Dockerd::start(place, &root, &cgroups);
    assert_eq!(images(&docker), ["above", "base", "imported", "kept"]);
    for image in ["imported", "above"] {
        let failed = docker.client(&["run", "--rm", "--network=none", image, "busybox", "true"]);
        assert!(!failed.status.success(), "{failed:?}");
    }
    docker.stop();

    let config = hold(place, &root);
    let before = listing(place, &root);
    let aside = recover_from_crash(&config);
    let put_back = finish(place.command("sh").args(["-ec", &aside.commands.join("\n")]));
    assert!(put_back.status.success(), "{put_back:?}");
    assert_eq!(listing(place, &root), before);
    match recover_from_crash(&config).layers {
        Layers::SetAside { damaged, images, containers, .. } => {
            // That of `imported`, and the two steps above.
            assert_eq!(damaged, 3);
            assert_eq!(images, ["above:latest", "imported:latest"]);
            assert!(containers.is_empty(), "{containers:?}");
        }
        other => panic!("{other:?}"),
    }
    let docker = Dockerd::start(place, &root, &cgroups);
    settle(&config.name, &|_| {}).unwrap();
    assert_eq!(images(&docker), ["base", "kept"]);
    // If dockerd still had the image's configuration, a pull would take it for up to date.
    let inspected = docker.client(&["image", "inspect", "imported"]);
    assert!(inspected.stderr.contains("No such image"), "{inspected:?}");
    look_at(&docker, "kept");
    docker.works(&["start", "--attach", "box"]);
    import(&docker, place);
    build_from(&docker, place, "imported", "above");
    build_from(&docker, place, "base", "again");
    for image in ["above", "again"] {
        look_at(&docker, image);
    }
    docker.works(&["rm", "box"]);
    docker.works(&["rmi", "above", "imported", "kept", "again", "base"]);
    expect_nothing_left(docker, &root);
}

pub fn a_container_with_a_damaged_layer_is_left_and_can_be_removed(place: &Place) {
    let (cgroups, _rig, root, _unmounted) = prepare(place);
    let docker = Dockerd::start(place, &root, &cgroups);
    let layer = fill(&docker, place);
    let words = ["--name=box", "--network=none", "above", "busybox", "touch", "/written"];
    let id = docker.works(&[&["create"], &words[..]].concat());
    docker.stop();
    fs::remove_dir_all(&layer).unwrap();

    let config = hold(place, &root);
    match recover_from_crash(&config).layers {
        Layers::SetAside { unreferenced: 0, damaged: 0, images, containers } => {
            assert!(images.is_empty(), "{images:?}");
            assert_eq!(containers, [&id[..12]]);
        }
        other => panic!("{other:?}"),
    }
    let docker = Dockerd::start(place, &root, &cgroups);
    settle(&config.name, &|_| {}).unwrap();
    let started = docker.client(&["start", "--attach", "box"]);
    assert!(!started.status.success(), "{started:?}");
    // These are the commands of the message.
    docker.works(&["rm", "box"]);
    docker.works(&["rmi", "above", "imported"]);
    assert_eq!(images(&docker), ["base", "kept"]);
    look_at(&docker, "kept");
    import(&docker, place);
    build_from(&docker, place, "imported", "above");
    look_at(&docker, "above");
    docker.stop();
}
