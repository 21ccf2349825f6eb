//! A tree has every attribute of what was imported, with each strategy on each file system;
//! and `tree diff` lists what a clone changed.

use crate::everything;
use crate::roots;
use crate::site::{Site, disk, for_each_strategy, limit, on, same, times};
use crate::verbs::with_base;
use libtest_mimic::Trial;
use rustix::fs::{
    IFlags, XattrFlags, getxattr, ioctl_getflags, ioctl_setflags, removexattr, setxattr,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use synconce_testkit::harness::Place;
use synconce_testkit::harness::{Need, trial, trials_on};
use synconce_testkit::manifest::{FileKind, Manifest, diff};
use synconce_testkit::process;
use synconce_testkit::rig::{FsKind, Rig};

const NEEDS: [Need; 2] =
    [Need::File("/bin/busybox", "busybox-static"), Need::Program("tar", "tar")];
const ESCAPED: [Need; 2] = [NEEDS[0], Need::Linux(6, 7, "attributes of overlays in an overlay")];

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial(of_overlays_in_a_tree_are_kept, &on(FsKind::Xfs, &NEEDS)),
        trial(of_overlays_that_a_run_by_copy_made_control_no_overlay, &on(FsKind::Xfs, &NEEDS)),
        trial(of_overlays_in_an_overlay_are_kept_by_a_squash, &ESCAPED),
        trial(of_overlays_that_are_accepted_control_no_overlay, &NEEDS),
        trial(flags_of_directories_are_changes, &NEEDS),
    ];
    let of_kinds = [
        trials_on(&FsKind::ALL, of_a_directory_are_kept, &NEEDS),
        trials_on(&FsKind::ALL, of_a_tar_are_kept, &NEEDS),
        trials_on(&FsKind::ALL, a_clone_is_one_file_system, &NEEDS),
        trials_on(&FsKind::ALL, a_diff_lists_every_change, &NEEDS),
    ];
    trials.extend(of_kinds.into_iter().flatten());
    trials
}

/// Makes a root with every attribute in it.
fn everything(place: &Place) -> std::path::PathBuf {
    let root = roots::small(place, "source");
    everything::make(&root);
    root
}

/// Import, clone, a run that does nothing, commit, export: the content is `wanted` after each.
/// Takes long: each step of each strategy is followed by a comparison of all attributes.
fn are_kept(site: &Site<'_>, source: &Path, wanted: &Manifest) {
    let how = site.strategy();
    site.import("base", source);
    same(&format!("an import, {how}"), wanted, &site.content("base"));
    let before = site.layers();
    site.clone_of("base", "clone");
    same(&format!("a clone, {how}"), wanted, &site.content("clone"));
    site.sh("clone", ":");
    same(&format!("a run, {how}"), wanted, &site.content("clone"));
    site.well(&["commit", "clone"]);
    same(&format!("a commit, {how}"), wanted, &site.content("clone"));
    assert_eq!(site.diff("base", "clone"), BTreeSet::new(), "{how}");
    exports_are_the_same(site, wanted);
    site.well(&["squash", "clone"]);
    same(&format!("squashed, {how}"), wanted, &site.content("clone"));
    site.assert_unchanged("all of it", "base", &before);
}

