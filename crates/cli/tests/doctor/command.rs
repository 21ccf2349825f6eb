//! `synconce doctor -- COMMAND`: counts, waits, and what a run would save.

use crate::counts::TRACE;
use crate::support::{WIDE, rig};
use libtest_mimic::Trial;
use rustix::mount::{UnmountFlags, unmount};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{Need, Place, Terminal, finish, trial};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    let strace = Need::Program("strace", "strace");
    vec![
        trial(waits_are_those_of_strace_and_at_least_those_of_the_disk, &[strace]),
        trial(what_a_sync_has_to_write_is_unknown_on_an_overlay, &[]),
        trial(a_hundred_threads_wait_at_once_and_their_waits_do_not_add_up, &[]),
        trial(a_sync_beside_other_work_is_not_on_the_critical_path, &[]),
        trial(what_has_no_time_is_named, &[Need::Program("fio", "fio")]),
        trial(a_command_without_syncs_needs_two_lines, &[]),
        trial(the_client_of_a_daemon_is_told_to_look_at_the_daemon, &[]),
        trial(a_build_by_a_daemon_that_is_not_set_up_names_the_set_up, &[]),
        trial(a_build_by_podman_says_that_its_set_up_holds_steps, &[]),
        trial(a_script_that_builds_by_a_daemon_that_is_not_set_up_names_the_set_up, &[]),
        trial(a_record_that_was_kept_gives_the_same_report, &[]),
        trial(a_record_that_was_cut_is_read_and_another_file_is_refused, &[]),
    ]
}

/// Returns the command `synconce doctor OPTIONS -- WORDS` in `directory`.
pub fn watched(
    place: &Place,
    directory: &Path,
    options: &[&str],
    words: &[impl AsRef<OsStr>],
) -> Command {
    let mut command = place.synconce(&["doctor"]);
    command.args(options).arg("--").args(words).current_dir(directory).env("COLUMNS", WIDE);
    command
}

