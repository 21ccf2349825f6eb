//! Overlays: the file systems below them are committed, too.

use crate::other_users::{ALICE, machine, synconce};
use crate::scope::rig;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{
    Need, Place, StartedCommand, binary, committed, eventually, finish, is_skipped, isolated,
    isolated_alone, perl, without_foreign_syncs,
};
use synconce_testkit::rig::Rig;

#[test]
fn a_run_on_an_overlay_syncs_the_file_system_of_its_upper_directory() {
    isolated(|place| {
        for options in ["", ",volatile"] {
            let rig = rig();
            let merged = place.overlay(&place.path("lower"), rig.path(), options);
            for only in [None, Some(merged.to_str().unwrap())] {
                let narrow = only.map(|path| ["--commit-only", path]);
                let all =
                    [&["--stats", "--json"][..], narrow.as_ref().map_or(&[], |words| &words[..])]
                        .concat();
                let before = rig.disk().stats().unwrap().flushes;
                let words = ["sh", "-c", "cd merged && echo x >> data && sync data"];
                let run = place.run(&all, &words);
                assert!(run.status.success(), "{options} {run:?}");
                assert!(rig.disk().stats().unwrap().flushes > before, "{options} {only:?}");
                let synced = committed(&run.stderr);
                assert!(synced.contains(&(rig.path().to_owned(), true)), "{synced:?}");
                assert!(!synced.contains(&("/".into(), true)), "{synced:?}");
            }
            unmount(&merged, UnmountFlags::empty()).unwrap();
            rig.down().unwrap();
        }
    });
}

#[test]
fn a_volatile_overlay_whose_upper_directory_is_out_of_reach_is_refused_as_a_place_of_work() {
    isolated(|place| {
        let rig = rig();
        let merged = place.overlay(&place.path("lower"), rig.path(), ",volatile");
        // The overlay keeps its file system busy.
        unmount(rig.path(), UnmountFlags::DETACH).unwrap();
        assert_is_refused(place, &merged);
        unmount(&merged, UnmountFlags::empty()).unwrap();
    });
}

#[test]
fn a_volatile_overlay_below_its_own_upper_directory_is_refused_as_a_place_of_work() {
    isolated(|place| {
        let rig = rig();
        let merged = place.overlay(&place.path("lower"), rig.path(), ",volatile");
        let upper = rig.path().join("upper");
        mount_bind(&merged, &upper).unwrap();
        assert_is_refused(place, &merged);
        unmount(&upper, UnmountFlags::empty()).unwrap();
        unmount(&merged, UnmountFlags::empty()).unwrap();
        rig.down().unwrap();
    });
}

#[test]
fn a_volatile_overlay_with_another_disk_at_its_upper_directory_is_refused_as_a_place_of_work() {
    isolated(|place| {
        let (rig, other) = (rig(), Rig::builder().size(96 << 20).passthrough(false).up().unwrap());
        let merged = place.overlay(&place.path("lower"), rig.path(), ",volatile");
        let upper = rig.path().join("upper");
        mount_bind(other.path(), &upper).unwrap();
        assert_is_refused(place, &merged);
        unmount(&upper, UnmountFlags::empty()).unwrap();
        unmount(&merged, UnmountFlags::empty()).unwrap();
        rig.down().unwrap();
        other.down().unwrap();
    });
}

/// Asserts that a run whose working directory is the volatile overlay `merged` is refused, and that
/// one which works elsewhere does not commit it.
fn assert_is_refused(place: &Place, merged: &Path) {
    let started = merged.join("started");
    let inside = ["env", "-C", merged.to_str().unwrap(), binary(), "run"];
    for options in [&[][..], &["--sealed"], &["--commit-all"]] {
        let words = [&inside[1..], options, &["--", "touch", "started"]].concat();
        let run = finish(place.command(inside[0]).args(words));
        assert_eq!(run.status.code(), Some(125), "{options:?} {run:?}");
        let named = format!("cannot commit {}: it is a volatile overlay", merged.display());
        assert!(run.stderr.contains(&named) && run.stderr.contains("hint: "), "{run:?}");
        assert!(!started.exists());
        // The kernel itself answers the sync.
        let words = ["sh", "-c", "echo x > merged/data && sync merged/data && sync"];
        let run = place.run(&[&["--stats", "--json"][..], options].concat(), &words);
        assert!(run.status.success(), "{options:?} {run:?}");
        let synced = committed(&run.stderr);
        assert!(!synced.iter().any(|(point, _)| *point == merged), "{synced:?}");
    }
    for options in [&["--no-commit"][..], &["--commit-only", "/"]] {
        let words = [&inside[1..], options, &["--", "touch", "started"]].concat();
        let run = finish(place.command(inside[0]).args(words));
        assert!(run.status.success() && started.exists(), "{options:?} {run:?}");
        fs::remove_file(&started).unwrap();
    }
}

