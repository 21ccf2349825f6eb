//! What happens to the files after an unclean end. A disk that was unmounted under the hold is
//! as after a crash: only the kernel's own write-back decides what is there.

use crate::crashes::{interrupted, unmount_below};
use crate::support::{HoldOnRig, sh, with_hold};
use std::fs;
use std::os::unix::fs::MetadataExt;
use synconce_testkit::harness::isolated;

#[test]
fn a_kill_of_the_daemon_alone_needs_no_recovery() {
    with_hold("after_crash = \"wipe\"\n", |_, fixture| {
        fixture.ok("start");
        fixture.write(&fixture.directory().join("data"), 3);
        let recovered = fixture.hold("recover");
        assert_eq!((recovered.status.code(), recovered.stderr.as_str()), (Some(0), ""));
        assert!(fixture.directory().join("data").exists());
        assert_eq!(fixture.state(), "held");
        fixture.ok("stop");
    });
}

#[test]
fn wipe_sets_the_files_aside_and_the_readme_says_how_to_put_them_back() {
    with_hold("after_crash = \"wipe\"\ncost = \"one import\"\n", |place, fixture| {
        interrupted(fixture, "old");
        let recovered = fixture.hold("recover");
        assert_eq!(recovered.status.code(), Some(0), "{}", recovered.stderr);
        assert!(recovered.stderr.contains("set aside: one import"), "{}", recovered.stderr);
        assert!(recovered.stderr.ends_with("  synconce hold restore t\n"), "{}", recovered.stderr);
        assert!(!fixture.file().exists() && !fixture.directory().exists());
        fixture.ok("start");
        fixture.ok("stop");
        // The commands, typed by hand.
        fs::remove_file(fixture.file()).unwrap();
        fs::remove_dir(fixture.directory()).unwrap();
        let readme = fixture.rig.path().join(".synconce-aside-t-1/README");
        let readme = fs::read_to_string(readme).unwrap();
        let commands: Vec<_> = readme.lines().filter(|line| line.starts_with("(cd ")).collect();
        assert_eq!(commands.len(), 2, "{readme}");
        for _again in 0..2 {
            assert_eq!(place.bare(&["sh", "-ec", &commands.join("\n")]).status.code(), Some(0));
        }
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        assert_eq!(fs::read_to_string(fixture.directory().join("data")).unwrap(), "old");
        assert!(fixture.ok("restore").contains("hold t: nothing more is to be put back"));
    });
}

/// Returns the user, the group and the mode of the held directory.
fn owned(fixture: &HoldOnRig<'_>) -> (u32, u32, u32) {
    let found = fs::metadata(fixture.directory()).unwrap();
    (found.uid(), found.gid(), found.mode() & 0o7777)
}

#[test]
fn what_is_set_aside_gives_its_owner_and_no_more_than_its_mode_to_what_is_made_anew() {
    isolated(|place| {
        let copy =
            "cp -a .synconce-aside-t-1 new; rm -r .synconce-aside-t-1; mv new .synconce-aside-t-1";
        for (change, meant) in [
            (":".to_owned(), (65534, 65534, 0o770)),
            ("chown -R 65534 .synconce-aside-t-1".to_owned(), (65534, 65534, 0o770)),
            // The inodes are new: the disk was replaced, or the user of the directory above put a
            // copy there.
            (copy.to_owned(), (65534, 65534, 0o750)),
            (format!("{copy}; chmod 7777 .synconce-aside-t-1/databases"), (65534, 65534, 0o755)),
            (format!("{copy}; chown -R 4321:4321 .synconce-aside-t-1"), (0, 0, 0o700)),
            (format!("{copy}; chmod 777 .synconce-aside-t-1"), (0, 0, 0o700)),
        ] {
            let fixture = HoldOnRig::new(place, "after_crash = \"wipe\"\n");
            interrupted(&fixture, "old");
            fixture.ok("recover");
            sh(place, &format!("cd {}; {change}", fixture.rig.path().display()));
            fixture.ok("start");
            assert_eq!(owned(&fixture), meant, "{change}");
            fixture.ok("stop");
            place.remove("state/holds/t.aside.json");
            fixture.rig.down().unwrap();
        }
    });
}

