//! Contexts of image builds.

use crate::ignore_cases::{PATTERNS, UNIT, bytes_below, make_files};
use crate::support::WIDE;
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use synconce_testkit::harness::{Need, Place, finish, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(the_same_files_are_sent_as_by_a_builder, &[Need::Program("buildah", "buildah")]),
        trial(the_largest_files_and_what_could_be_ignored_are_named, &[]),
        trial(a_directory_of_100_000_files_is_named_first, &[]),
        trial(a_dockerignore_that_is_dev_null_is_empty, &[]),
    ]
}

fn report(place: &Place) -> Value {
    let ended = finish(&mut place.synconce(&["doctor", "--context", "context", "--json"]));
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

fn the_same_files_are_sent_as_by_a_builder(place: &Place) {
    make_files(&place.path("context"));
    place.write("Dockerfile", "FROM scratch\nCOPY . /\n");
    // A builder syncs its storage; this directory is in memory.
    let [root, run] = ["storage", "run"].map(|name| format!("/dev/shm/{name}"));
    for patterns in PATTERNS {
        place.write("context/.dockerignore", patterns);
        let mut buildah = place.command("buildah");
        buildah.args(["--storage-driver", "vfs", "--root", &root, "--runroot", &run]);
        buildah.args(["bud", "--output", "type=local,dest=sent", "--file", "Dockerfile"]);
        let built = finish(buildah.arg("context"));
        assert!(built.status.success(), "{patterns:?}: {built:?}");
        let report = report(place);
        // .dockerignore is shorter than a unit.
        let ours = report["sent"]["bytes"].as_u64().unwrap() / UNIT;
        let theirs = bytes_below(&place.path("sent")) / UNIT;
        assert_eq!(format!("{ours:014b}"), format!("{theirs:014b}"), "{patterns:?}");
        fs::remove_dir_all(place.path("sent")).unwrap();
    }
}

fn the_largest_files_and_what_could_be_ignored_are_named(place: &Place) {
    let write = |name: &str, length: u64| {
        let path = place.path("context").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap().set_len(length).unwrap();
    };
    write("app/main.js", 1_000);
    write("app/node_modules/lib.js", 3_000_000);
    write("video.mp4", 5_000_000_000);
    let report = report(place);
    assert_eq!(report["ignore_file"], Value::Null);
    assert_eq!(report["sent"]["bytes"], 5_003_001_000_u64);
    assert_eq!(report["largest_files"][0]["path"], "video.mp4");
    assert_eq!(report["could_be_ignored"][0]["path"], "**/node_modules");
    // Nothing was written to the files.
    assert_eq!(report["holes"], 5_003_001_000_u64);

    // The line that is proposed saves what was promised.
    place.write("context/.dockerignore", "**/node_modules\n");
    let mut doctor = place.synconce(&["doctor", "--context", "context"]);
    let ended = finish(doctor.env("COLUMNS", WIDE));
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert!(lines[1..].iter().all(|line| *line != lines[0]), "once on a screen: {ended:?}");
    assert!(lines[0].contains("nothing that is seldom needed was found"), "{ended:?}");
    assert!(lines[1].starts_with(".dockerignore leaves out 3.0 MB in 2 entries"), "{ended:?}");

    // The directory comes before the engine, which does not run here.
    for words in [&["--context", "none"][..], &["--context", "none", "--docker"]] {
        let wrong = finish(place.synconce(&["doctor"]).args(words).env("DOCKER_HOST", "unix:///x"));
        assert_eq!(wrong.status.code(), Some(125), "{wrong:?}");
        assert_eq!(wrong.stderr, "synconce: cannot examine none: No such file or directory\n");
    }
}

/// In memory, where an empty file takes no block.
fn a_directory_of_100_000_files_is_named_first(place: &Place) {
    const MANY: u64 = 100_000;
    let context = Path::new("/dev/shm/context");
    let modules = context.join("app/node_modules");
    // Few entries with more bytes.
    for name in ["src/main.js", ".git/config"] {
        let path = context.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap().set_len(1_000).unwrap();
    }
    for directory in 0..MANY / 1_000 {
        let directory = modules.join(directory.to_string());
        fs::create_dir_all(&directory).unwrap();
        for file in 0..1_000 {
            File::create(directory.join(file.to_string())).unwrap();
        }
    }
    let context = context.to_str().unwrap();
    let ended = finish(place.synconce(&["doctor", "--context", context]).env("COLUMNS", WIDE));
    fs::remove_dir_all(context).unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    // Also node_modules, its 100 directories, .git and config; and app, src and main.js are sent.
    let verdict = format!(
        "{context}: a build sends 2.0 kB in 100,106 entries; .dockerignore could save 1.0 kB \
         in 100,103 entries"
    );
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!((lines.first(), lines.last()), (Some(&&*verdict), Some(&&*verdict)), "{ended:?}");
    assert!(lines.len() < 50, "{ended:?}");
    let title = "lines for .dockerignore, and the bytes and entries that each saves";
    let at = lines.iter().position(|line| *line == title);
    let line = at.and_then(|at| lines.get(at + 1)).unwrap_or_else(|| panic!("{ended:?}"));
    assert_eq!(*line, "        0 B   100,101  **/node_modules", "{ended:?}");
}

/// A mount of `/dev/null` hides a file.
fn a_dockerignore_that_is_dev_null_is_empty(place: &Place) {
    fs::create_dir(place.path("context")).unwrap();
    place.write("context/file", "content");
    place.write("context/.dockerignore", "file\n");
    let hidden = place.path("context/.dockerignore");
    mount("/dev/null", &hidden, "", MountFlags::BIND, None).unwrap();
    let report = report(place);
    unmount(&hidden, UnmountFlags::empty()).unwrap();
    assert_eq!(report["sent"]["entries"], 2, "{report}");
}
