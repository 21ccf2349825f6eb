//! Podman and Buildah: the runtime and its candidates.

use super::support::{RUNTIME, TestSystem, refusal, there_and_back};
use synconce_setup::Engine;

const CONFIG: &str = "/etc/containers/containers.conf";
const DROP_IN: &str = "/etc/containers/containers.conf.d/synconce.conf";

fn tree() -> TestSystem {
    TestSystem::new().program("/usr/bin/crun").program("/usr/sbin/runc")
}

fn candidates(tree: &TestSystem, name: &str) -> Vec<String> {
    tree.set_up(Engine::Podman, "").unwrap();
    let text = tree.read(DROP_IN);
    let document: toml_edit::DocumentMut = text.parse().unwrap();
    let list = document["engine"]["runtimes"][name].as_array().unwrap();
    assert_eq!(document["engine"]["runtimes"].as_table_like().unwrap().len(), 1);
    list.iter().map(|path| path.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_new_candidate_comes_before_the_built_in_ones() {
    let tree = tree();
    let found = candidates(&tree, "crun");
    assert_eq!(
        found[..3],
        ["/usr/local/lib/synconce/podman/crun", "/usr/bin/crun", "/usr/sbin/crun"]
    );
    assert_eq!(found.len(), 8);
    // The link is named crun, because synconce-oci may find runc as well.
    let link = std::fs::read_link(tree.real("/usr/local/lib/synconce/podman/crun")).unwrap();
    assert_eq!(link.to_str(), Some(RUNTIME));
}

#[test]
fn the_runtime_is_the_one_that_podman_would_use() {
    let runc = TestSystem::new().program("/usr/sbin/runc");
    assert_eq!(candidates(&runc, "runc")[1], "/usr/bin/runc");
    let chosen =
        tree().with("/usr/share/containers/containers.conf", "[engine]\nruntime = \"runc\"\n");
    assert_eq!(candidates(&chosen, "runc").len(), 9);
    let last = tree()
        .with(CONFIG, "[engine]\nruntime = \"runc\"\n")
        .with("/etc/containers/containers.conf.d/10.conf", "[engine]\nruntime = \"crun\"\n");
    assert_eq!(candidates(&last, "crun").len(), 8);
    // An empty name takes back an earlier one. It stands for runc, or for crun with control groups
    // of version 2.
    let empty = || {
        let later = "/etc/containers/containers.conf.d/10.conf";
        let set = "[engine]\nruntime = \"crun\"\n";
        tree().with(CONFIG, set).with(later, "[engine]\nruntime = \"\"\n")
    };
    assert_eq!(candidates(&empty(), "runc")[1], "/usr/bin/runc");
    let unified = empty().with("/sys/fs/cgroup/cgroup.controllers", "");
    assert_eq!(candidates(&unified, "crun")[1], "/usr/bin/crun");
}

#[test]
fn a_list_of_the_operator_is_kept_after_the_new_entries() {
    let tree = tree()
        .with(CONFIG, "[engine.runtimes]\ncrun = ['/opt/a \"b\"/crun', \"/usr/bin/crun\"]\n")
        .with("/etc/containers/containers.conf.d/50.conf", "[engine.runtimes]\nrunc = [\"/x\"]\n");
    there_and_back(&tree, Engine::Podman, "");
    assert_eq!(candidates(&tree, "crun")[1..], ["/opt/a \"b\"/crun", "/usr/bin/crun"]);
}

#[test]
fn a_list_that_is_read_after_the_new_one_is_refused_with_its_line() {
    let path = "/etc/containers/containers.conf.d/zz.conf";
    let tree = tree().with(path, "[engine.runtimes]\n\ncrun = [\"/usr/bin/crun\"]\n");
    let printed = refusal(tree.set_up(Engine::Podman, ""));
    assert!(printed.contains("zz.conf, line 3: sets engine.runtimes.crun"), "{printed}");
}

#[test]
fn runtimes_that_cannot_be_held_are_refused_with_the_line_and_the_reason() {
    for (name, why) in [
        ("runsc", "a kernel in user space"),
        ("kata", "a virtual machine"),
        ("krun", "a virtual machine"),
        ("/usr/bin/crun", "a path"),
        ("youki", "not known"),
    ] {
        let tree = tree().with(CONFIG, &format!("[engine]\nruntime = \"{name}\"\n"));
        let printed = refusal(tree.set_up(Engine::Podman, ""));
        assert!(
            printed.contains("containers.conf, line 2: ") && printed.contains(why),
            "{printed}"
        );
    }
}

#[test]
fn without_a_runtime_there_is_nothing_to_stand_before() {
    assert!(
        refusal(TestSystem::new().set_up(Engine::Podman, "")).contains("neither crun nor runc")
    );
}

#[test]
fn what_was_done_by_hand_is_left_alone() {
    let content = format!("[engine.runtimes]\ncrun = [\"{RUNTIME}\", \"/usr/bin/crun\"]\n");
    let tree = tree().with("/etc/containers/containers.conf.d/zz.conf", &content);
    assert_eq!(tree.set_up(Engine::Podman, "").unwrap(), 0);
}

const LIST: &str = "[engine.runtimes]\n\ncrun = [\"/opt/none\", \"/opt/crun/crun\"]\n\
    [engine]\nruntime = 'crun'\n";

#[test]
fn a_candidate_that_synconce_oci_would_not_execute_is_refused_with_its_line() {
    let elsewhere = || TestSystem::new().program("/opt/crun/crun").with(CONFIG, LIST);
    for (tree, instead) in [
        (elsewhere(), "would not find it"),
        (elsewhere().program("/usr/bin/crun"), "would execute /usr/bin/crun"),
        (elsewhere().link(RUNTIME, "/usr/bin/crun"), "would not find it"),
    ] {
        let before = tree.snapshot();
        let error = tree.set_up(Engine::Podman, "").unwrap_err();
        let (printed, remedy) = (error.to_string(), error.remedy().unwrap().to_owned());
        assert!(
            printed.contains("containers.conf, line 3: has podman use /opt/crun/crun"),
            "{printed}"
        );
        assert!(printed.contains(instead), "{printed}");
        let settings = tree.real("/etc/synconce/oci.toml");
        let wanted = format!("runtime = \"/opt/crun/crun\" in {}", settings.display());
        assert!(remedy.contains(&wanted), "{remedy}");
        assert_eq!(before, tree.snapshot());
        let tree = tree.with("/etc/synconce/oci.toml", "runtime = \"/opt/crun/crun\"\n");
        there_and_back(&tree, Engine::Podman, "");
    }
    // The same file by another name.
    there_and_back(&elsewhere().link("/opt/crun/crun", "/usr/bin/crun"), Engine::Podman, "");
}

#[test]
fn a_candidate_that_is_built_in_is_refused_where_another_comes_before_it() {
    // Podman would use /usr/bin/crun, but synconce-oci finds /usr/local/bin/crun first.
    let tree = tree().program("/usr/local/bin/crun");
    let printed = refusal(tree.set_up(Engine::Podman, ""));
    assert!(
        printed.contains("/usr/bin/crun: has podman use")
            && printed.contains("/usr/local/bin/crun")
    );
}

#[test]
fn another_runtime_of_the_operator_is_reported() {
    let tree = tree().with("/etc/synconce/oci.toml", "runtime = \"/usr/sbin/runc\"\n");
    let notes = tree.plan(Engine::Podman, "").unwrap().notes.join("\n");
    assert!(notes.contains("names /usr/sbin/runc: it is executed for podman, not /usr/bin/crun"));
}
