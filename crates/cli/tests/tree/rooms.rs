//! What a command finds in a run: its user, mounts and names.

use crate::roots;
use crate::site::{Site, limit, same};
use crate::verbs::{NEEDS, with_base};
use libtest_mimic::Trial;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use synconce_testkit::harness::{Need, Place, StartedCommand, eventually, trial};
use synconce_testkit::process;
use synconce_testkit::rig::Rig;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(the_user_is_the_one_of_the_option, &NEEDS),
        trial(binds_are_there_and_what_is_written_to_them_stays, &NEEDS),
        trial(syncs_of_a_disk_below_a_bind_are_real, &NEEDS),
        trial(a_run_has_what_a_root_needs_and_leaves_none_of_it, &NEEDS),
        trial(ps_shows_what_keeps_a_tree_entered, &NEEDS),
        trial(a_command_gets_the_documented_variables_and_no_secret, &NEEDS),
        trial(options_add_variables, &NEEDS),
        trial(the_host_name_is_the_runs_own, &NEEDS),
        trial(two_builds_at_once_listen_on_one_port, &NEEDS),
        trial(a_run_without_a_network_reaches_no_port_of_the_host, &NEEDS),
        trial(what_is_written_to_the_hosts_file_is_not_in_the_tree, &NEEDS),
        trial(no_process_of_a_run_has_the_capabilities_that_change_the_machine, &HAS_THEM),
    ]
}

const HAS_THEM: [Need; 2] = [
    NEEDS[0],
    Need::OneCapabilityOf(
        MACHINE_WIDE,
        "CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_PACCT, CAP_SYS_BOOT, CAP_SYS_TIME, CAP_WAKE_ALARM, \
         CAP_BLOCK_SUSPEND",
    ),
];

fn the_user_is_the_one_of_the_option(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let as_user = |user: &str, script: &str| {
        site.ends(&["run", "clone", "--user", user, "--", "/bin/sh", "-c", script])
    };
    let id = "echo $(id -u) $(id -g) $(id -G)";
    assert_eq!(site.sh("clone", id), "0 0 0\n");
    // The users of the tree, not those of the host.
    for (user, ids) in [("user", "1000 1000 1000\n"), ("1000", "1000 1000 1000\n")] {
        assert_eq!(as_user(user, id).stdout, ids, "{user}");
    }
    let written = as_user("user", "echo x >/data/x 2>/dev/null || echo refused; echo x >/tmp/x");
    assert_eq!(written.stdout, "refused\n", "{written:?}");
    site.refused(125, &["run", "clone", "--user", "stranger", "--", "/bin/true"], &["stranger"]);
}

fn binds_are_there_and_what_is_written_to_them_stays(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let wanted = site.content("clone");
    fs::create_dir_all(place.path("shared/below")).unwrap();
    place.write("shared/there", "of the host\n");
    place.write("only", "one file\n");
    let bind = |path: &str, rest: &str| format!("{}:{rest}", place.text(path));
    let run = |binds: &[&str], script: &str| {
        let mut words = vec!["run", "clone"];
        binds.iter().for_each(|bind| words.extend(["--bind", bind]));
        words.extend(["--", "/bin/sh", "-c", script]);
        site.ends(&words)
    };
    let writable = run(&[&bind("shared", "/mnt")], "cat /mnt/there; echo kept >/mnt/below/new");
    assert_eq!(writable.stdout, "of the host\n", "{writable:?}");
    assert_eq!(place.read("shared/below/new"), "kept\n");
    let readable = run(
        &[&bind("shared", "/mnt/a/b:ro"), &bind("only", "/data/file:ro")],
        "cat /mnt/a/b/there /data/file; echo x >/mnt/a/b/x || echo refused; \
         echo x >/data/file || echo refused; mount -o remount,bind,rw /mnt/a/b; :",
    );
    assert!(
        readable.stdout.starts_with("of the host\none file\nrefused\nrefused\n"),
        "{readable:?}"
    );
    assert!(!place.path("shared/x").exists());
    assert_eq!(place.read("only"), "one file\n");
    // At most empty directories remain at the mount points.
    let now = site.content("clone");
    let kept = now.entries.iter().filter(|(path, _)| !wanted.entries.contains_key(*path));
    let files: Vec<_> = kept.filter(|(_, entry)| entry.size.is_some()).collect();
    assert!(files.is_empty(), "{files:?}");
    assert_eq!(now.entries["data/file"], wanted.entries["data/file"]);
    let nowhere = place.text("nowhere");
    let words = ["run", "clone", "--bind", &format!("{nowhere}:/mnt"), "--", "/bin/true"];
    site.refused(125, &words, &[&nowhere]);
    // A link in the tree cannot lead a bind out of the tree.
    site.sh("clone", "ln -s ../../../../../../../../../../tmp /out");
    let marked = run(&[&bind("shared", "/out")], "ls /tmp/there");
    assert!(marked.status.code() != Some(0) || marked.stdout == "/tmp/there\n", "{marked:?}");
    assert!(!Path::new("/tmp/there").exists());
}

