//! `synconce bench tree` with a root of a few files.

use super::{Bench, DiskDirectory, is_alive};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use synconce_testkit::patiently;

/// Programs that the benchmark's script and its visits run in the root.
const PROGRAMS: [&str; 8] = ["sh", "true", "tar", "rm", "chmod", "mkdir", "date", "sleep"];

/// The number of files that a build could change; the benchmark needs 75.
const FILES: usize = 80;

/// Variants of every group.
const RIVALS: [&str; 7] = [
    "clone/cp-al",
    "clone/cp-a",
    "session/cp-al",
    "copy/cp-a",
    "enter/chroot",
    "enter/mount",
    "mount/mount",
];
const OURS: [&str; 5] = [
    "clone/synconce-copy",
    "session/synconce",
    "copy/synconce-export",
    "enter/synconce",
    "mount/synconce",
];

/// A program in a root that writes its pid and then does not end.
const ENDLESS: &str = "#!/bin/sh\necho $$ >/pid-new\nmv /pid-new /pid\nsleep 1000\n";

/// Whether the test runs as root; prints why it is skipped otherwise.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: entering a root directory needs root");
    }
    root
}

/// Makes a root with some programs of this machine and their libraries.
fn make_root(root: &Path) {
    for dir in ["bin", "dev", "proc", "sys", "usr/share/data"] {
        fs::create_dir_all(root.join(dir)).expect("a directory can be made");
    }
    symlink("../bin", root.join("usr/bin")).expect("a link can be made");
    for program in PROGRAMS.iter().chain(&["mv"]) {
        let found = output("sh", &["-c", &format!("readlink -f \"$(which {program})\"")]);
        let found = Path::new(found.trim());
        fs::copy(found, root.join("bin").join(program)).expect("the program can be copied");
        let libraries = output("ldd", &[found.to_str().expect("a plain path")]);
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            let inside = root.join(library.trim_start_matches('/'));
            fs::create_dir_all(inside.parent().expect("it is in a directory"))
                .expect("a directory can be made");
            fs::copy(library, inside).expect("the library can be copied");
        }
    }
    for number in 0..FILES {
        fs::write(root.join(format!("usr/share/data/{number}")), "data\n")
            .expect("a file can be written");
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program runs");
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Returns the command of a benchmark whose source is the root of `place`.
fn command(place: &DiskDirectory, variants: &str) -> Command {
    // The caller of the tests may ignore signals: a shell's `&` does.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT,TERM", env!("CARGO_BIN_EXE_synconce")])
        .args(["bench", "tree", "--json", "--rounds", "1", "--variants", variants])
        .arg("--source")
        .arg(place.0.join("source"))
        .arg("--dir")
        .arg(place.0.join("work"))
        .env("TMPDIR", place.0.join("logs"))
        .stdout(Stdio::piped());
    command
}

fn assert_clean(place: &DiskDirectory, variant: &str) {
    assert!(!place.0.join("work").exists(), "{variant}: the benchmark made it");
    let left = fs::read_dir(place.0.join("logs")).expect("it is there");
    let left: Vec<PathBuf> = left.map(|entry| entry.expect("it is listed").path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "{variant}");
}

/// Returns the content of all files in the source tree, by path.
fn content(place: &DiskDirectory) -> Vec<(PathBuf, Vec<u8>, u32)> {
    let mut files = place.files("source");
    files.sort();
    let read = |path: PathBuf| {
        let mode = path.metadata().expect("it is there").permissions().mode();
        (path.clone(), fs::read(path).expect("it can be read"), mode)
    };
    files.into_iter().map(read).collect()
}

/// Whether this binary has `synconce tree`, which some variants measure.
fn has_trees() -> bool {
    let help = Command::new(env!("CARGO_BIN_EXE_synconce")).args(["tree", "--help"]).output();
    help.expect("synconce runs").status.success()
}

/// Returns the parts of a variant in the report.
fn parts_of(variant: &str) -> &'static str {
    match variant {
        "clone/synconce-copy" => {
            "clone, clone sync, write, write sync, remove, empty, remove sync, remove + empty"
        }
        "session/synconce" => "session, empty, sync",
        "copy/synconce-export" => "copy, copy sync",
        _ => match variant.split_once('/').expect("it is in a group").0 {
            "clone" => "clone, clone sync, write, write sync, remove, remove sync, remove + empty",
            "session" => "session, sync",
            "copy" => "copy, copy sync, remove, remove sync, remove + empty",
            "enter" => "enter, leave",
            _ => "mount, umount",
        },
    }
}

