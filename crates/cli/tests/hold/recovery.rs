//! What happens to the files after an unclean end. A disk that was unmounted under the hold is
//! as after a crash: only the kernel's own write-back decides what is there.

use crate::support::{Fixture, sh};
use std::fs;
use std::os::unix::fs::MetadataExt;
use synconce_testkit::harness::{finish, isolated};

/// Holds the files, writes `text` to the file, and takes the disk away under the hold.
pub fn interrupted(fixture: &Fixture<'_>, text: &str) {
    fixture.ok("start");
    let owned = fixture.directory();
    fixture.place.bare(&["chown", "65534:65534", &owned.display().to_string()]);
    fixture.place.bare(&["chmod", "750", &owned.display().to_string()]);
    fs::write(fixture.file(), text).unwrap();
    fs::write(fixture.directory().join("data"), text).unwrap();
    for path in [fixture.file(), fixture.directory()] {
        fixture.place.bare(&["umount", &path.display().to_string()]);
    }
    fixture.place.bare(&["pkill", "-KILL", "-x", "synconce-guard"]);
    fixture.rig.unmount().unwrap();
    fixture.rig.mount().unwrap();
}

#[test]
fn a_kill_of_the_daemon_alone_needs_no_recovery() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        fixture.ok("start");
        fixture.write(&fixture.directory().join("data"), 3);
        let recovered = fixture.hold("recover");
        assert_eq!((recovered.status.code(), recovered.stderr.as_str()), (Some(0), ""));
        assert!(fixture.directory().join("data").exists());
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn wipe_sets_the_files_aside_and_says_how_to_put_them_back() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\ncost = \"one import\"\n");
        interrupted(&fixture, "old");
        let recovered = fixture.hold("recover");
        assert_eq!(recovered.status.code(), Some(0), "{}", recovered.stderr);
        assert!(recovered.stderr.contains("set aside: one import"), "{}", recovered.stderr);
        assert!(!fixture.file().exists() && !fixture.directory().exists());
        fixture.ok("start");
        fixture.ok("stop");
        // The commands, as they are printed, typed by hand.
        fs::remove_file(fixture.file()).unwrap();
        fs::remove_dir(fixture.directory()).unwrap();
        let is_command = |line: &&str| line.trim_start().starts_with("(cd ");
        let commands = recovered.stderr.replace("synconce:", "");
        let commands: Vec<_> = commands.lines().filter(is_command).map(str::to_owned).collect();
        assert_eq!(commands.len(), 2, "{}", recovered.stderr);
        for _again in 0..2 {
            assert_eq!(place.bare(&["sh", "-ec", &commands.join("\n")]).status.code(), Some(0));
        }
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        assert_eq!(fs::read_to_string(fixture.directory().join("data")).unwrap(), "old");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_copy_of_what_is_set_aside_gives_its_owner_to_what_is_made_anew() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        interrupted(&fixture, "old");
        fixture.ok("recover");
        // The disk was replaced: inodes are new.
        let rig = fixture.rig.path().display();
        sh(place, &format!("cd {rig}; cp -a .synconce-aside-t-1 new; rm -r .synconce-aside-t-1"));
        sh(place, &format!("cd {rig}; mv new .synconce-aside-t-1"));
        fixture.ok("start");
        let new = fs::metadata(fixture.directory()).unwrap();
        assert_eq!((new.uid(), new.gid(), new.mode() & 0o7777), (65534, 65534, 0o750));
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn what_was_set_aside_is_removed_once_the_daemon_has_started() {
    isolated(|place| {
        let fixture = Fixture::new(place, "after_crash = \"wipe\"\n");
        interrupted(&fixture, "old");
        fixture.ok("recover");
        let early = fixture.hold("settle");
        assert_eq!(early.status.code(), Some(125));
        assert!(early.stderr.contains("has not made"), "{}", early.stderr);
        fixture.ok("start");
        let aside = |fixture: &Fixture<'_>| fixture.everything().contains(".synconce-aside");
        assert!(aside(&fixture));
        let new = fs::metadata(fixture.directory()).unwrap();
        assert_eq!((new.uid(), new.gid(), new.mode() & 0o7777), (65534, 65534, 0o750));
        fs::write(fixture.directory().join("data"), "new").unwrap();
        fixture.ok("settle");
        assert!(!aside(&fixture));
        fixture.ok("stop");
        interrupted(&fixture, "again");
        let words = ["hold", "run", "./t.toml", "--", "false"];
        assert_eq!(finish(&mut place.synconce(&words)).status.code(), Some(1));
        assert!(aside(&fixture), "a daemon that failed has not started");
        let write = format!("echo new >'{}/data'", fixture.directory().display());
        let words = ["hold", "run", "./t.toml", "--", "sh", "-c", &write];
        assert_eq!(finish(&mut place.synconce(&words)).status.code(), Some(0));
        assert!(!aside(&fixture));
        fixture.rig.down().unwrap();
    });
}

