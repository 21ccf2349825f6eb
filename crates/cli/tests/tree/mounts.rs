//! Mounted trees: where they can be mounted, how the mount is found again, and unmounts that
//! fail or are cut short.

use crate::concurrent::{point, text};
use crate::roots;
use crate::site::{Site, limit, same};
use crate::verbs::{NEEDS, with_base};
use libtest_mimic::Trial;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_testkit::harness::{Need, trial};
use synconce_testkit::harness::{Place, StartedCommand, binary, finish};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::{FsKind, Rig};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(an_unmount_that_was_cut_short_is_done_again, &NEEDS),
        trial(an_unmount_that_was_cut_short_can_be_a_discard, &NEEDS),
        trial(what_has_no_room_to_be_kept_is_discarded, &NEEDS),
        trial(immutable_files_of_several_names_are_kept, &NEEDS),
        trial(of_two_mounts_the_one_that_is_seen_is_unmounted, &NEEDS),
        trial(a_name_means_the_mount_that_is_kept, &NEEDS),
        trial(a_mount_never_hides_the_store, &NEEDS),
        trial(a_refusal_names_the_command_that_frees_a_tree_after_a_killed_mount, &TRACED),
        trial(a_refusal_names_the_command_that_frees_a_tree_after_a_killed_umount, &TRACED),
        trial(a_refusal_names_the_command_that_frees_a_tree_after_a_killed_discard, &TRACED),
        trial(what_keeps_a_mount_from_being_freed_is_named_with_a_command, &TRACED),
        trial(a_mount_whose_directory_is_gone_is_freed_by_its_path, &NEEDS),
        trial(an_overlay_that_got_the_number_of_an_unmounted_one_is_not_taken_for_it, &NEEDS),
    ]
}

const TRACED: [Need; 3] =
    [NEEDS[0], Need::Program("strace", "strace"), Need::Program("fuser", "psmisc")];

/// Calls by which `mount` and `umount` change something, and how often each is made at most
/// before the last change.
const CALLS: [(&str, u32); 10] = [
    ("rename", 6),
    ("mkdir", 8),
    ("unlink", 4),
    ("unlinkat", 8),
    ("rmdir", 4),
    ("flock", 6),
    ("fsync", 4),
    ("move_mount", 2),
    ("umount2", 3),
    ("openat", 60),
];

/// Returns the command in the hint of a message.
pub fn hinted(message: &str) -> String {
    let hint = message.lines().find_map(|line| line.split_once("hint: `")).map(|(_, rest)| rest);
    let command = hint.and_then(|rest| Some(rest.split_once('`')?.0));
    command.unwrap_or_else(|| panic!("no hint with a command: {message}")).to_owned()
}

/// Types `command` into a shell that has `synconce` in its PATH.
pub fn typed(place: &Place, command: &str) -> Finished {
    let programs = Path::new(binary()).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    process::run(place.command("sh").args(["-c", command]).env("PATH", path), limit()).unwrap()
}

