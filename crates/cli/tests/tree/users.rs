//! Runs of an unprivileged user with subordinate ids.

use crate::roots;
use crate::site::{Site, disk, limit, on};
use libtest_mimic::Trial;
use rustix::mount::mount_bind;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::Command;
use synconce_testkit::harness::{Need, trial};
use synconce_testkit::harness::{Place, Terminal};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::{FsKind, Rig};

pub const NOBODY: u32 = 65534;
pub const NEEDS: [Need; 2] =
    [Need::File("/bin/busybox", "busybox-static"), Need::Program("newuidmap", "uidmap")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_user_with_subordinate_ids_has_trees_of_many_owners, &NEEDS),
        trial(a_user_on_a_terminal_has_one_of_its_own, &NEEDS),
        trial(an_import_by_a_user_lists_the_files_of_other_owners, &NEEDS),
        trial(an_import_by_a_user_leaves_unreadable_files_out_when_asked, &NEEDS),
        trial(an_id_of_a_tar_outside_the_users_ranges_is_reported, &NEEDS),
        trial(an_owner_that_a_user_namespace_lacks_is_reported_of_a_tar_and_a_directory, &NEEDS),
        trial(a_user_without_subordinate_ids_gets_a_hint, &NEEDS),
        trial(a_user_who_gains_no_privileges_gets_a_hint, &NEEDS),
        trial(the_store_of_root_is_not_called_that_of_another_user, &NEEDS),
        trial(lists_of_users_that_never_end_keep_no_command_from_its_start, &NEEDS),
        trial(a_device_of_the_host_is_there_when_it_is_bound, &NEEDS),
        trial(
            a_loop_device_that_is_bound_can_be_mounted_until_the_run_ends,
            &on(FsKind::Ext4, &NEEDS),
        ),
    ]
}

/// Runs `synconce tree WORDS` as the user nobody, with a home of its own.
fn as_nobody(place: &Place, words: &[&str]) -> Finished {
    process::run(&mut by_nobody(place, &[], words), limit()).unwrap()
}

/// Returns the command `synconce tree WORDS` by the user nobody, with more options of setpriv(1).
pub fn by_nobody(place: &Place, options: &[&str], words: &[&str]) -> Command {
    let home = place.path("home");
    fs::create_dir_all(&home).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = place.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(options);
    command.args([synconce_testkit::harness::binary(), "tree"]).args(words).current_dir(&home);
    command.env("HOME", &home).env_remove("XDG_DATA_HOME").env_remove("SYNCONCE_STATE_DIR");
    command.env_remove("SYNCONCE_RUNTIME_DIR").env_remove("XDG_RUNTIME_DIR");
    command
}

pub fn well(place: &Place, words: &[&str]) -> String {
    let finished = as_nobody(place, words);
    assert!(finished.status.success(), "{words:?}: {finished:?}");
    finished.stdout
}

/// Gives the user nobody the subordinate ids in `line`.
pub fn subordinate(place: &Place, line: &str) {
    let file = place.write("subordinate", line);
    for name in ["/etc/subuid", "/etc/subgid"] {
        mount_bind(&file, name).unwrap();
    }
}

/// Makes a tar of a small root with files of several owners. The tar is readable by all users.
pub fn tar(place: &Place) -> PathBuf {
    let root = roots::small(place, "source");
    for (name, owner) in [("user", 1000), ("games", 5), ("nobody", NOBODY)] {
        let path = root.join("data").join(name);
        fs::write(&path, name).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
    }
    let made = place.bare(&["tar", "--numeric-owner", "-cf", "source.tar", "-C", "source", "."]);
    assert!(made.status.success(), "{made:?}");
    place.path("source.tar")
}

