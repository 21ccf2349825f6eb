//! Real runtimes wrapped by synconce: which containers are held, and that nothing else
//! changes.

use crate::bundles::{BARE, HELD, Runtime, config, with_profile};
use serde_json::{Value, json};
use std::process::Command;
use synconce_testkit::harness::Need;
use synconce_testkit::harness::{Place, finish};
use synconce_testkit::process::Finished;

pub const RUNC: [Need; 2] = [Need::Program("runc", "runc"), Need::Program("cc", "gcc libc6-dev")];
pub const CRUN: [Need; 2] = [Need::Program("crun", "crun"), Need::Program("cc", "gcc libc6-dev")];

pub fn under_runc(place: &Place) {
    all(&Runtime::new(place, "runc"), place);
}

pub fn under_crun(place: &Place) {
    all(&Runtime::new(place, "crun"), place);
}

fn all(runtime: &Runtime<'_>, place: &Place) {
    a_step_of_a_build_is_held(runtime);
    a_step_that_holds_itself_is_held_all_the_same(runtime);
    a_run_in_a_held_container_that_is_no_step_is_refused(runtime);
    rules_of_a_profile_are_kept(runtime);
    an_ordinary_container_is_not_held(runtime);
    a_container_that_asks_is_held_and_so_are_processes_that_enter_it_later(runtime, place);
    everything_else_is_the_runtimes_own(runtime, place);
    a_bundle_that_cannot_be_changed_is_run_as_it_is(runtime, place);
    settings_of_the_operator_are_applied_or_reported(runtime, place);
    a_copy_of_synconce_is_not_taken_for_the_runtime(runtime, place);
}

fn a_copy_of_synconce_is_not_taken_for_the_runtime(runtime: &Runtime<'_>, place: &Place) {
    let copies = place.path("copies");
    std::fs::create_dir_all(&copies).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    for (name, text) in
        [("runc", None), ("crun", Some("#!/bin/sh\nexec synconce-oci-crun \"$@\"\n"))]
    {
        let copy = copies.join(name);
        match text {
            None => drop(std::fs::copy(synconce_testkit::harness::binary(), &copy).unwrap()),
            Some(text) => std::fs::write(&copy, text).unwrap(),
        }
        assert!(finish(place.command("chmod").arg("+x").arg(&copy)).status.success());
    }
    let link = copies.join("synconce-oci-crun");
    std::os::unix::fs::symlink(synconce_testkit::harness::binary(), link).unwrap();
    let bare = finish(runtime.bare().arg("--version"));
    let mut wrapped = runtime.wrapped();
    let wrapped =
        finish(wrapped.env("PATH", format!("{}:{path}", place.text("copies"))).arg("--version"));
    assert_eq!(wrapped.stdout, bare.stdout, "{wrapped:?}");
}

fn a_step_of_a_build_is_held(runtime: &Runtime<'_>) {
    let mut user = config();
    user["process"]["user"] = json!({"uid": 1000, "gid": 1000});
    for (what, config) in
        [("unconfined", config()), ("confined", with_profile(&[])), ("a user's", user)]
    {
        let step = runtime.step(&config);
        assert_eq!((step.stdout.as_str(), step.status.code()), (HELD, Some(7)), "{what}: {step:?}");
    }
}

/// A step from a Dockerfile that holds itself, here in an engine that is set up as well.
fn a_step_that_holds_itself_is_held_all_the_same(runtime: &Runtime<'_>) {
    for words in [&["run", "--sealed", "--no-commit"][..], &["run"], &["run", "--commit-all"]] {
        let step = runtime.step(&with_synconce(&[words, &["--", "/probe"]].concat()));
        assert_eq!((step.stdout.as_str(), step.status.code()), (HELD, Some(7)), "{step:?}");
        assert_eq!(step.stderr, "", "{words:?}");
    }
    let says = |words: &[&str]| {
        let step = runtime.step(&with_synconce(words));
        (step.status.code(), step.stderr)
    };
    let (code, counted) = says(&["run", "--stats", "--", "/probe"]);
    assert!(code == Some(7) && counted.contains("no statistics: this build step"), "{counted}");
    // Nothing in a held step makes a sync real.
    let except = ["run", "--except", "/probe", "--", "/probe"];
    for words in [&["real", "--", "/probe"][..], &["commit"], &except, &["doctor", "--", "/probe"]]
    {
        let (code, refused) = says(words);
        assert!(code == Some(125) && refused.contains("this build step is held"), "{refused}");
    }
}