fn syncs_of_a_disk_below_a_bind_are_real(place: &Place) {
    let site = with_base(place);
    let disk = || Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
    for on_a_disk in [true, false] {
        let (outer, inner) = (disk(), disk());
        let bound = if on_a_disk { outer.path().to_owned() } else { memory(place) };
        let below = bound.join("below");
        fs::create_dir(&below).unwrap();
        mount_bind(inner.path(), &below).unwrap();
        let flushes = inner.disk().stats().unwrap().flushes;
        let bind = format!("{}:/mnt", bound.display());
        let script = "echo x >/mnt/below/new; sync /mnt/below/new";
        let options = ["run", "--from", "base", "--bind", &bind, "--stats"];
        let ended = site.ends(&[&options[..], &["--", "/bin/sh", "-ec", script]].concat());
        let fsync = ended.stderr.lines().find(|line| line.starts_with("fsync "));
        let counts: Vec<_> = fsync.into_iter().flat_map(str::split_whitespace).collect();
        assert_eq!(counts, ["fsync", "0", "1", "0"], "{on_a_disk}: {ended:?}");
        assert!(inner.disk().stats().unwrap().flushes > flushes, "{on_a_disk}: {ended:?}");
        unmount(&below, UnmountFlags::empty()).unwrap();
        if !on_a_disk {
            unmount(&bound, UnmountFlags::empty()).unwrap();
        }
        [outer, inner].into_iter().for_each(|rig| rig.down().unwrap());
    }
}

/// Mounts a file system in memory, and returns its mount point.
fn memory(place: &Place) -> PathBuf {
    let point = place.path("memory");
    fs::create_dir(&point).unwrap();
    mount("tmpfs", &point, "tmpfs", MountFlags::empty(), None).unwrap();
    point
}

fn a_run_has_what_a_root_needs_and_leaves_none_of_it(place: &Place) {
    let site = with_base(place);
    let resolver = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let what = "set -e; test -r /proc/self/status; echo x >/dev/null; test -c /dev/zero; \
                test -d /sys/kernel; test -e /dev/pts; echo x >/dev/shm/x; cat /etc/resolv.conf";
    // The root has its own file there, a link that leads nowhere, or nothing.
    let own = [
        ("file", None),
        ("link", Some("../run/systemd/resolve/stub-resolv.conf")),
        ("absolute", Some("/run/resolvconf/resolv.conf")),
        ("nothing", None),
    ];
    for (name, target) in own {
        let root = roots::small(place, name);
        let path = root.join("etc/resolv.conf");
        if name != "file" {
            fs::remove_file(&path).unwrap();
        }
        if let Some(target) = target {
            symlink(target, &path).unwrap();
        }
        site.import(name, &root);
        let wanted = site.content(name);
        let clone = format!("{name}-clone");
        site.clone_of(name, &clone);
        assert_eq!(site.sh(&clone, what), resolver, "{name}");
        same(&format!("a tree with {name} for /etc/resolv.conf"), &wanted, &site.content(&clone));
        assert_eq!(site.diff(name, &clone), BTreeSet::new(), "{name}");
        // The command's own changes there are kept.
        site.sh(&clone, "echo x >/run/x; echo x >/dev/shm/x; mkdir /etc/new");
        assert!(site.diff(name, &clone).contains(&('A', "etc/new".to_owned())), "{name}");
    }
    // The host is unchanged.
    assert_eq!(fs::read_to_string("/etc/resolv.conf").unwrap_or_default(), resolver);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(site.store().to_str().unwrap()), "{mounts}");
}

