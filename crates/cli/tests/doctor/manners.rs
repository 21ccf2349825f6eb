//! Signals, rights and wrong paths.

use crate::support::{doctor, names, rig};
use libtest_mimic::Trial;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use synconce_testkit::harness::{
    Place, StartedCommand, Terminal, binary, eventually, finish, trial,
};
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_signal_ends_it_and_leaves_nothing, &[]),
        trial(ctrl_c_ends_it_and_the_terminal_shows_what_is_measured, &[]),
        trial(a_place_that_cannot_be_used_is_an_error_and_says_why, &[]),
        trial(a_path_that_is_not_utf_8_is_in_the_json, &[]),
    ]
}

/// Whether the temporary directory in `path` has the file `name`.
fn measures(path: &Path, name: &str) -> bool {
    let entries = fs::read_dir(path).unwrap().flatten();
    let mut ours = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(".synconce-doctor-"));
    ours.any(|entry| entry.path().join(name).exists())
}

fn a_signal_ends_it_and_leaves_nothing(place: &Place) {
    let slow = rig(FsKind::Ext4, 8);
    let fast = rig(FsKind::Ext4, 0);
    for (rig, file, signal) in [
        (&slow, "fsync", Signal::INT),
        (&slow, "fdatasync", Signal::TERM),
        (&fast, "writes", Signal::TERM),
        (&fast, "writes", Signal::HUP),
    ] {
        let before = names(rig.path());
        let options = if file == "writes" { &["--full"][..] } else { &[] };
        // The caller of the tests may ignore signals: a shell's `&` does.
        let program = doctor(place, rig.path(), options);
        let mut command = place.command("env");
        command.arg("--default-signal=INT,TERM,HUP").arg(program.get_program());
        let started = StartedCommand::new(command.args(program.get_args()));
        eventually(&format!("{file} is measured"), || measures(rig.path(), file));
        started.signal(signal).unwrap();
        let status = started.end();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{file}: {}", started.text());
        assert_eq!(names(rig.path()), before, "{file}");
    }
}

fn ctrl_c_ends_it_and_the_terminal_shows_what_is_measured(place: &Place) {
    let rig = rig(FsKind::Ext4, 8);
    let before = names(rig.path());
    let mut terminal = Terminal::shell(place);
    terminal.line(&format!("TERM=xterm $SYNCONCE doctor {}", rig.path().display()));
    terminal.expect("synconce: measuring fsync [");
    terminal.write("\u{3}");
    assert_eq!(terminal.code(), "130");
    assert_eq!(names(rig.path()), before);
}

fn a_place_that_cannot_be_used_is_an_error_and_says_why(place: &Place) {
    place.write("file", "");
    let wrong = |path: &str| {
        let ended = finish(&mut place.synconce(&["doctor", path]));
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        assert_eq!(ended.stdout, "", "{ended:?}");
        ended.stderr
    };
    for (missing, hint) in [
        ("none", "synconce: hint: synconce doctor .\n"),
        ("/usr/share/none/none", "synconce: hint: synconce doctor /usr/share\n"),
        ("/none/none", ""),
        ("/none", ""),
    ] {
        let wanted =
            format!("synconce: cannot examine {missing}: No such file or directory\n{hint}");
        assert_eq!(wrong(missing), wanted);
    }
    let wanted = "synconce: cannot measure in file: not a directory\n\
                  synconce: hint: synconce doctor .\n";
    assert_eq!(wrong("file"), wanted);

    let script = "mkdir gone; cd gone; rmdir ../gone; exec \"$0\" doctor \"$@\"";
    for words in [&[][..], &["."], &["none"]] {
        let ended = place.bare(&[&["sh", "-c", script, binary()], words].concat());
        let wanted = "synconce: hint: synconce doctor DIRECTORY, with its absolute path: the current \
                      directory was removed\n";
        assert!(ended.status.code() == Some(125) && ended.stderr.ends_with(wanted), "{ended:?}");
    }

    let wanted = "synconce: cannot time a command: there is none after --\n\
                  synconce: hint: synconce doctor -- COMMAND; of a directory: synconce doctor PATH\n";
    assert_eq!(wrong("--"), wanted);
    let ended = finish(&mut place.synconce(&["doctor", "--", "printf", "%s", "--"]));
    assert!(ended.status.success() && ended.stdout == "--", "{ended:?}");

    // The program may be below a directory that is closed to other users.
    fs::copy(binary(), "/dev/shm/synconce").unwrap();
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let ended = place.bare(&[&user[..], &["/dev/shm/synconce", "doctor", "/etc"]].concat());
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    let wanted = "synconce: cannot write in /etc: Permission denied\n\
                  synconce: hint: sudo /dev/shm/synconce doctor /etc\n";
    assert!(ended.stderr.ends_with(wanted), "{ended:?}");
}

fn a_path_that_is_not_utf_8_is_in_the_json(place: &Place) {
    let odd = Path::new("/dev/shm").join(OsStr::from_bytes(b"odd\xff"));
    fs::create_dir(&odd).unwrap();
    for (options, pointer) in
        [(&["--context"][..], "/directory"), (&["--ignore", "full"], "/place/path")]
    {
        let mut doctor = place.synconce(&["doctor", "--json"]);
        let ended = finish(doctor.args(options).arg(&odd));
        assert!(ended.status.success(), "{ended:?}");
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let path = report.pointer(pointer).unwrap();
        assert_eq!(path, "/dev/shm/odd\u{fffd}", "{report:#}");
    }
}
