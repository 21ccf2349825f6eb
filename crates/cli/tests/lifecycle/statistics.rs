//! `--stats`: why calls passed, what the run saved, and what it cost.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use synconce_testkit::harness::{
    Place, StartedCommand, binary, daemon, eventually, finish, isolated, perl, stall,
    without_stalls,
};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::Rig;

fn run(place: &Place, options: &[&str], script: &str) -> Finished {
    place.run(options, &perl(script))
}

fn json(stderr: &str) -> Value {
    let line = stderr.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|_| panic!("{stderr}"))
}

/// Mounts a FUSE file system at `fuse`.
fn bindfs(place: &Place) {
    for name in ["below", "fuse"] {
        fs::create_dir_all(place.path(name)).unwrap();
    }
    let bound = finish(place.command("bindfs").args(["below", "fuse"]));
    assert!(bound.status.success(), "{bound:?}");
}

/// Mounts a volatile overlay at `overlay`, as in a build step.
const OVERLAY: &str = "rm -rf m && mkdir -p l m/u m/w overlay && \
    mount -t overlay none -o lowerdir=l,upperdir=m/u,workdir=m/w,volatile overlay";

#[test]
fn each_passed_call_has_its_reason_within_80_columns() {
    isolated(|place| {
        bindfs(place);
        let script = format!(
            "system('{OVERLAY}') == 0 or die; mkdir 'except'; \
             sync_file($_) for qw(data overlay/a fuse/a fuse/b except/a); \
             sync_file('/dev/shm/synconce-statistics'); unlink('/dev/shm/synconce-statistics'); \
             pipe(my $out, my $in); $in->sync; system('umount', 'overlay');"
        );
        let ran = run(place, &["--stats", "--except", "except"], &script);
        assert!(ran.status.success(), "{ran:?}");
        for line in [
            "passed 1 fsync: in memory: a sync costs nothing",
            "passed 1 fsync: on a volatile overlay: a sync costs nothing",
            "passed 2 fsync: on a FUSE file system",
            "passed 1 fsync: a pipe, socket, device or closed descriptor",
            "passed 1 fsync: by --only or --except",
        ] {
            assert!(ran.stderr.lines().any(|other| other == line), "{line}: {}", ran.stderr);
        }
        let widest = ran.stderr.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{}", ran.stderr);
        let counted = json(&run(place, &["--json", "--except", "except"], &script).stderr);
        let reasons = serde_json::json!(
            {"memory": 1, "volatile": 1, "fuse": 2, "no-file": 1, "rule": 1});
        assert_eq!(counted["calls"]["fsync"]["reasons"], reasons, "{counted}");
    });
}

#[test]
fn calls_of_real_commands_other_types_and_unseen_callers_pass_with_their_reasons() {
    isolated(|place| {
        fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(place.path("other")).unwrap();
        // Another user's process cannot be examined without CAP_SYS_PTRACE. Only a tracer can take
        // the flag of an open away.
        let script = "mount -t bpf none other && sync other && umount other && \
            $SYNCONCE real -- dd if=/dev/zero of=real count=1 conv=fsync status=none && \
            exec setpriv --reuid 65534 --clear-groups \
            dd if=/dev/zero of=unseen count=1 oflag=dsync status=none";
        let script = script.replace("$SYNCONCE", binary());
        let ran = |option: &str| {
            let mut run = place.command("setpriv");
            run.args(["--bounding-set", "-sys_ptrace", binary(), "run", option, "--"]);
            let ran = finish(run.args(["sh", "-c", &script]));
            assert!(ran.status.success(), "{ran:?}");
            fs::remove_file(place.path("unseen")).unwrap();
            ran.stderr
        };
        let said = ran("--stats");
        for line in [
            "passed 1 fsync: on a file system of a type that is not held",
            "passed 1 fsync: real, by synconce real",
            "passed 1 openat: the caller could not be examined",
        ] {
            assert!(said.lines().any(|other| other == line), "{line}: {said}");
        }
        let counted = json(&ran("--json"));
        let reasons = serde_json::json!({"other-type": 1, "real": 1});
        assert_eq!(counted["calls"]["fsync"]["reasons"], reasons, "{counted}");
        let reasons = serde_json::json!({"unseen": 1});
        assert_eq!(counted["calls"]["openat"]["reasons"], reasons, "{counted}");
    });
}