/// Runs the command with `--json`, and returns the report.
pub fn report(place: &Place, directory: &Path, words: &[&str]) -> (Value, Finished) {
    let file = place.text("report");
    let json = format!("--json={file}");
    let ended = finish(&mut watched(place, directory, &[&json], words));
    let text = fs::read_to_string(&file).unwrap();
    (serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {ended:?}")), ended)
}

/// Returns the number of syncs by call.
pub fn calls(report: &Value) -> Vec<(String, u64)> {
    let groups = report["waits"]["by_call"].as_array().unwrap();
    let count = |group: &Value| {
        (group["name"].as_str().unwrap().to_owned(), group["calls"].as_u64().unwrap())
    };
    let mut calls: Vec<_> = groups.iter().map(count).collect();
    calls.sort();
    calls
}

/// Writes and syncs a file 40 times.
const SYNCS: &str = "
import os
file = os.open('file', os.O_CREAT | os.O_RDWR)
for at in range(40):
    os.write(file, b'x' * 5000)
    os.fsync(file)
";

fn waits_are_those_of_strace_and_at_least_those_of_the_disk(place: &Place) {
    let rig = rig(FsKind::Ext4, 8);
    let words = ["strace", "-f", "-T", "-o", "trace", "-e", TRACE, "python3", "-c", SYNCS];
    let (report, ended) = report(place, rig.path(), &words);
    assert!(ended.status.success(), "{ended:?}");
    let trace = fs::read_to_string(rig.path().join("trace")).unwrap();
    let took = |line: &str| line.strip_suffix('>')?.rsplit_once('<')?.1.parse::<f64>().ok();
    let theirs: f64 = trace.lines().filter_map(took).sum();
    let ours = report["waits"]["seconds"].as_f64().unwrap();
    assert_eq!(calls(&report), [("fsync".to_owned(), 40)]);
    // A sync of an append waits for at least one flush of 8 ms.
    assert!(ours > 0.3 && report["waits"]["by_call"][0]["median"].as_f64() > Some(0.0075));
    // strace measures its own stops as well, which a busy machine makes longer.
    assert!(ours <= theirs, "{ours} {theirs}");
    assert_eq!(report["waits"]["bytes_known_of"], 40);
    let (slowest, critical) = (&report["waits"]["slowest"][0], &report["savings"]["critical"]);
    assert_eq!(slowest["ancestry"][0], "strace", "{report:#}");
    assert!(slowest["file"].as_str().unwrap().ends_with("/file"), "{report:#}");
    assert!(critical.as_f64() > Some(0.8 * ours), "{report:#}");
    // At the least, one commit of ten flushes remains.
    let saved = report["savings"]["at_least"].as_f64().unwrap();
    assert!(saved > 0.3 * ours && saved < ours, "{report:#}");
}

/// As in a container: the kernel counts the pages of a file for the layer that has the file.
fn what_a_sync_has_to_write_is_unknown_on_an_overlay(place: &Place) {
    let rig = rig(FsKind::Ext4, 1);
    let point = place.overlay(&rig.path().join("lower"), rig.path(), "");
    let (report, ended) = report(place, &point, &["python3", "-c", SYNCS]);
    unmount(&point, UnmountFlags::empty()).unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let waits = &report["waits"];
    assert_eq!((&waits["calls"], &waits["bytes_known_of"]), (&40.into(), &0.into()), "{report:#}");
    assert_eq!(waits["slowest"][0]["bytes"], Value::Null, "{report:#}");
}

/// A hundred threads, each of which syncs a file of its own once all run.
const THREADS: &str = "
import os, threading
together = threading.Barrier(100)
def sync(at):
    file = os.open(f'file{at}', os.O_CREAT | os.O_RDWR)
    together.wait()
    for _ in range(3):
        os.write(file, b'x' * 100)
        os.fsync(file)
threads = [threading.Thread(target=sync, args=(at,)) for at in range(100)]
for thread in threads: thread.start()
for thread in threads: thread.join()
";

fn a_hundred_threads_wait_at_once_and_their_waits_do_not_add_up(place: &Place) {
    let rig = rig(FsKind::Ext4, 4);
    let (report, ended) = report(place, rig.path(), &["python3", "-c", THREADS]);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(calls(&report), [("fsync".to_owned(), 300)]);
    let number = |at: &Value| at.as_f64().unwrap();
    let (sum, covered) = (number(&report["waits"]["seconds"]), number(&report["waits"]["covered"]));
    assert!(covered < sum / 3.0 && covered <= number(&report["seconds"]), "{report:#}");
    assert!(number(&report["savings"]["about"]) <= covered, "{report:#}");
}

/// A process that syncs, while another computes.
const BESIDE: &str = "
import os, time
worker = os.fork()
if worker == 0:
    while not os.path.exists('done'): pass
    os._exit(0)
file = os.open('file', os.O_CREAT | os.O_RDWR)
for at in range(40):
    os.write(file, b'x' * 100)
    os.fsync(file)
open('done', 'w')
os.waitpid(worker, 0)
";

fn a_sync_beside_other_work_is_not_on_the_critical_path(place: &Place) {
    let rig = rig(FsKind::Ext4, 8);
    let (report, ended) = report(place, rig.path(), &["python3", "-c", BESIDE]);
    assert!(ended.status.success(), "{ended:?}");
    let savings = &report["savings"];
    assert!(report["waits"]["covered"].as_f64() > Some(0.3), "{report:#}");
    assert!(savings["samples"].as_u64() > Some(5), "{report:#}");
    assert!(savings["critical"].as_f64() < Some(0.1), "{report:#}");
    assert_eq!(savings["at_least"], 0.0);
}

fn what_has_no_time_is_named(place: &Place) {
    let rig = rig(FsKind::Ext4, 0);
    let options = ["--name=x", "--rw=write", "--bs=4k", "--size=40k", "--sync=dsync"];
    let words = [&["fio"], &options[..], &["--ioengine=psync", "--thread"]].concat();
    let ended = finish(&mut watched(place, rig.path(), &[], &words));
    assert!(ended.status.success(), "{ended:?}");
    let line = "  not timed    writes to files that were opened with O_SYNC or O_DSYNC: ";
    let line = ended.stderr.lines().find_map(|it| it.strip_prefix(line)).unwrap_or_default();
    assert!(line.contains(" openat by fio, "), "{ended:?}");
    assert!(line.ends_with("; `synconce run` takes the sync away"), "{ended:?}");
}

fn a_command_without_syncs_needs_two_lines(place: &Place) {
    let here = place.path("");
    let ended = finish(&mut watched(place, &here, &[], &["sh", "-c", "cat; echo err >&2; exit 3"]));
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert_eq!(ended.stdout, "");
    let lines: Vec<_> = ended.stderr.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "err"), "{ended:?}");
    assert!(lines[1].starts_with("sh: no sync was waited for in "), "{ended:?}");
    assert!(lines[2].starts_with("sh -c cat; echo err >&2; exit 3: exit code 3, "), "{ended:?}");
    // A call without a known time makes the report longer, and not its verdict.
    let words = ["dd", "if=/dev/zero", "of=f", "bs=1", "count=1", "oflag=sync", "status=none"];
    let ended = finish(&mut watched(place, &here, &[], &words));
    assert_eq!(ended.stderr.matches("dd: no sync was timed in ").count(), 1, "{ended:?}");
    assert!(ended.stderr.contains("  not timed    "), "{ended:?}");
    assert!(ended.stderr.contains("  do           synconce run -- dd "), "{ended:?}");
}

