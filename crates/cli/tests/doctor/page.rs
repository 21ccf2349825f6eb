//! `synconce doctor --html FILE`.

use crate::command::watched;
use crate::support::{WIDE, doctor, names};
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, mount};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use synconce_testkit::harness::{Place, binary, finish, trial};
use synconce_testkit::process::Finished;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_page_has_the_report_and_changes_no_exit_code, &[]),
        trial(a_file_that_cannot_be_written_is_an_error_before_the_work, &[]),
        trial(a_page_replaces_the_old_one_as_a_whole, &[]),
        trial(a_full_disk_leaves_the_old_page, &[]),
    ]
}

/// Writes a page about an empty context to `file`.
fn context(place: &Place, file: &str) -> Finished {
    fs::create_dir_all(place.path("context")).unwrap();
    let mut doctor = place.synconce(&["doctor", "--context", "context", "--html", file]);
    finish(doctor.env("COLUMNS", WIDE))
}

/// Asserts that `file` is a whole page with the verdict that `text` begins with.
fn assert_page(file: &Path, text: &str) {
    let page = fs::read_to_string(file).unwrap();
    let verdict = text.lines().next().expect("a verdict").replace('\'', "&#39;");
    assert!(page.contains(&format!("<p class=\"verdict\">{verdict}</p>")), "{text}\n{page}");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"), "{page}");
}

fn a_page_has_the_report_and_changes_no_exit_code(place: &Place) {
    let page = place.path("page.html");
    let file = page.to_str().unwrap();
    let ended = context(place, file);
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    assert_page(&page, &ended.stdout);

    let here = Path::new("/dev/shm");
    let options = ["--ignore", "full", "--html", file];
    let ended = finish(&mut doctor(place, here, &options));
    assert!(ended.status.success(), "{ended:?}");
    assert_page(&page, &ended.stdout);

    // The command's own output and exit code; the text and JSON are as without a page.
    let words = ["sh", "-c", "echo out; sync -f .; exit 7"];
    let kept = place.text("record");
    let ended = finish(&mut watched(place, here, &["-o", &kept, "--html", file], &words));
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(7), "out\n"), "{ended:?}");
    assert_page(&page, &ended.stderr);
    let ended = finish(&mut place.synconce(&["doctor", "--read", &kept, "--json", "--html", file]));
    assert!(ended.status.success(), "{ended:?}");
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_page(&page, report["verdict"].as_str().unwrap());
    assert!(fs::read_to_string(&page).unwrap().contains("<td>syncfs</td>"), "{ended:?}");
}

fn a_file_that_cannot_be_written_is_an_error_before_the_work(place: &Place) {
    let fifo = place.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    symlink("none", place.path("dangling")).unwrap();
    let wrong = |words: &[&str], why: &str| {
        let ended = place.bare(words);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(125), ""), "{ended:?}");
        assert_eq!(ended.stderr, format!("synconce: cannot write to {why}\n"), "{ended:?}");
    };
    for (file, why) in [
        (
            "-",
            "-: --html writes to a file only\nsynconce: hint: synconce doctor --html report.html",
        ),
        (".", ".: is a directory"),
        ("fifo", "fifo: not a regular file"),
        ("/dev/null", "/dev/null: not a regular file"),
        ("none/page", "none/page: No such file or directory"),
        ("dangling", "dangling: No such file or directory"),
    ] {
        wrong(&[binary(), "doctor", "--html", file, "."], why);
        // No command is started.
        wrong(&[binary(), "doctor", "--html", file, "--", "touch", "started"], why);
    }
    assert!(!place.path("started").exists());
    fs::write(place.path("record"), "old").unwrap();
    let why = "record: another option names this file";
    let page = [binary(), "doctor", "--html", "record"];
    let touch: &[&str] = &["-o", "record", "--", "touch", "started"];
    for other in [&["--read", "./record"], touch, &["--json=record"]] {
        wrong(&[&page, other].concat(), why);
    }
    assert_eq!(fs::read_to_string(place.path("record")).unwrap(), "old");

    fs::copy(binary(), "/dev/shm/synconce").unwrap();
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let words = ["/dev/shm/synconce", "doctor", "--context", "/usr/share/doc", "--html"];
    let file = "/dev/shm/page.html";
    fs::write(file, "old").unwrap();
    // The directory may be written to, and the file too, but its owner cannot be kept.
    let others = "/dev/shm/others.html";
    fs::write(others, "old").unwrap();
    fs::set_permissions(others, fs::Permissions::from_mode(0o666)).unwrap();
    for (file, why) in [
        (file, "/dev/shm/page.html: the file belongs to another user"),
        (others, "/dev/shm/others.html: the file belongs to another user"),
        ("/etc/page.html", "/etc/page.html: Permission denied"),
    ] {
        wrong(&[&user[..], &words, &[file]].concat(), why);
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "old");
}

fn a_page_replaces_the_old_one_as_a_whole(place: &Place) {
    let page = place.path("page.html");
    let made = place.sh(&format!("umask 027; {} doctor --context . --html page.html", binary()));
    assert!(made.status.success(), "{made:?}");
    assert_eq!(fs::metadata(&page).unwrap().mode() & 0o7777, 0o640);
    // The old page stays whole for a process that reads it. Mode and link stay.
    fs::set_permissions(&page, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("page.html", place.path("link.html")).unwrap();
    let old = fs::File::open(&page).unwrap();
    fs::create_dir(place.path("context")).unwrap();
    let before = names(&place.path(""));
    let made = context(place, "link.html");
    assert!(made.status.success(), "{made:?}");
    assert_page(&page, &made.stdout);
    let meta = fs::symlink_metadata(place.path("link.html")).unwrap();
    assert!(meta.is_symlink());
    let new = fs::metadata(&page).unwrap();
    assert_ne!(new.ino(), old.metadata().unwrap().ino());
    assert_eq!(new.mode() & 0o7777, 0o600);
    assert_eq!(names(&place.path("")), before);
}

fn a_full_disk_leaves_the_old_page(place: &Place) {
    let disk = place.path("disk");
    fs::create_dir(&disk).unwrap();
    mount("none", &disk, "tmpfs", MountFlags::empty(), c"size=8k").unwrap();
    fs::write(disk.join("page.html"), "old").unwrap();
    for name in ["page.html", "new.html"] {
        let file = format!("disk/{name}");
        let ended = context(place, &file);
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        let why = format!("cannot write {}: No space left on device", disk.join(name).display());
        let relative = format!("cannot write {file}: No space left on device");
        assert!(ended.stderr.contains(&why) || ended.stderr.contains(&relative), "{ended:?}");
        // The report itself is not lost.
        assert!(ended.stdout.contains("a build sends"), "{ended:?}");
    }
    assert_eq!(fs::read_to_string(disk.join("page.html")).unwrap(), "old");
    assert_eq!(names(&disk), ["page.html"]);
}