#[test]
fn a_syncfs_whose_earlier_error_cannot_be_looked_up_is_not_said_to_have_one() {
    isolated(|place| {
        fs::create_dir(place.path("disk")).unwrap();
        let made = place.bare(&["mkfs.ext4", "-q", &place.text("image"), "20M"]);
        assert!(made.status.success(), "{made:?}");
        let script = "system('mount', '-o', 'loop', 'image', 'disk') == 0 or die; \
                      sync_file('disk/data'); system('sync', '-f', 'disk'); system('umount', 'disk');";
        let ran = run(place, &["--json"], script);
        assert!(ran.status.success(), "{ran:?}");
        let reasons = &json(&ran.stderr)["calls"]["syncfs"]["reasons"];
        assert_eq!(*reasons, serde_json::json!({"error-unknown": 1}), "{ran:?}");
    });
}

#[test]
fn a_sync_of_a_survivor_during_the_commit_passes_after_the_end() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
        let survivor = daemon("wait_for('go'); sync_file('data'); say_to('after', hold());");
        let held = rig.path().join("held");
        // A write can wait for a disk that is stalled.
        let script = format!(
            "sync_file('{}'); say_to('held', 1); wait_for('stalled'); {survivor}",
            held.display()
        );
        let words = perl(&script);
        let ran = StartedCommand::new(&mut place.held(&["--stats", "--json"], &words));
        place.wait_for("held");
        let lock = stall(&rig);
        place.write("stalled", "");
        eventually("the commit begins", || place.status(&[]).stdout.contains(" committing "));
        place.write("go", "");
        assert_eq!(place.wait_for("after"), "free\n");
        rig.disk().release_flushes().unwrap();
        drop(lock);
        assert!(ran.end().success(), "{}", ran.text());
        let counted = json(&ran.text());
        assert_eq!(counted["calls"]["fsync"]["reasons"]["after-end"], 1, "{counted}");
        rig.down().unwrap();
    });
}

#[test]
fn the_last_line_says_what_was_saved_by_the_markers_own_syncs_less_the_cost() {
    isolated(|place| {
        let _lock = without_stalls();
        // A sync of a whole file system waits once; a start of writes waits for nothing.
        let script = format!(
            "sync_file('data') for 1..1200; open(my $file, '<', 'data'); \
             syscall({}, fileno($file), 0, 0, 2); syscall({}, fileno($file));",
            libc::SYS_sync_file_range,
            libc::SYS_syncfs
        );
        let ran = run(place, &["--stats"], &script);
        let mut lines = ran.stderr.lines().rev();
        let (last, held) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        assert!(held.starts_with("held 1,201 syncs; one by one "), "{}", ran.stderr);
        assert!(held.ends_with(" each)") && held.len() <= 80, "{held}");
        assert!(last.starts_with("saved, less the cost: ") && last.len() <= 80, "{last}");
        let cost = ran.stderr.lines().find(|line| line.starts_with("cost: commit "));
        let cost = cost.unwrap_or_else(|| panic!("{}", ran.stderr));
        assert!(cost.contains(", marker ") && cost.contains(", supervisor "), "{cost}");
        let part = "1,201 of 1,202 held calls would have waited for a disk\n";
        assert!(ran.stderr.contains(part), "{}", ran.stderr);

        let counted = json(&run(place, &["--json"], &script).stderr);
        let number = |key: &str| counted[key].as_u64().unwrap_or_else(|| panic!("{counted}"));
        assert_eq!((number("syncs"), number("timed")), (1_201, 1_201));
        let shortest = counted["sync_micros"][0].as_u64().unwrap();
        let most = shortest * 1_201;
        assert!(number("supervisor_micros") > 0, "{counted}");
        let own = ["marker_micros", "checkpoint_micros", "supervisor_micros"].map(number);
        let cost = own.iter().sum::<u64>() + counted["commit"]["micros"].as_u64().unwrap();
        let saved = [most / 2, most].map(|end: u64| end.saturating_sub(cost));
        assert_eq!(counted["saved_micros"], serde_json::json!(saved), "{counted}");
    });
}