/// A client of a daemon that does nothing, as if the daemon did the work.
fn the_client_of_a_daemon_is_told_to_look_at_the_daemon(place: &Place) {
    fs::copy("/bin/true", place.path("docker")).unwrap();
    let here = place.path("");
    let not_seen = "the work of its daemon is not seen: `synconce doctor --docker`";
    for words in [&["./docker", "build", "."][..], &["env", "./docker", "build", "."]] {
        let ended = finish(&mut watched(place, &here, &[], words));
        assert!(ended.status.success() && ended.stderr.contains(not_seen), "{ended:?}");
    }
    // `docker` behind env has its steps watched, too.
    let words = ["env", "DOCKER_BUILDKIT=1", "./docker", "build", "."];
    finish(&mut watched(place, &here, &["-o", "record"], &words));
    let record = place.read("record");
    assert!(record.lines().next().unwrap().contains("\"watches_steps\":true"), "{record}");
    // An argument of another program.
    let ended = finish(&mut watched(place, &here, &[], &["sh", "-c", ":", "docker"]));
    assert!(!ended.stderr.contains(not_seen), "{ended:?}");
    // The client of a script. Its words are not kept: they may have a password.
    fs::copy("/bin/sleep", place.path("docker")).unwrap();
    let script = ["sh", "-c", "./docker 1 0.1234; :"];
    let ended = finish(&mut watched(place, &here, &["-o", "record"], &script));
    assert!(ended.status.success() && ended.stderr.contains(not_seen), "{ended:?}");
    let record = place.read("record");
    let (first, rest) = record.split_once('\n').unwrap();
    assert!(first.contains("0.1234") && !rest.contains("0.1234"), "{record}");
}

