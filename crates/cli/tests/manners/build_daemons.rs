//! Build tools whose daemon does the work: a run holds nothing of a daemon that is older.

use libtest_mimic::Trial;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use synconce_testkit::harness::{Place, StartedCommand, binary, finish, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_build_by_an_older_daemon_gets_the_line_that_ends_the_daemon, &[]),
        trial(a_build_beside_a_daemon_of_a_container_gets_no_notice, &[]),
        trial(a_build_beside_a_newer_daemon_gets_no_notice, &[]),
        trial(a_build_whose_client_syncs_its_own_records_gets_the_notice, &[]),
    ]
}

/// The main class of a Gradle daemon.
const GRADLE: &str = "org.gradle.launcher.daemon.bootstrap.GradleDaemon";

/// More than a tick, in which the kernel counts the start of a process.
const TICK: Duration = Duration::from_millis(20);

/// A process with the command line of a daemon. It ends with the value.
struct Daemon(Child);

impl Daemon {
    fn start(name: &str, word: &str) -> Self {
        let mut daemon = Command::new("sh");
        // The shell waits for its input, which stays open.
        let daemon = daemon.arg0(name).args(["-c", "read line", word]);
        let daemon = daemon.stdin(Stdio::piped()).spawn().expect("a shell");
        thread::sleep(TICK);
        Self(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().expect("our own child");
        self.0.wait().expect("our own child");
    }
}

/// Returns what a run of `line` prints, whose program is a script of that name. The script syncs if
/// its last word is `sync`.
fn run(place: &Place, line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let at = words.iter().position(|word| word.starts_with("./")).expect("a script");
    let script = "#!/bin/sh\nfor word; do :; done\nif [ \"$word\" = sync ]; then sync .; fi\n";
    let name = words[at].trim_start_matches("./");
    place.write(name, script);
    place.bare(&["chmod", "+x", name]);
    let ended = finish(&mut place.held(&[], &words));
    assert!(ended.status.success(), "{line}: {ended:?}");
    ended.stderr
}

fn a_build_by_an_older_daemon_gets_the_line_that_ends_the_daemon(place: &Place) {
    let gradle = Daemon::start("java", GRADLE);
    let bazel = Daemon::start("bazel(x)", "--output_base=/x");
    for (line, daemon, pid, stop) in [
        ("./gradlew test", "the Gradle daemon", gradle.0.id(), "./gradlew --stop"),
        ("timeout 60 ./gradle", "the Gradle daemon", gradle.0.id(), "./gradle --stop"),
        ("./bazel test //...", "the Bazel server", bazel.0.id(), "./bazel shutdown"),
        (
            "./bazelisk --output_user_root /a build x",
            "the Bazel server",
            bazel.0.id(),
            "./bazelisk --output_user_root /a shutdown",
        ),
    ] {
        let wanted = format!(
            "synconce: nothing was held: {daemon} (pid {pid}) is older than the run, and may do the \
             syncs\nsynconce: hint: {stop}; then run the command again\n"
        );
        assert_eq!(run(place, line), wanted, "{line}");
    }
    for line in [
        "./gradlew --no-daemon test",
        "./gradlew test sync",
        "./bazel --batch test x",
        "./bazel info",
        "./bazel query test",
        "./gradlew help",
        "./gradlew -q :app:tasks",
        "sudo ./gradlew test",
        "runuser -u nobody -- ./bazel test x",
    ] {
        assert_eq!(run(place, line), "", "{line}");
    }
    let second = Daemon::start("java", GRADLE);
    let wanted = "synconce: nothing was held: the Gradle daemon is older than the run, and may do \
                  the syncs\nsynconce: hint: ./gradlew --stop; then run the command again\n";
    assert_eq!(run(place, "./gradlew test"), wanted);
    drop(second);
}

fn a_build_beside_a_daemon_of_a_container_gets_no_notice(place: &Place) {
    let mut daemon = Command::new("unshare");
    daemon.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "bash", "-c"]);
    daemon.arg("exec -a 'bazel(x)' sh -c 'echo started; read line'");
    let daemon = daemon.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare(1)");
    let mut daemon = Daemon(daemon);
    let mut started = String::new();
    let output = daemon.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut started).expect("a line");
    assert_eq!(started, "started\n");
    thread::sleep(TICK);
    assert_eq!(run(place, "./bazel test x"), "");
}

fn a_build_beside_a_newer_daemon_gets_no_notice(place: &Place) {
    place.write("gradlew", "#!/bin/sh\necho >started\nuntil [ -e go ]; do sleep 0.01; done\n");
    place.bare(&["chmod", "+x", "gradlew"]);
    let older = Daemon::start("java", GRADLE);
    for older in [Some(older), None] {
        let run = StartedCommand::new(&mut place.held(&[], &["./gradlew", "test"]));
        place.wait_for("started");
        thread::sleep(TICK);
        let newer = Daemon::start("java", GRADLE);
        place.write("go", "");
        assert!(run.end().success());
        assert_eq!(run.text(), "", "with an older one: {}", older.is_some());
        drop((newer, older));
        ["started", "go"].into_iter().for_each(|name| place.remove(name));
    }
}

/// docker-compose writes down each build durably, in the home of the user.
fn a_build_whose_client_syncs_its_own_records_gets_the_notice(place: &Place) {
    let docker = place.write("docker", "#!/bin/sh\nfor n in $(seq $3); do sync $0; done\n");
    place.bare(&["chmod", "+x", "docker"]);
    let docker = docker.to_str().expect("a path of the test");
    for (count, said) in [("1", "only 1 sync was held"), ("9", "only 9 syncs were held")] {
        for options in [&[][..], &["--no-commit"]] {
            let build = finish(&mut place.held(options, &[docker, "build", ".", count]));
            let wanted = format!(
                "synconce: {said}: dockerd does the others, and is not part of the run\n\
                 synconce: hint: sudo {} setup docker\n",
                binary()
            );
            assert_eq!(build.stderr, wanted);
        }
    }
    let many = finish(&mut place.held(&[], &[docker, "build", ".", "10"]));
    assert_eq!(many.stderr, "");
}
