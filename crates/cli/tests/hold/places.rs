//! What becomes of the place of a held file between a crash and the recovery.

use crate::crashes::{crash, crash_at, edit};
use crate::support::{HoldOnRig, configure, sh, with_hold};
use std::fs;
use synconce_testkit::harness::{Place, binary, isolated};
use synconce_testkit::rig::{FsKind, Rig};

/// A change of a place, and what the recovery says of it.
struct PlaceChange {
    name: &'static str,
    /// The command that runs the shell.
    enter: &'static str,
    /// Shell commands; `$at` is the mount point of the held files. They may set `$inside`, a
    /// command that runs a verb.
    change: &'static str,
    undo: &'static str,
    said: &'static str,
}

const MISSING: &str = "was held, and is not there";
const ANOTHER: &str = "is not the file that was held";
const UNMOUNTED: &str = "and is not mounted now";
const ELSEWHERE: &str = "and does not lead there now";
const RESTORED: &str = "is gone: a snapshot or a backup may have been restored";

const HERE: &str = "env";
const NAMESPACE: &str = "unshare --mount --propagation private";
const CONTAINER: &str =
    "unshare --pid --fork --kill-child --mount --mount-proc --propagation private";

/// Returns a row: its name, the change, the end of the change, and what is said.
const fn at_place([name, change, undo, said]: [&'static str; 4]) -> PlaceChange {
    PlaceChange { name, enter: HERE, change, undo, said }
}

/// Returns a row in another mount namespace, which ends: its name, the change, and what is said.
const fn within(enter: &'static str, [name, change, said]: [&'static str; 3]) -> PlaceChange {
    PlaceChange { name, enter, change, undo: ":", said }
}

#[rustfmt::skip]
const CHANGES: &[PlaceChange] = &[
    at_place(["an unmounted disk", "mount --move $at away", "mount --move away $at", UNMOUNTED]),
    at_place(["a disk that is mounted in another place",
        "mount --bind $at away; umount $at", "mount --bind away $at; umount away", UNMOUNTED]),
    at_place(["a spare disk with files of these names",
        "mount -o loop spare $at; cp -r kept/. $at", "umount $at", ANOTHER]),
    at_place(["a spare disk without files",
        "mount -o loop spare $at; rm -rf $at/*", "umount $at", MISSING]),
    at_place(["another disk with the UUID of the first",
        "mount -o loop twin $at; cp -r kept/. $at", "umount $at", ANOTHER]),
    at_place(["a directory that was renamed",
        "mv $at/databases $at/renamed", "mv $at/renamed $at/databases", MISSING]),
    at_place(["a directory that was moved, and made anew",
        "mv $at/databases $at/b; mkdir $at/databases",
        "rmdir $at/databases; mv $at/b $at/databases", ANOTHER]),
    at_place(["a directory above that was renamed",
        "mv $at/v1 $at/v3", "mv $at/v3 $at/v1", MISSING]),
    at_place(["a file that was removed", "mv $at/meta.db $at/b", "mv $at/b $at/meta.db", MISSING]),
    at_place(["a file that was replaced by its backup",
        "mv $at/meta.db $at/b; cp -a $at/b $at/meta.db", "mv $at/b $at/meta.db", ANOTHER]),
    at_place(["a backup that was restored in place, without what the hold added",
        "mv $at/.synconce-hold $at/mark", "mv $at/mark $at/.synconce-hold", RESTORED]),
    at_place(["a directory that a mount covers",
        "mount --bind kept/databases $at/databases", "umount $at/databases", ANOTHER]),
    at_place(["a link that is gone", "rm $at/cur", "ln -s v1 $at/cur", ELSEWHERE]),
    at_place(["a link that leads elsewhere",
        "ln -sfn v2 $at/cur", "ln -sfn v1 $at/cur", ELSEWHERE]),
    at_place(["a directory in the place of a link", "rm $at/cur; mkdir -p $at/cur/db",
        "rm -r $at/cur; ln -s v1 $at/cur", ELSEWHERE]),
    at_place(["a link to what is set aside, too, that leads elsewhere",
        "ln -sfn now $at/data", "ln -sfn then $at/data", ELSEWHERE]),
    within(NAMESPACE, ["a mount namespace without the disk", "umount $at", UNMOUNTED]),
    within(NAMESPACE, ["a mount namespace with another disk in its place",
        "mount -o loop spare $at; cp -r kept/. $at", ANOTHER]),
    within(NAMESPACE, ["a chroot without the disk",
        "mount --rbind / root; umount root$at; inside=\"chroot root env -C $PWD\"", UNMOUNTED]),
    within(NAMESPACE, ["a chroot with another directory in its place",
        "mount --rbind / root; mount --bind kept root$at; inside=\"chroot root env -C $PWD\"",
        ANOTHER]),
    within(CONTAINER, ["a container without its volume", "umount $at", UNMOUNTED]),
    within(CONTAINER, ["a container with another volume", "mount --bind kept $at", ANOTHER]),
];