fn exports_are_the_same(site: &Site<'_>, wanted: &Manifest) {
    let how = site.strategy();
    // To another file system than the store's.
    let to = site.place.path(&format!("exported-{how}"));
    site.well(&["export", "clone", to.to_str().unwrap()]);
    same(&format!("an export, {how}"), wanted, &times(&to));
    for sparse in [everything::SPARSE, everything::HOLE] {
        let meta = fs::metadata(to.join(sparse)).unwrap();
        assert!(meta.blocks() * 512 < 2 << 20, "{sparse} has {} blocks", meta.blocks());
    }
    fs::remove_dir_all(&to).unwrap();

    let tar = site.fresh("tar");
    let mut export = site.place.command("sh");
    let script = "\"$0\" tree --store \"$1\" export clone >\"$2\"";
    export.args(["-ec", script, synconce_testkit::harness::binary()]).arg(site.store()).arg(&tar);
    let exported = process::run(&mut export, limit()).unwrap();
    assert!(exported.status.success(), "{exported:?}");
    assert!(fs::metadata(&tar).unwrap().len() < 8 << 20, "holes are no zeroes in the tar");
    site.import("again", &tar);
    let wanted = as_a_tar(wanted);
    same(&format!("an export as a tar, {how}"), &wanted, &as_a_tar(&site.content("again")));
    // GNU tar can list the archive, too; but it makes no path of this length.
    let listed = site.place.command("tar").arg("-tf").arg(&tar).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    site.remove("again");
}

/// Removes what a tar does not keep: sockets, and in GNU's a second name of a named pipe.
fn as_a_tar(manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    manifest.entries.retain(|_, entry| entry.kind != FileKind::Socket);
    let fifos = manifest.entries.values_mut().filter(|entry| entry.kind == FileKind::Fifo);
    fifos.for_each(|entry| entry.links = None);
    manifest
}

fn of_a_directory_are_kept(place: &Place, kind: FsKind) {
    let source = everything(place);
    let wanted = times(&source);
    for_each_strategy(place, kind, 2 << 30, |site| are_kept(site, &source, &wanted));
    same("the source itself", &wanted, &times(&source));
}

/// Makes GNU tar's archive of `source`, with every attribute that GNU tar can keep.
fn archive(place: &Place, source: &Path) -> std::path::PathBuf {
    let to = place.path("source.tar");
    let mut tar = place.command("tar");
    tar.args(["--create", "--format=posix", "--sparse", "--numeric-owner", "--acls"]);
    tar.args(["--xattrs", "--xattrs-include=*", "--warning=no-file-ignored", "--file"]);
    let made = process::run(tar.arg(&to).arg("-C").arg(source).arg("."), limit()).unwrap();
    assert!(made.status.success(), "{made:?}");
    to
}

fn of_a_tar_are_kept(place: &Place, kind: FsKind) {
    let source = everything(place);
    let wanted = as_a_tar(&times(&source));
    let tar = archive(place, &source);
    for_each_strategy(place, kind, 2 << 30, |site| are_kept(site, &tar, &wanted));
}

/// Checks what a program expects from one file system: each line is a check and its result.
/// Inode numbers are compared within this run only.
const ONE_FILE_SYSTEM: &str = r#"
cd /data
number() { stat -c '%d %i' "$1"; }
is() { if [ "$2" = "$3" ]; then echo "$1: yes"; else echo "$1: no ($2, $3)"; fi; }
before=$(number file); echo more >>file; is 'written, its number stays' "$before" "$(number file)"
before=$(number other); chmod 600 other; is 'chmod, its number stays' "$before" "$(number other)"
before=$(number directory); touch directory/new
is 'a directory keeps its number' "$before" "$(number directory)"
is 'hard links have one number' "$(number hard)" "$(number far/hard)"
before=$(number hard); echo linked >>hard
is 'and keep it when written' "$before" "$(number hard)"
is 'both names' "$(number hard)" "$(number far/hard)"
is 'and have one content' "$(tail -n 1 far/hard)" linked
is 'and two links' "$(stat -c %h far/hard)" 2
is 'one device for all' "$(stat -c %d file attributes directory symlink | sort -u | wc -l)" 1
exec 5<attributes; echo more >>attributes
is 'an open descriptor shows what is written' "$(tail -n 1 <&5)" more
before=$(number directory); mv directory far/moved
is 'a directory is renamed and keeps its number' "$before" "$(number far/moved)"
is 'with what is in it' "$(ls far/moved | sort | tr '\n' ' ')" 'inner new '
mkdir directory; is 'its name is free again' "$(ls directory | wc -l)" 0
mv far/moved directory/again; is 'and again' "$(ls directory/again | wc -l)" 2
ln far/hard third; is 'a third link' "$(stat -c %h hard)" 3
rm hard; is 'without the first' "$(stat -c %h far/hard)" 2
"#;