fn a_user_with_subordinate_ids_has_trees_of_many_owners(place: &Place) {
    subordinate(place, "nobody:100000:65536\n");
    let tar = tar(place);
    well(place, &["import", "base", tar.to_str().unwrap()]);
    well(place, &["clone", "base", "clone"]);
    let owners = "cd /data; id -u; stat -c '%n %u %g' file user games nobody";
    let owners_wanted = "0\nfile 0 0\nuser 1000 1000\ngames 5 5\nnobody 65534 65534\n";
    let sh = |script: &str| well(place, &["run", "clone", "--", "/bin/sh", "-ec", script]);
    assert_eq!(sh(owners), owners_wanted);
    // In the tree the user has the rights of root.
    sh("cd /data; chown 12:34 file; echo x >>games; mv directory moved; rm -r far; mkdir new; \
        chown 1000 new; mkdir -m 000 closed");
    let changed = "cd /data; stat -c '%n %u %g' file games new; ls; stat -c %a closed";
    let wanted = sh(changed);
    assert!(wanted.starts_with("file 12 34\ngames 5 5\nnew 1000 0\n"), "{wanted}");
    well(place, &["commit", "clone"]);
    assert_eq!(sh(changed), wanted);
    assert_eq!(
        well(place, &["run", "--from", "base", "--", "/bin/sh", "-ec", owners]),
        owners_wanted,
        "the base is as it was"
    );
    well(place, &["verify", "base"]);
    let compared = as_nobody(place, &["diff", "base", "clone"]);
    assert_eq!(compared.status.code(), Some(1), "{compared:?}");
    assert!(compared.stdout.contains("data/moved/inner"), "{compared:?}");
    // The command runs as a user of the tree.
    let user =
        ["run", "clone", "--user", "user", "--", "/bin/sh", "-ec", "id -u; echo x >/data/new/x"];
    assert_eq!(well(place, &user), "1000\n");
    // The tar has the owners of the tree, not those of the host.
    let exported = place.path("home/exported.tar");
    let script = format!(
        "setpriv --reuid 65534 --regid 65534 --clear-groups '{}' tree export clone >'{}'",
        synconce_testkit::harness::binary(),
        exported.display()
    );
    let mut export = place.command("sh");
    let export = export.args(["-ec", &script]).env("HOME", place.path("home"));
    let done = process::run(export.env_remove("SYNCONCE_STATE_DIR"), limit()).unwrap();
    assert!(done.status.success(), "{done:?}");
    let listed = place.bare(&["tar", "--numeric-owner", "-tvf", exported.to_str().unwrap()]);
    for (owner, name) in [("12/34", "data/file"), ("5/5", "data/games"), ("1000/0", "data/new/")] {
        let has = |line: &str| line.contains(owner) && line.trim_end().ends_with(name);
        assert!(listed.stdout.lines().any(has), "{owner} {name}: {}", listed.stdout);
    }
    well(place, &["commit", "clone"]);
    well(place, &["squash", "clone"]);
    assert!(sh(changed).starts_with("file 12 34\n"));
    well(place, &["remove", "clone", "base", "--wait"]);
    well(place, &["fsck"]);
    // The user's own rights suffice to remove everything.
    let layers = place.path("home/.local/share/synconce/trees/layers");
    assert_eq!(fs::read_dir(layers).unwrap().count(), 0);
}

fn a_user_on_a_terminal_has_one_of_its_own(place: &Place) {
    subordinate(place, "nobody:100000:65536\n");
    let tar = tar(place);
    well(place, &["import", "base", tar.to_str().unwrap()]);
    let home = format!("HOME={}", place.text("home"));
    let script = "busybox tty; stat -c %u:%g /dev/pts/0; echo con >/dev/console; \
                  busybox hostname zzz; busybox hostname; \
                  busybox ifconfig lo | grep -o 'UP LOOPBACK RUNNING'; read word; echo =$word=";
    let binary = synconce_testkit::harness::binary();
    // The caller's terminal belongs to root: the user may not open it anew.
    let user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let run = ["tree", "run", "--from", "base", "--network", "none", "--", "/bin/sh", "-c", script];
    let variables = ["env", "-u", "XDG_DATA_HOME", "-u", "SYNCONCE_STATE_DIR"];
    let others = ["-u", "SYNCONCE_RUNTIME_DIR", "-u", "XDG_RUNTIME_DIR", &home, binary];
    let words = [&user[..], &variables, &others, &run].concat();
    let mut terminal = Terminal::start(place, &words);
    terminal.expect("/dev/pts/0\r\n0:5\r\ncon\r\nzzz\r\nUP LOOPBACK RUNNING\r\n");
    terminal.write("typed\n");
    terminal.expect("=typed=");
    assert!(terminal.end().success());
}