fn part_names(result: &Value) -> Vec<&str> {
    let parts = result["parts"].as_array().expect("it has parts");
    parts.iter().map(|part| part["name"].as_str().expect("a part has a name")).collect()
}

#[test]
fn a_report_has_the_parts_of_every_variant_and_names_the_variants_that_altered_the_base() {
    if !is_root() {
        return;
    }
    let place = DiskDirectory::new("tree");
    make_root(&place.0.join("source"));
    let before = content(&place);
    let variants: Vec<&str> = RIVALS.iter().chain(&OURS).copied().collect();
    let output = command(&place, &variants.join(",")).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let results = report["results"].as_array().expect("there are results");
    for result in results {
        let name = result["variant"]["name"].as_str().expect("it has a name");
        assert_eq!(part_names(result).join(", "), parts_of(name), "{name}");
        let baseline = result["variant"]["against"] == result["variant"]["name"];
        assert_eq!(result["parts"][0]["comparison"].is_null(), baseline, "{name}");
    }
    // A variant for which there is no file system is left out, with the kernel's reason.
    let left_out = report["left_out"].as_array().expect("it is a list");
    assert_eq!(results.len() + left_out.len(), variants.len(), "{left_out:?}");
    let is_measured = |name: &str| results.iter().any(|result| result["variant"]["name"] == name);
    assert!(
        ["clone/cp-al", "clone/cp-a", "copy/cp-a", "enter/chroot"].into_iter().all(is_measured)
    );
    assert_eq!(OURS.into_iter().any(is_measured), has_trees(), "{left_out:?}");
    let findings = report["findings"].as_array().expect("there are findings");
    let altered = |name: &str| findings.iter().any(|finding| finding["variant"] == name);
    assert!(altered("clone/cp-al") && altered("session/cp-al"), "{findings:?}");
    assert!(!altered("clone/cp-a"), "{findings:?}");
    assert_eq!(content(&place), before, "the source was written to");
    assert_clean(&place, "all");
}

#[test]
fn an_interrupted_iteration_leaves_neither_clones_nor_mounts_nor_processes() {
    if !is_root() {
        return;
    }
    for (variant, program, signal) in [
        ("clone/cp-al", "tar", Signal::INT),
        ("session/cp-al", "tar", Signal::TERM),
        ("enter/mount", "date", Signal::INT),
    ] {
        let place = DiskDirectory::new(&variant.replace('/', "-"));
        let root = place.0.join("source");
        make_root(&root);
        let replaced = root.join("bin").join(program);
        fs::write(&replaced, ENDLESS).expect("a file can be written");
        fs::set_permissions(&replaced, fs::Permissions::from_mode(0o755)).expect("it has a mode");
        let mut bench = Bench(command(&place, variant).spawn().expect("env runs"));
        let Some(pid) = pid_inside(&place, &mut bench) else {
            assert_eq!(variant, "enter/mount", "only an overlay may be impossible here");
            eprintln!("skipped: {variant} cannot run here");
            continue;
        };
        bench.send(signal);
        let status = bench.0.wait().expect("it can be waited for");
        assert_eq!(status.signal(), Some(signal.as_raw()), "{variant}: {status}");
        let end = Instant::now() + patiently(Duration::from_secs(60));
        while is_alive(&pid) {
            assert!(Instant::now() < end, "{variant}: {pid} lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_clean(&place, variant);
    }
}

/// Returns the pid of the endless process in the clone, once it exists; `None` if the variant
/// is left out here, which ends the benchmark.
fn pid_inside(place: &DiskDirectory, bench: &mut Bench) -> Option<String> {
    let work = place.0.join("work/synconce-bench");
    let start = Instant::now();
    loop {
        let dirs = fs::read_dir(&work).into_iter().flatten().flatten().map(|entry| entry.path());
        // An overlay is mounted in another namespace, but its upper directory is visible here.
        for file in dirs.flat_map(|dir| [dir.join("pid"), dir.join("upper/pid")]) {
            if let Ok(text) = fs::read_to_string(file) {
                return Some(text.trim().to_owned());
            }
        }
        if bench.0.try_wait().expect("it can be waited for").is_some() {
            return None;
        }
        assert!(start.elapsed() < patiently(Duration::from_secs(60)), "nothing ever ran inside");
        std::thread::sleep(Duration::from_millis(10));
    }
}