#[test]
fn the_cost_of_the_marker_has_all_syncs_of_the_supervisor() {
    isolated(|place| {
        let _lock = without_stalls();
        let rig = Rig::builder().size(64 << 20).up().unwrap();
        let words = perl(&format!("sync_file('{}');", rig.path().join("data").display()));
        let mut strace = place.command("strace");
        strace.args(["-f", "-T", "-o", "trace", "-e", "trace=fsync,fdatasync,execve"]);
        strace.args([binary(), "run", "--json", "--"]).args(words);
        let ran = finish(&mut strace);
        assert!(ran.status.success(), "{ran:?}");
        let trace = place.read("trace");
        let process = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        // The command's own syncs are held.
        let command: Vec<_> =
            trace.lines().filter(|line| line.contains("[\"perl\"")).map(process).collect();
        let took = |line: &str| line.rsplit_once('<')?.1.strip_suffix('>')?.parse::<f64>().ok();
        let syncs = trace.lines().filter(|line| !line.contains("execve"));
        let syncs = syncs.filter(|line| !command.contains(&process(line)));
        let took: Vec<_> = syncs.filter_map(took).filter(|time| *time > 0.0).collect();
        assert!(!command.is_empty() && took.len() >= 4, "{trace}");
        let cost = json(&ran.stderr)["marker_micros"].as_f64().unwrap();
        // The time of a call that strace prints is rounded to microseconds.
        let least = took.iter().sum::<f64>() * 1e6 - took.len() as f64;
        assert!(cost >= least, "{cost} < {least}: {trace}");
        rig.down().unwrap();
    });
}

#[test]
fn the_cost_has_the_commits_before_the_last() {
    isolated(|place| {
        let commits = "sync_file('data'); system('synconce', 'commit') == 0 or die;";
        for (script, is_any) in [(commits, true), ("sync_file('data');", false)] {
            let mut run = place.held(&["--json"], &perl(script));
            let search = Path::new(binary()).parent().unwrap().display().to_string();
            let ran = finish(run.env("PATH", search + ":/usr/bin:/bin"));
            assert!(ran.status.success(), "{ran:?}");
            let spent = json(&ran.stderr)["checkpoint_micros"].as_u64();
            assert_eq!(spent > Some(0), is_any, "{ran:?}");
        }
    });
}

#[test]
fn with_the_marker_in_memory_a_sync_has_no_known_time() {
    isolated(|place| {
        let state = place.path("memory");
        fs::create_dir_all(&state).unwrap();
        let mounted = finish(place.command("mount").args(["-t", "tmpfs", "none", "memory"]));
        assert!(mounted.status.success(), "{mounted:?}");
        let words = perl(&format!("syscall({});", libc::SYS_sync));
        let mut run = place.held(&["--stats"], &words);
        let ran = finish(run.env("SYNCONCE_STATE_DIR", &state));
        let last = ran.stderr.lines().last().unwrap_or_default();
        assert_eq!(last, "held 1 sync; what one costs there: synconce doctor .", "{ran:?}");
    });
}

#[test]
fn syncs_on_a_disk_without_a_marker_have_no_known_time() {
    isolated(|place| {
        let _lock = without_stalls();
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
        let file = rig.path().join("data");
        let script = format!("sync_file('{}') for 1..3;", file.display());
        let costs = "held 3 syncs; what one costs there: synconce doctor";
        let there = format!("{costs} {}", rig.path().display());
        for (options, before, wanted) in [
            (&["--stats"][..], "", there),
            (&["--stats", "--no-commit"], "", format!("{costs} .")),
            (&["--stats"], "sync_file('here');", "held 4 syncs; 1 of them is ".to_owned()),
        ] {
            let ran = run(place, options, &format!("{before} {script}"));
            assert!(ran.stderr.contains(&format!("\n{wanted}")), "{options:?} {}", ran.stderr);
        }
        let sealed = json(&run(place, &["--json", "--sealed"], &script).stderr);
        for key in ["syncs", "timed", "saved_micros"] {
            assert_eq!(sealed[key], Value::Null, "unknown: {sealed}");
        }
        let held = json(&run(place, &["--json"], &script).stderr);
        assert_eq!(held["calls"]["fsync"]["reasons"], serde_json::json!({}), "{held}");
        let costs = run(place, &["--stats", "--no-commit"], &script).stderr;
        assert!(costs.contains("\ncost: supervisor "), "nothing else costs: {costs}");
        let none = run(place, &["--stats"], "print 1;");
        assert!(!none.stderr.contains("held "), "nothing was saved: {}", none.stderr);
        rig.down().unwrap();
    });
}

