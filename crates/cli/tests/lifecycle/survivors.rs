//! Processes that outlive their run: the kernel does their syncs again.

use crate::changing::lend;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;
use synconce_sys::procfs::pids;
use synconce_testkit::harness::{
    AFTER_RELEASE, Place, StartedCommand, binary, children, daemon, eventually, exists, finish,
    isolated, kill, limit, perl, process_status, stall, without_foreign_syncs,
};
use synconce_testkit::rig::Rig;

/// Starts a run that leaves a daemon, and waits for the end of the run. The daemon writes to
/// `before` whether it was held, and then runs `then`.
fn leave_daemon(place: &Place, then: &str) {
    let script = daemon(&format!("say_to('before', hold() . ' ' . sync_file('data')); {then}"));
    let run =
        StartedCommand::new(&mut place.held(&[], &perl(&format!("{script} wait_for('before');"))));
    assert!(run.end().success(), "{}", run.text());
    let said = run.text();
    let [name, hint] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    let rest = ") outlives the run: its syncs are real from now on";
    assert!(name.starts_with("synconce: perl (pid ") && name.ends_with(rest), "{said}");
    assert!(hint.starts_with("synconce: hint: stop it in the command; "), "{said}");
    assert_eq!(place.read("before"), "held synced\n");
}

#[test]
fn a_daemon_that_outlives_the_run_gets_real_syncs_again() {
    isolated(|place| {
        let barrier = without_foreign_syncs();
        // The kernel's own timer must not flush in between.
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
        let flushes = || rig.disk().stats().unwrap().flushes;
        let file = rig.path().join("data");
        let sync = format!("hold() . ' ' . sync_file('{}')", file.display());
        let script =
            daemon(&format!("say_to('before', {sync}); wait_for('go'); say_to('after', {sync});"));
        let start = flushes();
        let run = StartedCommand::new(
            &mut place.held(&[], &perl(&format!("{script} wait_for('stop');"))),
        );
        assert_eq!(place.wait_for("before"), "held synced\n");
        assert_eq!(flushes() - start, 0, "a held sync does not reach the disk");
        drop(barrier);

        place.write("stop", "");
        assert!(run.end().success(), "{}", run.text());
        let committed = flushes();
        assert!(committed > start, "the commit reaches the disk");

        place.write("go", "");
        assert_eq!(place.wait_for("after"), "free synced\n");
        assert!(flushes() > committed, "a real sync reaches the disk");
        eventually("the supervisor ends with its survivor", || place.run_files().is_empty());
        rig.down().unwrap();
    });
}

/// Runs `script`, a perl script that writes the pids of its survivors to `pids`, ends those, and
/// returns what the run said.
fn said_of_survivors(place: &Place, options: &[&str], script: &str) -> String {
    let words = perl(&format!(
        "sub survive {{ open(my $pids, '>>', 'pids'); print $pids \"$$\\n\"; close $pids; \
         say_to($_[0], 1); sleep 1 while 1 }} {script}"
    ));
    let run = place.run(options, &words);
    assert!(run.status.success(), "{run:?}");
    for pid in place.read("pids").lines() {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }
    eventually("all is over", || place.run_files().is_empty());
    place.remove("pids");
    run.stderr
}

#[test]
fn only_a_survivor_whose_syncs_were_held_is_named() {
    isolated(|place| {
        let said = |script: &str| said_of_survivors(place, &[], script);
        // An agent, or a reader of the command's output, never syncs. The command syncs.
        let agent = daemon("survive('agent')");
        let run = said(&format!("{agent} wait_for('agent'); sync_file('data');"));
        assert_eq!(run, "");
        // In a database server a child syncs, and then runs on.
        let child = "if (!fork) { sync_file('data'); survive('child') } wait_for('child')";
        let server = daemon(&format!("{child}; survive('server')"));
        let run = said(&format!("{server} wait_for('server');"));
        assert_eq!(run.matches("perl (pid ").count(), 1, "the child is not named: {run}");
        assert!(run.contains(") outlives the run: its syncs are real from now on\n"), "{run}");
    });
}