fn an_import_by_a_user_lists_the_files_of_other_owners(place: &Place) {
    subordinate(place, "nobody:100000:65536\n");
    let root = roots::small(place, "source");
    let chown_all = place.bare(&["chown", "-R", "65534:65534", "source"]);
    assert!(chown_all.status.success(), "{chown_all:?}");
    for (name, owner) in [("data/hard", 0), ("data/other", 7)] {
        chown(root.join(name), Some(owner), None).unwrap();
    }
    let device = rustix::fs::makedev(1, 3);
    let kind = rustix::fs::FileType::CharacterDevice;
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, root.join("data/null"), kind, mode, device).unwrap();
    let listed = place.bare(&["setfacl", "-m", "u:7:r", "source/data/attributes"]);
    assert!(listed.status.success(), "{listed:?}");
    let imported = as_nobody(place, &["import", "base", root.to_str().unwrap()]);
    assert!(imported.status.success(), "{imported:?}");
    let list = "1 are without attributes or lists that this user may not set: data/attributes";
    assert!(imported.stderr.contains(list), "{imported:?}");
    for part in ["2 have an owner or a group that", "1 are device nodes, left out", "data/null"] {
        assert!(imported.stderr.contains(part), "{part}: {imported:?}");
    }
    let script = "cd /data; stat -c '%n %u' file hard far/hard other; ls null";
    let run = ["run", "--from", "base", "--", "/bin/sh", "-c", script];
    let seen = as_nobody(place, &run).stdout;
    assert_eq!(seen, "file 0\nhard 65534\nfar/hard 65534\nother 65534\n");
    let packed = place.bare(&["tar", "-cf", "devices.tar", "-C", "source", "."]);
    assert!(packed.status.success(), "{packed:?}");
    let imported = as_nobody(place, &["import", "tar", &place.text("devices.tar")]);
    assert!(imported.status.success(), "{imported:?}");
    let device = "synconce: data/null: a device node, left out: Operation not permitted\n";
    assert!(imported.stderr.contains(device), "{imported:?}");
}

fn an_import_by_a_user_leaves_unreadable_files_out_when_asked(place: &Place) {
    subordinate(place, "nobody:100000:65536\n");
    let root = roots::small(place, "source");
    for path in ["data/hard", "data/directory"] {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(0o000)).unwrap();
    }
    // This directory can be listed, and not searched.
    fs::create_dir(root.join("data/listed")).unwrap();
    symlink("file", root.join("data/listed/link")).unwrap();
    fs::set_permissions(root.join("data/listed"), fs::Permissions::from_mode(0o744)).unwrap();
    let source = root.to_str().unwrap();
    let refused = as_nobody(place, &["import", "base", source]);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    for part in ["Permission denied", "hint: --skip-unreadable leaves out what this user may not"] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    let imported = as_nobody(place, &["import", "--skip-unreadable", "base", source]);
    let notice = "4 cannot be read by this user, and are left out: data/directory, data/far/hard, \
                  data/hard, data/listed/link\n";
    assert!(imported.status.success() && imported.stderr.contains(notice), "{imported:?}");
    let seen = well(place, &["run", "--from", "base", "--", "ls", "-x", "/data", "/data/far"]);
    assert!(seen.contains("file") && !seen.contains("hard"), "{seen}");
    assert!(!seen.contains("directory"), "{seen}");
}

