//! Overlays of a hold that other mounts, names and namespaces keep: a stop does not say that the
//! hold has ended, and names what keeps it. What an overlay says of its disk.

use crate::losses::traced;
use crate::support::{HoldOnRig, configure, end, failed, refused, sh, stays, with_hold};
use std::fs;
use std::path::Path;
use synconce_testkit::harness::{Place, StartedCommand, binary, finish};

/// Returns a name in a fresh directory beside the held files.
fn beside(fixture: &HoldOnRig<'_>, name: &str) -> String {
    let path = fixture.rig.path().join(name);
    fs::create_dir_all(&path).unwrap();
    path.display().to_string()
}

#[test]
fn a_bind_mount_of_a_held_directory_keeps_the_hold() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let (directory, copy) = (fixture.directory().display().to_string(), beside(fixture, "v"));
        sh(place, &format!("mount --bind {directory} {copy}"));
        let process = fixture.open(&Path::new(&copy).join("new"));
        refused(fixture, &["in use by sh", &format!("(pid {})", process.pid())]);
        assert_eq!(fixture.state(), "held");
        end(process);
        refused(fixture, &[&format!("it is mounted on {copy}, too\n"), "hint: umount"]);
        assert_eq!(fixture.state(), "held");
        sh(place, &format!("umount {copy}"));
        fixture.ok("stop");
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn a_namespace_that_receives_the_unmount_does_not_keep_the_hold() {
    with_hold("", |place, fixture| {
        sh(place, &format!("mount --make-rshared {}", fixture.rig.path().display()));
        fixture.ok("start");
        let slave = ["unshare", "--mount", "--propagation", "slave", "sh"];
        let process = stays(place, &slave, ":");
        fixture.ok("stop");
        end(process);
        // A user there keeps the hold as a whole.
        fixture.ok("start");
        let held = fixture.directory().display().to_string();
        let process = stays(place, &slave, &format!("cd {held}"));
        refused(fixture, &[&format!("in use by sleep (pid {})", process.pid())]);
        assert_eq!(fixture.state(), "held");
        end(process);
        fixture.ok("stop");
    });
}

#[test]
fn a_lazy_unmount_does_not_end_the_hold_while_a_file_is_open() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let process = fixture.open(&fixture.directory().join("new"));
        sh(place, &format!("umount --lazy {}", fixture.directory().display()));
        refused(fixture, &["in use by sh", &format!("(pid {})", process.pid())]);
        fixture.fails("start", &[]);
        end(process);
        fixture.ok("stop");
    });
}

#[test]
fn a_descriptor_that_is_in_flight_keeps_the_hold() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let process = put_in_flight(place, fixture);
        sh(place, &format!("umount --lazy {}", fixture.directory().display()));
        refused(fixture, &["in use by another process"]);
        end(process);
        fixture.ok("stop");
    });
}

/// Starts a process that keeps a file of the held directory open in a socket: sent and closed, so
/// no process in /proc has the file.
fn put_in_flight(place: &Place, fixture: &HoldOnRig<'_>) -> StartedCommand {
    let program = format!(
        "import array, os, socket, time\n\
         one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
         file = os.open('{}', os.O_RDWR | os.O_CREAT)\n\
         socket.send_fds(one, [b'x'], [file])\n\
         os.close(file)\n\
         print('ready', file=open('ready', 'w'), flush=True)\n\
         time.sleep(600)\n",
        fixture.directory().join("new").display()
    );
    let process = StartedCommand::new(place.command("python3").args(["-c", &program]));
    place.wait_for("ready");
    process
}

/// The kernel may not say whether an overlay is in use: it has no memory left, or the caller has no
/// CAP_SYS_ADMIN, as in many containers.
#[test]
fn an_overlay_of_which_the_kernel_says_nothing_keeps_the_hold() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let process = put_in_flight(place, fixture);
        sh(place, &format!("umount --lazy {}", fixture.directory().display()));
        let cannot = ["cannot ask the kernel for an overlay of"];
        let inject = ["-e", "trace=fsopen", "-e", "inject=fsopen:error=ENOMEM"];
        failed(traced(place, &inject, &["stop"]), &cannot);
        assert_ne!(fixture.state(), "off");
        // Another container may have the marker.
        let (marker, kept) = (place.path("state/holds/t.json"), place.path("kept"));
        fs::rename(&marker, &kept).unwrap();
        for verb in ["recover", "status"] {
            let setpriv = ["--bounding-set=-sys_admin", "--", binary(), "hold", verb, "./t.toml"];
            failed(finish(place.command("setpriv").args(setpriv)), &cannot);
        }
        fs::rename(&kept, &marker).unwrap();
        end(process);
        fixture.ok("stop");
    });
}

#[test]
fn a_write_that_was_lost_for_want_of_space_is_a_lost_write() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        // What the overlay says after a write-back that found no space, as on a full btrfs.
        let held = fixture.directory().display().to_string();
        let inject = ["-P", &held, "-e", "trace=fsync", "-e", "inject=fsync:error=ENOSPC"];
        let shown = traced(place, &inject, &["status"]);
        assert!(shown.stdout.contains("failed"), "{}", shown.stdout);
        failed(traced(place, &inject, &["stop"]), &["the disk lost writes"]);
        assert_eq!(fixture.state(), "interrupted");
        fixture.ok("recover --keep");
    });
}

