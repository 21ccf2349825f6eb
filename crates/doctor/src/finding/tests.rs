use super::*;
use crate::cgroup::{Limit, LimitKind};
use crate::device::Device;
use crate::engine::{EmulatedImages, SetUp};
use crate::host::Host;
use crate::measure::{DeviceFlushes, Layers, NameRates, Times, Writes};
use crate::place::Overlay;
use std::path::PathBuf;
use synconce_probe::filesystem::SyncKind;

pub(crate) fn place() -> ExaminedPlace {
    ExaminedPlace {
        path: "/srv".into(),
        mount_point: "/srv".into(),
        type_name: "ext4".to_owned(),
        source: "/dev/vdb".to_owned(),
        mount_options: "rw".to_owned(),
        size: 1 << 30,
        used: 1 << 29,
        available: 1 << 29,
        files: None,
        available_files: None,
        in_memory: false,
        overlay: None,
        devices: Vec::new(),
        kind: Some(SyncKind::Disk { flushes: true }),
        numbers: Vec::new(),
    }
}

pub(crate) fn host(kernel: &str) -> Host {
    Host { kernel: kernel.to_owned(), cpus: 4, ..Host::default() }
}

/// Returns the figures of a disk on which a flush takes `flush` microseconds.
pub(crate) fn disk(flush: f64) -> Measured {
    let times = |flushes: f64| {
        let time = flushes * flush;
        Some(Times { samples: 100, fastest: time, quarter: time, median: time, p99: time })
    };
    Measured {
        fsync: times(2.0),
        fdatasync: times(2.0),
        overwrite: times(1.0),
        flushes: Some(DeviceFlushes { each: 2.0, mean: flush, share: 1.0 }),
        ..Measured::default()
    }
}

fn names(
    place: &ExaminedPlace,
    limits: &[Limit],
    in_force: &[InForce],
    measured: &Measured,
) -> Vec<&'static str> {
    let host = host("6.18.4");
    let facts = Facts { place, host: &host, limits, space: Space::Enough, engine: None };
    derive(&facts, in_force, measured).iter().map(|finding| finding.name).collect()
}

fn skipping(skipping: Skipping) -> InForce {
    InForce { name: "it", skipping, evidence: "it".to_owned(), preload: None }
}

#[test]
fn the_file_of_a_limit_is_one_word_of_a_shell() {
    let limit = |file: &str| Limit {
        kind: LimitKind::Cpus,
        value: 0.5,
        file: file.into(),
        lift: "max".to_owned(),
        restore: "50000 100000".to_owned(),
    };
    let (place, host) = (place(), host("6.18.4"));
    let facts =
        Facts { place: &place, host: &host, limits: &[], space: Space::Enough, engine: None };
    // systemd escapes special characters in the names of scopes.
    let odd = limits::finding(&limit("/cgroup/a\\x2d b/cpu.max"), &facts).unwrap();
    assert_eq!(odd.remedy, Action::command("echo 'max' >'/cgroup/a\\x2d b/cpu.max'"));
    let usual = limits::finding(&limit("/cgroup/a.slice/cpu.max"), &facts).unwrap();
    assert_eq!(usual.undo, Action::command("echo '50000 100000' >/cgroup/a.slice/cpu.max"));
}

#[test]
fn an_install_waits_at_least_once_for_each_of_its_fsync_calls() {
    let (place, host) = (place(), host("6.18.4"));
    let facts =
        Facts { place: &place, host: &host, limits: &[], space: Space::Enough, engine: None };
    let found = derive(&facts, &[], &disk(7_900.0));
    assert_eq!(found.len(), 1);
    // The rig at 8 ms a flush: 61.8 s plain, 8.4 s under a run (docs/benchmarks.md).
    assert_eq!(found[0].seconds.unwrap().round(), 41.0);
    let dpkg = derive(&facts, &[skipping(Skipping::OfDpkg)], &disk(7_900.0));
    // 26.3 s under force-unsafe-io.
    assert_eq!(dpkg[0].seconds.unwrap().round(), 17.0);
    let text = verdict(&facts, &[], &disk(7_900.0), &found, &[]);
    assert!(text.starts_with("/srv: slow-sync costs at least 41 s of an install"), "{text}");
}

#[test]
fn a_disk_with_fast_flushes_has_no_finding() {
    assert_eq!(names(&place(), &[], &[], &disk(500.0)), [""; 0]);
}