fn an_id_of_a_tar_outside_the_users_ranges_is_reported(place: &Place) {
    subordinate(place, "nobody:100000:65536\n");
    let root = roots::small(place, "source");
    chown(root.join("data/file"), Some(700_000), Some(0)).unwrap();
    let made = place.bare(&["tar", "--numeric-owner", "-cf", "source.tar", "-C", "source", "."]);
    assert!(made.status.success(), "{made:?}");
    let imported = as_nobody(place, &["import", "base", &place.text("source.tar")]);
    assert_eq!(imported.status.code(), Some(125), "{imported:?}");
    for part in ["data/file", "700000:0", "/etc/subuid"] {
        assert!(imported.stderr.contains(part), "{part}: {imported:?}");
    }
}

/// The namespace of `unshare --map-root-user` has one user: other owners look like the overflow
/// user.
fn an_owner_that_a_user_namespace_lacks_is_reported_of_a_tar_and_a_directory(place: &Place) {
    let site = Site::plain(place);
    fs::create_dir(place.path("source")).unwrap();
    let file = place.write("source/file", "x");
    chown(&file, Some(1000), Some(1001)).unwrap();
    assert!(place.sh("tar --numeric-owner -cf source.tar source/file").status.success());
    for (source, ids) in [("source.tar", "1000:1001"), ("source", "65534:65534")] {
        let import = site.tree(&["import", "new", &place.text(source)]);
        let mut unshare = place.command("unshare");
        unshare.args(["--user", "--map-root-user"]);
        unshare.arg(import.get_program()).args(import.get_args());
        let ended = process::run(&mut unshare, limit()).unwrap();
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        assert!(ended.stderr.contains("cannot set the owner of "), "{ended:?}");
        let why = format!("{ids} is not among this user's ids (/etc/subuid, /etc/subgid)");
        assert!(ended.stderr.contains(&why), "{why}: {ended:?}");
    }
}

fn a_user_without_subordinate_ids_gets_a_hint(place: &Place) {
    subordinate(place, "other:100000:65536\n");
    let tar = tar(place);
    let imported = as_nobody(place, &["import", "base", tar.to_str().unwrap()]);
    assert_eq!(imported.status.code(), Some(125), "{imported:?}");
    // The hint names ids that no other user has.
    let hint = "usermod --add-subuids 165536-231071 --add-subgids 165536-231071 nobody\n";
    assert!(imported.stderr.ends_with(hint), "with the remedy: {imported:?}");
    assert!(!place.path("home/.local/share/synconce/trees/trees/base.json").exists());
}

/// Reported of podman in units with NoNewPrivileges= and in bubblewrap, which sets no_new_privs.
fn a_user_who_gains_no_privileges_gets_a_hint(place: &Place) {
    subordinate(place, "nobody:100000:65536\n");
    let tar = tar(place);
    let words = ["import", "base", tar.to_str().unwrap()];
    let mut import = by_nobody(place, &["--no-new-privs"], &words);
    let imported = process::run(&mut import, limit()).unwrap();
    assert_eq!(imported.status.code(), Some(125), "{imported:?}");
    assert!(imported.stderr.contains("hint: no_new_privs is set"), "{imported:?}");
}

/// In the user namespace of the command, root has the overflow id, which is also nobody's.
fn the_store_of_root_is_not_called_that_of_another_user(place: &Place) {
    subordinate(place, "nobody:100000:65536\n");
    let site = Site::plain(place);
    let store = site.store().display().to_string();
    let refused = as_nobody(place, &["--store", &store, "list"]);
    let wanted = format!("synconce: cannot use the store {store}: it is another user's store\n");
    assert_eq!((refused.status.code(), refused.stderr), (Some(125), wanted));
}