#[test]
fn a_mapping_keeps_the_hold() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        fs::write(fixture.directory().join("new"), [1; 8192]).unwrap();
        let program = format!(
            "import mmap, os, time\n\
             file = os.open('{}', os.O_RDWR)\n\
             mapped = mmap.mmap(file, 8192)\n\
             os.close(file)\n\
             print('ready', file=open('ready', 'w'), flush=True)\n\
             time.sleep(600)\n",
            fixture.directory().join("new").display()
        );
        let process = StartedCommand::new(place.command("python3").args(["-c", &program]));
        place.wait_for("ready");
        refused(fixture, &["in use by python3", &format!("(pid {})", process.pid())]);
        assert_eq!(fixture.state(), "held");
        end(process);
        fixture.ok("stop");
    });
}

#[test]
fn a_hold_below_another_mount_has_not_ended() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let (directory, other) = (fixture.directory().display().to_string(), beside(fixture, "x"));
        sh(place, &format!("mount --bind {other} {directory}"));
        let hint = format!("hint: umount {directory}\n");
        refused(fixture, &["another mount covers it\n", &hint]);
        assert_eq!(fixture.state(), "incomplete");
        sh(place, &format!("umount {directory}"));
        fixture.ok("stop");
    });
}

#[test]
fn a_stop_ends_the_hold_where_a_link_led_at_the_start() {
    with_hold("", |place, fixture| {
        let (first, link) = (beside(fixture, "v1"), fixture.rig.path().join("cur"));
        beside(fixture, "v1/db");
        beside(fixture, "v2/db");
        sh(place, &format!("ln -s v1 {}", link.display()));
        configure(place, "t", "", &link.join("db"));
        fixture.ok("start");
        sh(place, &format!("ln -sfn v2 {}", link.display()));
        assert_eq!(fixture.state(), "incomplete");
        let process = fixture.open(Path::new(&format!("{first}/db/new")));
        refused(fixture, &["in use by sh"]);
        end(process);
        fixture.ok("stop");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains("v1/db"), "{mounts}");
        assert!(!fixture.everything().contains("synconce-hold"), "{}", fixture.everything());
    });
}

#[test]
fn a_hold_whose_directory_was_renamed_has_not_ended() {
    with_hold("", |place, fixture| {
        let (first, second) = (beside(fixture, "p"), fixture.rig.path().join("q"));
        beside(fixture, "p/db");
        configure(place, "t", "", &Path::new(&first).join("db"));
        fixture.ok("start");
        sh(place, &format!("mv {first} {}", second.display()));
        let said = format!("it is mounted on {}/db now\n", second.display());
        for _again in 0..2 {
            refused(fixture, &[&said]);
            assert_eq!(fixture.state(), "incomplete");
            // Another directory of that name changes nothing.
            fs::create_dir_all(format!("{first}/db")).unwrap();
        }
        sh(place, &format!("rm -r {first}; mv {} {first}", second.display()));
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
    });
}

#[test]
fn a_mount_inside_and_a_working_directory_are_named() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let inside = fixture.directory().join("sub").display().to_string();
        sh(place, &format!("mkdir {inside}; mount -t tmpfs none {inside}"));
        let hint = format!("hint: umount {inside}\n");
        refused(fixture, &[&format!("is mounted inside, on {inside}\n"), &hint]);
        assert_eq!(fixture.state(), "held");
        sh(place, &format!("umount {inside}"));
        let process = stays(place, &["sh"], &format!("cd {inside}"));
        refused(fixture, &[&format!("(pid {})", process.pid())]);
        assert_eq!(fixture.state(), "held");
        end(process);
        let file = place.text("t.toml");
        let mut own = place.synconce(&["hold", "stop", &file]);
        let stopped = finish(own.current_dir(fixture.directory()));
        assert_eq!(stopped.status.code(), Some(125));
        assert!(stopped.stderr.contains("in use by synconce (pid "), "{}", stopped.stderr);
        fixture.ok("stop");
    });
}

#[test]
fn a_hold_whose_marker_was_removed_is_not_said_to_have_ended() {
    with_hold("", |place, fixture| {
        fixture.ok("start");
        let data = fixture.directory().join("data");
        fs::write(&data, "data").unwrap();
        fs::rename(place.path("state"), place.path("elsewhere")).unwrap();
        let (status, code) = fixture.status();
        assert_eq!((status["state"].as_str(), code), (Some("incomplete"), Some(0)), "{status}");
        for verb in ["start", "stop"] {
            fixture.fails(
                verb,
                &["is held, and has no marker in ", "hint: use the SYNCONCE_STATE_DIR"],
            );
        }
        fs::rename(place.path("elsewhere"), place.path("state")).unwrap();
        assert_eq!(fixture.state(), "held");
        fs::remove_dir_all(place.path("state")).unwrap();
        let directory = fixture.directory().display().to_string();
        let file = fixture.file().display().to_string();
        for path in [file, directory] {
            let said = fixture.fails("stop", &["has no marker"]);
            assert!(said.contains(&format!("umount {path} && synconce hold start t")), "{said}");
            sh(place, &format!("umount {path}"));
        }
        fixture.ok("start");
        fixture.ok("stop");
        assert_eq!(fs::read_to_string(&data).unwrap(), "data");
        assert!(!fixture.everything().contains(".synconce-hold"));
        assert_eq!(fixture.state(), "off");
    });
}