#[test]
fn a_volatile_cache_that_is_flushed_at_once_is_named() {
    let mut place = place();
    assert_eq!(names(&place, &[], &[], &disk(50.0)), [""; 0], "write through");
    place.devices = vec![Device::made("write back")];
    assert_eq!(names(&place, &[], &[], &disk(50.0)), ["flushes-ignored"]);
    // Other processes have delayed most syncs.
    let mut busy = disk(50.0);
    busy.overwrite = busy.overwrite.map(|times| Times { quarter: 5_000.0, ..times });
    assert_eq!(names(&place, &[], &[], &busy), ["flushes-ignored"]);
    busy.fsync = busy.fsync.map(|times| Times { median: 3_000.0, ..times });
    let host = host("6.18.4");
    let facts =
        Facts { place: &place, host: &host, limits: &[], space: Space::Enough, engine: None };
    let said = verdict(&facts, &[], &busy, &derive(&facts, &[], &busy), &[]);
    let waits =
        "the syncs of an install of 55 packages take at least 260.5 ms, and about 15.6 s now";
    assert!(said.ends_with(waits), "{said}");
}

#[test]
fn syncs_that_are_skipped_already_cost_nothing() {
    let mut place = place();
    let slow = disk(8_000.0);
    assert_eq!(names(&place, &[], &[skipping(Skipping::OfThisProcess)], &slow), [""; 0]);
    assert_eq!(names(&place, &[], &[skipping(Skipping::OfDynamicPrograms)], &slow), ["eatmydata"]);
    place.in_memory = true;
    assert_eq!(names(&place, &[], &[], &slow), [""; 0]);
}

#[test]
fn the_tightest_cause_comes_first() {
    let limit = |kind, value| Limit {
        kind,
        value,
        file: PathBuf::from("/sys/fs/cgroup/a"),
        lift: "max".to_owned(),
        restore: "1".to_owned(),
    };
    let bandwidth = limit(LimitKind::WrittenBytesPerSecond, 2e6);
    let found = names(&place(), &[limit(LimitKind::Cpus, 0.25), bandwidth], &[], &disk(8_000.0));
    assert_eq!(found, ["io-limit-bytes", "slow-sync", "cpu-limit"]);
    assert_eq!(names(&place(), &[limit(LimitKind::Cpus, 2.0)], &[], &disk(100.0)), ["cpu-limit"]);
    assert_eq!(names(&place(), &[limit(LimitKind::Cpus, 4.0)], &[], &disk(100.0)), [""; 0]);
    assert_eq!(names(&place(), &[limit(LimitKind::MemoryBytes, 1e6)], &[], &disk(100.0)), [""; 0]);
}

#[test]
fn an_overlay_syncs_each_copy_up_unless_it_is_volatile_or_copies_no_data() {
    let mut place = place();
    let overlay = |volatile, metacopy| Some(Overlay { upper: None, volatile, metacopy });
    place.overlay = overlay(false, false);
    assert_eq!(names(&place, &[], &[], &disk(8_000.0)), ["overlay-copy-up", "slow-sync"]);
    place.overlay = overlay(false, true);
    assert_eq!(names(&place, &[], &[], &disk(8_000.0)), ["slow-sync"]);
    place.overlay = overlay(true, false);
    assert_eq!(names(&place, &[], &[], &disk(8_000.0)), [""; 0]);
}

#[test]
fn the_version_of_a_kernel_is_read() {
    assert_eq!(host("6.1.0-50-amd64").version(), (6, 1));
}

#[test]
fn a_full_file_system_comes_before_everything() {
    let (place, host) = (place(), host("6.18.4"));
    let facts = Facts { place: &place, host: &host, limits: &[], space: Space::Full, engine: None };
    let found = derive(&facts, &[], &Measured::default());
    assert_eq!(found[0].name, "full");
}

#[test]
fn a_file_system_is_full_only_if_a_removal_could_help() {
    let large = place();
    assert_eq!(large.space_for(1 << 20), Space::Enough);
    assert_eq!(ExaminedPlace { available: 1 << 20, ..place() }.space_for(1 << 20), Space::Full);
    assert_eq!(
        ExaminedPlace { available_files: Some(5), ..place() }.space_for(1 << 20),
        Space::Full
    );
    assert_eq!(large.space_for(1 << 30), Space::TooSmall);
    let few = ExaminedPlace { files: Some(4_000), available_files: Some(3_990), ..place() };
    assert_eq!(few.space_for(1 << 20), Space::TooSmall);
}

fn limit(kind: LimitKind, value: f64) -> Limit {
    let file = PathBuf::from("/sys/fs/cgroup/a");
    Limit { kind, value, file, lift: "max".to_owned(), restore: "1".to_owned() }
}

