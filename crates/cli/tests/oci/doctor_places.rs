//! `synconce doctor` in a step of a build, in a container and in a volume: it measures there as on
//! the host.

use crate::doctor::{archive, rig};
use crate::engines::docker::{self, Docker};
use crate::engines::{self, Given, LIMITS, Site, prepare};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::thread;
use std::time::Duration;
use synconce_testkit::harness::{Place, binary, trial};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::Latency;

pub fn trials() -> Vec<Trial> {
    vec![trial(syncs_and_writes_are_measured_in_steps_containers_and_volumes, &docker::NEEDS)]
}

const DOCKERFILE: &str = "FROM base\nCOPY synconce /\n\
                          RUN [\"/synconce\", \"doctor\", \"--full\", \"--json\", \"/\"]\n";

/// The least time of a flush of 8 ms, in microseconds: the kernel may count a little less.
const LEAST_FLUSH: f64 = 7_500.0;

/// Returns the report among the lines of a builder or a container.
fn printed(ended: &Finished) -> Value {
    assert!(ended.status.success(), "{ended:?}");
    let (from, to) = (ended.stdout.find("{\n"), ended.stdout.rfind("\n}\n"));
    let (Some(from), Some(to)) = (from, to) else { panic!("no report: {ended:?}") };
    serde_json::from_str(&ended.stdout[from..to + 2]).unwrap()
}

fn syncs_and_writes_are_measured_in_steps_containers_and_volumes(place: &Place) {
    prepare(place);
    fs::copy(binary(), place.path("context/synconce")).unwrap();
    let rig = rig();
    let site = Site::with(place, Given::Runc, rig.path());
    let engine = Docker::with_storage(&site, "overlay2");
    engine.import(&archive(place), "base");
    place.write("context/Dockerfile", DOCKERFILE);
    rig.disk().set_latency(Latency::of_flush(Duration::from_millis(8))).unwrap();
    let build = ["build", "--network", "none", "--tag", "measured", "context"];
    let step = printed(&engine.client("0", &build));
    let run = |path: &str| {
        let words = ["--volume", "data:/data", "measured", "/synconce", "doctor", "--full"];
        let own = ["run", "--rm", "--network", "none"];
        engine.client("0", &[&own, &LIMITS[..2], &words, &["--json", path]].concat())
    };
    let (container, volume) = thread::scope(|scope| {
        let container = scope.spawn(|| printed(&run("/")));
        let volume = printed(&run("/data"));
        (container.join().unwrap(), volume)
    });
    rig.disk().set_latency(Latency::of_flush(Duration::ZERO)).unwrap();
    for (what, report, kind) in [
        ("step", &step, "overlay"),
        ("container", &container, "overlay"),
        ("volume", &volume, "ext4"),
    ] {
        assert_eq!(report["place"]["type_name"], kind, "{what}: {report:#}");
        assert_eq!(report["host"]["container"], "docker", "{what}: {report:#}");
        let measured = &report["measured"];
        assert!(measured["fsync"]["fastest"].as_f64() > Some(LEAST_FLUSH), "{what}: {report:#}");
        assert!(measured["random"]["per_second"].as_f64() > Some(1.0), "{what}: {report:#}");
        assert!(measured["sequential"]["per_second"].as_f64() > Some(1.0), "{what}: {report:#}");
        assert_eq!(measured["at_once"].as_array().map(Vec::len), Some(3), "{what}: {report:#}");
        let findings = report["findings"].as_array().unwrap();
        assert!(findings.iter().any(|it| it["name"] == "slow-sync"), "{what}: {report:#}");
        engines::report(&format!(
            "{what}: {} random writes a second, fsync {} us",
            measured["random"]["per_second"], measured["fsync"]["median"]
        ));
    }
    engine.stop();
}