/// The author of an image may make such files.
fn lists_of_users_that_never_end_keep_no_command_from_its_start(place: &Place) {
    let site = Site::plain(place);
    let source = roots::small(place, "source");
    let etc = source.join("etc");
    fs::remove_file(etc.join("group")).unwrap();
    let run = ["run", "--from", "base", "--", "/bin/echo", "started"];
    for list in ["mkfifo", "ln -s /proc/kmsg", "ln -s /dev/zero"] {
        let made = format!("rm -f {0}/passwd && {list} {0}/passwd", etc.display());
        assert!(place.sh(&made).status.success());
        site.import("base", &source);
        // A list without an end would take all memory of the machine.
        let mut command = place.command("prlimit");
        let tree = site.tree(&run);
        command.arg("--as=4000000000").arg(tree.get_program()).args(tree.get_args());
        let ended = process::run(&mut command, limit()).unwrap();
        assert_eq!(
            (ended.status.code(), ended.stdout.as_str()),
            (Some(0), "started\n"),
            "{list}: {ended:?}"
        );
        assert!(site.ends(&["remove", "base"]).status.success());
    }
}

/// As `/dev/kvm`, `/dev/fuse` and loop devices are, which not each machine has.
fn a_device_of_the_host_is_there_when_it_is_bound(place: &Place) {
    subordinate(place, "nobody:100000:65536\n");
    let tar = tar(place);
    let script = "echo x >/dev/kvm; stat -c '%F %t:%T' /dev/kvm";
    let bind = ["--bind", "/dev/null:/dev/kvm", "--", "/bin/sh", "-ec", script];
    let run = [&["run", "--from", "base"], &bind[..]].concat();
    let site = Site::plain(place);
    site.import("base", &tar);
    assert_eq!(site.well(&run).stdout, "character special file 1:3\n");
    well(place, &["import", "base", tar.to_str().unwrap()]);
    assert_eq!(well(place, &run), "character special file 1:3\n");
}

/// The rig has attached the device, and detaches it also if the test fails.
fn a_loop_device_that_is_bound_can_be_mounted_until_the_run_ends(place: &Place) {
    let rig = disk(place, Rig::builder().fs(FsKind::Ext4).size(64 << 20));
    fs::write(rig.path().join("file"), "of the disk\n").unwrap();
    rig.unmount().unwrap();
    let site = Site::plain(place);
    let source = roots::small(place, "source");
    roots::link_to_usr(&source);
    site.import("base", &source);
    let device = rig.device().display().to_string();
    // The first command asks /dev/loop-control for a free device.
    let script = format!(
        "free=$(/usr/sbin/losetup --find); echo ${{free%%[0-9]*}}
         mount -t ext4 {device} /mnt; cat /mnt/file; echo new >/mnt/new"
    );
    let binds = [format!("{device}:{device}"), "/dev/loop-control:/dev/loop-control".into()];
    let binds: Vec<_> = binds.iter().flat_map(|bind| ["--bind", bind]).collect();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    for hold in [&[][..], &["--no-hold"]] {
        let run = |binds: &[&str]| {
            let end = ["--bind", "/usr:/usr:ro", "--", "/bin/sh", "-ec", &script];
            site.ends(&[&["run", "--from", "base"], hold, binds, &end].concat())
        };
        let bound = run(&binds);
        assert!(bound.status.success(), "{hold:?}: {bound:?}");
        assert_eq!(bound.stdout, "/dev/loop\nof the disk\n", "{hold:?}: {bound:?}");
        assert_eq!(mounts(), before, "{hold:?}");
        // This opens the device exclusively: no other namespace has it mounted.
        rig.unmount().unwrap();
        rig.mount().unwrap();
        assert_eq!(fs::read_to_string(rig.path().join("new")).unwrap(), "new\n", "{hold:?}");
        fs::remove_file(rig.path().join("new")).unwrap();
        rig.unmount().unwrap();
        let (device, control) = binds.split_at(2);
        for (bound, why) in [
            (device, "losetup: cannot find an unused loop device"),
            (control, "mount: mounting /dev/loop"),
        ] {
            let ended = run(bound);
            assert!(!ended.status.success(), "{hold:?}, {bound:?}: {ended:?}");
            assert!(ended.stderr.starts_with(why), "{hold:?}, {bound:?}: {ended:?}");
        }
    }
    rig.down().unwrap();
}