#[test]
fn a_slow_bandwidth_is_a_finding_unless_a_limit_explains_it() {
    let slow = Measured {
        sequential: Some(Writes { per_second: 20.0, bytes_per_second: 20e6 }),
        ..disk(100.0)
    };
    let found = |limits: &[Limit]| names(&place(), limits, &[], &slow);
    assert_eq!(found(&[]), ["slow-writes"]);
    assert_eq!(found(&[limit(LimitKind::WrittenBytesPerSecond, 2e6)]), ["io-limit-bytes"]);
}

#[test]
fn slow_names_are_a_finding_unless_few_creates_waited_or_a_limit_explains_it() {
    let of = |samples, quarter| {
        let create = Some(Times { samples, fastest: quarter, quarter, median: 2e4, p99: 4e5 });
        let names = Some(NameRates { creates: 20.0, create, links: None, unlinks: 20.0 });
        Measured { names, ..disk(100.0) }
    };
    let found = |limits: &[Limit], measured| names(&place(), limits, &[], &measured);
    assert_eq!(found(&[], of(30, 8_000.0)), ["slow-names"]);
    // Some creates waited for other work.
    assert_eq!(found(&[], of(30, 50.0)), [""; 0]);
    assert_eq!(found(&[], of(9, 8_000.0)), [""; 0]);
    assert_eq!(found(&[limit(LimitKind::Cpus, 0.2)], of(30, 8_000.0)), ["cpu-limit"]);
    let io = limit(LimitKind::WrittenBytesPerSecond, 2e6);
    assert_eq!(found(&[io], of(30, 8_000.0)), ["io-limit-bytes"]);
    let on = |mount_options: &str, kind| {
        let place = ExaminedPlace { mount_options: mount_options.to_owned(), kind, ..place() };
        disk::slow_names(&place, &of(30, 8_000.0)).unwrap()
    };
    let disk = place().kind;
    let option = on("rw,relatime,sync", disk);
    assert_eq!(option.seconds, Some(78.0));
    assert_eq!(option.cause, "sync is a mount option: most new files take at least 8.0 ms");
    assert_eq!(option.remedy, Action::command("mount -o remount,async /srv"));
    // The mount options of NFS can have `sync`, too.
    for other in [on("rw,sync", Some(SyncKind::Network)), on("rw,async", disk)] {
        assert!(other.remedy.text().starts_with("put the files on another"), "{other:?}");
    }
}

pub(crate) fn engine(driver: &str) -> ContainerEngine {
    let (version, root) = ("20.10".to_owned(), "/var/lib/docker".into());
    let engine = ContainerEngine::new("docker", version, root, driver.to_owned());
    ContainerEngine { step_roots_are_volatile: false, ..engine }
}

/// Returns the findings about `engine` on a disk whose flush takes 8 ms, and the verdict.
fn of_engine(engine: &ContainerEngine) -> (Vec<Finding>, String) {
    of_measured(engine, &disk(8_000.0))
}

fn of_measured(engine: &ContainerEngine, measured: &Measured) -> (Vec<Finding>, String) {
    let (place, host) = (place(), host("6.18.4"));
    let engine = Some(engine);
    let facts = Facts { place: &place, host: &host, limits: &[], space: Space::Enough, engine };
    let found = derive(&facts, &[], measured);
    let verdict = verdict(&facts, &[], measured, &found, &[]);
    (found, verdict)
}

#[test]
fn the_set_up_of_an_engine_decides_what_its_slow_syncs_are() {
    let set_up = |is_made, is_in_force| ContainerEngine {
        set_up: Some(SetUp { is_made, is_in_force, lines: vec!["why".to_owned()] }),
        ..engine("overlay2")
    };
    let (found, verdict) = of_engine(&set_up(false, false));
    assert_eq!((found.len(), found[0].remedy.text()), (1, "synconce setup docker"));
    assert!(verdict.starts_with("docker (/srv): slow-sync costs at least 1"), "{verdict}");
    let (found, _) = of_engine(&set_up(true, false));
    assert_eq!(found[0].remedy.text(), "synconce setup docker --check");
    assert_eq!((found[1].name, &*found[1].evidence), ("set-up-not-in-force", "why"));
    let (found, verdict) = of_engine(&set_up(true, true));
    assert_eq!(found, []);
    let wanted =
        "docker (/srv): nothing to change: synconce holds the syncs of build steps already";
    assert_eq!(verdict, wanted);
}

/// A disk at 8 ms a flush below the layers of an engine.
fn slow_layers() -> Measured {
    let disk = disk(8_000.0);
    let layers = disk.fsync.map(|file| Layers {
        file,
        directory: file,
        volatile: Times { quarter: 100.0, ..file },
        unmount: 8_000.0,
        random: None,
    });
    Measured { layers, ..disk }
}

