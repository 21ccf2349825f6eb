//! Commits while a run goes on: what they make durable, for which processes they are made, and
//! what they leave to the commit at the end.

use super::other_users::{ALICE, BOB, machine, synconce};
use crate::commit::rig;
use rustix::process::Signal;
use std::fs;
use synconce_testkit::harness::{
    Place, StartedCommand, before_stall, binary, committed, daemon, eventually, finish, isolated,
    limit, perl, process_status, stall, without_fuse_notice,
};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Cut, FsKind, Rig, Survivors};

pub fn flushes(rig: &Rig) -> u64 {
    rig.disk().stats().unwrap().flushes
}

/// Starts `synconce run OPTIONS` with a perl script, and waits until it has said `before`.
fn start(place: &Place, options: &[&str], script: &str) -> StartedCommand {
    let mut command = place.held(options, &perl(script));
    let run = StartedCommand::new(command.env("SYNCONCE", binary()));
    place.wait_for("before");
    run
}

/// Starts a run that syncs a file on `rig` and then waits for `go`.
fn waiting(place: &Place, options: &[&str], rig: &Rig) -> StartedCommand {
    let data = rig.path().join("data");
    let script = format!("sync_file('{}'); say_to('before', 1); wait_for('go');", data.display());
    start(place, options, &script)
}

fn commit(place: &Place, arguments: &[&str]) -> Finished {
    finish(place.synconce(&["commit"]).args(arguments))
}

fn end(place: &Place, run: &StartedCommand) -> Option<i32> {
    place.write("go", "");
    let code = run.end().code();
    ["before", "go"].iter().for_each(|name| place.remove(name));
    code
}

#[test]
fn what_was_written_before_a_commit_survives_a_power_cut_and_the_run_stays_marked() {
    isolated(|place| {
        for kind in FsKind::ALL {
            for (options, by) in
                [(&[][..], "outside"), (&[][..], "inside"), (&["--sealed"], "inside")]
            {
                let rig = Rig::builder().fs(kind).size(384 << 20).record(true).up().unwrap();
                let disk = rig.path().display().to_string();
                // No sync of the first file is asked for.
                let script = format!(
                    "chdir '{disk}'; open(my $file, '>', 'unsynced') or die; print $file 'text'; \
                     close $file; sync_file('synced'); chdir '{}'; \
                     if ('{by}' eq 'inside') {{ chdir '{disk}'; system($ENV{{SYNCONCE}}, 'commit') \
                     and die; chdir '{}'; }} say_to('before', 1); wait_for('go');",
                    place.text("."),
                    place.text(".")
                );
                let run = start(place, options, &script);
                if by == "outside" {
                    let asked = commit(place, &[]);
                    assert_eq!((asked.status.code(), asked.stderr.as_str()), (Some(0), ""));
                }
                rig.disk().mark("committed").unwrap();
                assert_eq!(place.markers().len(), 1, "the run is in flight");
                assert_eq!(place.status(&[]).status.code(), Some(3));
                assert_eq!(end(place, &run), Some(0), "{}", run.text());
                assert!(place.markers().is_empty());
                let tape = rig.finish().unwrap();
                let at = tape.log().unwrap().mark("committed").unwrap();
                let replay = tape.replay().up().unwrap();
                for survivors in [Survivors::None, Survivors::All] {
                    let cut = replay.mounted(Cut::at(at).survivors(survivors)).unwrap();
                    let read = |name| fs::read_to_string(cut.path().join(name)).unwrap_or_default();
                    assert_eq!(
                        [read("unsynced"), read("synced")],
                        ["text", "data\n"],
                        "{kind} {by}"
                    );
                    cut.unmount().unwrap();
                }
                replay.down().unwrap();
            }
        }
    });
}

#[test]
fn calls_are_held_while_a_commit_goes_on_and_the_end_commits_them() {
    isolated(|place| {
        let rig = rig();
        let data = rig.path().join("data");
        let script = format!(
            "sync_file('{0}'); say_to('before', 1); wait_for('more'); \
             say_to('during', sync_file('{0}')); wait_for('go');",
            data.display()
        );
        let run = start(place, &["--stats", "--json"], &script);
        let stalled = stall(&rig);
        let asked = StartedCommand::new(&mut place.synconce(&["commit"]));
        rig.disk().wait_for_waiting_flush(limit()).unwrap();
        place.write("more", "");
        assert_eq!(place.wait_for("during"), "synced\n", "it does not wait for the disk");
        rig.disk().release_flushes().unwrap();
        drop(stalled);
        assert!(asked.end().success(), "{}", asked.text());
        let before = flushes(&rig);
        assert_eq!(end(place, &run), Some(0), "{}", run.text());
        assert!(flushes(&rig) > before, "what was held during the commit is committed");
        assert!(committed(&run.text()).contains(&(rig.path().to_owned(), true)));
        rig.down().unwrap();
    });
}

