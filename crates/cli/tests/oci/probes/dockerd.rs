//! Probe containers of `setup --check` in dockerd, with either image store.

use crate::check::{PROBED, check};
use crate::plain::{self, Dockerd};
use crate::set_up::{DAEMON_JSON, environment, setup, system};
use libtest_mimic::Trial;
use rustix::mount::mount_bind;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use synconce_sys::search;
use synconce_testkit::harness::{Need, Place, trial};

/// The first dockerd whose BuildKit reads an uploaded Dockerfile with containerd's image store.
const NEEDS_STORE: [Need; 4] =
    [Need::Since("dockerd", 28), plain::DOCKER[0], plain::DOCKER[1], plain::DOCKER[2]];
const NEEDS_OLDER: [Need; 4] = [
    Need::Since("dockerd", 24),
    Need::Before("dockerd", (28, 0), "it reads uploads"),
    plain::DOCKER[0],
    plain::DOCKER[1],
];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(of_dockerd_are_held_and_leave_nothing, &plain::DOCKER),
        trial(of_dockerd_with_containerds_image_store_are_held_and_leave_nothing, &NEEDS_STORE),
        trial(are_none_in_an_older_dockerd_with_containerds_image_store, &NEEDS_OLDER),
    ]
}

fn of_dockerd_are_held_and_leave_nothing(place: &Place) {
    system(place);
    check_with_storage(place, "vfs", &["BuildKit", "the classic builder"]);
}

fn of_dockerd_with_containerds_image_store_are_held_and_leave_nothing(place: &Place) {
    with_containerds_store(place);
    check_with_storage(place, "overlayfs", &["BuildKit"]);
}

fn are_none_in_an_older_dockerd_with_containerds_image_store(place: &Place) {
    with_containerds_store(place);
    let daemon = started(place, "overlayfs");
    let before = daemon.run("1", &["system", "df", "--verbose"]).stdout;
    let green = check(place, &["docker"]);
    assert_eq!(green.status.code(), Some(0), "{green:?}");
    assert!(
        green.stderr.contains("synconce: no probe container was run: before Docker 28, "),
        "{green:?}"
    );
    assert_eq!(daemon.run("1", &["system", "df", "--verbose"]).stdout, before);
    daemon.stop();
}

/// Makes a system whose dockerd has its images in containerd's store.
fn with_containerds_store(place: &Place) {
    system(place);
    // The set-up reads the version of this file, and not of the first dockerd in PATH.
    let dockerd = search::find("dockerd").expect("a dockerd");
    mount_bind(dockerd, "/usr/sbin/dockerd").unwrap();
    let store = r#"{ "features": { "containerd-snapshotter": true } }"#;
    fs::write(DAEMON_JSON, store).unwrap();
}

/// Checks a dockerd with the storage driver `driver`, in which the check runs a step by each of
/// `builders`.
fn check_with_storage(place: &Place, driver: &str, builders: &[&str]) {
    let rules = rules(place);
    let daemon = started(place, driver);
    let stored = || {
        let list = |words: &[&str]| daemon.run("1", words).stdout;
        let words = [&["images", "--all", "--quiet"][..], &["ps", "--all", "--quiet"]];
        let df = list(&["system", "df", "--verbose"]);
        let (_, cache) = df.split_once("CACHE ID").expect("the build cache");
        let ids = cache.lines().skip(1).filter_map(|line| line.split(' ').next());
        let mut ids: Vec<_> = ids.map(str::to_owned).collect();
        ids.sort();
        (words.map(list), ids, layers(&place.path("data")))
    };
    // A build of the user has a context, a base and a step in the cache.
    daemon.build("1");
    let before = stored();
    assert!(before.0[0].lines().count() > 0 && before.1.len() > 4, "{before:?}");
    let checked = || {
        let checked = check(place, &["docker"]);
        assert_eq!(stored(), before, "{checked:?}");
        checked
    };
    let green = checked();
    assert_eq!(green.status.code(), Some(0), "{green:?}");
    assert!(green.stderr.contains(PROBED), "{green:?}");
    // Two of them are the user's.
    let counted = place.status(&[]).stdout;
    let held = format!("docker: {} build steps held since the boot", 2 + builders.len());
    assert!(counted.starts_with(&held), "{counted}");
    let asserts_faults = |text: &str, faults: &[String]| {
        fs::write(&rules, text).unwrap();
        let red = checked();
        assert_eq!(red.status.code(), Some(1), "{red:?}");
        assert!(!red.stderr.contains(PROBED) && red.stderr.contains(") has it\n"), "{red:?}");
        for fault in faults {
            assert!(red.stderr.contains(&format!("synconce: {fault}\n")), "{fault}: {red:?}");
        }
    };
    let real = |builder| format!("a probe step of {builder} was not held; restart dockerd");
    let real: Vec<_> = builders.iter().map(real).collect();
    asserts_faults("[[rule]]\nhold = false\n", &real);
    let ordinary = "an ordinary container was held; edit /etc/synconce/oci.toml".to_owned();
    asserts_faults("[[rule]]\nhold = true\n", &[ordinary]);
    fs::write(&rules, "[[rul]]\n").unwrap();
    let failed = checked();
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let said = failed.stderr.lines().find(|it| it.contains(": cannot run a probe step: "));
    let said = said.unwrap_or_else(|| panic!("{failed:?}"));
    assert!(said.contains(": exit code: 125"), "{said}");
    assert!(said.ends_with("; try: docker build --no-cache ."), "{said}");
    daemon.stop();
}

/// Returns the rules of dockerd, which the check does not read.
fn rules(place: &Place) -> PathBuf {
    place.path("oci.toml")
}

/// Sets up and starts a dockerd with the storage driver `driver`.
fn started<'a>(place: &'a Place, driver: &str) -> Dockerd<'a> {
    let done = setup(place, &["docker"]);
    let (name, value) = environment(&done).expect("a variable");
    // The set-up writes the PATH of systemd, in which another dockerd and containerd may be.
    let value = match (&*name, value.split_once(':')) {
        ("PATH", Some((ours, _))) => format!("{ours}:{}", env::var("PATH").unwrap_or_default()),
        _ => value,
    };
    let mut dockerd = place.command("dockerd");
    dockerd.env(&name, &value).env("SYNCONCE_OCI_FILE", rules(place));
    Dockerd::with_storage(place, dockerd, driver)
}

/// Returns the names of dockerd's layers below `data`.
fn layers(data: &Path) -> Vec<PathBuf> {
    let names = |directory: &str| fs::read_dir(data.join(directory)).into_iter().flatten();
    let all = ["vfs/dir", "image/vfs/layerdb/sha256", "image/vfs/imagedb/content/sha256"];
    let mut all: Vec<_> = all.into_iter().flat_map(names).map(|it| it.unwrap().path()).collect();
    all.sort();
    all
}