#[test]
fn a_held_step_still_waits_for_copy_ups_until_its_root_is_volatile() {
    let of = |engine: &ContainerEngine| of_measured(engine, &slow_layers()).0;
    let set_up = |is_in_force| Some(SetUp { is_made: is_in_force, is_in_force, lines: Vec::new() });
    let held = ContainerEngine { set_up: set_up(true), ..engine("overlay2") };
    let found = of(&held);
    assert_eq!((found.len(), found[0].name), (1, "step-copy-up"));
    // 1,000 copies of two flushes.
    assert_eq!(found[0].seconds.unwrap().round(), 16.0);
    let setting = found[0].remedy.text().to_owned();
    assert!(setting.ends_with(" /etc/synconce/oci.toml"), "{setting}");
    assert_eq!(of(&ContainerEngine { step_roots_are_volatile: true, ..held.clone() }), []);

    let bare = ContainerEngine { set_up: set_up(false), ..engine("overlay2") };
    let found = of(&bare);
    assert_eq!([found[0].name, found[1].name], ["slow-sync", "step-copy-up"]);
    assert_eq!(found[1].remedy.text(), format!("synconce setup docker && {setting}"));
    assert!(
        found[1].undo.text().ends_with("synconce setup docker --undo"),
        "{}",
        found[1].undo.text()
    );
    let configured = ContainerEngine { step_roots_are_volatile: true, ..bare.clone() };
    assert_eq!(of(&configured)[1].remedy.text(), "synconce setup docker");
    let rootless = ContainerEngine { is_rootless: true, ..bare };
    assert_eq!(of(&rootless)[1].remedy.text(), "COPY --chown=USER in place of RUN chown -R");
    let podman = ContainerEngine { name: "podman", builds_are_volatile: true, ..engine("overlay") };
    assert_eq!(of(&podman), []);
}

#[test]
fn each_database_that_is_not_synced_is_named_in_the_remedy() {
    let no_sync = ["bolt", "native"].map(str::to_owned).to_vec();
    let (found, _) =
        of_engine(&ContainerEngine { name: "containerd", no_sync, ..engine("overlayfs") });
    let found = found.iter().find(|found| found.name == "no-sync").unwrap();
    assert_eq!(found.evidence, "no_sync is on for bolt, native");
    assert!(
        found.remedy.text().starts_with("take no_sync of bolt, native out"),
        "{}",
        found.remedy.text()
    );
}

#[test]
fn no_set_up_is_advised_for_a_rootless_dockerd() {
    let (found, _) = of_engine(&ContainerEngine { is_rootless: true, ..engine("overlay2") });
    let wanted = "hold the steps in the Dockerfile: no set-up reaches a rootless docker";
    assert_eq!((found.len(), found[0].remedy.text()), (1, wanted));
}

#[test]
fn images_that_an_emulator_runs_are_named_without_seconds() {
    let images = EmulatedImages {
        images: 7,
        emulated: 2,
        first: "debian:arm".to_owned(),
        architecture: "arm64".to_owned(),
        by: "/usr/bin/qemu-aarch64".to_owned(),
    };
    let volatile = ContainerEngine { builds_are_volatile: true, ..engine("overlay2") };
    let (found, verdict) =
        of_engine(&ContainerEngine { emulated_images: Some(images), ..volatile });
    assert_eq!((found.len(), found[0].name, found[0].seconds), (1, "emulated", None));
    let cause = "an emulator runs steps and containers of 2 of 7 images";
    assert_eq!(verdict, format!("docker (/srv): emulated: {cause}"));
}

#[test]
fn slow_storage_drivers_are_named() {
    let names = |engine: ContainerEngine| {
        let volatile = ContainerEngine { builds_are_volatile: true, ..engine };
        of_engine(&volatile).0.iter().map(|finding| finding.name).collect::<Vec<_>>()
    };
    assert_eq!(names(engine("vfs")), ["vfs"]);
    assert_eq!(names(engine("overlay2")), [""; 0]);
    let program = Some("/usr/bin/fuse-overlayfs".to_owned());
    let native_diff = Some(false);
    let fuse = ContainerEngine { mount_program: program, native_diff, ..engine("overlay") };
    assert_eq!(names(fuse), ["fuse-overlayfs"]);
    let compares = ContainerEngine { native_diff, ..engine("overlay2") };
    // In a user namespace, dockerd reports no native diff for any store.
    assert_eq!(names(ContainerEngine { is_rootless: true, ..compares.clone() }), [""; 0]);
    assert_eq!(names(compares), ["no-native-diff"]);
}

mod databases;
mod remedies;