/// Makes the write-back of what a program has written to `file` on `rig` fail. Afterwards only
/// a descriptor of synconce reports the error, and the disk works again.
fn lose_written(rig: &Rig, file: &Path) {
    let all = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let script = format!(
        "open(my $file, '<', $ARGV[0]) or die; \
         exit(syscall({}, fileno($file), 0, 0, {all}) == 0 ? 0 : 1);",
        libc::SYS_sync_file_range
    );
    rig.disk().fail_writes(true).unwrap();
    let lost = finish(Command::new("perl").args(["-e", &script]).arg(file));
    assert_eq!(lost.status.code(), Some(1), "{lost:?}");
    rig.disk().fail_writes(false).unwrap();
}

#[test]
fn an_error_below_an_overlay_of_the_command_is_not_missed() {
    // A sync(2) of another test would write the file before the disk fails.
    isolated_alone(|place| {
        for named in ["absolute", "relative"] {
            for held in [false, true] {
                let _barrier = without_foreign_syncs();
                let rig = rig();
                let point = rig.path().display();
                for name in ["lower", "upper", "work"] {
                    fs::create_dir(rig.path().join(name)).unwrap();
                }
                let data = rig.path().join("upper/data");
                fs::write(&data, [b'a'; 65536]).unwrap();
                fs::create_dir_all(place.path("merged")).unwrap();
                let before = if named == "absolute" { format!("{point}/") } else { String::new() };
                let options =
                    format!("lowerdir={before}lower,upperdir={before}upper,workdir={before}work");
                let script = format!(
                    "use IO::Handle; my $here = POSIX::getcwd(); chdir '{point}'; \
                     system('mount', '-t', 'overlay', '-o', '{options}', 'overlay', \
                     \"$here/merged\") == 0 or die; chdir $here; \
                     open(my $file, '+<', 'merged/data') or die; print $file 'b' x 65536; \
                     $file->flush; say_to('written', 1); wait_for('go'); \
                     print $file->sync ? 'synced' : 'failed';"
                );
                let words = perl(&script);
                let own = ["unshare", "--mount"].map(str::to_owned);
                let words = [&own[..], &words].concat();
                let mut bare = place.command(&words[0]);
                bare.args(&words[1..]);
                let mut under = place.held(&[], &words);
                let going = StartedCommand::new(if held { &mut under } else { &mut bare });
                place.wait_for("written");
                lose_written(&rig, &data);
                place.write("go", "");
                let code = going.end().code();
                let expected = if held { Some(125) } else { Some(0) };
                assert_eq!(code, expected, "{named} {held} {}", going.text());
                assert!(held || going.text() == "failed", "{named} {}", going.text());
                assert_eq!(place.markers().len(), usize::from(held));
                for marker in place.markers() {
                    let text = fs::read_to_string(&marker).unwrap();
                    let count = text.matches(&format!("\"{point}\"")).count();
                    assert_eq!(count, 1, "{text}");
                    fs::remove_file(marker).unwrap();
                }
                ["written", "go"].into_iter().for_each(|name| place.remove(name));
                rig.down().unwrap();
            }
        }
    });
}

const OF_USERS: &[Need] = &[Need::Linux(5, 11, "overlays in user namespaces")];

/// Starts a process with a user namespace that maps 0 to [`ALICE`], as the process of rootless
/// Podman that keeps its namespaces.
fn keep_namespace(place: &Place) -> StartedCommand {
    let user = ALICE.to_string();
    let mut keeper = place.command("setpriv");
    keeper.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    keeper.args(["unshare", "--user", "sleep", "1000"]);
    let keeper = StartedCommand::new(&mut keeper);
    let namespace = format!("/proc/{}", keeper.pid());
    let of = |process: &str| fs::read_link(format!("{process}/ns/user")).ok();
    eventually("the namespace is made", || of(&namespace) != of("/proc/self"));
    for map in ["uid_map", "gid_map"] {
        let ids = format!("0 {ALICE} 1\n1 100000 65536\n");
        fs::write(format!("{namespace}/{map}"), ids).unwrap();
    }
    keeper
}