/// Whether the process `pid` has blocked `signal`.
fn has_blocked(pid: u32, signal: Signal) -> bool {
    let status = process_status(pid);
    let blocked = status.get("SigBlk").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    blocked.is_some_and(|mask| mask & (1 << (signal.as_raw() - 1)) != 0)
}

#[test]
fn a_commit_goes_on_when_the_process_that_waits_for_it_ends() {
    isolated(|place| {
        for by in [Signal::INT, Signal::KILL] {
            let rig = rig();
            let stalled = before_stall();
            let run = waiting(place, &[], &rig);
            rig.disk().stall_flushes().unwrap();
            let asked = StartedCommand::new(&mut place.synconce(&["commit"]));
            rig.disk().wait_for_waiting_flush(limit()).unwrap();
            // Before it waits for the signal it blocks the signal, and would die by it.
            eventually("it waits", || has_blocked(asked.pid(), Signal::INT));
            asked.signal(by).unwrap();
            let ended = asked.end();
            if by == Signal::INT {
                assert_eq!(ended.code(), Some(125), "{}", asked.text());
                assert!(asked.text().contains("synconce: not yet durable: "), "{}", asked.text());
            }
            let before = flushes(&rig);
            rig.disk().release_flushes().unwrap();
            drop(stalled);
            eventually("the commit writes the rest", || flushes(&rig) > before);
            assert!(commit(place, &[]).status.success());
            assert_eq!(end(place, &run), Some(0), "{}", run.text());
            rig.down().unwrap();
        }
    });
}

#[test]
fn a_file_system_can_be_unmounted_in_the_run_while_a_commit_syncs_it() {
    isolated(|place| {
        let rig = rig();
        let point = rig.path().display().to_string();
        let script = format!(
            "sync_file('{point}/data'); say_to('before', 1); wait_for('more'); \
             say_to('during', 1); say_to('code', system('umount', '{point}')); wait_for('go');"
        );
        let run = start(place, &[], &script);
        let stalled = stall(&rig);
        let asked = StartedCommand::new(&mut place.synconce(&["commit"]));
        rig.disk().wait_for_waiting_flush(limit()).unwrap();
        place.write("more", "");
        place.wait_for("during");
        rig.disk().release_flushes().unwrap();
        drop(stalled);
        assert_eq!(place.wait_for("code"), "0\n", "the unmount waits for the commit");
        assert!(asked.end().success(), "{}", asked.text());
        assert_eq!(end(place, &run), Some(0), "{}", run.text());
        rig.mount().unwrap();
        rig.down().unwrap();
    });
}

#[test]
fn a_run_commits_at_intervals_while_calls_are_held() {
    isolated(|place| {
        for options in [&["--commit-every", "1s"][..], &["--commit-every", "1s", "--sealed"]] {
            let rig = rig();
            let run = waiting(place, options, &rig);
            let before = flushes(&rig);
            eventually("a commit at an interval", || flushes(&rig) > before);
            assert_eq!(place.markers().len(), 1);
            assert_eq!(end(place, &run), Some(0), "{}", run.text());
            assert_eq!(without_fuse_notice(&run.text()), "");
            rig.down().unwrap();
        }
    });
}

#[test]
fn an_error_at_an_interval_is_a_notice_and_fails_the_run_at_its_end() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).passthrough(false).up().unwrap();
        let run = waiting(place, &["--commit-every", "1s"], &rig);
        rig.disk().fail_flushes(1_000_000).unwrap();
        let named = format!("synconce: not durable: {} (", rig.path().display());
        // The first commit may come before the disk fails, and then no call is held again.
        let data = rig.path().join("more");
        fs::write(&data, "more").unwrap();
        let asked = || commit(place, &[]).status.code() == Some(125);
        eventually("a commit fails", || run.text().contains(&named) || asked());
        rig.disk().fail_flushes(0).unwrap();
        assert_eq!(end(place, &run), Some(125), "{}", run.text());
        assert!(run.text().contains(&named), "{}", run.text());
    });
}

#[test]
fn a_commit_is_asked_for_from_every_namespace_and_root_of_a_supervised_run() {
    isolated(|place| {
        let synconce = binary();
        fs::create_dir(place.path("root")).unwrap();
        fs::copy(synconce, place.path("root/synconce")).unwrap();
        let own: [&[&str]; 5] = [
            &["env", "--unset=SYNCONCE_RUN", synconce, "commit"],
            &["unshare", "--net", synconce, "commit"],
            &["unshare", "--pid", "--fork", "--mount-proc", synconce, "commit"],
            &["env", "-i", "/usr/sbin/chroot", "root", "/synconce", "commit"],
            &["setpriv", "--reuid", "64122", "--clear-groups", synconce, "commit"],
        ];
        for (at, words) in own.iter().enumerate() {
            let rig = rig();
            let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            let script = format!(
                "sync_file('{}/data'); say_to('before', 1); wait_for('more'); \
                 say_to('code', system({})); wait_for('go');",
                rig.path().display(),
                words.join(", ")
            );
            for options in [&[][..], &["--sealed"]] {
                let run = start(place, options, &script);
                let before = flushes(&rig);
                place.write("more", "");
                // A sealed filter names a socket, which another network namespace hides.
                let is_reached = options.is_empty() || at != 1;
                let code = place.wait_for("code") != "0\n";
                assert_eq!(code, !is_reached, "{options:?} {words:?} {}", run.text());
                assert!(!is_reached || flushes(&rig) > before, "{options:?} {words:?}");
                ["more", "code"].iter().for_each(|name| place.remove(name));
                assert_eq!(end(place, &run), Some(0), "{}", run.text());
            }
            rig.down().unwrap();
        }
    });
}