fn ps_shows_what_keeps_a_tree_entered(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    fs::create_dir(place.path("a:b")).unwrap();
    symlink("a:b", place.path("shared")).unwrap();
    let bind = format!("{}:/mnt:ro", place.path("shared").display());
    let line = "tr '\\0' ' ' </proc/1/cmdline";
    let run = ["run", "--user", "root", "--directory", "/etc", "--bind", &bind, "clone"];
    let shown = site.well(&[&run[..], &["--", "/bin/sh", "-c", line]].concat()).stdout;
    let source = fs::canonicalize(place.path("shared")).unwrap();
    let options = format!("--user=root --directory=/etc --bind {} /mnt ro", source.display());
    let (own, rest) = shown.split_once(" tree enter ").expect(&shown);
    assert!(own.ends_with("synconce"), "{shown}");
    assert!(rest.contains("/sessions/"), "{shown}");
    assert!(rest.ends_with(&format!("/root {options} -- /bin/sh -c {line} ")), "{shown}");
}

/// Runs `script` in a new clone of the base; returns what it prints.
fn printed(site: &Site<'_>, options: &[&str], script: &str) -> String {
    let words = [&["run", "--from", "base"], options, &["--", "/bin/sh", "-c", script]];
    site.well(&words.concat()).stdout
}

/// Runs `env` in a clone of the base, by a caller with some variables; returns sorted lines.
fn environment(site: &Site<'_>, options: &[&str]) -> Vec<String> {
    let words = [&["run", "--from", "base"], options, &["--", "/bin/env"]].concat();
    let mut command = site.tree(&words);
    for (name, value) in [
        ("SECRET_TOKEN", "secret"),
        ("LC_ALL", "de_DE.UTF-8"),
        ("LANG", "de_DE.UTF-8"),
        ("TERM", "dumb"),
        ("http_proxy", "http://proxy:3128"),
        ("NO_PROXY", "localhost"),
        ("SOURCE_DATE_EPOCH", "1"),
        ("DEBIAN_FRONTEND", "noninteractive"),
        ("DEB_BUILD_OPTIONS", "nocheck"),
    ] {
        command.env(name, value);
    }
    let finished = process::run(&mut command, limit()).unwrap();
    assert!(finished.status.success(), "{finished:?}");
    let mut lines: Vec<_> = finished.stdout.lines().map(str::to_owned).collect();
    // The id of the run.
    lines.retain(|line| !line.starts_with("SYNCONCE_RUN="));
    lines.sort();
    lines
}

/// What docs/trees.md has in its table.
const VARIABLES: [&str; 13] = [
    "DEBIAN_FRONTEND=noninteractive",
    "DEB_BUILD_OPTIONS=nocheck",
    "HOME=/root",
    "LANG=C.UTF-8",
    "LOGNAME=root",
    "NO_PROXY=localhost",
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PWD=/",
    "SHELL=/bin/sh",
    "SOURCE_DATE_EPOCH=1",
    "TERM=dumb",
    "USER=root",
    "http_proxy=http://proxy:3128",
];

