//! Files and daemons of users: Podman reads their files last, and no set-up reaches their dockerd.

use super::place::{EndedCommand, SYNCONCE, TestRoot};
use std::fs;
use std::process::Command;

const OWN: &str = "home/anna/.config/containers/containers.conf";
const RUNC: &str = "[engine]\nruntime = \"runc\"\n";
const CRUN: &str = "[engine.runtimes]\ncrun = [\"/usr/bin/crun\"]\n";
const OTHER: &str = "[containers]\npids_limit = 0\n";

/// Runs `synconce setup WORDS` where `place` is the root directory.
fn setup(place: &TestRoot, user: &str, variable: &str, words: &[&str]) -> EndedCommand {
    let mut command = Command::new("chroot");
    command.args([&format!("--userspec={user}"), place.root.to_str().unwrap()]);
    command.args(["/usr/local/bin/synconce", "setup"]).args(words);
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
    let not_set_up = setup(&place, "1000:1000", "", &["podman", "--check"]);
    let said = "podman is not set up: it would be by sudo synconce setup podman\n";
    assert!(not_set_up.stderr.contains(said), "{not_set_up:?}");
    let set_up = setup(&place, "0:0", "", &["podman"]);
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
        let checked = setup(&place, user, variable, &["podman", "--check", "--json"]);
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
    // Podman takes runc for an empty name, or crun with control groups of version 2.
    place.write(OWN, "[engine]\nruntime = \"\"\n");
    let empty = || setup(&place, "1000:1000", "", &["podman", "--check", "--json"]).stdout;
    assert!(empty().contains("line 2: sets engine.runtime = "), "{}", empty());
    place.write("sys/fs/cgroup/cgroup.controllers", "");
    assert!(!empty().contains("home/anna"), "{}", empty());
    place.write(OWN, RUNC);
    place.write(&drop_in, "[engine]\nruntime = \"crun\"\n");
    let later = setup(&place, "1000:1000", "", &["podman", "--check", "--json"]);
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
    let run = |verb: &str, home: &str, host: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork"]);
        command.arg(format!("--mount-proc={}", proc.display())).arg("chroot").arg(&place.root);
        command.args(["/usr/local/bin/synconce", "run", "--stats", "--no-commit", "--"]);
        command.arg("/usr/bin/docker").args(verb.split(' ')).arg(".");
        command.env("DOCKER_HOST", host).env("HOME", home);
        for variable in ["DOCKER_CONTEXT", "DOCKER_CONFIG", "BUILDX_BUILDER"] {
            command.env_remove(variable);
        }
        EndedCommand::run(&mut command)
    };
    let socket = "unix:///run/user/1000/docker.sock";
    place.write("home/anna/.docker/config.json", r#"{"currentContext": "rootless"}"#);
    let endpoints = format!(r#"{{"docker": {{"Host": "{socket}"}}}}"#);
    for (directory, name, endpoints) in [("1", "other", "{}"), ("2", "rootless", &*endpoints)] {
        let meta = format!(r#"{{"Name": "{name}", "Endpoints": {endpoints}}}"#);
        place.write(&format!("home/anna/.docker/contexts/meta/{directory}/meta.json"), &meta);
    }
    // `docker context use rootless` writes the files of anna.
    for (home, host) in [("/root", socket), ("/home/anna", "")] {
        for (verb, said) in [
            (
                "build",
                "hint: copy synconce into the image, and in the Dockerfile: RUN synconce run ",
            ),
            ("run", "hint: copy synconce into the image, and in the container: synconce run -- "),
            ("exec", "hint: copy synconce into the image, and in the container: synconce run -- "),
        ] {
            let rootless = run(verb, home, host);
            assert!(rootless.stderr.contains(said), "{verb} {home}: {rootless:?}");
            assert!(rootless.stderr.contains(" at /run/user/1000/docker.sock "), "{rootless:?}");
        }
    }
    let given = run("--config /home/anna/.docker build", "/root", "");
    assert!(given.stderr.contains(" dockerd at /run/user/1000/docker.sock"), "{given:?}");
    let reached = run("build", "/home/anna", "unix:///run/docker.sock");
    assert!(reached.stderr.contains("no sync was held"), "{reached:?}");
    assert!(!reached.stderr.contains("hint:"), "{reached:?}");
}

/// podman-compose starts podman itself, and docker-compose is a client of the service. sudo does
/// not search the directories of the user.
#[test]
fn the_provider_of_podman_compose_under_sudo_is_looked_for_where_sudo_looks() {
    let place = TestRoot::new("compose");
    for program in ["usr/local/bin/synconce", "usr/bin/sudo", "usr/bin/podman"] {
        fs::create_dir_all(place.root.join("usr/bin")).unwrap();
        fs::copy(SYNCONCE, place.root.join(program)).unwrap();
    }
    place.program("home/anna/bin/podman-compose");
    fs::create_dir(place.root.join("proc")).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork"]);
        command.arg(format!("--mount-proc={}", place.root.join("proc").display()));
        command.arg("chroot").arg(&place.root).args(["/usr/local/bin/synconce", "run"]);
        command.args(["--no-commit", "--stats", "--"]).args(words);
        command.env_clear().env("PATH", "/home/anna/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        EndedCommand::run(&mut command).stderr
    };
    let of_service = "the container does the syncs, and is not part of the run\n";
    let compose = ["podman", "compose", "up"];
    let (plain, sudo) = (run(&compose), run(&[&["sudo"][..], &compose].concat()));
    assert!(!plain.contains(of_service), "{plain}");
    assert!(sudo.contains(of_service), "{sudo}");
    let hint = "setup podman; then add to the service: annotations: [io.synconce.hold=true]\n";
    assert!(sudo.contains(hint), "{sudo}");
    place.program("usr/bin/podman-compose");
    let sudo = run(&[&["sudo"][..], &compose].concat());
    assert!(!sudo.contains(of_service), "{sudo}");
}