/// The set-up of the daemon lets doctor see the steps of builds, and nothing else of the daemon.
fn a_build_by_a_daemon_that_is_not_set_up_names_the_set_up(place: &Place) {
    fs::copy("/bin/true", place.path("docker")).unwrap();
    let here = place.path("");
    let verdict = |words: &[&str], host: Option<&str>| {
        let mut doctor = watched(place, &here, &["--json=report"], words);
        let ended = finish(doctor.envs(host.map(|host| ("DOCKER_HOST", host))));
        assert!(ended.status.success(), "{ended:?}");
        let report: Value = serde_json::from_str(&place.read("report")).unwrap();
        report["verdict"].as_str().unwrap().to_owned()
    };
    let not_seen = "is not seen: `synconce doctor --docker`";
    let set_up = "; build steps are seen after `synconce setup docker`";
    let build = ["./docker", "build", "."];
    let of_build = verdict(&build, None);
    assert!(of_build.ends_with(&format!("{not_seen}{set_up}")), "{of_build}");
    let of_pull = verdict(&["./docker", "pull", "debian"], None);
    assert!(of_pull.ends_with(not_seen), "{of_pull}");
    let elsewhere = verdict(&build, Some("tcp://far"));
    assert!(elsewhere.ends_with(not_seen), "{elsewhere}");
    fs::create_dir_all(place.path("state/setup/docker")).unwrap();
    // `--undo --force` keeps a file that was edited.
    place.write("state/setup/docker/saved-1-daemon.json", "");
    let undone = verdict(&build, None);
    assert!(undone.ends_with(&format!("{not_seen}{set_up}")), "{undone}");
    place.write("state/setup/docker/journal.json", "");
    let after = verdict(&build, None);
    let check = "; if a step ran, `synconce setup docker --check` says why it was not seen";
    assert!(after.ends_with(&format!("{not_seen}{check}")), "{after}");
}

/// doctor holds nothing, so it times syncs that a set-up holds.
fn a_build_by_podman_says_that_its_set_up_holds_steps(place: &Place) {
    place.write("podman", "#!/bin/sh\nsync podman\n");
    fs::set_permissions(place.path("podman"), PermissionsExt::from_mode(0o755)).unwrap();
    let here = place.path("");
    let verdict = |words: &[&str]| {
        let ended = finish(&mut watched(place, &here, &[], words));
        assert!(ended.status.success(), "{ended:?}");
        ended.stderr.lines().next().unwrap().to_owned()
    };
    let said = "; held steps do not wait: podman is set up";
    let build = ["./podman", "build", "."];
    assert!(!verdict(&build).contains(said));
    fs::create_dir_all(place.path("state/setup/podman")).unwrap();
    place.write("state/setup/podman/journal.json", "");
    let held = verdict(&build);
    assert!(held.contains("1 sync was waited for") && held.ends_with(said), "{held}");
    assert!(!verdict(&["./podman", "run", "debian"]).contains(said));
}

/// A script is no client by its name, so the option says that it builds.
fn a_script_that_builds_by_a_daemon_that_is_not_set_up_names_the_set_up(place: &Place) {
    let here = place.path("");
    let nothing = ["sh", "-c", ":"];
    for engine in ["docker", "buildkit"] {
        let options = [&format!("--{engine}"), "-o", "record"];
        let ended = finish(&mut watched(place, &here, &options, &nothing));
        let set_up = format!("; build steps are seen after `synconce setup {engine}`");
        let verdict = ended.stderr.lines().next().unwrap();
        assert!(verdict.starts_with("sh: no sync was waited for in "), "{ended:?}");
        let unseen = format!("; no build step was seen{set_up}");
        assert!(verdict.ends_with(&unseen) && !verdict.contains("saves"), "{verdict}");
        let read = finish(place.synconce(&["doctor", "--read", "record"]).env("COLUMNS", WIDE));
        assert_eq!(read.stdout, ended.stderr.replace(&set_up, ""), "{read:?}");
    }
}

const ONE: &str = "import os; os.fsync(os.open('f', os.O_CREAT | os.O_RDWR)); print('out')";

