//! Limits of control groups. The tests need hierarchies of version 1; the files of version 2
//! are tested beside their parser.

use crate::support::{doctor, findings, report, rig};
use libtest_mimic::Trial;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_testkit::harness::{Cgroups, Need, Place, finish, trial};
use synconce_testkit::rig::FsKind;

const CPU: &str = "/sys/fs/cgroup/cpu";
const BLKIO: &str = "/sys/fs/cgroup/blkio";
const HOW: &str = "nothing: mount the cgroup hierarchy (version 1)";

pub fn trials() -> Vec<Trial> {
    let cpu = [Need::File("/sys/fs/cgroup/cpu/cgroup.procs", HOW)];
    let blkio = [Need::File("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device", HOW)];
    vec![
        trial(a_limit_of_cpus_is_named_first, &cpu),
        trial(a_limit_of_written_bytes_is_named_first, &blkio),
    ]
}

/// Makes a group in `hierarchy`.
fn group(cgroups: &Cgroups, hierarchy: &str) -> PathBuf {
    let group = Path::new(hierarchy).join(cgroups.id("doctor"));
    fs::create_dir(&group).unwrap();
    group
}

/// Returns `command` in `group`.
fn inside(place: &Place, group: &Path, command: &Command) -> Command {
    let script = "echo $$ >\"$0\"/cgroup.procs && exec \"$@\"";
    let mut inside = place.command("sh");
    inside.args(["-c", script]).arg(group).arg(command.get_program()).args(command.get_args());
    inside
}

fn a_limit_of_cpus_is_named_first(place: &Place) {
    let cgroups = Cgroups::unique();
    let group = group(&cgroups, CPU);
    fs::write(group.join("cpu.cfs_quota_us"), "50000").unwrap();
    let path = Path::new("/dev/shm");
    let (report, _) = report(path, &mut inside(place, &group, &doctor(place, path, &[])));
    assert_eq!(findings(&report), ["cpu-limit"], "{report:#}");
    // 10 s of work take 20 s.
    assert_eq!(report["findings"][0]["seconds"], 10.0, "{report:#}");
    let undo = format!("echo '50000' >{}/cpu.cfs_quota_us", group.display());
    assert_eq!(report["findings"][0]["undo"], undo, "{report:#}");

    let options = ["--fail-on", "1", "--ignore", "cpu-limit", "--ignore", "full"];
    let ended = finish(&mut inside(place, &group, &doctor(place, path, &options)));
    assert!(ended.status.success(), "{ended:?}");
    let wanted = "/dev/shm: nothing beside what --ignore leaves out: cpu-limit\n";
    assert!(ended.stdout.starts_with(wanted), "{ended:?}");
    let ended = finish(&mut doctor(place, path, &["--ignore", "cpu"]));
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("'cpu-limit'"), "{ended:?}");
}

fn a_limit_of_written_bytes_is_named_first(place: &Place) {
    let cgroups = Cgroups::unique();
    let group = group(&cgroups, BLKIO);
    let rig = rig(FsKind::Ext4, 0);
    let device = rig.device().file_name().unwrap().to_str().unwrap();
    let number = fs::read_to_string(format!("/sys/class/block/{device}/dev")).unwrap();
    let limit = format!("{} 4000000", number.trim());
    fs::write(group.join("blkio.throttle.write_bps_device"), &limit).unwrap();
    let mut doctor = inside(place, &group, &doctor(place, rig.path(), &[]));
    let (report, _) = report(rig.path(), &mut doctor);
    assert_eq!(findings(&report)[0], "io-limit-bytes", "{report:#}");
    // 1 GB takes 250 s, and 5 s at the usual bandwidth.
    assert_eq!(report["findings"][0]["seconds"], 245.0, "{report:#}");
}