/// Mounts an overlay whose root only another user may read, writes there, and unmounts it with the
/// given option. The last file stays open for the commit.
const FOREIGN_ROOT: &str = r#"
cd "$1" && mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged
chown 5:5 merged && chmod 700 merged
echo text >merged/data && sync merged/data
if [ "$2" = --lazy ]; then sleep 1000 >/dev/null 2>&1 <merged/data & fi
umount $2 merged
"#;

#[test]
fn a_user_unmounts_an_overlay_whose_root_belongs_to_another_user_of_the_namespace() {
    if is_skipped("an overlay whose root belongs to another user", OF_USERS) {
        return;
    }
    isolated(|place| {
        machine(place);
        let rig = rig();
        let point = rig.path();
        for name in ["lower", "upper", "work", "merged"] {
            fs::create_dir(point.join(name)).unwrap();
            chown(point.join(name), Some(ALICE), Some(ALICE)).unwrap();
        }
        fs::set_permissions(point, PermissionsExt::from_mode(0o755)).unwrap();
        let keeper = keep_namespace(place);
        for option in ["--verbose", "--lazy"] {
            let mut run = synconce(place, ALICE, &["run", "--stats", "--json", "--", "nsenter"]);
            run.args(["--user", "--preserve-credentials", "--target", &keeper.pid().to_string()]);
            run.args(["unshare", "--mount", "sh", "-ec", FOREIGN_ROOT, "sh"])
                .arg(point)
                .arg(option);
            let run = finish(&mut run);
            assert!(run.status.success(), "{option} {run:?}");
            let synced = committed(&run.stderr);
            assert!(synced.contains(&(point.to_owned(), true)), "{option} {synced:?}");
        }
    });
}

/// Mounts an overlay below a directory that only another user may enter, writes there, and
/// unmounts it.
const FOREIGN_PARENT: &str = r#"
chown 5:5 "$1/parent" && chmod 700 "$1/parent" && cd "$1/parent"
mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged
dd if=/dev/zero of=merged/data bs=64k count=1 conv=notrunc status=none
touch ../say/written
until [ -e ../say/go ]; do sleep 0.01; done
sync merged/data
umount merged
"#;

#[test]
fn an_error_below_an_unmounted_overlay_that_a_user_may_not_reach_is_not_missed() {
    if is_skipped("an overlay that a user may not reach", OF_USERS) {
        return;
    }
    // A sync(2) of another test would write the file before the disk fails.
    isolated_alone(|place| {
        let _barrier = without_foreign_syncs();
        machine(place);
        let rig = rig();
        let point = rig.path();
        fs::set_permissions(point, PermissionsExt::from_mode(0o755)).unwrap();
        let parent = point.join("parent");
        let data = parent.join("upper/data");
        let directories = ["lower", "upper", "work", "merged"].map(|name| parent.join(name));
        for path in [parent.clone(), point.join("say")].iter().chain(&directories) {
            fs::create_dir(path).unwrap();
            chown(path, Some(ALICE), Some(ALICE)).unwrap();
        }
        fs::write(&data, [b'a'; 65536]).unwrap();
        chown(&data, Some(ALICE), Some(ALICE)).unwrap();
        let keeper = keep_namespace(place);
        let mut run = synconce(place, ALICE, &["run", "--", "nsenter"]);
        run.args(["--user", "--preserve-credentials", "--target", &keeper.pid().to_string()]);
        run.args(["unshare", "--mount", "sh", "-ec", FOREIGN_PARENT, "sh"]).arg(point);
        // The run pins the disk of its working directory before the command starts.
        run.current_dir(point);
        let run = StartedCommand::new(&mut run);
        eventually("the file is written", || point.join("say/written").exists());
        lose_written(&rig, &data);
        fs::write(point.join("say/go"), "").unwrap();
        let code = run.end().code();
        let text = run.text();
        assert_eq!(code, Some(125), "{text}");
        assert!(text.contains(&format!("not durable: {} (", point.display())), "{text}");
    });
}