fn a_clone_is_one_file_system(place: &Place, kind: FsKind) {
    let source = roots::small(place, "source");
    for_each_strategy(place, kind, 1 << 30, |site| {
        site.import("base", &source);
        let before = site.layers();
        site.clone_of("base", "clone");
        let listing = site.sh("clone", ONE_FILE_SYSTEM);
        // Overlayfs: a descriptor that was opened for reading before the first write shows the
        // old file.
        let is_known =
            |line: &&str| line.starts_with("an open descriptor ") && site.strategy() == "overlay";
        let wrong: Vec<_> = listing.lines().filter(|line| !line.ends_with(": yes")).collect();
        let wrong: Vec<_> = wrong.into_iter().filter(|line| !is_known(line)).collect();
        assert!(wrong.is_empty(), "{}: {wrong:#?}", site.strategy());
        assert_eq!(listing.lines().count(), 16, "{listing}");
        // What the first run left is there in the next run, and after the commit.
        let left = "cd /data; stat -c '%h' far/hard; ls -R . | sort; \
                    cmp third far/hard && tail -n 1 third";
        let first = site.sh("clone", left);
        assert!(first.starts_with("2\n") && first.ends_with("linked\n"), "{first}");
        site.well(&["commit", "clone"]);
        assert_eq!(site.sh("clone", left), first);
        site.well(&["commit", "clone"]);
        site.well(&["squash", "clone"]);
        assert_eq!(site.sh("clone", left), first);
        let (mounted, exported) = (site.content("clone"), site.exported("clone"));
        same("the export", &mounted, &exported);
        assert_eq!(mounted.entries["data/third"].links.as_deref(), Some("data/far/hard"));
        site.assert_unchanged("all of it", "base", &before);
    });
}

/// Writes of every kind, some without an effect.
const CHANGES: &str = r#"
cd /data
echo new >created; mkdir -p made/below; echo new >made/below/file
echo more >>file
chmod 600 attributes
mv other renamed
mv directory far/directory
rmdir empty
rm symlink; ln -s other symlink
cp -p hard /tmp/saved; echo x >>hard
rm /etc/motd; mkdir /etc/motd; echo x >/etc/motd/file
chmod 700 /root; chmod 755 /root
echo gone >/tmp/gone; rm /tmp/gone
mknod /tmp/null c 1 3; chown 12:34 /etc/group
"#;

fn a_diff_lists_every_change(place: &Place, kind: FsKind) {
    let source = roots::small(place, "source");
    for_each_strategy(place, kind, 1 << 30, |site| {
        site.import("base", &source);
        let wanted = site.content("base");
        site.clone_of("base", "clone");
        site.sh("clone", CHANGES);
        let now = site.content("clone");
        tells_the_difference(site, ["base", "clone"], &wanted, &now);
        tells_the_difference(site, ["clone", "base"], &now, &wanted);
        for path in ["data/created", "data/made/below/file", "data/far/directory/inner"] {
            assert!(site.diff("base", "clone").contains(&('A', path.to_owned())), "{path}");
        }
        site.well(&["commit", "clone"]);
        tells_the_difference(site, ["base", "clone"], &wanted, &now);
        site.clone_of("clone", "third");
        assert_eq!(site.diff("clone", "third"), BTreeSet::new());
        // A second layer upon the first, which reverts some changes.
        site.sh("third", "cd /data; mv renamed other; rm -r made created; echo y >again");
        let third = site.content("third");
        tells_the_difference(site, ["clone", "third"], &now, &third);
        tells_the_difference(site, ["base", "third"], &wanted, &third);
        let json = site.ends(&["diff", "base", "third", "--json"]);
        assert_eq!(json.status.code(), Some(1), "{json:?}");
        let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
        assert!(json.to_string().contains("data/again"), "{json}");
    });
}

