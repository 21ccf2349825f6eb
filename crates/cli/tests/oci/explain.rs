//! `synconce oci --explain`.

use crate::bundles::{HELD, Runtime, config};
use libtest_mimic::Trial;
use synconce_testkit::harness::{Need, Place, finish, trial};
use synconce_testkit::process::Finished;

pub fn trials() -> Vec<Trial> {
    let cc = [Need::Program("cc", "gcc libc6-dev")];
    vec![
        trial(it_prints_what_would_be_done_and_why, &cc),
        trial(a_directory_without_a_bundle_is_an_error, &cc),
    ]
}

fn explain(place: &Place, words: &[&str]) -> Finished {
    let mut command = place.synconce(&["oci", "--explain"]);
    finish(command.args(words).env("SYNCONCE_OCI_FILE", place.path("oci.toml")))
}

fn it_prints_what_would_be_done_and_why(place: &Place) {
    let runtime = Runtime::new(place, "runc");
    runtime.bundle("executor/x7", &config());
    runtime.bundle("plain", &config());
    let before = place.read("executor/x7/config.json");
    let step = explain(place, &["executor/x7"]);
    assert!(step.status.success());
    assert!(step.stdout.contains("verdict   held: a build step of BuildKit\n"), "{}", step.stdout);
    assert!(step.stdout.contains("not held  opens with O_SYNC"), "{}", step.stdout);
    assert!(step.stdout.contains("mounted it: it is not a mounted overlay\n"), "{}", step.stdout);
    assert_eq!(place.read("executor/x7/config.json"), before, "it changes nothing");
    place.write("oci.toml", "step-root = \"as-mounted\"\n");
    let step = explain(place, &["executor/x7"]);
    assert!(step.stdout.contains("root      as the engine mounted it: step-root is"));
    place.remove("oci.toml");
    // The bundle of a step or another container that was made has the hold.
    runtime.step(&config());
    let begun = explain(place, &[&format!("executor/{}", runtime.short())]).stdout;
    assert!(
        begun.contains("verdict   held: a build step of BuildKit\nheld      already: "),
        "{begun}"
    );
    assert!(!begun.contains("restricts them"), "{begun}");
    let mut asks = config();
    asks["annotations"] = serde_json::json!({"io.synconce.hold": "true"});
    assert_eq!(runtime.ordinary(runtime.wrapped(), &asks).stdout, HELD);
    let made = explain(place, &["ordinary"]).stdout;
    assert!(made.contains("held: its annotation io.synconce.hold\nheld      already: "), "{made}");
    let plain = explain(place, &["plain"]);
    assert!(plain.stdout.contains("verdict   not held: an ordinary container"), "{}", plain.stdout);
    let as_run = explain(place, &["executor/x7", "create", "--bundle", "executor/x7", "x7"]);
    assert!(as_run.stdout.contains("not held"), "the arguments count: {}", as_run.stdout);
}

fn a_directory_without_a_bundle_is_an_error(place: &Place) {
    let none = explain(place, &["nowhere"]);
    assert_eq!((none.status.code(), none.stdout.as_str()), (Some(125), ""));
    assert!(
        none.stderr.contains("cannot find nowhere: No such file or directory"),
        "{}",
        none.stderr
    );
    assert!(explain(place, &[]).stderr.contains("usage: synconce-oci --explain BUNDLE"));
    std::fs::create_dir(place.path("empty")).unwrap();
    assert!(explain(place, &["empty"]).stderr.contains("empty/config.json: No such file"));
}
