//! Runs: the environment of a command, its exit status, what it leaves, and a full disk.

use crate::roots;
use crate::site::{Site, limit, same};
use crate::verbs::{NEEDS, names, set, waiting, with_base};
use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use synconce_testkit::harness::trial;
use synconce_testkit::harness::{Place, Started, Terminal, binary, eventually};
use synconce_testkit::process;
use synconce_testkit::rig::{FsKind, Rig};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(what_runs_is_neither_removed_nor_run_twice, &NEEDS),
        trial(a_run_ends_as_its_command, &NEEDS),
        trial(every_signal_reaches_the_command, &NEEDS),
        trial(control_c_ends_a_run_as_it_ends_the_command, &NEEDS),
        trial(standard_input_and_output_are_the_commands, &NEEDS),
        trial(the_user_is_the_one_of_the_option, &NEEDS),
        trial(binds_are_there_and_what_is_written_to_them_stays, &NEEDS),
        trial(a_run_has_what_a_root_needs_and_leaves_none_of_it, &NEEDS),
        trial(ps_shows_what_keeps_a_tree_entered, &NEEDS),
        trial(no_process_is_left_by_a_run, &NEEDS),
        trial(a_run_is_kept_or_discarded_by_its_option, &NEEDS),
        trial(a_run_that_was_killed_is_reported_once_and_undone, &NEEDS),
        trial(a_full_disk_leaves_the_base_unchanged_and_gives_a_clear_error_on_ext4, &NEEDS),
        trial(a_full_disk_leaves_the_base_unchanged_and_gives_a_clear_error_on_xfs, &NEEDS),
        trial(a_full_disk_leaves_the_base_unchanged_and_gives_a_clear_error_on_btrfs, &NEEDS),
    ]
}

fn what_runs_is_neither_removed_nor_run_twice(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let run = waiting(&site, &["clone"], "echo kept >/data/kept");
    site.refused(125, &["run", "clone", "--", "/bin/true"], &["clone"]);
    site.refused(125, &["remove", "clone"], &["clone"]);
    site.refused(125, &["commit", "clone"], &["clone"]);
    site.refused(125, &["squash", "clone"], &["clone"]);
    // The base is not in use, and neither is another clone.
    site.clone_of("base", "other");
    assert_eq!(site.sh("other", "echo beside"), "beside\n");
    site.well(&["remove", "base"]);
    site.well(&["gc", "--wait"]);
    place.write("talk/go", "");
    assert!(run.end().success(), "{}", run.text());
    assert_eq!(site.sh("clone", "cat /data/kept; head -n 1 /data/other"), "kept\nanother\n");
    site.remove("clone");
    site.well(&["fsck"]);
}

fn a_run_ends_as_its_command(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    for code in [0, 1, 7, 125, 126, 127, 255] {
        let finished = site.run("clone", &["/bin/sh", "-c", &format!("exit {code}")]);
        assert_eq!(finished.status.code(), Some(code), "{finished:?}");
        assert_eq!(finished.stdout + &finished.stderr, "");
    }
    // busybox's shell ignores signal 3.
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGKILL, libc::SIGUSR1, libc::SIGTERM] {
        let script = format!("kill -{signal} $$; sleep 20");
        let finished = site.run("clone", &["/bin/sh", "-c", &script]);
        assert_eq!(finished.status.signal(), Some(signal), "{finished:?}");
    }
    fs::write(place.path("source/data/plain"), "no right to execute\n").unwrap();
    site.import("odd", &place.path("source"));
    for (words, code) in [
        (&["no-such-command"][..], 127),
        (&["/no/such/file"], 127),
        (&["/data/plain"], 126),
        (&["/data"], 126),
    ] {
        let finished = site.run("odd", words);
        assert_eq!(finished.status.code(), Some(code), "{words:?}: {finished:?}");
        assert!(finished.stderr.starts_with("synconce: "), "{finished:?}");
        assert!(finished.stderr.contains(words[0]), "{finished:?}");
    }
    // The command is searched for in the tree, by the tree's PATH.
    assert_eq!(site.run("odd", &["echo", "a b", "", "c"]).stdout, "a b  c\n");
    // What a failed command has written is kept, like the changes of a successful one.
    let failed = site.run("clone", &["/bin/sh", "-c", "echo written >/data/written; exit 3"]);
    assert_eq!(failed.status.code(), Some(3));
    assert_eq!(site.sh("clone", "cat /data/written"), "written\n");
}