fn a_record_that_was_kept_gives_the_same_report(place: &Place) {
    let here = place.path("");
    let words = ["python3", "-c", ONE];
    let ended = finish(&mut watched(place, &here, &["-o", "record"], &words));
    assert!(ended.status.success() && ended.stdout == "out\n", "{ended:?}");
    let first = ended.stderr.lines().next();
    assert_ne!(first, ended.stderr.lines().last(), "it fits a screen: {ended:?}");
    assert!(first.unwrap().starts_with("python3: 1 sync was waited for, "), "{ended:?}");
    let read = |width: Option<&str>| {
        let mut read = place.synconce(&["doctor", "--read", "record"]);
        let read = finish(read.env_remove("COLUMNS").envs(width.map(|width| ("COLUMNS", width))));
        assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
        read.stdout
    };
    let whole = read(Some(WIDE));
    assert_eq!(whole, ended.stderr);
    // A pipe has no width.
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for (width, most) in [(None, 80), (Some("50"), 50)] {
        let text = read(width);
        assert_eq!(words(&text), words(&whole));
        let is_long = |line: &&str| line.chars().count() > most;
        let long: Vec<_> = text.lines().filter(is_long).collect();
        // Long names and commands stay whole.
        assert!(long.iter().all(|line| line.trim().split(' ').count() == 1), "{long:?}");
    }
    let exported = |format| {
        let read = finish(&mut place.synconce(&["doctor", "--read", "record", "--as", format]));
        assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
        read.stdout
    };
    let events: Value = serde_json::from_str(&exported("trace")).unwrap();
    assert_eq!(
        (&events[0]["name"], &events[0]["ph"]),
        (&"fsync".into(), &"X".into()),
        "{events:#}"
    );
    let stacks = exported("stacks");
    let (stack, wait) = stacks.trim_end().rsplit_once(' ').unwrap();
    assert_eq!((stack, wait.parse::<u64>().is_ok()), ("python3;fsync", true), "{stacks}");
    let kept = place.read("record");
    fs::write(place.path("new"), &kept).unwrap();
    for record in ["--read", "--against"] {
        let (other, json) =
            if record == "--read" { ("--against", "new") } else { ("--read", "record") };
        let words = ["doctor", record, "new", other, "record", &format!("--json={json}")];
        let refused = finish(&mut place.synconce(&words));
        let why = format!("synconce: cannot write to {json}: another option names this file\n");
        assert_eq!((refused.status.code(), &*refused.stderr), (Some(125), &*why), "{refused:?}");
    }
    assert_eq!((place.read("record"), place.read("new")), (kept.clone(), kept));
    let same = ["doctor", "--read", "record", "--against", "record"];
    let compared = finish(&mut place.synconce(&same));
    assert!(compared.status.success() && compared.stderr.is_empty(), "{compared:?}");
    assert!(compared.stdout.starts_with("python3: waits for syncs were "), "{compared:?}");
    let compared = finish(place.synconce(&same).arg("--json"));
    let compared: Value = serde_json::from_str(&compared.stdout).unwrap();
    assert_eq!(compared["by_call"][0]["calls"], serde_json::json!([1, 1]), "{compared:#}");
    let mut terminal = Terminal::shell(place);
    terminal.line("unset COLUMNS; stty cols 30; $SYNCONCE doctor --read record");
    terminal.expect("python3: 1 sync was waited\r\n  for, ");
    terminal.line("COLUMNS=0 $SYNCONCE doctor --read record");
    terminal.expect("python3: 1 sync was waited\r\n  for, ");
}

fn a_record_that_was_cut_is_read_and_another_file_is_refused(place: &Place) {
    place.write(
        "record",
        "{\"record\":1,\"command\":[\"sleep\",\"1\"]}\n\
         {\"call\":\"fsync\",\"at\":5,\"thread\":1,\"wait\":9000000,\"would\":\"hold\"}\n\
         {\"call\":\"fsy",
    );
    let read = finish(place.synconce(&["doctor", "--read", "record"]).env("COLUMNS", WIDE));
    assert!(read.status.success(), "{read:?}");
    assert!(read.stdout.contains("sleep: 1 sync was waited for, 9.0 ms of "), "{read:?}");
    assert!(read.stdout.contains("; the record has no end\n"), "{read:?}");
    for (name, why) in [
        ("none", "cannot read none: No such file or directory"),
        ("other", "cannot read other: not a record of `synconce doctor -o`"),
    ] {
        place.write("other", "text\n");
        let read = finish(&mut place.synconce(&["doctor", "--read", name]));
        assert_eq!(read.status.code(), Some(125), "{read:?}");
        assert_eq!(read.stderr, format!("synconce: {why}\n"));
    }
}