#[test]
fn without_an_id_the_only_run_in_flight_is_committed() {
    isolated(|place| {
        let rig = rig();
        let refused = |arguments: &[&str], words: &str| {
            let asked = commit(place, arguments);
            assert_eq!(asked.status.code(), Some(125), "{asked:?}");
            assert!(asked.stderr.starts_with(&format!("synconce: {words}")), "{asked:?}");
            assert!(asked.stdout.is_empty());
            asked.stderr
        };
        refused(&[], "cannot commit: no run of yours is in flight");
        refused(&["20260101T000000Z-00000000"], "cannot commit 20260101T000000Z-00000000: no such");
        let one = waiting(place, &[], &rig);
        place.remove("before");
        let other = waiting(place, &[], &rig);
        let listed = refused(&[], "cannot choose a run");
        let files = place.run_files();
        let ids: Vec<_> =
            files.iter().map(|file| file.file_stem().unwrap().to_str().unwrap()).collect();
        // An abbreviated ID has to begin one of them only.
        refused(&[&ids[0][..4]], &format!("the ID {} is ambiguous: ", &ids[0][..4]));
        let typed = ["--", "synconce", "commit", &ids[0][..4]];
        let mut completed = place.synconce(&typed);
        completed.env("SYNCONCE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "2");
        let completed = finish(completed.env("_CLAP_IFS", "\n"));
        for id in &ids {
            assert!(completed.stdout.lines().any(|line| line == *id), "{completed:?}");
            assert!(listed.contains(&format!("{id} perl ")), "{listed}");
            let before = flushes(&rig);
            let asked = commit(place, &["--json", &id[..id.len() - 1]]);
            assert!(asked.status.success(), "{asked:?}");
            let report: serde_json::Value = serde_json::from_str(&asked.stdout).unwrap();
            assert!(report["file_systems"].as_array().is_some_and(|list| !list.is_empty()));
            assert!(flushes(&rig) > before);
        }
        place.write("go", "");
        assert!(one.end().success() && other.end().success());
        refused(&[ids[0]], "cannot commit ");
        let none = place.run(&["--no-commit"], &[binary(), "commit"]);
        assert_eq!(none.status.code(), Some(125));
        assert!(none.stderr.starts_with("synconce: cannot commit: the run makes no commit"));
        rig.down().unwrap();
    });
}

#[test]
fn a_process_that_outlives_its_run_gets_no_commit_of_it() {
    isolated(|place| {
        let then = format!(
            "wait_for('go'); my $said = `'{}' commit 2>&1`; say_to('after', $said . ($? >> 8));",
            binary()
        );
        for options in [&[][..], &["--sealed"]] {
            assert!(place.run(options, &perl(&daemon(&then))).status.success());
            place.write("go", "");
            let after = place.wait_for("after");
            assert!(after.starts_with("synconce: cannot ") && after.ends_with("125\n"), "{after}");
            ["go", "after"].iter().for_each(|name| place.remove(name));
        }
    });
}

#[test]
fn root_commits_the_run_of_any_user_and_a_user_no_run_of_another() {
    isolated(|place| {
        machine(place);
        let run = |user, name: &str| {
            let script = format!(
                "sync_file('data'); say_to('{name}', $ENV{{SYNCONCE_RUN}}); wait_for('go');"
            );
            let words = perl(&script);
            let mut command = synconce(place, user, &["run", "--"]);
            StartedCommand::new(command.args(words))
        };
        let (alice, roots) = (run(ALICE, "id"), run(0, "roots"));
        let id = |path: &str| place.wait_for(path).trim_end().to_owned();
        let ids = [id("alice/id"), id("bob/roots")];
        for (user, at, code) in
            [(ALICE, 0, 0), (0, 0, 0), (0, 1, 0), (BOB, 0, 125), (BOB, 1, 125), (ALICE, 1, 125)]
        {
            let asked = finish(&mut synconce(place, user, &["commit", &ids[at]]));
            assert_eq!(asked.status.code(), Some(code), "{user} {at}: {asked:?}");
            let refused = "only its user and root may do that\n";
            assert_eq!(asked.stderr.contains(refused), code != 0, "{asked:?}");
        }
        ["alice/go", "bob/go"].iter().for_each(|name| drop(place.write(name, "")));
        assert!(alice.end().success() && roots.end().success());
    });
}