#[test]
fn a_run_in_which_most_syncs_passed_says_so_once_without_stats() {
    isolated(|place| {
        bindfs(place);
        let ran = |options: &[&str], script: &str| run(place, options, script).stderr;
        let most = "sync_file('fuse/a') for 1..12; sync_file('data');";
        let said = ran(&[], most);
        let wanted = "synconce: 12 syncs on a FUSE file system were done, not held (held: 1)\n";
        // No hint: the working directory is on a disk, and a commit of a sealed run does not cover
        // FUSE.
        assert_eq!(said, wanted);
        let mut there =
            place.held(&[], &perl(&most.replace("fuse/", "").replace("'data'", "'../data'")));
        let said = finish(there.current_dir(place.path("fuse"))).stderr;
        let hint = "synconce: hint: work on a disk: cd \"$(mktemp -d -p /var/tmp)\"\n";
        assert_eq!(said, format!("{wanted}{hint}"));
        assert_eq!(ran(&["--quiet"], most), "");
        // Both numbers are those of `--stats`, also beside syncs in memory, which cost nothing.
        let memory = format!("sync_file('/dev/shm/synconce-most') for 1..30; {most}");
        let stats = ran(&["--stats"], &memory);
        assert!(stats.ends_with(wanted), "{stats}");
        assert!(stats.contains("\npassed 12 fsync: on a FUSE file system\n"), "{stats}");
        assert!(stats.contains("\npassed 30 fsync: in memory"), "{stats}");
        // Few syncs, most of them held, or syncs that cost nothing.
        assert_eq!(ran(&[], "sync_file('fuse/a') for 1..9;"), "");
        assert_eq!(ran(&[], "sync_file('fuse/a'), sync_file('data') for 1..12;"), "");
        assert_eq!(ran(&[], "sync_file('/dev/shm/synconce-most') for 1..30;"), "");
        fs::remove_file("/dev/shm/synconce-most").unwrap();
    });
}

#[test]
fn a_run_that_never_started_has_no_statistics() {
    isolated(|place| {
        let started = place.path("started");
        let words = ["touch", "started"];
        for options in [
            &["--stats", "--sealed", "--except", "x"][..],
            &["-v", "--commit-only", "/dev/shm"],
            &["-v", "--only", "["],
        ] {
            let refused = place.run(options, &words);
            assert_eq!(refused.status.code(), Some(125), "{options:?}: {refused:?}");
            let is_said = |line: &str| line.starts_with("synconce: ");
            assert!(refused.stderr.lines().all(is_said), "{options:?}: {}", refused.stderr);
        }
        let refused = place.run(&["--json", "--commit-only", "/proc"], &words);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        assert_eq!(json(&refused.stderr)["outcome"], "not-started", "{refused:?}");
        assert!(!started.exists());
    });
}

#[test]
fn writes_through_an_open_without_its_flag_are_said_not_to_be_counted() {
    isolated(|place| {
        let _lock = without_stalls();
        let dd = ["dd", "if=/dev/zero", "of=data", "oflag=dsync", "bs=512", "count=20"];
        let ran = place.run(&["--stats"], &dd);
        assert!(ran.status.success(), "{ran:?}");
        let line = "1 open without its O_SYNC: the syncs of its writes are not counted";
        assert_eq!(ran.stderr.lines().last(), Some(line), "{ran:?}");
        assert!(!ran.stderr.contains(" would have waited for a disk"), "{ran:?}");
    });
}