/// A container whose files no engine stores gets no promise from a run in it.
fn a_run_in_a_held_container_that_is_no_step_is_refused(runtime: &Runtime<'_>) {
    let mut config = with_synconce(&["run", "--", "/probe"]);
    config["annotations"] = json!({"io.synconce.hold": "true"});
    let refused = runtime.ordinary(runtime.wrapped(), &config);
    assert_eq!((refused.stdout.as_str(), refused.status.code()), ("", Some(125)), "{refused:?}");
    assert!(refused.stderr.contains("answers syncs without doing them"), "{refused:?}");
}

/// Returns the configuration of a container that executes synconce with `words`.
fn with_synconce(words: &[&str]) -> Value {
    let mut config = config();
    config["process"]["args"] = json!([&["/synconce"], words].concat());
    config["mounts"].as_array_mut().unwrap().push(json!({
        "destination": "/synconce",
        "source": synconce_testkit::harness::binary(),
        "type": "bind",
        "options": ["bind", "ro"],
    }));
    config
}

fn rules_of_a_profile_are_kept(runtime: &Runtime<'_>) {
    let mut config = with_profile(&[]);
    config["linux"]["seccomp"]["syscalls"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"names": ["fsync"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5}));
    let step = runtime.step(&config);
    assert_eq!(step.stdout, HELD.replace("fsync 0", "fsync EIO"));
}

fn an_ordinary_container_is_not_held(runtime: &Runtime<'_>) {
    for config in [config(), with_profile(&[])] {
        let bare = runtime.ordinary(runtime.bare(), &config);
        let wrapped = runtime.ordinary(runtime.wrapped(), &config);
        assert_eq!((bare.stdout.as_str(), bare.status.code()), (BARE, Some(7)), "{bare:?}");
        assert_eq!(wrapped.stdout, bare.stdout);
        assert_eq!(wrapped.status.code(), bare.status.code());
        assert_eq!(wrapped.stderr, bare.stderr);
    }
}

fn a_container_that_asks_is_held_and_so_are_processes_that_enter_it_later(
    runtime: &Runtime<'_>,
    place: &Place,
) {
    let mut config = config();
    config["annotations"] = json!({"io.synconce.hold": "true"});
    let run = runtime.ordinary(runtime.wrapped(), &config);
    assert_eq!(run.stdout, HELD, "{run:?}");

    config["process"]["args"] = json!(["/probe", "wait"]);
    let bare = executed_later(runtime, place, &|| runtime.bare(), &config);
    let wrapped = executed_later(runtime, place, &|| runtime.wrapped(), &config);
    assert_eq!(wrapped.status.code(), bare.status.code(), "{wrapped:?}");
    // In a chroot no runtime can join a container that it has made.
    let joined = bare.status.code() == Some(7);
    let (was, wanted) = if joined { (BARE, HELD) } else { ("", "") };
    assert_eq!((bare.stdout.as_str(), wrapped.stdout.as_str()), (was, wanted), "{bare:?}");
    // In a chroot no user namespace can be made (user_namespaces(7)), which shows that this is
    // one.
    let chrooted = || !finish(place.command("unshare").args(["--user", "true"])).status.success();
    assert!(joined || chrooted(), "it cannot be joined: {bare:?}");
}

/// Returns the output of a probe that is executed in a running container.
fn executed_later(
    runtime: &Runtime<'_>,
    place: &Place,
    call: &dyn Fn() -> Command,
    config: &Value,
) -> Finished {
    let id = runtime.id("waits");
    let bundle = runtime.bundle("waits", config);
    let created = finish(call().args(["create", "--bundle"]).arg(bundle).arg(&id));
    assert!(created.status.success(), "{created:?}");
    assert!(finish(call().args(["start", &id])).status.success());
    let later = finish(call().args(["exec", &id, "/probe"]));
    let ended = finish(call().args(["delete", "--force", &id]));
    assert!(ended.status.success(), "{ended:?}");
    assert!(!place.path("containers").join(&id).exists());
    later
}