/// Kills `verb` of a tree in a store at each of [`CALLS`]; the command in the next hint frees
/// the tree.
fn killed(place: &Place, verb: &[&str]) {
    let site = with_base(place);
    let at = point(&site, "point");
    let (mut refused, mut round) = (0, 0);
    for (call, most) in CALLS {
        let moments = (1..=most).filter(|nth| *nth < 8 || nth % 7 == 0);
        for nth in moments {
            round += 1;
            let name = format!("work-{round}");
            site.clone_of("base", &name);
            if verb[0] == "umount" {
                site.well(&["mount", &name, text(&at)]);
                // The file has two names, of which the overlay changes one.
                fs::write(at.join("data/hard"), "new\n").unwrap();
            }
            let words: Vec<_> = verb.iter().map(|word| word.replace("NAME", &name)).collect();
            let words: Vec<_> = words.iter().map(|word| word.replace("POINT", text(&at))).collect();
            let tree = site.tree(&words.iter().map(String::as_str).collect::<Vec<_>>());
            let mut traced = place.command("strace");
            traced.args(["-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e"]);
            traced.arg(format!("inject={call}:signal=KILL:when={nth}"));
            let ended = finish(traced.arg(tree.get_program()).args(tree.get_args()));
            let is_killed = ended.status.code() != Some(0);
            let run = site.ends(&["run", &name, "--", "/bin/true"]);
            if run.status.code() == Some(125) {
                let is_mounted = fs::read_dir(&at).unwrap().count() > 0;
                assert_eq!(run.stderr.contains("it is mounted at"), is_mounted, "{run:?}");
                assert_eq!(run.stderr.contains(" is gone, and its changes"), !is_mounted);
                refused += u32::from(is_killed);
                let freed = typed(place, &hinted(&run.stderr));
                assert!(freed.status.success(), "{call} {nth}: {run:?}, {freed:?}");
                site.well(&["run", &name, "--", "/bin/true"]);
            } else {
                assert_eq!(run.status.code(), Some(0), "{call} {nth}: {run:?}");
            }
            assert_eq!(fs::read_dir(&at).unwrap().count(), 0, "{call} {nth}: it is unmounted");
            if verb == ["umount", "NAME"] {
                let kept =
                    "cat /data/far/hard; stat -c %h /data/hard; stat -c %i /data/*/hard /data/hard";
                let kept = site.sh(&name, kept);
                let lines: Vec<_> = kept.lines().collect();
                assert_eq!(lines[..2], ["new", "2"], "{call} {nth}: {kept}");
                assert_eq!(lines[2], lines[3], "{call} {nth}: {kept}");
            }
            site.remove(&name);
            if !is_killed {
                break;
            }
        }
    }
    assert!(refused > 0, "{refused} of {round} kills left the tree in use");
    site.well(&["gc", "--wait"]);
    site.well(&["fsck"]);
    for directory in ["sessions", "trash"] {
        let left = fs::read_dir(site.store().join(directory)).unwrap().count();
        assert_eq!(left, 0, "{directory}");
    }
}

fn a_refusal_names_the_command_that_frees_a_tree_after_a_killed_mount(place: &Place) {
    killed(place, &["mount", "NAME", "POINT"]);
}

fn a_refusal_names_the_command_that_frees_a_tree_after_a_killed_umount(place: &Place) {
    killed(place, &["umount", "NAME"]);
}

fn a_refusal_names_the_command_that_frees_a_tree_after_a_killed_discard(place: &Place) {
    killed(place, &["umount", "--discard", "POINT"]);
}

fn what_keeps_a_mount_from_being_freed_is_named_with_a_command(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let (at, elsewhere) = (point(&site, "point"), point(&site, "elsewhere"));
    let refusal = |words: &[&str]| {
        let refused = site.ends(words);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        hinted(&refused.stderr)
    };
    // Every verb that needs the tree exclusively.
    site.well(&["mount", "work", text(&at)]);
    let verbs: [&[&str]; 6] = [
        &["run", "work", "--", "/bin/true"],
        &["remove", "work", "missing"],
        &["commit", "work"],
        &["commit", "work", "--as", "other"],
        &["squash", "work"],
        &["mount", "work", text(&elsewhere)],
    ];
    let freeing = verbs.map(refusal);
    assert!(freeing.iter().all(|command| command.ends_with("umount work")), "{freeing:?}");
    // A process works in the mounted tree.
    let worker = StartedCommand::new(place.command("sleep").arg("600").current_dir(&at));
    let lists = typed(place, &refusal(&["umount", "work"]));
    assert!(lists.stderr.contains("sleep") || lists.stdout.contains("sleep"), "{lists:?}");
    worker.signal(Signal::KILL).unwrap();
    worker.end();
    drop(worker);
    // The mount was moved.
    assert!(finish(place.command("mount").arg("--move").args([&at, &elsewhere])).status.success());
    let umount = refusal(&["umount", "work"]);
    assert!(typed(place, &umount).status.success(), "{umount}");
    site.well(&["umount", "work"]);
    // A mount namespace without a process has a copy of the mount.
    site.well(&["mount", "work", text(&at)]);
    fs::write(at.join("data/new"), "new\n").unwrap();
    let pinned = place.path("pinned");
    place.sh("mkdir pinned; mount --bind pinned pinned; mount --make-private pinned");
    // Linux 6.18 counts namespaces for each processor by itself, and keeps none that has a lower
    // number than the one from which it is kept. On that one's processor the number is higher.
    let pin = "touch pinned/mnt
        for processor in $(seq 0 $(($(nproc --all) - 1))); do
            taskset -c $processor unshare --mount=pinned/mnt true 2>>refused && exit
        done
        cat refused >&2; exit 1";
    let pinned_by = place.bare(&["sh", "-c", pin]);
    assert!(pinned_by.status.success(), "{pinned_by:?}");
    let lists = typed(place, &refusal(&["umount", "work"]));
    assert!(lists.stdout.contains(text(&pinned)), "{lists:?}");
    unmount(pinned.join("mnt"), UnmountFlags::empty()).unwrap();
    unmount(&pinned, UnmountFlags::empty()).unwrap();
    site.well(&["umount", "work"]);
}

