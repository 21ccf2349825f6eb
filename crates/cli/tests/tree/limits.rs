//! Limits of a run: memory, processors, processes and time.

use crate::site::{Site, same};
use crate::verbs::{NEEDS, names, set, waiting, with_base};
use libtest_mimic::Trial;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use synconce_testkit::harness::{Need, Place, StartedCommand, eventually, finish, trial};
use synconce_testkit::process::Finished;

/// What limits of memory, processors and processes need.
const GROUPS: [Need; 2] = [NEEDS[0], Need::Controllers(&["memory", "cpu", "pids"])];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(what_takes_more_than_its_limits_is_ended_and_named, &GROUPS),
        trial(control_groups_are_gone_after_a_run_and_after_a_kill, &GROUPS),
        trial(a_control_group_that_stays_in_use_is_named, &GROUPS),
        trial(limits_that_cannot_be_had_are_refused_before_the_command, &NEEDS),
        trial(a_command_whose_time_is_over_is_ended_and_keeps_nothing, &NEEDS),
        trial(too_few_descriptors_say_that_the_limit_has_to_be_raised, &NEEDS),
        trial(too_few_descriptors_to_compare_directories_lose_no_changes, &NEEDS),
        trial(a_personality_is_that_of_a_32_bit_machine, &NEEDS),
    ]
}

/// Runs `script` in a clone of the base with `options`.
fn run(site: &Site<'_>, options: &[&str], script: &str) -> Finished {
    let words = ["--", "/bin/sh", "-c", script];
    site.ends(&[&["run", "--from", "base"], options, &words].concat())
}

/// Each number of descriptors ends the verb at another place.
fn too_few_descriptors_say_that_the_limit_has_to_be_raised(place: &Place) {
    let site = with_base(place);
    let mut failed = 0;
    for words in [
        &["list"][..],
        &["import", "other", place.path("source").to_str().unwrap()],
        &["clone", "base", "new"],
        &["run", "--from", "base", "/bin/true"],
        &["verify", "base"],
        &["export", "base", place.path("to").to_str().unwrap()],
        &["mount", "base", "--read-only", place.path("point").to_str().unwrap()],
    ] {
        let _ = fs::create_dir(place.path("point"));
        for count in 3..24 {
            let tree = site.tree(words);
            let mut limited = place.command("prlimit");
            limited.arg(format!("--nofile={count}")).arg(tree.get_program()).args(tree.get_args());
            let ended = finish(&mut limited);
            if ended.status.success() {
                break;
            }
            failed += 1;
            let hint = "raise the limit of open files (ulimit -n)\n";
            assert!(ended.stderr.contains("Too many open files\n"), "{words:?} {count}: {ended:?}");
            assert!(ended.stderr.ends_with(hint), "{words:?} {count}: {ended:?}");
            let _ = fs::remove_dir_all(place.path("to"));
        }
    }
    assert!(failed > 10, "{failed}");
}

/// To find whether a run has changed nothing, synconce opens the directories that the run made, and
/// mounts the layers below. Each number of directories takes the last descriptor at another place.
fn too_few_descriptors_to_compare_directories_lose_no_changes(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    site.sh("clone", "echo x >/data/x");
    site.well(&["commit", "clone"]);
    for made in (24..48).chain([60]) {
        let make = format!("cd /data; for i in $(seq {made}); do mkdir new-$i; done");
        let tree = site.tree(&["run", "clone", "--", "/bin/sh", "-ec", &make]);
        let mut limited = place.command("prlimit");
        limited.arg("--nofile=48").arg(tree.get_program()).args(tree.get_args());
        let ended = finish(&mut limited);
        assert!(ended.status.success(), "{made}: {ended:?}");
        let found = site.sh("clone", "ls -d /data/new-* | wc -l");
        assert_eq!(found.trim(), made.to_string());
        site.well(&["discard", "clone"]);
    }
}

fn what_takes_more_than_its_limits_is_ended_and_named(place: &Place) {
    let site = with_base(place);
    let take = |size: &str| format!("dd if=/dev/zero of=/dev/null bs={size} count=1 2>/dev/null");
    let memory = ["--memory", "32m"];
    let killed = run(&site, &memory, &take("200M"));
    assert!(!killed.status.success(), "{killed:?}");
    let said = "synconce: at the limit of memory the kernel killed 1 process\n";
    assert!(killed.stderr.contains(said), "{killed:?}");
    let within = run(&site, &memory, &take("4M"));
    assert_eq!((within.status.code(), &within.stderr[..]), (Some(0), ""), "{within:?}");
    let script = "for n in $(seq 30); do sleep 1000 & done; echo all";
    let many = run(&site, &["--pids-limit", "12"], script);
    let said = "synconce: at the limit of processes a fork failed ";
    assert!(!many.stdout.contains("all") && many.stderr.contains(said), "{many:?}");
    let script = "id=$(grep -o 'synconce-.*' /proc/self/cgroup); \
                  cat /sys/fs/cgroup/cpu*/*/$id/cpu.cfs_quota_us /sys/fs/cgroup/cpu*/$id/cpu.cfs_quota_us \
                  $(find /sys/fs/cgroup -path \"*/$id/cpu.max\") </dev/null 2>/dev/null";
    let quota = run(&site, &["--cpus", "1.5"], script).stdout;
    assert!(quota.starts_with("150000"), "{quota}");
    for (option, bad) in [
        ("--memory", "x"),
        ("--memory", "0"),
        ("--memory", "512"),
        ("--cpus", "0"),
        ("--pids-limit", "0"),
    ] {
        assert_eq!(run(&site, &[option, bad], "true").status.code(), Some(125), "{option} {bad}");
    }
}