/// Asserts that `tree diff` lists every path that differs. Other listed paths may only be
/// directories and hard links with another time.
fn tells_the_difference(site: &Site<'_>, names: [&str; 2], first: &Manifest, second: &Manifest) {
    use synconce_testkit::manifest::Difference;
    let changes = |first: &Manifest, second: &Manifest| -> BTreeSet<(char, String)> {
        let letters = diff(first, second).into_iter().map(|difference| {
            let letter = match difference {
                Difference::OnlyInFirst { .. } => 'D',
                Difference::OnlyInSecond { .. } => 'A',
                Difference::Changed { .. } => 'C',
            };
            (letter, difference.path().to_owned())
        });
        letters.collect()
    };
    let without_times = |manifest: &Manifest| {
        let mut manifest = manifest.clone();
        manifest.entries.values_mut().for_each(|entry| entry.mtime = None);
        manifest
    };
    let (least, most) =
        (changes(&without_times(first), &without_times(second)), changes(first, second));
    let found = site.diff(names[0], names[1]);
    let (missing, excess) = (&least - &found, &found - &most);
    let how = site.strategy();
    assert!(missing.is_empty() && excess.is_empty(), "{how}, {names:?}: {missing:?}, {excess:?}");
}

/// The storage of a container engine in a tree is overlays, whose directories have attributes.
fn of_overlays_in_a_tree_are_kept(place: &Place) {
    let source = roots::small(place, "source");
    let rig = disk(place, Rig::builder().fs(FsKind::Xfs).size(512 << 20));
    for strategy in ["reflink", "copy"] {
        let site = Site::new(place, rig.path(), Some(strategy));
        site.import("base", &source);
        site.clone_of("base", "work");
        let mounted = |script: &str| {
            let options = "lowerdir=lower,upperdir=upper,workdir=work";
            site.sh("work", &format!("cd /mnt; mount -t overlay -o {options} o m; {script}"))
        };
        site.sh("work", "cd /mnt; mkdir lower upper work m lower/d; echo >lower/d/removed");
        mounted("rm -r m/d; mkdir m/d; echo >m/d/new");
        assert_eq!(mounted("ls m/d"), "new\n", "{strategy}");
        site.well(&["commit", "work"]);
        assert_eq!(mounted("ls m/d"), "new\n", "{strategy}");
        let exported = site.well(&["export", "work", site.fresh("to").to_str().unwrap()]);
        let named = ["have attributes of overlays, which are left out", "mnt/upper/d"];
        assert!(named.iter().all(|part| exported.stderr.contains(part)), "{exported:?}");
    }
    rig.down().unwrap();
}

/// With `metacopy`, an upper file has attributes and no content. An overlay that has such a file in
/// its only layer cannot open the file.
fn of_overlays_that_a_run_by_copy_made_control_no_overlay(place: &Place) {
    let source = roots::small(place, "source");
    let rig = disk(place, Rig::builder().fs(FsKind::Xfs).size(512 << 20));
    let site = Site::new(place, rig.path(), None);
    site.import("base", &source);
    site.clone_of("base", "work");
    let options = "metacopy=on,lowerdir=lower,upperdir=upper,workdir=work";
    let mounted = format!("cd /mnt; mount -t overlay -o {options} o m");
    let make = "cd /mnt; mkdir lower upper work m; echo content >lower/file";
    let by_copy = format!("{make}; {mounted}; chmod 700 m/file");
    site.well(&["run", "work", "--strategy", "copy", "--", "/bin/sh", "-ec", &by_copy]);
    let see = format!("cat /mnt/upper/file >/dev/null; {mounted}; cat m/file");
    assert_eq!(site.sh("work", &see), "content\n");
    site.well(&["commit", "work"]);
    assert_eq!(site.sh("work", &see), "content\n");
    let by_overlay = ["run", "work", "--strategy", "overlay", "--", "true"];
    site.refused(125, &by_overlay, &["attributes of overlays"]);
    rig.down().unwrap();
}

