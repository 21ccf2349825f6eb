//! No change in a clone reaches its base.

use crate::roots;
use crate::site::{Site, for_each_strategy};
use rustix::fs::IFlags;
use std::fs::{self, File};
use std::path::PathBuf;
use synconce_sys::overlay::kernel_is_at_least;
use synconce_testkit::harness::{Need, Place, debian, finish};
use synconce_testkit::rig::FsKind;

pub const NEEDS: [Need; 2] =
    [Need::File("/bin/busybox", "busybox-static"), Need::Program("cc", "gcc libc6-dev")];
pub const DEBIAN: [Need; 2] =
    [Need::Program("mmdebstrap", "mmdebstrap"), Need::Program("dpkg-deb", "dpkg")];

/// Commands that every system has, each with the path that it changes.
const PROGRAMS: [(&str, &str); 8] = [
    ("cp /data/other /data/file", "data/file"),
    ("sed -i s/original/changed/ /data/file", "data/file"),
    ("touch -d '2001-02-03 04:05:06' /data/file", "data/file"),
    ("truncate -s 5 /data/file", "data/file"),
    ("cat /data/other >/data/file", "data/file"),
    ("dd if=/data/other of=/data/file bs=7 count=1 conv=notrunc 2>/dev/null", "data/file"),
    ("mv /data/directory /data/far/moved", "data/far/moved/inner"),
    ("rm -r /data/directory", "data/directory/inner"),
];

/// Returns the flags that lsattr shows, for every file in the store's layers.
fn flags(site: &Site<'_>) -> Vec<(PathBuf, IFlags)> {
    let find = ["find", "layers", "-name", "file", "-type", "f"];
    let found = finish(site.place.command(find[0]).args(&find[1..]).current_dir(site.store()));
    let paths = found.stdout.lines().map(|line| site.store().join(line));
    let with_flags = paths.map(|path| {
        let flags = rustix::fs::ioctl_getflags(File::open(&path).unwrap()).unwrap();
        (path, flags)
    });
    with_flags.collect()
}

/// Takes long: each of more than forty ways to write has a clone of its own with each strategy.
pub fn by_no_way_to_write(place: &Place, kind: FsKind) {
    let root = roots::small(place, "root");
    let ways = roots::ways(place);
    fs::copy(&ways, root.join("ways")).unwrap();
    let listed = finish(place.command(ways.to_str().unwrap()).arg("list")).stdout;
    let listed: Vec<_> = listed.lines().map(|line| line.split_once(' ').unwrap()).collect();
    assert!(listed.len() >= 36, "{listed:?}");
    let of_c = listed.iter().map(|(name, path)| (vec!["/ways", name], *path));
    let of_programs = PROGRAMS.map(|(script, path)| (vec!["/bin/sh", "-ec", script], path));
    let all: Vec<_> = of_c.chain(of_programs).collect();
    for_each_strategy(place, kind, 2 << 30, |site| {
        site.import("base", &root);
        let (before, flags_before) = (site.layers(), flags(site));
        let mut wrong = Vec::new();
        for (words, path) in &all {
            site.clone_of("base", "clone");
            let done = site.run("clone", words);
            site.assert_same_layers(&format!("{words:?}"), &before);
            if done.status.code() == Some(77) {
                assert!(may_be_missing(words[1], site.strategy(), kind), "{words:?}: {done:?}");
            } else if !done.status.success() {
                // Collected, so that one report names every failure.
                wrong.push(format!("{words:?}: {done:?}"));
            } else if *path != "-" {
                let changes = site.diff("base", "clone");
                assert!(changes.iter().any(|(_, at)| at == path), "{words:?}: {changes:?}");
            }
            let now: Vec<_> = flags(site);
            for (file, flags) in &flags_before {
                let is_as_before = now.iter().any(|(at, now)| at == file && now == flags);
                assert!(is_as_before, "{words:?}: the flags of {}", file.display());
            }
            site.remove("clone");
        }
        site.assert_unchanged("all ways to write", "base", &before);
        assert!(wrong.is_empty(), "{}: {wrong:#?}", site.strategy());
    });
}

