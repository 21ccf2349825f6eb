//! What `status` shows to a user who may not look at the files, and after a crash.

use crate::crashes::crash;
use crate::support::{configure, hold, sh, with_hold};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use synconce_testkit::harness::{Place, binary, finish};

/// Returns what `synconce WORDS` prints to an ordinary user, and to root.
fn shown_to_both(place: &Place, words: &[&str]) -> [String; 2] {
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", binary()];
    let mut by_user = place.command("setpriv");
    let ended = [finish(by_user.args(user).args(words)), finish(&mut place.synconce(words))];
    ended.map(|ended| {
        assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
        ended.stdout
    })
}

/// Asserts that `shown` has `parts`, and nothing of what is shown of a hold that has to be mended.
#[track_caller]
fn assert_held(shown: &str, parts: &[&str]) {
    for part in parts {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    for wrong in ["hint: ", "not held: ", " incomplete "] {
        assert!(!shown.contains(wrong), "{wrong}: {shown}");
    }
}

#[test]
fn a_hold_in_a_directory_of_root_alone_is_not_shown_as_incomplete() {
    with_hold("", |place, fixture| {
        let closed = fixture.rig.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
        fs::create_dir_all(closed.join("in/db")).unwrap();
        symlink("in", closed.join("link")).unwrap();
        let lost = "only root can see whether the disk has lost writes";
        let leads = "only root can see whether ";
        for (name, unseen) in [("in/db", lost), ("link/db", leads)] {
            let held = closed.join(name);
            configure(place, "t", "after_crash = \"wipe\"\n", &held);
            fixture.ok("start");
            let [user, root] = shown_to_both(place, &["hold", "status", "./t.toml"]);
            assert_held(&user, &["t     held ", unseen]);
            assert_held(&root, &["t     held "]);
            assert!(!root.contains("only root"), "{root}");
            assert_held(&shown_to_both(place, &["status"])[0], &["hold t: held ", unseen]);
            for metrics in shown_to_both(place, &["status", "--format", "prometheus"]) {
                for (state, count) in [("held", 1), ("incomplete", 0)] {
                    let line = format!("synconce_holds{{state=\"{state}\"}} {count}\n");
                    assert!(metrics.contains(&line), "{line}: {metrics}");
                }
            }
            // Every user may read which mounts there are.
            let point = closed.join("in/db").display().to_string();
            sh(place, &format!("umount {point}"));
            for shown in shown_to_both(place, &["hold", "status", "./t.toml"]) {
                assert!(shown.contains("not held: ") && shown.contains("hint: "), "{shown}");
            }
            fixture.ok("start");
            fixture.ok("stop");
        }
    });
}

#[test]
fn a_crash_that_has_happened_is_not_shown_as_one_to_come() {
    with_hold("", |place, fixture| {
        let happened = "one has happened; ";
        for (after, what) in [
            ("wipe", "the recovery sets the files aside: no jobs\n"),
            ("refuse", "the daemon does not start before you decide: no jobs\n"),
        ] {
            fixture.configure("t", &format!("after_crash = \"{after}\"\ncost = \"no jobs\"\n"));
            fixture.ok("start");
            let shown = || hold(place, &["status", "./t.toml"]).stdout;
            assert!(!shown().contains(happened), "{}", shown());
            crash(fixture);
            assert!(shown().contains(&format!("{happened}{what}")), "{}", shown());
            fixture.ok("recover --keep");
        }
    });
}