#[test]
fn what_is_made_anew_has_the_access_lists_of_what_is_set_aside() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        fixture.ok("start");
        let (file, held) = (fixture.file(), fixture.directory());
        let (file, held) = (file.display(), held.display());
        sh(place, &format!("setfacl -m u:1234:rwX,g::r-X {file} {held}"));
        sh(place, &format!("setfacl -d -m u:1234:rwX {held}"));
        let lists = || sh(place, &format!("getfacl -p {file} {held}"));
        let before = lists();
        assert_eq!(before.matches("user:1234:rw").count(), 3, "{before}");
        unmount_below(fixture);
        fixture.ok("recover");
        fixture.ok("start");
        assert_eq!(lists(), before);
        fixture.ok("stop");
    });
}

#[test]
fn what_was_set_aside_is_removed_once_the_daemon_has_started() {
    with_hold("after_crash = \"wipe\"\n", |_, fixture| {
        interrupted(fixture, "old");
        fixture.ok("recover");
        fixture.fails("settle", &["has not written"]);
        fixture.ok("start");
        let aside = |fixture: &HoldOnRig<'_>| fixture.everything().contains(".synconce-aside");
        assert!(aside(fixture));
        fs::write(fixture.directory().join("data"), "new").unwrap();
        fixture.ok("settle");
        assert!(!aside(fixture));
        fixture.ok("stop");
        interrupted(fixture, "again");
        assert_eq!(fixture.run(&["false"]).status.code(), Some(1));
        assert!(aside(fixture), "a daemon that failed has not started");
        let write = format!("echo new >'{}/data'", fixture.directory().display());
        assert_eq!(fixture.run(&["sh", "-c", &write]).status.code(), Some(0));
        assert!(!aside(fixture));
    });
}

#[test]
fn refuse_leaves_everything_and_prints_the_commands_that_decide() {
    with_hold("", |place, fixture| {
        interrupted(fixture, "old");
        let decide = ["hold recover t --keep", "hold recover t --wipe"];
        fixture.fails("recover", &[&["was unmounted"], &decide[..]].concat());
        assert_eq!(fixture.state(), "interrupted");
        let shown = place.status(&["--json"]);
        assert_eq!(shown.status.code(), Some(4));
        let listed: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
        assert_eq!((&listed[0]["id"], &listed[0]["state"]), (&"t".into(), &"interrupted".into()));
        assert_eq!(listed[0]["advice"][0], "synconce hold recover t");
        fixture.ok("recover --keep");
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        assert!(!fixture.everything().contains(".synconce-hold"));
        assert_eq!(fixture.state(), "off");
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
    with_hold("", |place, fixture| {
        let root = fixture.rig.path().join("docker").display().to_string();
        let point = fixture.rig.path().display().to_string();
        fixture.configure("t", &format!("after_crash = \"wipe\"\ndocker_root = \"{root}\"\n"));
        let script = format!("mount --make-shared {point}; mkdir {root}; {DOCKER}");
        let made = place.bare(&["sh", "-euc", &script, "sh", &root]);
        assert_eq!(made.status.code(), Some(0), "{}", made.stderr);
        interrupted(fixture, "old");
        let recovered = fixture.hold("recover");
        assert_eq!(recovered.status.code(), Some(0), "{}", recovered.stderr);
        for said in [
            "1 layers of docker that the crash damaged are set aside, too",
            "docker no longer has these images: gone:1\n",
            "which cannot start: 0123456789ab; remove",
        ] {
            assert!(recovered.stderr.contains(said), "{said}: {}", recovered.stderr);
        }
    });
}