fn control_groups_are_gone_after_a_run_and_after_a_kill(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    for kill in [false, true] {
        let options = ["clone", "--pids-limit", "50", "--cpus", "1", "--memory", "1g"];
        let run = waiting(&site, &options, "true");
        let groups = groups(&site);
        assert!(!groups.is_empty() && groups.iter().all(|group| group.exists()), "{groups:?}");
        if kill {
            run.signal(Signal::KILL).unwrap();
            run.end();
            eventually("the interrupted run is removed", || {
                site.well(&["list"]).stderr.contains("was interrupted")
            });
        } else {
            place.write("talk/go", "");
            assert!(run.end().success(), "{}", run.text());
        }
        assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
    }
}

fn a_control_group_that_stays_in_use_is_named(place: &Place) {
    let site = with_base(place);
    for kill in [false, true] {
        let run = waiting(&site, &["--from", "base", "--pids-limit", "50"], "true");
        let groups = groups(&site);
        // A process of the host, which does not end with the run.
        let other = StartedCommand::new(Command::new("sleep").arg("1000"));
        let moved = fs::write(groups[0].join("cgroup.procs"), other.pid().to_string());
        let (mut status, mut text) = (None, String::new());
        if kill {
            run.signal(Signal::KILL).unwrap();
            run.end();
            eventually("the interrupted run is removed", || {
                text = site.well(&["list"]).stderr;
                text.contains("was interrupted")
            });
        } else {
            place.write("talk/go", "");
            status = Some(run.end());
            text = run.text();
        }
        drop(other);
        let removed = fs::remove_dir(&groups[0]);
        moved.unwrap();
        removed.unwrap();
        let said = format!(
            "synconce: the control group {} is in use or cannot be removed\n",
            groups[0].display()
        );
        assert!(status.is_none_or(|status| status.success()), "{text}");
        assert_eq!(text.matches(&said).count(), 1, "{text}");
    }
}

/// Returns the control groups of the only run of the store.
fn groups(site: &Site<'_>) -> Vec<PathBuf> {
    let session = fs::read_dir(site.store().join("sessions")).unwrap().next().unwrap();
    let note = fs::read_to_string(session.unwrap().path().join("groups.json")).unwrap();
    serde_json::from_str(&note).unwrap()
}

fn limits_that_cannot_be_had_are_refused_before_the_command(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let wanted = site.content("clone");
    unmount("/sys/fs/cgroup", UnmountFlags::DETACH).unwrap();
    for (option, value, what) in [
        ("--memory", "1g", "cannot limit memory: no control group of this process"),
        ("--cpus", "1", "cannot limit cpu: "),
        ("--pids-limit", "50", "cannot limit pids: "),
    ] {
        let words = ["run", "clone", option, value, "--", "touch", "/data/new"];
        site.refused(125, &words, &[what]);
    }
    same("the clone", &wanted, &site.content("clone"));
}

fn a_command_whose_time_is_over_is_ended_and_keeps_nothing(place: &Place) {
    let site = with_base(place);
    site.clone_of("base", "clone");
    let wanted = site.content("clone");
    let ends = |options: &[&str], script: &str| {
        site.ends(&[&["run"], options, &["--", "/bin/sh", "-c", script]].concat())
    };
    let ended = ends(&["clone", "--timeout", "0.5"], "echo x >/data/x; sleep 1000");
    let said =
        "synconce: the command was ended after 0.5 s (--timeout); its changes are thrown away\n";
    assert_eq!((ended.status.code(), &ended.stderr[..]), (Some(124), said), "{ended:?}");
    same("the clone", &wanted, &site.content("clone"));
    // What the command makes of SIGTERM does not matter.
    let next = ["--from", "base", "--commit", "new", "--timeout", "0.5s"];
    let ended = ends(&next, "trap 'exit 0' TERM; while :; do sleep 0.05; done");
    assert_eq!(ended.status.code(), Some(124), "{ended:?}");
    let ignores = "trap '' TERM; while :; do sleep 0.05; done";
    let ended = ends(&["--from", "base", "--no-hold", "--timeout", "0.5"], ignores);
    let said = "synconce: the command was ended after 0.5 s (--timeout)\n";
    assert_eq!((ended.status.code(), &ended.stderr[..]), (Some(124), said), "{ended:?}");
    assert_eq!(names(&site), set(&["base", "clone"]));
    // In time, and with the signal of the command's own timer.
    assert_eq!(ends(&["clone", "--timeout", "1h"], "exit 3").status.code(), Some(3));
    let own = ends(&["clone", "--timeout", "1h"], "kill -ALRM $$; sleep 1000");
    assert!(own.stderr.contains("signal 14 ended the command"), "{own:?}");
    for bad in ["0", "-1", "x", "1w", "inf"] {
        let refused = ends(&["clone", &format!("--timeout={bad}")], "true");
        assert_eq!(refused.status.code(), Some(125), "{bad}: {refused:?}");
    }
}

fn a_personality_is_that_of_a_32_bit_machine(place: &Place) {
    let site = with_base(place);
    let machine = |options: &[&str]| run(&site, options, "busybox uname -m").stdout;
    let host = place.bare(&["uname", "-m"]).stdout;
    assert_eq!(machine(&[]), host);
    assert_eq!(machine(&["--personality", "linux"]), host);
    let narrow = match host.as_str() {
        "x86_64\n" => "i686\n",
        "aarch64\n" => "armv8l\n",
        other => panic!("no 32-bit machine of {other}"),
    };
    assert_eq!(machine(&["--personality", "linux32"]), narrow);
}