/// `pg_ctl stop` returns a moment before the server has ended.
#[test]
fn a_process_that_ends_a_moment_after_the_command_is_not_named() {
    isolated(|place| {
        let waits = "sync_file('data'); say_to('ready', 1); \
                     select(undef, undef, undef, 0.001) while kill(0, $command); \
                     select(undef, undef, undef, 0.01)";
        let ends = format!("my $command = $$; {} wait_for('ready');", daemon(waits));
        let run = place.run(&["--no-commit"], &perl(&ends));
        assert!(run.status.success() && run.stderr.is_empty(), "{run:?}");
    });
}

#[test]
fn many_survivors_are_counted_and_a_quiet_or_sealed_run_does_not_name_them() {
    isolated(|place| {
        let said = |options: &[&str], count: usize| {
            let started = |at| daemon(&format!("sync_file('data'); survive('started{at}')"));
            let script: String = (0..count)
                .map(|at| format!("{} wait_for('started{at}'); unlink 'started{at}';", started(at)))
                .collect();
            said_of_survivors(place, options, &script)
        };
        assert_eq!(said(&["--quiet"], 1), "");
        let many = said(&[], 5);
        assert_eq!(many.matches("perl (pid ").count(), 3, "{many}");
        let rest = " and 2 more outlive the run: their syncs are real from now on\n";
        assert!(many.contains(rest), "{many}");
        // A sealed hold stays, so nothing is real.
        let sealed = said(&["--sealed"], 1);
        assert!(sealed.contains("their syncs stay held: "), "{sealed}");
        assert!(!sealed.contains("outlive"), "{sealed}");
    });
}

#[test]
fn status_names_a_survivor_and_finds_nothing_wrong() {
    isolated(|place| {
        leave_daemon(place, AFTER_RELEASE);
        let status = place.status(&[]);
        assert!(status.status.success(), "{status:?}");
        assert!(status.stdout.contains(" serving perl "), "{status:?}");
        assert!(status.stdout.contains("real syncs again for: perl (pid "), "{status:?}");
        let json = place.status(&["--json"]).stdout;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let survivor = &json[0]["survivors"][0];
        assert!(survivor["pid"].is_u64() && survivor["name"] == "perl", "{json}");
        place.write("go", "");
        assert_eq!(place.wait_for("after"), "free synced\n");
        eventually("the run file goes", || place.run_files().is_empty());
        assert_eq!(place.status(&[]).stdout, "");
        assert!(place.markers().is_empty());
    });
}

#[test]
fn a_run_is_never_seen_unfinished_once_its_command_line_returned() {
    isolated(|place| {
        for round in 0..30 {
            let survivor = round % 2 == 0;
            let script = if survivor { "sync data; sleep 0.05 &" } else { "sync data" };
            place.write("data", "x");
            let words = ["sh", "-c", &format!("({script}) >/dev/null 2>&1 </dev/null")];
            assert!(place.run(&[], &words).status.success());
            let status = place.status(&[]);
            assert!(status.status.success(), "{round}: {status:?}");
            assert!(survivor || status.stdout.is_empty(), "{status:?}");
        }
    });
}

#[test]
fn the_supervisor_is_small_and_ends_with_the_last_survivor() {
    isolated(|place| {
        leave_daemon(place, AFTER_RELEASE);
        let supervisor = place.supervisor();
        let rollup = std::fs::read_to_string(format!("/proc/{supervisor}/smaps_rollup")).unwrap();
        let line = rollup.lines().find(|line| line.starts_with("Pss:")).expect("a Pss line");
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        println!("a supervisor that stays takes {kib} KiB (Pss)");
        // A build without optimisation is three times as large.
        assert!(kib < 8192, "{rollup}");
        // One thread serves and one reaps; the others end with the run.
        eventually("two threads are left", || process_status(supervisor)["Threads"] == "2");

        place.write("go", "");
        place.wait_for("after");
        eventually("the supervisor ends", || !exists(supervisor));
    });
}

