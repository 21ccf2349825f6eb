//! Steps whose root stays as the engine mounted it.

use super::runtimes;
use super::shim::Shim;
use super::step::{StepOnDisk, assert_well};
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs;
use std::os::unix::fs::MetadataExt;
use synconce_testkit::harness::{Need, Place, finish, trial, without_foreign_syncs};
use synconce_testkit::rig::Rig;

const NEEDS: [Need; 3] =
    [runtimes::RUNC[0], runtimes::RUNC[1], Need::Program("nsenter", "util-linux")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_root_that_cannot_be_volatile_stays_as_it_is, &runtimes::RUNC),
        trial(a_root_that_a_user_namespace_may_not_unmount_stays_as_it_is, &NEEDS),
        trial(a_root_that_is_mounted_only_after_the_create_stays_as_it_is, &runtimes::RUNC),
    ]
}

fn a_root_that_cannot_be_volatile_stays_as_it_is(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let stays = |why: &str| {
        let before = step.mounted();
        step.chown();
        assert!(step.notes().contains(why), "{why}: {}", step.notes());
        let _ = fs::remove_file(place.path("executor/runc-log.json"));
        // The id of the mount is its first word, so this is the very mount of the engine.
        before == step.mounted()
    };
    let open = fs::File::open(step.root().join("data/1")).unwrap();
    assert!(stays("it is in use"));
    drop(open);
    let other = step.copied_to_another_namespace();
    stays("it is in use");
    step.assert_back();
    drop(other);
    fs::create_dir_all(step.root().join("below")).unwrap();
    mount("test", step.root().join("below"), "tmpfs", MountFlags::empty(), None).unwrap();
    assert!(stays("another mount is over or below it"));
    unmount(step.root().join("below"), UnmountFlags::empty()).unwrap();
    step.unmount();
    step.mount_at(&step.root(), "index=on");
    assert!(stays("it has the mount option index=on"));
    step.unmount();
    step.mount_at(&step.root(), "index=off,volatile");
    assert!(stays("it is volatile already"));
    let status = place.status(&[]).stdout;
    let counted = "buildkit: 5 build steps held since the boot, 5 with the root as mounted \
                   (last reason: it is volatile already), the last ";
    assert!(status.starts_with(counted), "{status}");
    let metrics = place.status(&["--format", "prometheus"]).stdout;
    let counted = "\nsynconce_build_steps_as_mounted_total{engine=\"buildkit\"} 5\n";
    assert!(metrics.contains(counted), "{metrics}");
    step.unmount();
    rig.down().unwrap();
}

/// An engine in a user namespace whose root another user namespace has mounted.
fn a_root_that_a_user_namespace_may_not_unmount_stays_as_it_is(place: &Place) {
    let rig = Rig::builder().up().unwrap();
    let step = StepOnDisk::new(place, rig.path());
    let before = step.mounted();
    let namespace = step.user_namespace();
    let mut command = step.entering(&namespace, &["chown", "/data"]);
    assert_well(&finish(&mut command));
    let notes = step.notes();
    let why = format!("cannot unmount {}: Operation not permitted", step.root().display());
    assert!(notes.contains(&why), "{notes}");
    assert_eq!(step.mounted(), before);
    assert_eq!(fs::metadata(step.root().join("data/1")).unwrap().uid(), 1);
    let status = place.status(&[]).stdout;
    let counted = format!("1 with the root as mounted (last reason: {why}), the last ");
    assert!(status.contains(&counted), "{status}");
    drop(namespace);
    step.unmount();
    rig.down().unwrap();
}

/// A shim that mounts the layer where the root is only when the runtime has made the container.
fn a_root_that_is_mounted_only_after_the_create_stays_as_it_is(place: &Place) {
    let _barrier = without_foreign_syncs();
    let rig = Rig::builder().up().unwrap();
    let shim = Shim::new(place, &rig);
    let step = &shim.step;
    step.unmount();
    fs::copy(step.layer.join("lower/step"), step.root().join("step")).unwrap();
    assert_well(&finish(&mut shim.create(&["syncs", "/grown", "1"])));
    assert_eq!(step.mounted(), "");
    step.mount();
    let before = step.mounted();
    assert_well(&finish(&mut shim.call(&["start"])));
    shim.wait();
    // What the engine writes to the layer is synced like that of any held step.
    fs::write(step.root().join("written"), "by the engine").unwrap();
    let flushes = || rig.disk().stats().unwrap().flushes;
    let before_delete = flushes();
    assert_well(&finish(&mut shim.call(&["delete"])));
    assert!(flushes() > before_delete, "the delete syncs nothing");
    assert_eq!(step.mounted(), before);
    step.assert_back();
    let log = fs::read_to_string(step.bundle.join("log.json")).unwrap();
    assert!(log.contains("it is not a mounted overlay") && !log.contains("is volatile"), "{log}");
    let status = place.status(&[]).stdout;
    let counted =
        "1 with the root as mounted (last reason: it is not a mounted overlay), the last ";
    assert!(status.contains(counted), "{status}");
    step.unmount();
    assert!(step.root().join("grown").exists(), "the step has another root");
    rig.down().unwrap();
}