/// Whether the call does not exist on this file system, or in overlayfs as documented.
fn may_be_missing(way: &str, strategy: &str, kind: FsKind) -> bool {
    match way {
        "ficlone" => kind == FsKind::Ext4,
        // The overlay is mounted without nfs_export.
        "handle" => strategy == "overlay",
        "tmpfile" => strategy == "overlay" && !kernel_is_at_least(6, 10),
        _ => false,
    }
}

/// In a clone of a Debian everything is deleted, in another one packages are installed, and in
/// a third one a package is upgraded. Takes long: a real dpkg does all of it with each strategy.
pub fn by_large_changes(place: &Place, kind: FsKind) {
    let tar = debian::base();
    let repository = place.path("repository");
    roots::package(place, &repository, "synconce-made", "1");
    let bind = format!("{}:/mnt", repository.display());
    for_each_strategy(place, kind, 5 << 30, |site| {
        site.import("base", &tar);
        let before = site.layers();
        let apt = |name: &str, script: &str| {
            let script = format!("export DEBIAN_FRONTEND=noninteractive; {script}");
            let run = ["run", name, "--bind", &bind, "--", "/bin/sh", "-ec", &script];
            site.well(&run)
        };

        site.clone_of("base", "emptied");
        // The mount points of the run remain, and `find` deletes its own executable.
        let emptied = site.run("emptied", &["/usr/bin/find", "/", "-xdev", "-delete"]);
        assert!(!emptied.stderr.contains("Read-only"), "{emptied:?}");
        site.assert_unchanged("find / -delete", "base", &before);
        let left = site.content("emptied");
        assert!(left.entries.len() < 60, "{:?}", left.entries.keys());
        site.remove("emptied");

        site.clone_of("base", "installed");
        let install = "apt-get -y --no-download --no-install-recommends install \
                       /var/cache/apt/archives/manpages*.deb";
        apt("installed", install);
        site.assert_unchanged("an install", "base", &before);
        let added = site.diff("base", "installed").iter().filter(|(how, _)| *how == 'A').count();
        assert!(added > 1000, "{added} paths were added");
        site.remove("installed");

        let sources = "echo 'deb [trusted=yes] file:/mnt ./' >/etc/apt/sources.list.d/made.list; \
                       apt-get -o Dir::Etc::sourcelist=sources.list.d/made.list \
                       -o Dir::Etc::sourceparts=- update";
        roots::package(place, &repository, "synconce-made", "1");
        site.clone_of("base", "old");
        apt("old", &format!("{sources}; apt-get -y install synconce-made"));
        site.well(&["commit", "old"]);
        let (old, frozen) = (site.content("old"), site.layers());
        roots::package(place, &repository, "synconce-made", "2");
        site.clone_of("old", "new");
        let upgraded = apt("new", &format!("{sources}; apt-get -y upgrade"));
        assert!(upgraded.stdout.contains("1 upgraded"), "{upgraded:?}");
        site.assert_unchanged("an upgrade", "old", &frozen);
        site.assert_unchanged("an upgrade of what stands on it", "base", &before);
        crate::site::same("the old one", &old, &site.content("old"));
        let changes = site.diff("old", "new");
        let made = "usr/share/synconce-made";
        for change in [
            ('C', format!("{made}/1")),
            ('C', "etc/synconce-made.conf".to_owned()),
            ('A', format!("{made}/comes/file")),
            ('D', format!("{made}/goes/file")),
        ] {
            assert!(changes.contains(&change), "{change:?}: {changes:?}");
        }
        for name in ["new", "old", "base"] {
            site.remove(name);
        }
        site.well(&["gc", "--wait"]);
    });
}