fn a_command_gets_the_documented_variables_and_no_secret(place: &Place) {
    let site = with_base(place);
    for options in [&[][..], &["--no-hold"]] {
        assert_eq!(environment(&site, options), VARIABLES, "{options:?}");
    }
    // The processes around the command do not have them either.
    let mut look = site.tree(&["run", "--from", "base", "--", "/bin/cat", "/proc/1/environ"]);
    let seen = process::run(look.env("SECRET_TOKEN", "secret"), limit()).unwrap();
    assert!(seen.stdout.contains("LANG=C.UTF-8") && !seen.stdout.contains("secret"), "{seen:?}");
}

fn options_add_variables(place: &Place) {
    let site = with_base(place);
    let file = place.write("variables", "# of a job\n\nA=\"b c\"\nSECRET_TOKEN\nTERM=file\nNONE\n");
    let file = file.to_str().unwrap();
    let options =
        ["--env-file", file, "--setenv", "TERM=option", "--setenv=HOME=/data", "--setenv=EMPTY="];
    let mut wanted = VARIABLES.map(str::to_owned).to_vec();
    wanted.retain(|line| !line.starts_with("TERM=") && !line.starts_with("HOME="));
    let added = ["A=\"b c\"", "SECRET_TOKEN=secret", "TERM=option", "HOME=/data", "EMPTY="];
    wanted.extend(added.map(str::to_owned));
    wanted.sort();
    assert_eq!(environment(&site, &options), wanted);
    let kept = environment(&site, &["--keep-env"]);
    for line in ["SECRET_TOKEN=secret", "LANG=de_DE.UTF-8", "LC_ALL=de_DE.UTF-8", "HOME=/root"] {
        assert!(kept.iter().any(|kept| kept == line), "{line}: {kept:?}");
    }
    let missing = ["run", "--from", "base", "--env-file", "/nowhere", "--", "/bin/true"];
    site.refused(125, &missing, &["cannot read /nowhere: no such file"]);
    let bad = place.write("bad", "A=b\n=c\n");
    let bad = bad.to_str().unwrap();
    let words = ["run", "--from", "base", "--env-file", bad, "--", "/bin/true"];
    site.refused(125, &words, &["line 2 of", "NAME=VALUE"]);
    let words = ["run", "--from", "base", "--setenv", "=c", "--", "/bin/true"];
    site.refused(125, &words, &["--setenv", "NAME=VALUE"]);
}

fn the_host_name_is_the_runs_own(place: &Place) {
    let site = with_base(place);
    let name = "/proc/sys/kernel/hostname";
    let host = fs::read_to_string(name).unwrap();
    let script = format!("cat {name}; echo changed >{name}; cat {name}");
    assert_eq!(printed(&site, &[], &script), format!("{host}changed\n"));
    assert_eq!(fs::read_to_string(name).unwrap(), host);
    let asked = ["--hostname", "builder.example"];
    let seen = printed(&site, &asked, &format!("cat {name}; grep builder /etc/hosts"));
    assert_eq!(seen, "builder.example\n127.0.1.1 builder.example\n");
    for bad in ["", "a b", "-x", &"x".repeat(65)] {
        let option = format!("--hostname={bad}");
        let refused = site.ends(&["run", "--from", "base", &option, "--", "/bin/true"]);
        assert_eq!(refused.status.code(), Some(125), "{bad}: {refused:?}");
    }
}

