//! The script of the Helm chart's DaemonSet, on a directory that stands for a node.

use super::place::{EndedCommand, SYNCONCE, TestRoot};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_testkit::patiently;
use synconce_testkit::process::Group;

const SCRIPT: &str = include_str!("../../../../packaging/helm/synconce/files/node.sh");

/// Returns the script, for the node `place`.
fn script(place: &TestRoot) -> Command {
    let host = place.root.to_str().expect("a path of ours");
    let ready = place.root.join("var/ready");
    let script = SCRIPT
        .replace("program=/synconce\n", &format!("program={SYNCONCE}\n"))
        .replace("/host", host)
        .replace("/tmp/ready", ready.to_str().expect("a path of ours"));
    let tools = place.root.join("var/tools");
    place.write("var/tools/nsenter", "#!/bin/sh\necho \"$@\" >> \"${0%/*}/restarts\"\n");
    fs::set_permissions(tools.join("nsenter"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("PATH", path);
    command.env("BINARY_DIRECTORY", "/opt/synconce/bin").env("RESTART_CONTAINERD", "true");
    command
}

/// The running script. Its drop kills it with its children.
struct Node {
    script: Group,
    place: TestRoot,
}

impl Node {
    /// Starts the script on a node with containerd, and waits until the node is set up.
    fn start(place: TestRoot) -> Self {
        let node = Self { script: Group::spawn(&mut script(&place)).expect("sh runs"), place };
        let ready = node.place.root.join("var/ready");
        let end = Instant::now() + patiently(Duration::from_secs(60));
        while !ready.exists() {
            assert!(Instant::now() < end, "the node was never set up");
            std::thread::sleep(Duration::from_millis(10));
        }
        node
    }

    fn restarts(&self) -> usize {
        let log = fs::read_to_string(self.place.root.join("var/tools/restarts"));
        log.unwrap_or_default().matches("systemctl restart containerd").count()
    }

    /// Ends the script by SIGTERM, like the kubelet.
    fn end(&self) {
        let pid = Pid::from_raw(self.script.pid() as i32).expect("a process");
        kill_process(pid, Signal::TERM).expect("it is sent");
        let status = self.script.wait(patiently(Duration::from_secs(60))).expect("a process");
        assert!(status.is_some_and(|status| status.success()), "{:?}", self.script.stderr());
    }
}

const CONFIG: &str = "etc/containerd/config.toml";
const BINARY: &str = "opt/synconce/bin/synconce-oci";

fn node(name: &str) -> TestRoot {
    let place = TestRoot::new(name);
    place.write(CONFIG, "version = 2\n\n[grpc]\nuid = 0\n");
    place
}

fn same(a: &Path, b: &Path) -> bool {
    fs::read(a).unwrap() == fs::read(b).unwrap()
}

#[test]
fn a_node_gets_the_binary_and_the_runtime_and_loses_both_when_the_pod_ends() {
    let place = node("node");
    let before = place.read(CONFIG);
    let node = Node::start(place);
    let binary = node.place.root.join(BINARY);
    assert!(same(&binary, Path::new(SYNCONCE)));
    assert!(node.place.read(CONFIG).contains("BinaryName = \"/opt/synconce/bin/synconce-oci\""));
    assert_eq!(node.restarts(), 1);
    node.end();
    assert_eq!(node.place.read(CONFIG), before);
    assert!(!binary.exists());
    assert_eq!(node.restarts(), 2);
}

#[test]
fn a_node_keeps_the_binary_while_a_container_was_made_by_it() {
    let place = node("node-in-use");
    let options = "run/containerd/io.containerd.runtime.v2.task/k8s.io/a/options.json";
    place.write(options, "{\"BinaryName\":\"/opt/synconce/bin/synconce-oci\"}");
    let node = Node::start(place);
    node.end();
    assert!(node.place.root.join(BINARY).exists());
    assert!(!node.place.read(CONFIG).contains("synconce"));
}

#[test]
fn a_node_that_is_set_up_already_is_not_restarted() {
    let first = Node::start(node("node-again"));
    // A killed pod undoes nothing.
    first.script.signal(Signal::KILL).expect("it is sent");
    fs::remove_file(first.place.root.join("var/ready")).unwrap();
    let place = TestRoot { root: first.place.root.clone() };
    let second = Node::start(place);
    assert_eq!(second.restarts(), 1);
    second.end();
    assert!(!second.place.read(CONFIG).contains("synconce"));
}

#[test]
fn a_binary_that_the_chart_did_not_put_there_stops_the_pod_and_stays() {
    let place = node("node-foreign");
    place.write(BINARY, "mine");
    let before = place.snapshot();
    let ended = EndedCommand::run(&mut script(&place));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("synconce-oci is there, and not by this chart"), "{ended:?}");
    assert_eq!(place.snapshot(), before);
}

#[test]
fn a_binary_that_another_user_of_the_node_can_alter_stops_the_pod() {
    let place = node("node-of-a-user");
    fs::create_dir(place.root.join("opt")).unwrap();
    std::os::unix::fs::chown(place.root.join("opt"), Some(1234), None).unwrap();
    let script = Group::spawn(&mut script(&place)).expect("sh runs");
    let ended = script.wait(patiently(Duration::from_secs(60))).expect("a process");
    let said = script.stderr().expect("a file of ours");
    assert_eq!(ended.and_then(|status| status.code()), Some(125), "{said}");
    assert!(said.contains("can be changed by other users than root, by "), "{said}");
    assert!(!place.read(CONFIG).contains("synconce"));
}

#[test]
fn a_binary_of_an_earlier_chart_gives_way_and_the_same_one_of_another_stays() {
    let first = Node::start(node("node-upgrade"));
    first.script.signal(Signal::KILL).expect("it is sent");
    let place = TestRoot { root: first.place.root.clone() };
    fs::remove_file(place.root.join("var/ready")).unwrap();
    // The list says that the chart installed this binary.
    place.write(BINARY, "older");
    let sum = EndedCommand::run(Command::new("sha256sum").arg(place.root.join(BINARY))).stdout;
    let sum = sum.split(' ').next().expect("a sum").to_owned();
    place.write("var/lib/synconce/helm/binaries", &format!("{sum} /{BINARY}\n"));
    let second = Node::start(place);
    let binary = second.place.root.join(BINARY);
    assert!(same(&binary, Path::new(SYNCONCE)));
    second.end();
    assert!(!binary.exists() && !second.place.root.join("var/lib/synconce").exists());

    let place = node("node-same");
    fs::create_dir_all(place.root.join(BINARY).parent().unwrap()).unwrap();
    fs::copy(SYNCONCE, place.root.join(BINARY)).unwrap();
    let node = Node::start(place);
    node.end();
    assert!(same(&node.place.root.join(BINARY), Path::new(SYNCONCE)));
    assert!(!node.place.read(CONFIG).contains("synconce"));
}

#[test]
fn a_set_up_that_was_there_before_the_pod_outlives_it_with_its_binary() {
    for is_undone in [false, true] {
        let place = node(if is_undone { "node-again-own" } else { "node-before" });
        fs::create_dir_all(place.root.join(BINARY).parent().unwrap()).unwrap();
        fs::copy(SYNCONCE, place.root.join(BINARY)).unwrap();
        let words = ["containerd", "--runtime", &format!("/{BINARY}")];
        assert_eq!(place.setup(&words).code, Some(0));
        // Then the chart installs the binary, which the set-up needs.
        fs::remove_file(place.root.join(BINARY)).unwrap();
        if is_undone {
            assert_eq!(place.setup(&["containerd", "--undo"]).code, Some(0));
        }
        let node = Node::start(place);
        assert_eq!(node.restarts(), usize::from(is_undone));
        node.end();
        assert_eq!(node.place.read(CONFIG).contains("synconce"), !is_undone);
        assert_eq!(node.place.root.join(BINARY).exists(), !is_undone);
    }
}