fn control_c_ends_a_run_as_it_ends_the_command(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let store = site.store();
    let store = store.to_str().unwrap();
    let mut terminal = Terminal::shell(place);
    terminal.line(&format!(
        "\"$SYNCONCE\" tree --store '{store}' run clone -- /bin/sh -c \
         'echo beg\"\"un; sleep 1000; echo not reached'"
    ));
    terminal.expect("begun");
    terminal.write("\x03");
    assert_eq!(terminal.code(), "130");
    terminal.line(&format!(
        "\"$SYNCONCE\" tree --store '{store}' run clone -- /bin/sh -c \
         'trap \"echo cau\"\"ght; exit 9\" INT; echo beg\"\"un; while :; do sleep 0.05; done'"
    ));
    terminal.expect("begun");
    terminal.write("\x03");
    terminal.expect("caught");
    assert_eq!(terminal.code(), "9");
    terminal.line("exit");
    assert!(terminal.end().success());
    // The interrupted run blocks nothing and causes no notice.
    let next = site.run("clone", &["/bin/true"]);
    assert!(next.status.success() && next.stderr.is_empty(), "{next:?}");
    site.well(&["fsck"]);
}

fn every_signal_reaches_the_command(place: &Place) {
    let site = with_base(place);
    for options in [&[][..], &["--no-hold"]] {
        for signal in ["HUP", "INT", "USR1", "ALRM", "TERM", "URG", "WINCH", "PWR", "34", "64"] {
            let script = format!(
                "trap 'echo {signal}; exit 6' {signal}; echo ready; while :; do sleep 0.05; done"
            );
            let words = [&["run", "--from", "base"], options, &["--", "/bin/sh", "-c", &script]];
            let run = Started::new(&mut site.tree(&words.concat()));
            eventually("the command runs", || run.text() == "ready\n");
            let sent = place.bare(&["kill", &format!("-{signal}"), &run.pid().to_string()]);
            assert!(sent.status.success(), "{sent:?}");
            assert_eq!(run.end().code(), Some(6), "{options:?} {signal}: {}", run.text());
            assert_eq!(run.text(), format!("ready\n{signal}\n"), "{options:?}");
        }
    }
}

