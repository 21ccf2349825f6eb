//! Steps whose root stays as the engine mounted it.

use super::runtimes;
use super::step::{StepOnDisk, assert_well};
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs;
use std::os::unix::fs::MetadataExt;
use synconce_testkit::harness::{Need, Place, finish, trial};
use synconce_testkit::rig::Rig;

const NEEDS: [Need; 3] =
    [runtimes::RUNC[0], runtimes::RUNC[1], Need::Program("nsenter", "util-linux")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_root_that_cannot_be_volatile_stays_as_it_is, &runtimes::RUNC),
        trial(a_root_that_a_user_namespace_may_not_unmount_stays_as_it_is, &NEEDS),
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