/// The tests of each build start a server on the port and ask it for the name of the build.
fn two_builds_at_once_listen_on_one_port(place: &Place) {
    let site = with_base(place);
    fs::create_dir(place.path("talk")).unwrap();
    let bind = format!("{}:/mnt", place.text("talk"));
    let builds = ["one", "two"].map(|name| {
        let script = format!(
            "echo {name} >/data/name; busybox httpd -p 127.0.0.1:8765 -h /data || exit 9; \
             echo >/mnt/{name}; until [ -e /mnt/go ]; do sleep 0.02; done; \
             busybox wget -q -O - http://localhost:8765/name"
        );
        let options = ["run", "--from", "base", "--network", "none", "--bind", &bind];
        let words = [&options[..], &["--", "/bin/sh", "-c", &script]].concat();
        (name, StartedCommand::new(&mut site.tree(&words)))
    });
    eventually("both servers listen", || {
        builds.iter().all(|(name, build)| {
            let has_ended = build.wait(Duration::ZERO).unwrap().is_some();
            assert!(!has_ended, "{name}: {}", build.text());
            place.path("talk").join(name).exists()
        })
    });
    place.write("talk/go", "");
    for (name, build) in builds {
        assert!(build.end().success(), "{name}: {}", build.text());
        assert_eq!(build.text(), format!("{name}\n"));
    }
}

fn a_run_without_a_network_reaches_no_port_of_the_host(place: &Place) {
    let site = with_base(place);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepting = std::thread::spawn(move || listener.accept().map(drop));
    let script = format!(
        "busybox nc -w 5 127.0.0.1 {port} </dev/null >/dev/null 2>&1 && echo reached; \
         busybox ifconfig -a | grep -c Link; busybox ifconfig lo | grep -o 'UP LOOPBACK RUNNING'"
    );
    let printed = |network: &str| printed(&site, &["--network", network], &script);
    assert_eq!(printed("none"), "1\nUP LOOPBACK RUNNING\n");
    assert!(printed("host").starts_with("reached\n"));
    accepting.join().unwrap().unwrap();
    let refused = site.ends(&["run", "--from", "base", "--network", "some", "true"]);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    assert!(refused.stderr.contains("[possible values: host, none]"), "{refused:?}");
}

fn what_is_written_to_the_hosts_file_is_not_in_the_tree(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let script = "echo 192.0.2.7 server >>/etc/hosts; tail -n 1 /etc/hosts; \
                  grep -c -w localhost /etc/hosts >/dev/null && echo found";
    assert_eq!(site.sh("clone", script), "192.0.2.7 server\nfound\n");
    assert_eq!(site.diff("base", "clone"), BTreeSet::new());
    assert!(!site.sh("clone", "cat /etc/hosts").contains("192.0.2.7"));
}

/// Bits of capabilities (linux/capability.h): `CAP_SYS_MODULE`, `CAP_SYS_RAWIO`, `CAP_SYS_PACCT`,
/// `CAP_SYS_BOOT`, `CAP_SYS_TIME`, `CAP_WAKE_ALARM` and `CAP_BLOCK_SUSPEND`.
const MACHINE_WIDE: u64 = 1 << 16 | 1 << 17 | 1 << 20 | 1 << 22 | 1 << 25 | 1 << 35 | 1 << 36;

/// Returns the permitted, effective and bounding sets in `status`, which proc_pid_status(5)
/// describes.
fn capabilities(status: &str) -> [u64; 3] {
    ["CapPrm:", "CapEff:", "CapBnd:"].map(|name| {
        let set = status.lines().find_map(|line| line.strip_prefix(name)).expect(status);
        u64::from_str_radix(set.trim(), 16).unwrap()
    })
}

fn no_process_of_a_run_has_the_capabilities_that_change_the_machine(place: &Place) {
    let site = with_base(place);
    let of_host = capabilities(&fs::read_to_string("/proc/self/status").unwrap());
    let kept = of_host.map(|set| set & !MACHINE_WIDE);
    for options in [&[][..], &["--no-hold"]] {
        // The command, and the first process, whose memory root may change.
        for process in ["self", "1"] {
            let status = printed(&site, options, &format!("cat /proc/{process}/status"));
            assert_eq!(capabilities(&status), kept, "{process} {options:?}");
        }
        let user = [options, &["--user", "user"]].concat();
        let status = printed(&site, &user, "cat /proc/self/status");
        assert_eq!(capabilities(&status), [0, 0, kept[2]], "{options:?}");
    }
}