#[test]
fn the_supervisor_keeps_nothing_open_that_it_inherited() {
    isolated(|place| {
        place.write("seven", "x");
        let words = perl(&daemon(AFTER_RELEASE));
        let mut around = place.command("bash");
        around.args(["-c", "exec 7<seven; \"$@\"", "bash", binary(), "run", "--"]).args(&words);
        assert!(finish(&mut around).status.success());
        let supervisor = place.supervisor();
        let ours = |link: &String| {
            link == "/dev/null"
                || link.starts_with("anon_inode:")
                || link.starts_with(&place.text("runtime"))
        };
        // The supervisor closes its connection to the frontend just after the frontend ends.
        eventually("only what is needed is open", || links(supervisor).iter().all(ours));
        let cwd = std::fs::read_link(format!("/proc/{supervisor}/cwd")).unwrap();
        assert_eq!(cwd.to_str(), Some("/"));
        place.write("go", "");
        place.wait_for("after");
    });
}

#[test]
fn a_killer_by_a_variable_spares_the_supervisor_of_a_daemon_without_it() {
    isolated(|place| {
        let words =
            [&["env", "-u", "COOKIE"].map(str::to_owned)[..], &perl(&daemon(AFTER_RELEASE))];
        let words = words.concat();
        let mut job = place.held(&[], &words);
        assert!(finish(job.env("COOKIE", "of this job")).status.success());
        let has_cookie = |process: &u32| {
            let variables = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            variables.split(|byte| *byte == 0).any(|variable| variable == b"COOKIE=of this job")
        };
        let supervisor = place.supervisor();
        assert!(!has_cookie(&supervisor));
        for process in pids().filter(has_cookie) {
            kill(process, Signal::KILL);
        }
        place.write("go", "");
        place.wait_for("after");
    });
}

#[test]
fn every_one_of_many_survivors_gets_real_syncs() {
    isolated(|place| {
        let mut script = String::new();
        for number in 0..40 {
            let then = format!(
                "wait_for('go'); say_to('after{number}', hold() . ' ' . sync_file('data{number}'));"
            );
            script += &daemon(&then);
        }
        let run = place.run(&[], &perl(&(script + "sync_file('data');")));
        assert!(run.status.success(), "{run:?}");
        assert_eq!(place.status(&[]).stdout.matches("perl (pid ").count(), 40);
        place.write("go", "");
        for number in 0..40 {
            assert_eq!(place.wait_for(&format!("after{number}")), "free synced\n");
        }
        eventually("the supervisor ends", || place.run_files().is_empty());
    });
}

#[test]
fn children_of_survivors_are_served_too() {
    isolated(|place| {
        // The daemon ends at once; its grandchild, which it forks after the run, goes on.
        let then = "wait_for('go'); exit if fork; exit if fork; wait_for('further'); \
                    say_to('after', hold() . ' ' . sync_file('data'));";
        leave_daemon(place, then);
        let supervisor = place.supervisor();
        place.write("go", "");
        eventually("the grandchild is the supervisor's", || children(supervisor).len() == 1);
        assert!(exists(supervisor));
        place.write("further", "");
        assert_eq!(place.wait_for("after"), "free synced\n");
        eventually("the supervisor ends", || !exists(supervisor));
    });
}

#[test]
fn a_survivor_does_not_keep_a_pipeline_from_ending() {
    isolated(|place| {
        let synconce = binary();
        let [perl, dash_e, script] = perl(&format!("print \"done\\n\"; {}", daemon(AFTER_RELEASE)));
        let line =
            format!("{synconce} run -- {perl} {dash_e} \"$1\" | cat; echo ${{PIPESTATUS[0]}}");
        let finished = place.bare(&["bash", "-c", &line, "bash", &script]);
        assert_eq!(finished.stdout, "done\n0\n");
        assert_eq!(place.run_files().len(), 1, "the daemon is there");
        place.write("go", "");
        assert_eq!(place.wait_for("after"), "free synced\n");
    });
}

