//! Names are bytes to the kernel: a directory, a mount or a program of any name can be held
//! and reported.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use synconce_testkit::harness::{binary, eventually, finish, isolated};

/// [`odd`], as messages show it.
const SHOWN: &str = "caf\u{fffd}";

/// A name that is not UTF-8.
fn odd() -> &'static OsStr {
    OsStr::from_bytes(b"caf\xe9")
}

/// Returns `before`, the odd name and `after`.
fn around(before: &str, after: &str) -> OsString {
    OsString::from_vec([before.as_bytes(), odd().as_bytes(), after.as_bytes()].concat())
}

#[test]
fn a_run_in_a_directory_and_beside_a_mount_of_any_name_is_held_and_shown() {
    isolated(|place| {
        let synconce = binary();
        let directory = place.path("").join(odd());
        fs::create_dir_all(directory.join(odd())).expect("two directories");
        let run = format!(
            " && exec {synconce} run --stats -- \
             sh -c 'echo x >data && sync data && {synconce} status --json; true'"
        );
        let mut command = place.command("unshare");
        command.args(["--mount", "sh", "-c"]).arg(around("mount -t tmpfs none ", &run));
        let finished = finish(command.current_dir(&directory));
        assert!(finished.status.success(), "{finished:?}");
        assert!(finished.stdout.contains(SHOWN), "{finished:?}");
        assert!(finished.stderr.contains("fsync"), "{finished:?}");
        assert!(place.markers().is_empty());
    });
}

#[test]
fn a_survivor_of_any_name_is_named() {
    isolated(|place| {
        let program = place.path("").join(odd());
        fs::copy("/bin/sleep", &program).expect("a program of ours");
        // The process gets the odd name with its execve(2).
        let then = " 1000 </dev/null >/dev/null 2>&1 & \
                    until grep -q caf /proc/$!/comm; do sleep 0.01; done";
        let script = around("sync data; setsid ./", then);
        place.write("data", "x");
        let mut command = place.held(&[], &["sh", "-c"]);
        assert!(finish(command.arg(script)).status.success());
        let named = format!("real syncs again for: {SHOWN} (pid ");
        eventually("the survivor is named", || place.status(&[]).stdout.contains(&named));
    });
}