fn everything_else_is_the_runtimes_own(runtime: &Runtime<'_>, place: &Place) {
    for words in [&["--version"][..], &["state", "missing"], &["nonsense"], &["delete"], &["run"]] {
        let bare = finish(runtime.bare().args(words));
        let wrapped = finish(runtime.wrapped().args(words));
        assert_eq!(wrapped.status.code(), bare.status.code(), "{words:?}");
        assert_eq!(wrapped.stdout, bare.stdout, "{words:?}");
        // Lines of a log begin with the time.
        assert_eq!(without_times(&wrapped.stderr), without_times(&bare.stderr), "{words:?}");
    }
    let bundle = runtime.bundle("broken", &config());
    std::fs::write(bundle.join("config.json"), "{\"linux\": [").unwrap();
    let log = place.path("log.json");
    let mut command = runtime.wrapped();
    command.arg("--log").arg(&log).args(["--log-format", "json", "run", "--bundle"]);
    let broken = finish(command.arg(&bundle).arg(runtime.id("broken")));
    assert!(!broken.status.success());
    let notice = std::fs::read_to_string(&log).unwrap();
    assert!(notice.contains("cannot understand"), "{notice}");
    assert_eq!(std::fs::read_to_string(bundle.join("config.json")).unwrap(), "{\"linux\": [");
}

fn without_times(text: &str) -> String {
    let parts = text.split(' ').filter(|part| !part.contains("time=") && !part.contains("T"));
    parts.collect::<Vec<_>>().join(" ")
}

fn a_bundle_that_cannot_be_changed_is_run_as_it_is(runtime: &Runtime<'_>, place: &Place) {
    let mut config = config();
    config["annotations"] = json!({"io.synconce.hold": "true"});
    let bundle = runtime.bundle("fixed", &config);
    // Read-only, except for the container's own root.
    let mounted = finish(place.command("sh").arg("-c").arg(
        "mount --bind fixed fixed && mount --bind fixed/rootfs fixed/rootfs \
         && mount -o remount,bind,ro fixed",
    ));
    assert!(mounted.status.success(), "{mounted:?}");
    let log = place.path("fixed.json");
    let mut command = runtime.wrapped();
    command.arg("--log").arg(&log).args(["--log-format", "json", "run", "--bundle"]);
    let run = finish(command.arg(&bundle).arg(runtime.id("fixed")));
    assert_eq!(run.stdout, BARE, "{run:?}");
    let notice = std::fs::read_to_string(&log).unwrap();
    assert!(
        notice.contains("cannot replace") && notice.contains("Read-only file system"),
        "{notice}"
    );
    finish(place.command("umount").args(["fixed/rootfs", "fixed"]));
}

fn settings_of_the_operator_are_applied_or_reported(runtime: &Runtime<'_>, place: &Place) {
    place.write("oci.toml", "[[rule]]\nhold = true\n");
    let all = runtime.ordinary(runtime.wrapped(), &config());
    assert_eq!(all.stdout, HELD, "{all:?}");
    place.write("oci.toml", "[[rule]]\nhold = true\nanotation = \"x\"\n");
    let wrong = runtime.ordinary(runtime.wrapped(), &config());
    assert_eq!((wrong.status.code(), wrong.stdout.as_str()), (Some(125), ""));
    let version = finish(runtime.wrapped().arg("--version"));
    assert!(version.status.success(), "what runs must be stopped all the same: {version:?}");
    assert!(wrong.stderr.contains("oci.toml: TOML parse error at line 3"), "{}", wrong.stderr);
    let runsc = place.write("runsc", "#!/bin/sh\necho started\n");
    assert!(finish(place.command("chmod").arg("+x").arg(&runsc)).status.success());
    place.write("oci.toml", &format!("runtime = {:?}\n", place.text("runsc")));
    let refused = runtime.ordinary(runtime.wrapped(), &config());
    assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(125), ""));
    assert!(refused.stderr.contains("gVisor"), "{}", refused.stderr);
    let other = finish(runtime.wrapped().args(["state", "c1"]));
    assert_eq!(other.stdout, "started\n", "only containers are refused");
    place.remove("oci.toml");
}
