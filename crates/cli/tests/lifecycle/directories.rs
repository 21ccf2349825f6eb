//! The directories above a marker are durable before the first held call, whatever process
//! made them.

use rustix::mount::{MountFlags, mount};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use synconce_testkit::harness::{Place, Trace, binary, finish, isolated};

/// Returns the position of the first answer to a held call (the answer to a passed call has
/// flags). What comes before it in the trace protects the call.
fn first_answer(trace: &Trace) -> usize {
    trace.expect(0, &["SECCOMP_IOCTL_NOTIF_SEND", "flags=0"])
}

/// Whether the directory `name` was synced before the first answer. A failed sync ends the
/// run.
fn is_synced_before(trace: &Trace, place: &Place, name: &str) -> bool {
    let on = format!("{}>", place.text(name));
    trace.find(0, &["fsync(", &on]).is_some_and(|at| at < first_answer(trace))
}

#[test]
fn a_run_syncs_the_names_that_another_has_just_made_and_not_synced() {
    isolated(|place| {
        place.write("data", "x");
        fs::create_dir_all(place.path("root/var/lib/synconce/runs")).unwrap();
        let run = [binary(), "run", "--root", "root", "--", "sync", "data"];
        let trace = Trace::run(place, &run);
        assert_eq!(trace.count(&["mkdirat(", &place.text("root"), "= 0"]), 0, "the run made none");
        for name in ["root/var/lib/synconce", "root/var/lib", "root/var", "root"] {
            assert!(is_synced_before(&trace, place, name), "{name}");
            let on = format!("{}>", place.text(name));
            assert_eq!(trace.count(&["fsync(", &on]), 1, "{name}");
        }
    });
}

#[test]
fn directories_get_their_modes_by_descriptor_and_a_refusal_fails_no_run() {
    isolated(|place| {
        place.write("data", "x");
        fs::create_dir(place.path("root")).unwrap();
        let calls = "trace=chmod,fchmod,fchmodat";
        for refuse in [&[][..], &["-e", "inject=chmod,fchmod,fchmodat:error=EPERM"]] {
            let mut strace = place.command("strace");
            strace.args(["-f", "-y", "-o", "trace", "-e", calls]).args(refuse);
            strace.args(["sh", "-c", "umask 077; exec \"$0\" run --root root -- sync data"]);
            let finished = finish(strace.arg(binary()));
            assert_eq!((finished.status.code(), &*finished.stderr), (Some(0), ""), "{refuse:?}");
            let trace = place.read("trace");
            // Another user may own a directory above and put a link there meanwhile.
            assert!(!trace.contains(" chmod(") && !trace.contains(" fchmodat("), "{trace}");
            for name in ["state", "runtime", "registry"] {
                let mode = fs::metadata(place.path(name)).unwrap().permissions().mode();
                assert!(!refuse.is_empty() || mode & 0o755 == 0o755, "{name}: {mode:o}");
                fs::remove_dir_all(place.path(name)).unwrap();
            }
        }
    });
}

#[test]
fn a_run_of_a_user_below_a_directory_that_only_root_may_read_is_as_safe() {
    isolated(|place| {
        place.write("data", "x");
        // Like /home on some machines: the directory can be searched, but not read.
        for name in ["home/user/.local/state", "runtime"] {
            fs::create_dir_all(place.path(name)).unwrap();
        }
        let mode = |name, mode| {
            fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        for (name, bits) in [(".", 0o755), ("runtime", 0o777), ("home", 0o711)] {
            mode(name, bits);
        }
        for name in ["home/user", "home/user/.local", "home/user/.local/state"] {
            chown(place.path(name), Some(64121), Some(64121)).unwrap();
            mode(name, 0o700);
        }
        let home = format!("HOME={}", place.text("home/user"));
        let mut words = vec!["setpriv", "--reuid", "64121", "--regid", "64121", "--clear-groups"];
        words.extend(["env", "-u", "SYNCONCE_STATE_DIR", "-u", "XDG_STATE_HOME", &home]);
        words.extend([binary(), "run", "--", "sync", "data"]);
        let trace = Trace::run(place, &words);
        let synconce = "home/user/.local/state/synconce";
        for name in [synconce, "home/user/.local/state", "home/user"] {
            assert!(is_synced_before(&trace, place, name), "{name}");
        }
        let denied = trace.expect_result(0, &["openat(", "\"../"], "EACCES");
        let instead =
            trace.expect(denied, &["syncfs(", &format!("{}/runs>", place.text(synconce))]);
        assert!(instead < first_answer(&trace));
    });
}

#[test]
fn names_on_another_file_system_are_not_the_markers() {
    isolated(|place| {
        place.write("data", "x");
        fs::create_dir(place.path("memory")).unwrap();
        mount("none", place.path("memory"), "tmpfs", MountFlags::empty(), None).unwrap();
        fs::create_dir(place.path("memory/above")).unwrap();
        let state = format!("SYNCONCE_STATE_DIR={}", place.text("memory/above/state"));
        let words = ["env", &state, binary(), "run", "--", "sync", "data"];
        let trace = Trace::run(place, &words);
        for name in ["memory/above/state", "memory/above", "memory"] {
            assert!(is_synced_before(&trace, place, name), "{name}");
        }
        let memory = place.path("memory");
        let outside = format!("{}>", memory.parent().unwrap().display());
        assert_eq!(trace.count(&["fsync(", &outside]), 0);
    });
}
