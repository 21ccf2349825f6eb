//! The commands of docs/guide.md after a `kill -9` of `setup ENGINE --check`: they remove what it
//! left.

use crate::check::assert_nothing_below;
use crate::engines::SOCKET;
use crate::groups::GroupsOfEngines;
use crate::plain::{self, Dockerd};
use crate::set_up::{
    CONTAINERD, PODMAN, end, environment, make_private, setup, start_buildkitd, start_containerd,
    system,
};
use libtest_mimic::Trial;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Instant;
use synconce_testkit::harness::{Need, Place, engine, eventually, finish, trial};
use synconce_testkit::process::{Finished, Group};

const GUIDE: &str = include_str!("../../../../docs/guide.md");
/// In how many moments of a check it is killed.
const KILLS: u32 = 8;
const CONTAINERD_NEEDS: [Need; 2] = [CONTAINERD[0], CONTAINERD[1]];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(of_docker_are_cleaned_up_by_the_commands_of_the_guide, &plain::DOCKER),
        trial(of_podman_are_cleaned_up_by_the_commands_of_the_guide, &PODMAN),
        trial(of_buildkitd_are_cleaned_up_by_the_commands_of_the_guide, &plain::BUILDKIT),
        trial(of_containerd_are_cleaned_up_by_the_commands_of_the_guide, &CONTAINERD_NEEDS),
    ]
}

/// Returns the block of commands in the guide that has `word`.
fn commands(word: &str) -> &'static str {
    let (_, text) = GUIDE.split_once("\nA `kill -9` of `--check` can leave").expect("a paragraph");
    let (text, _) = text.split_once("\n### ").expect("the next section");
    let blocks = text.split("```sh\n").skip(1).filter_map(|it| it.split("```").next());
    blocks.into_iter().find(|block| block.contains(word)).expect("a block")
}

/// Kills checks of `name` at different moments, and types the block of commands that has `word`
/// after each. Asserts that `left` is empty after the commands, and was not always empty before.
fn kill_and_clean_up(place: &Place, name: &str, word: &str, left: &dyn Fn() -> String) {
    let spawn = || Group::spawn(&mut place.synconce(&["setup", name, "--check"])).unwrap();
    let check = || {
        let begin = Instant::now();
        let ended = finish(&mut place.synconce(&["setup", name, "--check"]));
        assert!(ended.status.success(), "{ended:?}");
        begin.elapsed()
    };
    // The first one finds cold caches.
    let length = check().min(check());
    let mut is_left = false;
    for kill in 1..=KILLS {
        let check = spawn();
        std::thread::sleep(length * kill / (KILLS + 1));
        check.signal(Signal::KILL).unwrap();
        check.wait(synconce_testkit::harness::limit()).unwrap();
        eventually("the clients end", || !has_client());
        is_left |= !left().is_empty();
        // A daemon may still finish a request.
        eventually("nothing is left", || {
            clean_up(place, word).status.success() && left().is_empty()
        });
    }
    assert!(is_left, "no kill left anything");
    // They are typed again when nothing is left.
    let again = clean_up(place, word);
    assert!(again.status.success(), "{again:?}");
}

/// Types the block of commands that has `word`.
fn clean_up(place: &Place, word: &str) -> Finished {
    let mut shell = place.command("sh");
    shell.args(["-ec", commands(word)]).env("DOCKER_HOST", SOCKET).env("BUILDKIT_HOST", SOCKET);
    finish(&mut shell)
}

/// Whether a client of a check is running, or is about to be executed. A process that has ended has
/// no command line.
fn has_client() -> bool {
    let mut processes = fs::read_dir("/proc").unwrap().flatten();
    processes.any(|process| {
        let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        ["synconce-check-", "buildctl\0", "\0--check\0"].iter().any(|word| words.contains(word))
    })
}

/// Returns the directories of probes.
fn directories() -> String {
    let names = ["/var/lib", "/run"].into_iter().flat_map(|top| fs::read_dir(top).unwrap());
    let names = names.map(|entry| entry.unwrap().path().display().to_string());
    names.filter(|path| path.contains("synconce-check-")).collect::<Vec<_>>().join(" ")
}

/// Returns the output of a program that has to succeed.
fn output(command: &mut Command) -> String {
    let ended = finish(command);
    assert!(ended.status.success(), "{ended:?}");
    ended.stdout
}

fn of_docker_are_cleaned_up_by_the_commands_of_the_guide(place: &Place) {
    system(place);
    let (name, value) = environment(&setup(place, &["docker"])).expect("a variable");
    // The first client in the PATH may be another one.
    symlink("/usr/bin/docker", "/usr/local/sbin/docker").unwrap();
    let mut dockerd = place.command("dockerd");
    dockerd.env(name, value);
    let docker = Dockerd::start(place, dockerd);
    let list = |words: &[&str]| output(docker.client("1").args(words));
    kill_and_clean_up(place, "docker", "docker ps", &|| {
        list(&["ps", "--all", "--quiet"]) + &list(&["images", "--all", "--quiet"])
    });
    docker.stop();
}

fn of_podman_are_cleaned_up_by_the_commands_of_the_guide(place: &Place) {
    system(place);
    let _groups = GroupsOfEngines::shared();
    // The commands would remove the directories of other tests.
    make_private("/run", &place.path("run"));
    make_private("/var/lib", &place.path("lib"));
    setup(place, &["podman"]);
    kill_and_clean_up(place, "podman", "findmnt", &directories);
    assert_nothing_below(&["/var/lib", "/run"]);
}

fn of_buildkitd_are_cleaned_up_by_the_commands_of_the_guide(place: &Place) {
    system(place);
    let _groups = GroupsOfEngines::shared();
    setup(place, &["buildkit"]);
    let buildctl = engine("buildctl").unwrap();
    symlink(&buildctl, "/usr/local/bin/buildctl").unwrap();
    let daemon = start_buildkitd(place, &[], &[]);
    kill_and_clean_up(place, "buildkit", "buildctl prune", &|| {
        let mut du = place.command(buildctl.to_str().unwrap());
        let listed = output(du.args(["--addr", SOCKET, "du", "--verbose"]));
        listed.lines().filter(|line| line.starts_with("ID:")).collect()
    });
    end(&daemon);
}

fn of_containerd_are_cleaned_up_by_the_commands_of_the_guide(place: &Place) {
    system(place);
    // The commands would remove the directories of other tests.
    make_private("/var/lib", &place.path("lib"));
    setup(place, &["containerd"]);
    let daemon = start_containerd(place, &[]);
    kill_and_clean_up(place, "containerd", "ctr --namespace", &|| {
        let list = output(place.command("/usr/bin/ctr").args(["namespaces", "ls", "--quiet"]));
        let namespace = list.lines().find(|name| *name == "synconce-check").unwrap_or_default();
        namespace.to_owned() + &directories()
    });
    end(&daemon);
}
