//! Files and daemons of users: Podman reads their files last, and no set-up reaches their dockerd.

use super::place::{EndedCommand, SYNCONCE, TestRoot};
use std::fs;
use std::process::Command;

const OWN: &str = "home/anna/.config/containers/containers.conf";
const RUNC: &str = "[engine]\nruntime = \"runc\"\n";
const CRUN: &str = "[engine.runtimes]\ncrun = [\"/usr/bin/crun\"]\n";
const OTHER: &str = "[containers]\npids_limit = 0\n";

/// Runs `synconce setup podman WORDS` where `place` is the root directory.
fn setup(place: &TestRoot, user: &str, variable: &str, words: &[&str]) -> EndedCommand {
    let mut command = Command::new("chroot");
    command.args([&format!("--userspec={user}"), place.root.to_str().unwrap()]);
    command.args(["/usr/local/bin/synconce", "setup", "podman"]).args(words);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin").env("HOME", "/home/anna");
    command.envs(variable.split_once('='));
    EndedCommand::run(&mut command)
}

#[test]
fn a_users_own_file_that_overrides_the_set_up_is_a_fault_of_a_check() {
    let place = TestRoot::new("users");
    fs::copy(SYNCONCE, place.root.join("usr/local/bin/synconce")).unwrap();
    for program in ["usr/bin/podman", "usr/bin/crun", "usr/bin/runc"] {
        place.program(program);
    }
    let not_set_up = setup(&place, "1000:1000", "", &["--check"]);
    let said = "podman is not set up: it would be by sudo synconce setup podman\n";
    assert!(not_set_up.stderr.contains(said), "{not_set_up:?}");
    let set_up = setup(&place, "0:0", "", &[]);
    assert_eq!(set_up.code, Some(0), "{set_up:?}");
    let drop_in = format!("{OWN}.d/50-own.conf");
    let variable = "CONTAINERS_CONF=/home/anna/other";
    let list = "[engine.runtimes]\ncrun = [\"/usr/local/lib/synconce/podman/crun\"]\n";
    let with_runc = format!("{RUNC}{list}");
    let link = "[engine]\nruntime = \"/usr/local/lib/synconce/podman/crun\"\n";
    let last = "CONTAINERS_CONF_OVERRIDE=/home/anna/other";
    for (file, text, user, variable, part) in [
        (OWN, OTHER, "1000:1000", "", ""),
        (OWN, RUNC, "1000:1000", "", ", line 2: sets engine.runtime = \"runc\", but "),
        (OWN, link, "1000:1000", "", ""),
        (OWN, CRUN, "1000:1000", "", ", line 2: sets engine.runtimes.crun, and is read after "),
        (&drop_in, RUNC, "1000:1000", "", "50-own.conf, line 2: sets engine.runtime = "),
        // Podman reads no file of root's home.
        (OWN, RUNC, "0:0", "", ""),
        ("home/anna/other", OTHER, "1000:1000", variable, "other: is in CONTAINERS_CONF, so "),
        ("home/anna/other", OTHER, "0:0", variable, "other: is in CONTAINERS_CONF, so "),
        ("home/anna/other", list, "1000:1000", variable, ""),
        (
            "home/anna/other",
            &with_runc,
            "1000:1000",
            variable,
            "other, line 2: sets engine.runtime",
        ),
        ("home/anna/other", RUNC, "1000:1000", last, "other, line 2: sets engine.runtime = "),
        ("home/anna/other", RUNC, "0:0", last, "other, line 2: sets engine.runtime = "),
        ("home/anna/other", OTHER, "0:0", last, ""),
    ] {
        place.write(file, text);
        // The image of a probe is built by the real podman only.
        let checked = setup(&place, user, variable, &["--check", "--json"]);
        let faults = checked.stdout.split_once("\"faults\"").expect("JSON").1;
        if part.is_empty() {
            let is_named = faults.contains("containers.conf") || faults.contains("home/anna");
            assert!(!is_named, "{file} {text} {user}: {checked:?}");
        } else {
            assert_eq!(checked.code, Some(1), "{file} {text} {user}: {checked:?}");
            let json = part.replace('"', "\\\"");
            assert!(faults.contains(&json), "{file} {text} {user}: {checked:?}");
        }
        fs::remove_file(place.root.join(file)).unwrap();
    }
    place.write(OWN, RUNC);
    place.write(&drop_in, "[engine]\nruntime = \"crun\"\n");
    let later = setup(&place, "1000:1000", "", &["--check", "--json"]);
    assert!(!later.stdout.contains("home/anna"), "the later file wins: {later:?}");
}

/// The set-up of the machine's dockerd does not reach the dockerd of a user.
#[test]
fn a_client_of_a_rootless_dockerd_gets_a_hint_although_docker_is_set_up() {
    let place = TestRoot::new("rootless");
    place.program("usr/bin/runc");
    let set_up = place.setup(&["docker"]);
    assert_eq!(set_up.code, Some(0), "{set_up:?}");
    let proc = place.root.join("proc");
    fs::create_dir(&proc).unwrap();
    // What counts is the client's name.
    for program in ["usr/local/bin/synconce", "usr/bin/docker"] {
        fs::copy(SYNCONCE, place.root.join(program)).unwrap();
    }
    let run = |host: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork"]);
        command.arg(format!("--mount-proc={}", proc.display())).arg("chroot").arg(&place.root);
        command.args(["/usr/local/bin/synconce", "run", "--stats", "--no-commit", "--"]);
        command.args(["/usr/bin/docker", "build", "."]).env("DOCKER_HOST", host);
        EndedCommand::run(command.env_remove("DOCKER_CONTEXT").env_remove("BUILDX_BUILDER"))
    };
    let rootless = run("unix:///run/user/1000/docker.sock");
    let said = "hint: copy synconce into the image, and in the Dockerfile: RUN synconce run ";
    assert!(rootless.stderr.contains(said), "{rootless:?}");
    let reached = run("unix:///run/docker.sock");
    assert!(reached.stderr.contains("no sync was held"), "{reached:?}");
    assert!(!reached.stderr.contains("hint:"), "{reached:?}");
}