#[test]
fn a_daemon_is_free_before_the_commit_is_done() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).up().unwrap();
        let script = format!(
            "{} sync_file('data'); sync_file('{}'); say_to('held', 'yes'); wait_for('stalled');",
            daemon(AFTER_RELEASE),
            rig.path().join("data").display()
        );
        let run = StartedCommand::new(&mut place.held(&[], &perl(&script)));
        place.wait_for("held");
        let _stalled = stall(&rig);
        place.write("stalled", "");
        rig.disk().wait_for_waiting_flush(limit()).unwrap();
        place.write("go", "");
        assert_eq!(place.wait_for("after"), "free synced\n");
        let status = place.status(&[]);
        assert_eq!(status.status.code(), Some(3), "{status:?}");
        assert!(status.stdout.contains(" committing "), "{status:?}");
        assert_eq!(run.wait(Duration::ZERO).unwrap(), None, "the run waits for its commit");
        rig.disk().release_flushes().unwrap();
        assert!(run.end().success(), "{}", run.text());
        rig.down().unwrap();
    });
}

/// Returns the targets of the descriptors of `pid`.
fn links(pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let links: Vec<_> = links.map(|link| link.display().to_string()).collect();
    assert!(!links.is_empty());
    links
}

#[test]
fn a_process_with_a_descriptor_that_lost_its_sync_flag_is_named_even_during_a_stalled_commit() {
    isolated(|place| {
        let named = |run: &StartedCommand| {
            let name = format!("perl (pid {})", place.read("before").trim());
            run.text().matches(&name).count()
        };
        let keeper = daemon(&format!(
            "use Fcntl; sysopen(my $kept, 'kept', O_WRONLY | O_CREAT | O_SYNC) or die; \
             say_to('before', $$); {AFTER_RELEASE}"
        ));
        for (options, stalls) in
            [(&[][..], true), (&["--sealed"], true), (&[], false), (&["--sealed"], false)]
        {
            let rig = Rig::builder().size(64 << 20).up().unwrap();
            let file = rig.path().join("data");
            let words = perl(&format!(
                "{keeper} wait_for('before'); sync_file('{}'); say_to('held', 'yes'); \
                 wait_for('stalled');",
                file.display()
            ));
            let run = StartedCommand::new(&mut place.held(options, &words));
            place.wait_for("held");
            let _stalled = stalls.then(|| stall(&rig));
            place.write("stalled", "");
            if stalls {
                rig.disk().wait_for_waiting_flush(limit()).unwrap();
                // Repeated: the signal may arrive before the frontend has seen the end of the
                // command.
                eventually("the wait is given up", || {
                    let frontend = Pid::from_raw(run.pid().cast_signed()).unwrap();
                    let _ = kill_process(frontend, Signal::INT);
                    run.wait(Duration::from_millis(20)).unwrap().is_some()
                });
                assert!(run.text().contains("not yet durable: "), "{}", run.text());
            }
            assert_eq!(run.end().code(), Some(if stalls { 125 } else { 0 }), "{}", run.text());
            assert_eq!(named(&run), 1, "{options:?}: {}", run.text());
            rig.disk().release_flushes().unwrap();
            place.write("go", "");
            place.wait_for("after");
            eventually("all is over", || place.run_files().is_empty());
            let written = ["before", "go", "after", "held", "stalled"];
            written.iter().for_each(|name| place.remove(name));
            rig.down().unwrap();
        }
    });
}

#[test]
fn a_survivor_that_is_still_in_an_open_whose_o_sync_was_taken_away_is_named() {
    isolated(|place| {
        let holder = lend(place);
        let opener = daemon(
            "use Fcntl; say_to('before', $$); sysopen(my $file, 'leased', O_WRONLY | O_SYNC) \
             or die; say_to('opened', 1); wait_for('go');",
        );
        let run = place.run(&["--stats", "--json"], &perl(&format!("{opener} wait_for('asked');")));
        assert!(run.status.success(), "{run:?}");
        let name = format!("perl (pid {})", place.read("before").trim());
        assert_eq!(run.stderr.matches(&name).count(), 1, "{run:?}");
        assert!(run.stderr.contains("without its sync flag"), "{run:?}");
        assert!(
            run.stderr
                .contains(r#""openat":{"held":1,"passed":0,"refused":0,"unseen":0,"reasons":{}}"#),
            "{run:?}"
        );
        place.write("release", "");
        place.wait_for("opened");
        place.write("go", "");
        assert!(holder.end().success(), "{}", holder.text());
        eventually("all is over", || place.run_files().is_empty());
    });
}