fn a_mount_whose_directory_is_gone_is_freed_by_its_path(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let at = point(&site, "point");
    site.well(&["mount", "work", text(&at)]);
    unmount(&at, UnmountFlags::empty()).unwrap();
    fs::remove_dir(&at).unwrap();
    site.well(&["umount", text(&at)]);
    site.well(&["run", "work", "--", "/bin/true"]);
}

/// The kernel reuses a device number as soon as it is free.
fn an_overlay_that_got_the_number_of_an_unmounted_one_is_not_taken_for_it(place: &Place) {
    let site = with_base(place);
    let (at, other) = (point(&site, "point"), point(&site, "other"));
    for option in ["", "--read-only"] {
        let name = format!("work{option}");
        site.clone_of("base", &name);
        // A stack of two layers: with one layer, a read-only mount has no overlay.
        site.sh(&name, "touch /data/new");
        let words = ["mount", &name, text(&at), option];
        site.well(&words[..if option.is_empty() { 3 } else { 4 }]);
        unmount(&at, UnmountFlags::empty()).unwrap();
        let script = "mkdir -p l u w; mount -t overlay -o lowerdir=l,upperdir=u,workdir=w none $1";
        let mounted = finish(place.command("sh").args(["-ec", script, "sh"]).arg(&other));
        assert!(mounted.status.success(), "{mounted:?}");
        site.well(&["umount", &name]);
        unmount(&other, UnmountFlags::empty()).unwrap();
    }
}

/// Makes what a killed `umount` leaves when everything is recorded and only the session
/// remains.
fn cut_short<'a>(place: &'a Place) -> (Site<'a>, PathBuf) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let at = point(&site, "point");
    site.well(&["mount", "work", text(&at)]);
    fs::write(at.join("data/new"), "new\n").unwrap();
    let sessions = site.store().join("sessions");
    let session = fs::read_dir(&sessions).unwrap().next().unwrap().unwrap().path();
    let saved =
        ["session.json", "device"].map(|name| (name, fs::read(session.join(name)).unwrap()));
    site.well(&["umount", "work"]);
    fs::create_dir(&session).unwrap();
    fs::create_dir(session.join("root")).unwrap();
    saved.iter().for_each(|(name, bytes)| fs::write(session.join(name), bytes).unwrap());
    (site, sessions)
}

fn an_unmount_that_was_cut_short_is_done_again(place: &Place) {
    let (site, sessions) = cut_short(place);
    site.refused(125, &["run", "work", "--", "/bin/true"], &["work"]);
    site.well(&["umount", "work"]);
    assert_eq!(site.sh("work", "cat /data/new"), "new\n");
    site.well(&["commit", "work"]);
    assert_eq!(fs::read_dir(sessions).unwrap().count(), 0);
    site.well(&["fsck"]);
}