/// Makes mkfs.ext4(8) write a time before the one of the hold's disk. Without this both could have
/// the same time, which is in whole seconds.
const EARLIER: &str = "E2FSPROGS_FAKE_TIME=$(($(date +%s) - 9))";

/// Makes a hold on a disk of its own and crashes it; makes spare disks before. Returns the hold
/// and a prefix for shell commands.
fn crashed<'a>(place: &'a Place, after_crash: &str) -> (HoldOnRig<'a>, String) {
    let fixture = HoldOnRig::new(place, "");
    let at = fixture.rig.path().display().to_string();
    let device = fixture.rig.device().display().to_string();
    sh(
        place,
        &format!(
            "rm -rf spare twin kept; truncate -s 64M spare twin; {EARLIER} mkfs.ext4 -q spare
             mkfs.ext4 -q -U $(blkid -o value -s UUID {device}) twin
             mkdir -p kept/databases kept/cur/db away root; echo other >kept/meta.db
             cd {at}; mkdir -p v1/db v2/db then now; touch then/a now/b
             ln -s then data; ln -s v1 cur"
        ),
    );
    let aside = format!("after_crash = \"{after_crash}\"\nset_aside = [\"{at}/data/*\"]\n");
    fixture.configure("t", &aside);
    let linked = format!("[[hold]]\nkind = \"other\"\npath = \"{at}/cur/db\"\n");
    place.write("t.toml", &(place.read("t.toml") + &linked));
    fixture.ok("start");
    fs::write(fixture.file(), "old").unwrap();
    crash_at(place, &[fixture.file(), fixture.directory(), fixture.rig.path().join("v1/db")]);
    (fixture, format!("at='{at}'; "))
}

