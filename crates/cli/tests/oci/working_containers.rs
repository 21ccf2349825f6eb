//! Working containers of Buildah, which last from one `buildah run` to the next.

use crate::engines::daemonless::{BOTH, BUILDAH, Buildah, Podman};
use crate::engines::{Given, ImageBuilder, STEPS, Site, USERS, assert_steps_held, prepare, report};
use libtest_mimic::Trial;
use synconce_testkit::harness::{Need, Place, finish, trial, without_foreign_syncs};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Fault, Rig};

pub fn trials() -> Vec<Trial> {
    let apart = Need::Before("buildah", (1, 37), "a volume of an image is a part of the root");
    let with_volumes = [&BUILDAH[..], &[apart]].concat();
    vec![
        trial(a_volume_of_the_image_is_synced_at_the_end_of_each_run, &with_volumes),
        trial(steps_of_an_image_with_volumes_are_held_and_end_well, &BOTH),
    ]
}

const SYNCS: u64 = 2000;

/// The root is a volatile overlay, which syncs nothing. The volume is no part of it.
fn a_volume_of_the_image_is_synced_at_the_end_of_each_run(place: &Place) {
    // Before the barrier, which has a disk of its own in /run.
    prepare(place);
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().size(1 << 30).passthrough(false).up().unwrap();
    let mut site = Site::with(place, Given::Us, &rig.path().join("ours"));
    site.driver = "overlay";
    let buildah = Buildah(&site);
    place.write("context/Dockerfile", "FROM scratch\nCOPY step /\nVOLUME /data\n");
    well(&buildah.build(&[]));
    well(&finish(buildah.command().args(["from", "--name", "work", "probed"])));
    let run = |file: &str, count: u64| {
        let mut command = buildah.running("work");
        finish(command.args(["/step", "syncs", file, &count.to_string()]))
    };
    let flushes = |file: &str, count: u64| {
        let flushes = || rig.disk().stats().unwrap().flushes;
        let before = flushes();
        well(&run(file, count));
        flushes() - before
    };
    flushes("/data/grown", 1);
    let of_root = flushes("/grown", SYNCS);
    let of_volume = flushes("/data/grown", SYNCS);
    report(&format!("buildah run: {of_root} flushes for its root, {of_volume} for its volume"));
    assert!(of_volume < of_root + SYNCS / 4, "{of_root} and {of_volume}");
    // Metadata can be written, so the disk stays writable.
    rig.disk().fail(Fault::writes().holding([b'x'; 64])).unwrap();
    let lost = run("/data/lost", 64);
    rig.disk().recover().unwrap();
    assert!(!lost.status.success(), "{lost:?}");
    assert!(lost.stderr.contains("cannot sync the file system of "), "{lost:?}");
    well(&finish(buildah.command().args(["rm", "work"])));
    rig.down().unwrap();
}

fn steps_of_an_image_with_volumes_are_held_and_end_well(place: &Place) {
    prepare(place);
    let volumes = STEPS.replace("COPY probe step /\n", "COPY probe step /\nVOLUME /data /more\n");
    place.write("context/Dockerfile", &volumes);
    for driver in ["vfs", "overlay"] {
        let disk = Rig::builder().size(1 << 30).up().unwrap();
        let mut site = Site::with(place, Given::Us, &disk.path().join("ours"));
        site.driver = driver;
        let builders: [&dyn ImageBuilder; 2] = [&Buildah(&site), &Podman(&site)];
        for builder in builders {
            assert_steps_held(driver, &builder.build(&[]), USERS);
        }
        disk.down().unwrap();
    }
}

fn well(finished: &Finished) {
    assert!(finished.status.success(), "{finished:?}");
}