fn an_unmount_that_was_cut_short_can_be_a_discard(place: &Place) {
    let (site, sessions) = cut_short(place);
    let base = site.content("base");
    site.well(&["umount", "--discard", "work"]);
    same("the clone", &base, &site.content("work"));
    site.well(&["gc", "--wait"]);
    assert_eq!(fs::read_dir(sessions).unwrap().count(), 0);
    site.well(&["fsck"]);
}

fn what_has_no_room_to_be_kept_is_discarded(place: &Place) {
    let source = roots::small(place, "source");
    let (rig, site) = Site::on_disk(place, Rig::builder().fs(FsKind::Ext4).size(24 << 20));
    site.import("base", &source);
    site.clone_of("base", "work");
    let at = place.path("point");
    fs::create_dir(&at).unwrap();
    site.well(&["mount", "work", text(&at)]);
    let full = "echo more >>point/data/hard; cat /dev/zero >point/fill; n=0; \
                while touch point/empty-$n; do n=$((n+1)); done";
    place.sh(&format!("({full}) 2>/dev/null; true"));
    site.refused(125, &["umount", "work"], &["no space left"]);
    site.well(&["umount", "--discard", "work"]);
    site.well(&["gc", "--wait"]);
    assert_eq!(site.sh("work", "ls /; head -c 8 /data/hard").lines().last(), Some("original"));
    rig.down().unwrap();
}

fn immutable_files_of_several_names_are_kept(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let at = point(&site, "point");
    site.well(&["mount", "work", text(&at)]);
    let flagged = place.bare(&["chattr", "+i", text(&at.join("data/hard"))]);
    assert!(flagged.status.success(), "{flagged:?}");
    site.well(&["umount", "work"]);
    let links = site.sh("work", "stat -c %i /data/hard /data/far/hard; echo x >>/data/hard");
    let (one, other) = links.trim_end().split_once('\n').unwrap();
    assert_eq!(one, other);
    site.well(&["commit", "work"]);
}

fn of_two_mounts_the_one_that_is_seen_is_unmounted(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    site.sh("work", "touch /data/upper");
    let at = point(&site, "point");
    for round in 0..4 {
        // Sessions have no order: either may be found first.
        let names = if round % 2 == 0 { ["base", "work"] } else { ["work", "base"] };
        names.iter().for_each(|name| drop(site.well(&["mount", "--read-only", name, text(&at)])));
        let is_work = || at.join("data/upper").exists();
        assert_eq!(is_work(), names[1] == "work");
        site.well(&["umount", text(&at)]);
        assert_eq!(is_work(), names[0] == "work");
        site.well(&["umount", text(&at)]);
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
    }
}

fn a_name_means_the_mount_that_is_kept(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let (write, read) = (point(&site, "write"), point(&site, "read"));
    for _ in 0..4 {
        site.well(&["mount", "work", text(&write)]);
        site.well(&["mount", "--read-only", "work", text(&read)]);
        site.well(&["umount", "work"]);
        assert!(!write.join("data").exists() && read.join("data").exists());
        site.well(&["umount", "work"]);
        assert!(!read.join("data").exists());
    }
}

fn a_mount_never_hides_the_store(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    let store = fs::canonicalize(site.store()).unwrap();
    let inode = fs::metadata(&store).unwrap().ino();
    for at in ["/", text(store.parent().unwrap()), text(&store), text(&store.join("trees"))] {
        for options in [&["mount"][..], &["mount", "--read-only"]] {
            site.refused(
                125,
                &[options, &["work", at]].concat(),
                &["cannot mount on", "the store"],
            );
        }
    }
    assert_eq!(fs::metadata(&store).unwrap().ino(), inode);
    site.well(&["run", "work", "--", "/bin/true"]);
}