/// Returns the strategy of the tree `name` in `list`.
fn listed_strategy(site: &Site<'_>, name: &str) -> String {
    let list = site.well(&["list", "--json"]).stdout;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let tree = list.as_array().unwrap().iter().find(|tree| tree["name"] == name).unwrap();
    tree["strategy"].as_str().unwrap().to_owned()
}

/// Mounts the tree `name`, calls `act` with the mount point, and unmounts the tree.
fn in_a_mount(site: &Site<'_>, name: &str, act: impl FnOnce(&Path)) {
    let point = site.fresh("mount");
    fs::create_dir(&point).unwrap();
    site.well(&["mount", name, point.to_str().unwrap()]);
    act(&point);
    site.well(&["umount", name]);
}

/// Since Linux 6.7 a program in an overlay can set attributes of overlays: the kernel escapes them.
fn of_overlays_in_an_overlay_are_kept_by_a_squash(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "work");
    in_a_mount(&site, "work", |point| {
        let directory = point.join("data/directory");
        setxattr(directory, "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    });
    site.well(&["commit", "work"]);
    assert_eq!(listed_strategy(&site, "work"), "overlay");
    // A removal is a change, although the times of the directory stay.
    in_a_mount(&site, "work", |point| {
        removexattr(point.join("data/directory"), "trusted.overlay.opaque").unwrap();
    });
    in_a_mount(&site, "work", |point| {
        let mut value = [0; 8];
        let read = getxattr(point.join("data/directory"), "trusted.overlay.opaque", &mut value);
        assert_eq!(read, Err(Errno::NODATA));
    });
    site.well(&["discard", "work"]);
    site.well(&["squash", "work"]);
    assert_ne!(listed_strategy(&site, "work"), "overlay");
    assert_eq!(site.sh("work", "ls /data/directory; echo >/data/new"), "inner\n");
    in_a_mount(&site, "work", |point| {
        let mut value = [0; 8];
        let read = getxattr(point.join("data/directory"), "trusted.overlay.opaque", &mut value);
        assert_eq!(&value[..read.unwrap()], b"y");
    });
}

/// To an overlay, a character device 0:0 in a layer is a removed file.
fn of_overlays_that_are_accepted_control_no_overlay(place: &Place) {
    let site = with_base(place);
    let device = site.newest_layer("base").join("data/device");
    let made = place.command("mknod").arg(&device).args(["c", "0", "0"]).status().unwrap();
    assert!(made.success());
    site.well(&["verify", "--accept", "base"]);
    let see = "stat -c %F /data/device";
    assert_eq!(site.from("base", see), "character special file\n");
    let by_overlay = ["run", "--from", "base", "--strategy", "overlay", "--", "true"];
    site.refused(125, &by_overlay, &["character devices 0:0"]);
    fs::remove_file(&device).unwrap();
    site.well(&["verify", "--accept", "base"]);
    site.well(&by_overlay);
}

fn flags_of_directories_are_changes(place: &Place) {
    let site = with_base(place);
    for path in ["data/directory", "."] {
        site.clone_of("base", "work");
        let opened = |point: &Path| fs::File::open(point.join(path)).unwrap();
        in_a_mount(&site, "work", |point| {
            let directory = opened(point);
            let flags = ioctl_getflags(&directory).unwrap();
            assert!(!flags.contains(IFlags::NOATIME));
            ioctl_setflags(&directory, flags | IFlags::NOATIME).unwrap();
        });
        site.well(&["commit", "work"]);
        in_a_mount(&site, "work", |point| {
            let flags = ioctl_getflags(opened(point)).unwrap();
            assert!(flags.contains(IFlags::NOATIME), "{path}");
        });
        site.remove("work");
    }
}
