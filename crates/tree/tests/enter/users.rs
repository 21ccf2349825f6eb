//! Users inside a tree, and ordinary users outside.

use crate::support::{entered, isolated, limit, output, root, script, verb, write};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;
use synconce_testkit::process::{self, Finished};

const USER: u32 = 1000;
const FIRST: u32 = 200_000;

pub fn a_user_of_the_tree_has_its_groups_and_home() {
    isolated(|place| {
        let root = root(place, "root");
        let look = "echo $(id -u):$(id -g):$(id -G) $HOME $USER $SHELL";
        for (user, expected) in [
            (None, "0:0:0 40 /root root /bin/sh\n"),
            (Some("builder"), "1000:1000:1000 40 /home/builder builder /bin/dash\n"),
            (Some("1000"), "1000:1000:1000 40 /home/builder builder /bin/dash\n"),
            (Some("1000:40"), "1000:40:40 /home/builder builder /bin/dash\n"),
            (Some("77:78"), "77:78:78 / 77 /bin/sh\n"),
        ] {
            let mut spec = script(&root, look);
            spec.user = user.map(str::to_owned);
            assert_eq!(output(&spec), expected, "{user:?}");
        }
    });
}

pub fn an_unknown_user_is_named() {
    isolated(|place| {
        let mut spec = script(&root(place, "root"), "true");
        spec.user = Some("nobody-knows".into());
        let finished = entered(&spec);
        assert_eq!(finished.status.code(), Some(125));
        assert!(finished.stderr.contains("the tree has no user nobody-knows"), "{finished:?}");
    });
}

/// Gives the user 1000 of this mount namespace a name and the subordinate ids in `ranges`.
fn with_user(place: &Path, ranges: &str) {
    let others = fs::read_to_string("/etc/passwd").unwrap();
    let passwd = format!("tester:x:1000:1000::/:/bin/sh\n{others}");
    for (name, text) in [("passwd", &*passwd), ("subuid", ranges), ("subgid", ranges)] {
        let own = place.join(name);
        write(&own, text);
        rustix::mount::mount_bind(&own, format!("/etc/{name}")).expect("a bind mount");
    }
}

fn ranges() -> String {
    format!("tester:{FIRST}:1000\nother:1:1\ntester:{}:64536\n", FIRST + 5000)
}

fn as_user(words: &[&str], variables: &[(&str, &str)]) -> Finished {
    let mut command = Command::new("/usr/bin/setpriv");
    let user = USER.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.arg(verb(&[]).get_program()).args(words);
    command.env_clear().env("PATH", "/usr/bin:/bin").envs(variables.iter().copied());
    process::run(&mut command, limit()).unwrap()
}

/// Makes a directory of the user's with a root that is owned by the user's own ids.
fn users_place(place: &Path) -> std::path::PathBuf {
    let here = place.join("here");
    fs::create_dir(&here).unwrap();
    let whole = root(&here, "whole");
    for name in ["upper", "work", "root"] {
        fs::create_dir(here.join(name)).unwrap();
        chown(here.join(name), Some(USER), Some(USER)).unwrap();
    }
    let give = "chown -Rh 1000:1000 \"$0\" && chown 200999:206999 \"$0/home/builder\"";
    let given = Command::new("sh").args(["-c", give]).arg(&whole).status().unwrap();
    assert!(given.success());
    chown(&here, Some(USER), Some(USER)).unwrap();
    here
}

pub fn an_ordinary_user_is_root_inside_with_all_its_ids() {
    isolated(|place| {
        with_user(place, &ranges());
        let here = users_place(place);
        let inside = "
            echo $(id -u):$(id -g):$(id -G) $(stat -c %u:%g /home/builder) $HOME
            touch /tmp/f && chown 1000:65536 /tmp/f && stat -c %u:%g /tmp/f
            echo x >/dev/null && [ -c /dev/random ] && [ -d /dev/pts ] && echo y >/dev/shm/f
            [ -r /proc/1/comm ] && [ -e /sys/kernel ] && cat /etc/passwd >/etc/copy
            mount -t tmpfs none /tmp && [ ! -e /tmp/f ] && echo mounted
            hostname zzz && hostname
            case \"$(cat /etc/hosts)\" in *localhost*) echo 192.0.2.1 x >>/etc/hosts && echo hosts; esac";
        let spec = serde_json::to_string(&script(&here.join("root"), inside)).unwrap();
        let finished = as_user(&["as-user", here.to_str().unwrap(), &spec], &[]);
        assert!(finished.status.success(), "{finished:?}");
        // 1000 is the last id of the first range; the second range follows.
        assert_eq!(finished.stdout, "0:0:0 40 1000:3000 /root\n1000:65536\nmounted\nzzz\nhosts\n");
        let written = fs::metadata(here.join("upper/tmp/f")).unwrap();
        assert_eq!((written.uid(), written.gid()), (200_999, 205_000 + 64_535));
        assert_eq!(fs::metadata(here.join("upper/etc/copy")).unwrap().uid(), USER);
        assert!(!here.join("whole/etc/copy").exists());
    });
}

pub fn an_ordinary_user_without_ids_gets_a_hint() {
    isolated(|place| {
        with_user(place, "other:1:65536\n");
        let finished = as_user(&["as-user", "/", "{}"], &[]);
        assert_eq!(finished.status.code(), Some(125));
        assert!(finished.stderr.contains("/etc/subuid: it has no ids for tester"), "{finished:?}");
        assert!(finished.stderr.contains("usermod --add-subuids"), "{finished:?}");
    });
}

pub fn an_ordinary_user_without_newuidmap_gets_a_hint_to_install_it() {
    isolated(|place| {
        with_user(place, &ranges());
        let finished = as_user(&["as-user", "/", "{}"], &[("PATH", "/nowhere")]);
        assert_eq!(finished.status.code(), Some(125));
        assert!(finished.stderr.contains("cannot execute newuidmap"), "{finished:?}");
        assert!(finished.stderr.contains("apt-get install uidmap"), "{finished:?}");
    });
}

pub fn what_overlay_can_do_for_an_ordinary_user_is_found_by_trial() {
    isolated(|place| {
        with_user(place, &ranges());
        let here = users_place(place);
        let finished = as_user(&["trial", here.to_str().unwrap()], &[]);
        assert!(finished.status.success(), "{finished:?}");
        println!("{}", finished.stdout);
        let found: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
        let features = &found["Ok"];
        assert_eq!((&features["user_xattr"], &features["volatile"]), (&true.into(), &true.into()));
        for refused in ["index", "redirect_dir", "metacopy"] {
            assert_eq!(features[refused], false, "{refused}: {found}");
        }
        let left = fs::read_dir(&here).unwrap().count();
        assert_eq!(left, 4, "nothing of the trial is left");
    });
}