/// Runs verbs after `change`, which all fail and change nothing.
fn expect_refused(fixture: &HoldOnRig<'_>, at: &str, change: &PlaceChange) {
    let PlaceChange { name, enter, change, undo, said } = change;
    let also = match *said {
        UNMOUNTED => "'recover --wipe' 'recover --keep'",
        // Another file is never set aside.
        ANOTHER | ELSEWHERE => "'recover --wipe'",
        _ => "",
    };
    let before = fixture.everything();
    let synconce = binary();
    let list = "find $at -printf '%p %i %s %T@ %l\\n'";
    let script = format!(
        "{at}inside=; {change}; $inside {list} >before
         for verb in recover {also} start; do
             code=0; $inside {synconce} hold $verb ./t.toml || code=$?
             [ $code = 125 ] || {{ echo \"$verb: $code\" >&2; exit 1; }}
         done
         $inside {list} | diff before - >&2; {undo}"
    );
    let mut words: Vec<_> = enter.split(' ').collect();
    words.extend(["sh", "-ec", &script]);
    let done = fixture.place.bare(&words);
    assert_eq!(done.status.code(), Some(0), "{name}: {}", done.stderr);
    if *said == UNMOUNTED {
        let hint = format!("mount {}  ", fixture.rig.path().display());
        assert!(done.stderr.contains(&hint), "{name}: {}", done.stderr);
    }
    let count = 1 + also.matches("recover").count();
    assert_eq!(done.stderr.matches(said).count(), count, "{name}: {}", done.stderr);
    assert_eq!(fixture.everything(), before, "{name}");
    assert_eq!(fixture.state(), "interrupted", "{name}");
}

#[test]
fn no_file_but_the_held_one_is_set_aside_and_none_is_forgotten() {
    isolated(|place| {
        for after_crash in ["wipe", "refuse"] {
            let (fixture, at) = crashed(place, after_crash);
            CHANGES.iter().for_each(|change| expect_refused(&fixture, &at, change));
            fixture.ok("recover --wipe");
            let gone = ["meta.db", "databases", "v1/db", "then/a"];
            let there = |name: &&str| fixture.rig.path().join(name).exists();
            assert_eq!(gone.iter().find(|name| there(name)), None);
            assert!(["v2/db", "now/b"].iter().all(there));
            assert_eq!(fixture.state(), "off");
            fixture.rig.down().unwrap();
        }
    });
}

#[test]
fn a_backup_is_used_by_the_operators_word_and_never_set_aside() {
    isolated(|place| {
        let (fixture, at) = crashed(place, "wipe");
        sh(place, &format!("{at}rm $at/meta.db; echo backup >$at/meta.db"));
        fixture.fails("recover --wipe", &["recover t --keep"]);
        fixture.ok("recover --keep");
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "backup\n");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn the_first_disk_is_not_used_unchecked_after_another_one_was_recovered() {
    isolated(|place| {
        for (other, said) in [
            // A disk that was made after the start never had the files.
            ("spare", "no file was there to be set aside"),
            // The copy of a whole disk has the UUID, the inode numbers and the times of birth.
            ("copy", "the files are set aside"),
        ] {
            let (fixture, at) = crashed(place, "wipe");
            // An earlier start. Otherwise both times may be in one second, and it is unknown which
            // came first.
            edit(place, |record| record["started"] = "2026-01-02T03:04:05Z".into());
            fixture.rig.unmount().unwrap();
            let device = fixture.rig.device().display();
            sh(place, &format!("{at}cp --sparse=always {device} copy; mount -o loop {other} $at"));
            let recovered = fixture.ok("recover");
            assert!(recovered.contains(said), "{other}: {recovered}");
            assert_eq!(fixture.state(), "off");
            sh(place, &format!("{at}umount $at"));
            fixture.rig.mount().unwrap();
            fixture.fails("start", &["its marker is lost"]);
            assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
            fixture.rig.down().unwrap();
        }
    });
}

/// A machine without a clock of its own starts in 1970, until it reaches a time server.
#[test]
fn a_renamed_directory_is_missed_although_the_hold_started_before_the_clock_was_set() {
    isolated(|place| {
        let (fixture, at) = crashed(place, "wipe");
        edit(place, |record| record["started"] = "1970-01-01T00:00:20Z".into());
        let renamed = CHANGES.iter().find(|change| change.name == "a directory that was renamed");
        expect_refused(&fixture, &at, renamed.unwrap());
        fixture.ok("recover");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_disk_without_even_the_directory_is_recovered_too() {
    with_hold("", |place, fixture| {
        let held = fixture.rig.path().join("a/b/held");
        configure(place, "t", "after_crash = \"wipe\"", &held);
        fixture.ok("start");
        crash_at(place, std::slice::from_ref(&held));
        edit(place, |record| record["started"] = "2026-01-02T03:04:05Z".into());
        fixture.rig.unmount().unwrap();
        let at = fixture.rig.path().display();
        let make = format!("truncate -s 64M spare; {EARLIER} mkfs.ext4 -q spare");
        sh(place, &format!("{make}; mount -o loop spare {at}"));
        fixture.ok("recover");
        assert_eq!(fixture.state(), "off");
        sh(place, &format!("umount {at}"));
        fixture.rig.mount().unwrap();
    });
}

#[test]
fn a_recovery_that_was_killed_after_its_renames_goes_on() {
    isolated(|place| {
        let (fixture, _) = crashed(place, "wipe");
        let marker = place.read("state/holds/t.json");
        fixture.ok("recover");
        // Simulates a kill before the removal of the marker.
        place.write("state/holds/t.json", &marker);
        fixture.ok("recover");
        assert_eq!(fixture.state(), "off");
        fixture.ok("start");
        fs::write(fixture.directory().join("data"), "new").unwrap();
        fixture.ok("settle");
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

/// Inodes of 128 bytes have no times of birth, and ext4 gives the number of a removed file to the
/// next one.
#[test]
fn another_file_with_the_inode_number_is_not_set_aside_where_files_have_no_times_of_birth() {
    isolated(|place| {
        let rig = Rig::builder().size(128 << 20).passthrough(false).up().unwrap();
        rig.unmount().unwrap();
        sh(place, &format!("mkfs.ext4 -q -F -I 128 {}", rig.device().display()));
        rig.mount().unwrap();
        let fixture = HoldOnRig::on(place, rig, "after_crash = \"wipe\"\n");
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        crash(&fixture);
        let at = fixture.rig.path().display();
        // The other disk has held files of a crash, too.
        let make =
            "truncate -s 128M twin; mkfs.ext4 -q -I 128 twin; mkdir other; mount -o loop twin other
             mkdir other/databases; echo other >other/meta.db";
        sh(place, &format!("{make}; cp -a {at}/.synconce-hold other"));
        let number =
            |directory: &str| sh(place, &format!("cd {directory}; stat -c %i databases meta.db"));
        assert_eq!(number("other"), number(&at.to_string()));
        fixture.rig.unmount().unwrap();
        sh(place, &format!("mount --bind other {at}"));
        let expect_refused = || {
            fixture.fails("recover", &[ANOTHER]);
            fixture.fails("recover --wipe", &[ANOTHER]);
        };
        expect_refused();
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "other\n");
        sh(place, &format!("umount {at} other"));
        fixture.rig.mount().unwrap();
        let held = number(&at.to_string());
        sh(place, &format!("rmdir {at}/databases; mkdir {at}/databases"));
        assert_eq!(number(&at.to_string()), held);
        expect_refused();
        fixture.ok("recover --keep");
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn the_copy_of_a_held_directory_is_no_reason_to_set_files_aside() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        let at = fixture.rig.path().display().to_string();
        // A backup of the whole disk copies the files like this. A held path is a file system of
        // its own.
        sh(place, &format!("mkdir backup; cp -a --one-file-system {at}/. backup/"));
        fixture.ok("stop");
        sh(place, &format!("rm -rf {at}/.synconce-hold; cp -a backup/.synconce-hold {at}/"));
        fixture.rig.unmount().unwrap();
        fixture.rig.mount().unwrap();
        fixture.fails("recover", &["recover t --keep"]);
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
    });
}

#[test]
fn a_backup_without_hard_links_is_used_after_the_command_of_the_hint() {
    with_hold("after_crash = \"wipe\"\n", |place, fixture| {
        fixture.ok("start");
        fs::write(fixture.file(), "old").unwrap();
        crash(fixture);
        let at = fixture.rig.path().display().to_string();
        sh(place, &format!("cd {at}; cp -r .synconce-hold new; rm -r .synconce-hold"));
        sh(place, &format!("mv {at}/new {at}/.synconce-hold; rm state/holds/t.json"));
        let said = fixture.fails("recover --keep", &["it has entries that no hold made"]);
        // The recovery has written a marker in the place of the lost one.
        fixture.fails("start", &["its marker is lost, and nothing shows"]);
        assert_eq!(fixture.status().0["started"], serde_json::Value::Null);
        sh(place, said.split_once("hint: ").expect("a hint").1);
        fixture.ok("recover --keep");
        assert_eq!(fs::read_to_string(fixture.file()).unwrap(), "old");
        assert_eq!(fixture.state(), "off");
    });
}

#[test]
fn a_snapshot_that_was_restored_is_not_set_aside_unasked() {
    isolated(|place| {
        let rig = Rig::builder().fs(FsKind::Btrfs).size(512 << 20).passthrough(false).up().unwrap();
        let fixture = HoldOnRig::on(place, rig, "");
        let root = fixture.rig.path().join("root").display().to_string();
        let held = fixture.rig.path().join("root/databases");
        configure(place, "t", "after_crash = \"wipe\"", &held);
        sh(
            place,
            &format!(
                "btrfs subvolume create {root}; mkdir {root}/databases
                 echo old >{root}/databases/data; btrfs subvolume snapshot {root} {root}.old"
            ),
        );
        fixture.ok("start");
        fs::write(held.join("data"), "new").unwrap();
        crash_at(place, std::slice::from_ref(&held));
        // A snapshot has the inode numbers and the times of birth.
        sh(place, &format!("mv {root} {root}.new; btrfs subvolume snapshot {root}.old {root}"));
        fixture.fails("recover", &[RESTORED, "hold recover t --keep"]);
        // A missing file beside the marker says that the disk lost writes, before the snapshot.
        fs::remove_file(place.path("state/holds/t.intact")).unwrap();
        fixture.fails("recover", &["and the disk lost writes", RESTORED]);
        assert_eq!(fixture.state(), "interrupted");
        fixture.ok("recover --keep");
        fixture.ok("start");
        assert_eq!(fs::read_to_string(held.join("data")).unwrap(), "old\n");
        fixture.ok("stop");
        fixture.rig.down().unwrap();
    });
}

#[test]
fn a_crash_after_the_marks_were_removed_is_recovered_by_the_file_of_the_hold() {
    isolated(|place| {
        let (fixture, _) = crashed(place, "wipe");
        // A stop or a recovery that is cut short leaves this state.
        fs::remove_dir_all(fixture.rig.path().join(".synconce-hold")).unwrap();
        edit(place, |record| record["ending"] = true.into());
        fixture.ok("recover");
        assert!(!fixture.file().exists() && !fixture.directory().exists());
        fixture.rig.down().unwrap();
    });
}