#[test]
fn refuse_leaves_everything_and_prints_the_commands_that_decide() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        interrupted(&fixture, "old");
        let refused = fixture.hold("recover");
        assert_eq!(refused.status.code(), Some(125));
        for said in ["was unmounted", "hold recover t --keep", "hold recover t --wipe"] {
            assert!(refused.stderr.contains(said), "{}", refused.stderr);
        }
        assert_eq!(fixture.state(), "interrupted");
        let shown = place.status(&["--json"]);
        assert_eq!(shown.status.code(), Some(4));
        let listed: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
        assert_eq!((&listed[0]["id"], &listed[0]["state"]), (&"t".into(), &"interrupted".into()));
        assert_eq!(listed[0]["advice"][0], "synconce hold recover t");
        let kept = finish(&mut place.synconce(&["hold", "recover", "./t.toml", "--keep"]));
        assert_eq!(kept.status.code(), Some(0), "{}", kept.stderr);
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        assert!(!fixture.everything().contains(".synconce-hold"));
        assert_eq!(fixture.state(), "off");
        fixture.rig.down().unwrap();
    });
}

/// Makes the directory of a dockerd with the images `gone:1` and `used:1`, each of one layer whose
/// directory is missing, and a container of the second.
const DOCKER: &str = r#"
    cd "$1"; mkdir -p overlay2/l containers/0123456789abcdef image/overlay2; cd image/overlay2
    mkdir -p imagedb/content/sha256 layerdb/sha256 layerdb/mounts/0123456789abcdef
    digest() { printf "%064d" "$1"; }
    for image in 1 2; do
        layer=$(digest "$image"); mkdir "layerdb/sha256/$layer"
        printf "lost$image" >"layerdb/sha256/$layer/cache-id"
        printf "sha256:$layer" >"layerdb/sha256/$layer/diff"
        echo "{\"rootfs\":{\"diff_ids\":[\"sha256:$layer\"]}}" >"imagedb/content/sha256/$layer"
    done
    printf "sha256:$(digest 2)" >layerdb/mounts/0123456789abcdef/parent
    printf box >layerdb/mounts/0123456789abcdef/mount-id
    echo "{\"Repositories\":{\"gone\":{\"gone:1\":\"sha256:$(digest 1)\"},
        \"used\":{\"used:1\":\"sha256:$(digest 2)\"}}}" >repositories.json
"#;

#[test]
fn images_whose_layers_the_crash_damaged_are_named_and_so_are_containers() {
    isolated(|place| {
        let fixture = Fixture::new(place, "");
        let root = fixture.rig.path().join("docker").display().to_string();
        let point = fixture.rig.path().display().to_string();
        fixture.configure("t", &format!("after_crash = \"wipe\"\ndocker_root = \"{root}\"\n"));
        let script = format!("mount --make-shared {point}; mkdir {root}; {DOCKER}");
        let made = place.bare(&["sh", "-euc", &script, "sh", &root]);
        assert_eq!(made.status.code(), Some(0), "{}", made.stderr);
        interrupted(&fixture, "old");
        let recovered = fixture.hold("recover");
        assert_eq!(recovered.status.code(), Some(0), "{}", recovered.stderr);
        for said in [
            "1 layers of docker that the crash damaged are set aside, too",
            "docker no longer has these images: gone:1\n",
            "which cannot start: 0123456789ab; remove",
        ] {
            assert!(recovered.stderr.contains(said), "{said}: {}", recovered.stderr);
        }
        fixture.rig.down().unwrap();
    });
}