fn standard_input_and_output_are_the_commands(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let mut cat = site.tree(&["run", "clone", "--", "/bin/sh", "-c", "cat; echo told >&2"]);
    cat.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = cat.spawn().unwrap();
    let text = "all that comes\n".repeat(100_000);
    let mut stdin = child.stdin.take().unwrap();
    let sent = text.clone();
    let writer = std::thread::spawn(move || stdin.write_all(sent.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(output.stdout.len(), text.len());
    assert!(output.stdout == text.as_bytes());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "told\n");
    // The end of the reader ends the command, as without synconce.
    let script = format!(
        "\"$0\" tree --store '{}' run clone -- /bin/sh -c 'yes' | head -n 1",
        site.store().display()
    );
    let mut ended = place.command("bash");
    let ended = process::run(ended.args(["-c", &script, binary()]), limit()).unwrap();
    assert_eq!(ended.stdout, "y\n", "{ended:?}");
    // The command inherits no descriptor of synconce, but those of its caller.
    let list = ["/bin/busybox", "ls", "/proc/self/fd"];
    let bare = place.bare(&list);
    assert_eq!(site.run("clone", &list).stdout, bare.stdout);
    let held = format!(
        "exec 7</dev/null; \"$0\" tree --store '{}' run clone -- ls /proc/self/fd",
        site.store().display()
    );
    let held = process::run(place.command("bash").args(["-c", &held, binary()]), limit()).unwrap();
    assert!(held.stdout.lines().any(|line| line == "7"), "{held:?}");
}

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

fn no_process_is_left_by_a_run(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let alive = || {
        let script =
            "for exe in /proc/[0-9]*/exe; do readlink $exe; done; cat /proc/[0-9]*/cmdline";
        let running = place.sh(script).stdout;
        running.contains("bin/busybox") || running.contains("4321.5")
    };
    let left = "(setsid sleep 4321.5 </dev/null >/dev/null 2>&1 &) ; sleep 0.2; \
                (trap '' TERM HUP INT; sleep 4321.5 >/dev/null 2>&1) & sleep 0.2; echo done";
    let finished = site.run("clone", &["/bin/sh", "-c", left]);
    assert_eq!((finished.stdout.as_str(), finished.status.code()), ("done\n", Some(0)));
    eventually("the daemon has ended with the run", || !alive());
    // Nor after a command that was killed, nor after a run that was terminated.
    let finished = site.run("clone", &["/bin/sh", "-c", &format!("{left}; kill -9 $$")]);
    assert_eq!(finished.status.signal(), Some(libc::SIGKILL), "{finished:?}");
    eventually("the daemon has ended with the command", || !alive());
    let run = waiting(&site, &["clone"], "");
    kill_process(Pid::from_raw(run.pid().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert!(!run.end().success());
    eventually("everybody has ended", || !alive());
    assert_eq!(site.sh("clone", "echo again"), "again\n");
}

fn a_run_is_kept_or_discarded_by_its_option(place: &Place) {
    let site = with_base(place);
    let (wanted, before) = (site.content("base"), site.layers());
    let script = "echo new >/data/new; cat /data/new";
    for words in [
        &["run", "--from", "base", "--", "/bin/sh", "-c", script][..],
        &["run", "--from", "base", "--discard", "--", "/bin/sh", "-c", script],
    ] {
        assert_eq!(site.well(words).stdout, "new\n");
        assert_eq!(names(&site), set(&["base"]), "{words:?}");
    }
    site.keep("base", "new", &["/bin/sh", "-c", script]);
    assert_eq!(names(&site), set(&["base", "new"]));
    assert_eq!(site.sh("new", "cat /data/new"), "new\n");
    site.assert_unchanged("what was kept", "base", &before);
    same("the base", &wanted, &site.content("base"));
    // The tree of a failed command is not kept.
    let failed = site.ends(&["run", "--from", "base", "--commit", "bad", "--", "/bin/false"]);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert_eq!(names(&site), set(&["base", "new"]));
    let both = ["run", "--from", "base", "--commit", "x", "--discard", "--", "/bin/true"];
    assert!(!site.ends(&both).status.success());
    site.well(&["gc", "--wait"]);
    site.well(&["fsck"]);
}

fn a_run_that_was_killed_is_reported_once_and_undone(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    site.sh("clone", "echo before >/data/log");
    site.well(&["commit", "clone"]);
    let wanted = site.content("clone");
    let run = waiting(&site, &["clone"], "");
    run.signal(Signal::KILL).unwrap();
    run.end();
    eventually("no process is left", || {
        let busy = place.sh("for exe in /proc/[0-9]*/exe; do readlink $exe; done").stdout;
        !busy.contains("bin/busybox")
    });
    let next = site.ends(&["list"]);
    let second = site.ends(&["list"]);
    assert!(next.status.success() && second.status.success());
    let counts = [&next, &second].map(|list| list.stderr.matches("clone").count());
    assert_eq!((counts[0].min(1), counts[1]), (1, 0), "told once: {next:?} {second:?}");
    same("the clone of a run that was killed", &wanted, &site.content("clone"));
    assert_eq!(site.sh("clone", "cat /data/log"), "before\n");
    site.well(&["fsck"]);
    let left = fs::read_dir(site.store().join("sessions")).unwrap().count();
    assert_eq!(left, 0, "sessions that are over");
}

fn a_full_disk(place: &Place, kind: FsKind) {
    let source = roots::small(place, "source");
    let large = place.path("large");
    fs::create_dir(&large).unwrap();
    for number in 0..40 {
        fs::write(large.join(format!("{number}")), vec![number; 16 << 20]).unwrap();
    }
    let point = place.path("rig");
    fs::create_dir(&point).unwrap();
    let rig = Rig::builder().fs(kind).size(420 << 20).at(&point).up().unwrap();
    let site = Site::new(place, rig.path(), None);
    site.import("base", &source);
    let (wanted, before) = (site.content("base"), site.layers());
    let full = ["no space left"];
    site.refused(125, &["import", "large", large.to_str().unwrap()], &full);
    assert_eq!(names(&site), set(&["base"]));
    site.assert_unchanged("an import that failed", "base", &before);
    site.well(&["gc", "--wait"]);

    site.clone_of("base", "clone");
    let fill = "dd if=/dev/zero of=/data/large bs=1048576; echo \"ended $?\"; exit 5";
    let filled = site.run("clone", &["/bin/sh", "-c", fill]);
    // The command gets the error. Keeping its changes may fail, with a message.
    assert!(filled.stdout.contains("ended 1"), "{filled:?}");
    assert!(matches!(filled.status.code(), Some(5 | 125)), "{filled:?}");
    site.assert_unchanged("a run that filled the disk", "base", &before);
    // A full disk has room for what a removal writes.
    site.well(&["remove", "clone", "--wait"]);
    site.well(&["gc", "--wait"]);
    same("the base", &wanted, &site.content("base"));
    site.clone_of("base", "clone");
    assert_eq!(site.sh("clone", "echo x >/data/x; cat /data/x"), "x\n");
    site.well(&["fsck"]);
    drop(site);
    rig.down().unwrap();
}

fn a_full_disk_leaves_the_base_unchanged_and_gives_a_clear_error_on_ext4(place: &Place) {
    a_full_disk(place, FsKind::Ext4);
}

fn a_full_disk_leaves_the_base_unchanged_and_gives_a_clear_error_on_xfs(place: &Place) {
    a_full_disk(place, FsKind::Xfs);
}

fn a_full_disk_leaves_the_base_unchanged_and_gives_a_clear_error_on_btrfs(place: &Place) {
    a_full_disk(place, FsKind::Btrfs);
}
