//! What a commit before the end of a run reaches, and what it answers when it cannot be made.
//!
//! The oracle of most tests is the image of a loop-mounted disk, right after `synconce commit`
//! has returned 0 (see `coverage`).

use super::coverage::{SAY, disk};
use super::other_users::{ALICE, BOB, interrupt, machine, synconce};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{
    Place, StartedCommand, binary, eventually, finish, isolated, limit, perl, stall,
};
use synconce_testkit::process::Finished;
use synconce_testkit::rig::{Cut, Rig, Survivors};

/// Commits, and then fails unless the magic text is in the image of the disk `m`.
fn commit_of_m(place: &Place, commit: &str) -> String {
    format!("{commit} || exit 9; grep -aq MAGIC-01 '{}'", place.text("m.img"))
}

fn inside() -> String {
    format!("'{}' commit", binary())
}

/// Runs `synconce run -- sh -c SCRIPT` by `command`, from the directory `directory`.
fn held(place: &Place, mut command: Command, directory: &str, script: &str) -> Finished {
    command.current_dir(place.path(directory));
    finish(command.args(["--", "sh", "-c", &format!("{SAY} {script}")]))
}

fn run(place: &Place) -> Command {
    place.synconce(&["run"])
}

/// Returns the command `WORDS synconce run` as a user with a state directory.
fn as_user(place: &Place, words: &[&str]) -> Command {
    let mut command = place.command("setpriv");
    let made = "[ -d us ] || mkdir -m 777 us";
    assert!(finish(place.command("sh").args(["-c", made])).status.success());
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(words);
    command.args([binary(), "run"]).env("SYNCONCE_STATE_DIR", place.path("us"));
    command
}

fn prepare(place: &Place, script: &str) {
    let made = finish(place.command("sh").args(["-c", script]));
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn the_working_directory_is_committed_although_no_call_is_held() {
    isolated(|place| {
        let real = format!("'{}' real -- {}", binary(), inside());
        let mut foreign_proc = place.command("unshare");
        foreign_proc.args(["--pid", "--fork", binary(), "run"]);
        for (at, (command, commit)) in
            [(run(place), real), (foreign_proc, inside()), (run(place), inside())]
                .into_iter()
                .enumerate()
        {
            disk(place, "m");
            let script = format!("cd m; say >f; {}", commit_of_m(place, &commit));
            let ended = held(place, command, ".", &script);
            assert_eq!(ended.status.code(), Some(0), "{at}: {ended:?}");
            prepare(place, "umount m && rmdir m && rm m.img");
        }
    });
}

#[test]
fn a_working_directory_that_is_not_readable_is_committed_by_its_mount_point() {
    isolated(|place| {
        disk(place, "m");
        prepare(place, "mkdir -p m/x/own && chown 65534 m/x/own && chmod 711 m/x");
        let script = format!("cd m/x; say >own/f; {}", commit_of_m(place, &inside()));
        let ended = held(place, as_user(place, &[]), ".", &script);
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        // Nothing of the disk is readable.
        prepare(place, "chmod 711 m");
        let script = format!("cd m/x; {}; exit $?", inside());
        let refused = held(place, as_user(place, &[]), ".", &script);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        let named = format!("synconce: cannot open {}: Permission denied\n", place.text("m"));
        assert!(refused.stderr.contains(&named), "{refused:?}");
    });
}

#[test]
fn a_working_directory_that_no_commit_covers_is_refused_unless_it_is_in_memory() {
    isolated(|place| {
        prepare(place, "mkdir below fuse memory && mount -t tmpfs none memory");
        prepare(place, "bindfs below fuse");
        for (directory, code) in [("fuse", 125), ("memory", 0), ("/proc", 0)] {
            let ended = held(place, run(place), ".", &format!("cd {directory}; {}", inside()));
            assert_eq!(ended.status.code(), Some(code), "{ended:?}");
            let named = format!("synconce: cannot commit {}: it is on no", place.text("fuse"));
            assert_eq!(ended.stderr.contains(&named), code != 0, "{ended:?}");
        }
        prepare(place, "umount fuse");
    });
}

#[test]
fn the_commit_at_the_end_covers_the_working_directory_of_an_earlier_one() {
    isolated(|place| {
        disk(place, "m");
        let script = format!("cd m; {} || exit 9; say >f", inside());
        let ended = held(place, run(place), ".", &script);
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        let image = fs::read(place.path("m.img")).unwrap();
        assert!(image.windows(8).any(|window| window == b"MAGIC-01"), "{ended:?}");
    });
}

#[test]
fn a_home_and_a_temporary_directory_behind_links_are_committed() {
    isolated(|place| {
        for (variable, target) in [("HOME", "m/home"), ("TMPDIR", "../m/home/../home")] {
            disk(place, "m");
            fs::create_dir_all(place.path("m/home")).unwrap();
            fs::create_dir_all(place.path("links")).unwrap();
            let target = if variable == "HOME" {
                place.path(target)
            } else {
                std::path::PathBuf::from(target)
            };
            symlink(target, place.path("links/to")).unwrap();
            let mut command = run(place);
            command.env(variable, place.path("links/to"));
            let script = format!("say >m/home/f; {}", commit_of_m(place, &inside()));
            let ended = held(place, command, ".", &script);
            assert_eq!(ended.status.code(), Some(0), "{variable}: {ended:?}");
            prepare(place, "umount m && rmdir m && rm m.img links/to");
        }
    });
}

#[test]
fn an_unmount_that_fails_takes_the_first_working_directory_from_no_commit() {
    isolated(|place| {
        disk(place, "m");
        let script = format!(
            "say >f; umount '{}' 2>/dev/null && exit 8; cd /; {}",
            place.text("m"),
            commit_of_m(place, &inside())
        );
        let ended = held(place, run(place), "m", &script);
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    });
}

/// Whether a thread of the supervisor waits for something that a checkpoint needs.
fn checkpoint_waits(supervisor: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{supervisor}/task")).into_iter().flatten().flatten();
    let read =
        |task: &fs::DirEntry, name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
    let futex = format!("{} ", libc::SYS_futex);
    tasks.into_iter().any(|task| {
        read(&task, "comm") == "checkpoint\n" && read(&task, "syscall").starts_with(&futex)
    })
}

#[test]
fn a_commit_during_an_unmount_that_fails_covers_what_was_written_meanwhile() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").record(true);
        let rig = rig.up().unwrap();
        let point = rig.path().display();
        let script = format!(
            "sync_file('{point}/data'); open(my $busy, '<', '{point}/data') or die; \
             say_to('before', 1); wait_for('go'); \
             if (!fork) {{ open(STDERR, '>', '/dev/null'); exec 'umount', '{point}' }} \
             wait_for('waits'); open(my $file, '>', '{point}/unsynced') or die; \
             print $file 'text'; close $file; say_to('written', 1); wait; \
             say_to('code', $? >> 8); wait_for('end');"
        );
        let run =
            StartedCommand::new(&mut place.held(&[], &perl(&script).each_ref().map(|it| &**it)));
        place.wait_for("before");
        let stalled = stall(&rig);
        place.write("go", "");
        rig.disk().wait_for_waiting_flush(limit()).unwrap();
        place.write("waits", "");
        place.wait_for("written");
        let supervisor = place.supervisor();
        let asked = StartedCommand::new(&mut place.synconce(&["commit"]));
        eventually("the commit waits", || checkpoint_waits(supervisor));
        rig.disk().release_flushes().unwrap();
        drop(stalled);
        assert!(asked.end().success(), "{}", asked.text());
        rig.disk().mark("committed").unwrap();
        assert_ne!(place.wait_for("code"), "0\n", "the file system is busy");
        place.write("end", "");
        assert_eq!(run.end().code(), Some(0), "{}", run.text());
        let tape = rig.finish().unwrap();
        let at = tape.log().unwrap().mark("committed").unwrap();
        let replay = tape.replay().up().unwrap();
        let cut = replay.mounted(Cut::at(at).survivors(Survivors::None)).unwrap();
        let found = fs::read_to_string(cut.path().join("unsynced")).unwrap_or_default();
        assert_eq!(found, "text");
        cut.unmount().unwrap();
        replay.down().unwrap();
    });
}

#[test]
fn root_commits_a_run_in_a_user_namespace_and_is_refused_where_it_is_not_seen_as_root() {
    isolated(|place| {
        machine(place);
        let words = perl("sync_file('data'); say_to('id', $ENV{SYNCONCE_RUN}); wait_for('go');");
        let alice = ALICE.to_string();
        let mut command = place.command("setpriv");
        command.args(["--reuid", &alice, "--regid", &alice, "--clear-groups"]);
        command.args(["unshare", "--user", "--map-root-user", "--mount", binary(), "run", "--"]);
        command.args(words).current_dir(place.path("alice")).env("HOME", place.path("alice"));
        command.env("SYNCONCE_STATE_DIR", place.path("alice/state"));
        let run = StartedCommand::new(&mut command);
        let id = place.wait_for("alice/id").trim_end().to_owned();
        let asked = finish(&mut synconce(place, 0, &["commit", &id]));
        assert_eq!((asked.status.code(), asked.stderr.as_str()), (Some(0), ""));
        let mut weak = place.command("setpriv");
        weak.args(["--bounding-set", "-setuid", binary(), "commit", &id]);
        let refused = finish(&mut weak);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        let words = "synconce: cannot commit: only the user of the run and root may do that\n";
        assert!(refused.stderr.starts_with(words), "{refused:?}");
        place.write("alice/go", "");
        assert!(run.end().success(), "{}", run.text());
    });
}

#[test]
fn a_run_of_another_network_namespace_is_said_to_be_there() {
    isolated(|place| {
        let words = perl("sync_file('data'); say_to('id', $ENV{SYNCONCE_RUN}); wait_for('go');");
        let mut command = place.command("unshare");
        command.args(["--net", binary(), "run", "--"]).args(words);
        let run = StartedCommand::new(&mut command);
        let id = place.wait_for("id").trim_end().to_owned();
        assert!(place.status(&[]).stdout.starts_with(&format!("{id} in-flight")));
        for words in [&["commit", &id][..], &["commit"]] {
            let asked = finish(&mut place.synconce(words));
            assert_eq!(asked.status.code(), Some(125), "{asked:?}");
            let said = format!(
                "synconce: cannot commit {id}: it was started in another network namespace, as of \
                 a container\nsynconce: hint: in that namespace: synconce commit {id}\n"
            );
            assert_eq!(asked.stderr, said);
        }
        let inside = ["--net", "--target", &run.pid().to_string(), binary(), "commit", &id];
        let asked = finish(place.command("nsenter").args(inside));
        assert_eq!((asked.status.code(), asked.stderr.as_str()), (Some(0), ""));
        place.write("go", "");
        assert!(run.end().success(), "{}", run.text());
    });
}

#[test]
fn a_run_that_makes_its_own_commit_says_so() {
    isolated(|place| {
        let over = "the command of the run has ended\nsynconce: hint: the run makes its own commit \
                    now; `synconce status` shows it\n";
        // Without a run file, no file says that the command has ended.
        let closed = "its supervisor accepts no requests\nsynconce: hint: the run commits at its \
                      end; `synconce status` shows it\n";
        for (runtime, said) in [(place.path("runtime"), over), ("/proc/none".into(), closed)] {
            let with = |mut command: Command| {
                command.env("SYNCONCE_RUNTIME_DIR", &runtime);
                command
            };
            let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
            let script = format!(
                "sync_file('{}/data'); say_to('id', $ENV{{SYNCONCE_RUN}}); wait_for('go');",
                rig.path().display()
            );
            let run = StartedCommand::new(&mut with(place.held(&[], &perl(&script))));
            let id = place.wait_for("id").trim_end().to_owned();
            let stalled = stall(&rig);
            place.write("go", "");
            rig.disk().wait_for_waiting_flush(limit()).unwrap();
            for words in [&["commit", &id][..], &["commit"]] {
                let asked = finish(&mut with(place.synconce(words)));
                assert_eq!(asked.status.code(), Some(125), "{asked:?}");
                assert!(asked.stderr.starts_with("synconce: cannot commit"), "{asked:?}");
                assert!(asked.stderr.ends_with(&format!(": {said}")), "{asked:?}");
            }
            rig.disk().release_flushes().unwrap();
            drop(stalled);
            assert!(run.end().success(), "{}", run.text());
            rig.down().unwrap();
            ["id", "go"].into_iter().for_each(|name| place.remove(name));
        }
    });
}

#[test]
fn a_commit_that_fails_for_want_of_descriptors_says_so() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
        let script = format!(
            "sync_file('{}/data'); say_to('before', 1); wait_for('go'); \
             for my $at (1..60) {{ next if fork; open(STDERR, '>', \"said$at\"); \
             exec '{}', 'commit' }} say_to('asked', 1); 1 while wait != -1;",
            rig.path().display(),
            binary()
        );
        let mut command = place.command("prlimit");
        command.args(["--nofile=40:40", binary(), "run", "--"]).args(perl(&script));
        let run = StartedCommand::new(&mut command);
        place.wait_for("before");
        let stalled = stall(&rig);
        place.write("go", "");
        place.wait_for("asked");
        let said = || (1..=60).map(|at| place.read(&format!("said{at}"))).collect::<String>();
        eventually("a commit fails", || said().contains("synconce: cannot "));
        rig.disk().release_flushes().unwrap();
        drop(stalled);
        assert!(run.end().success(), "{}", run.text());
        let said = said();
        assert!(said.contains("Too many open files"), "{said}");
        assert!(
            !said.contains("Permission denied") && !said.contains("without a result"),
            "{said}"
        );
        rig.down().unwrap();
    });
}

/// The name of the socket is free once the supervisor was killed, and any user may bind it.
#[test]
fn another_users_socket_does_not_answer_for_an_interrupted_run() {
    isolated(|place| {
        machine(place);
        for owner in [0, BOB] {
            let state = if owner == 0 { "/var/lib/synconce" } else { "bob/.local/state/synconce" };
            let id = interrupt(place, owner, None);
            let marker = place.path(state).join("runs").join(format!("{id}.json"));
            forged_answer_is_refused(place, &id, owner, &marker);
        }
    });
}

/// Lets ALICE answer for the run `id`, whose `marker` is `owner`'s. Root's commit is refused while
/// the marker exists.
fn forged_answer_is_refused(place: &Place, id: &str, owner: u32, marker: &Path) {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let name = id.bytes().fold(0xcbf2_9ce4_8422_2325, add);
    let answer = r#"{"Done":{"accounts":{"calls":{},"programs":{}},"balance":{"syncs":0,
            "timed":0,"sync_micros":null,"marker_micros":0,"checkpoint_micros":0,
            "supervisor_micros":0},"commit":{"micros":1,"file_systems":[],"everything":null},
            "error":null,"end":null,"stays":false}}"#;
    let script = format!(
        "use Socket; $SIG{{PIPE}} = 'IGNORE';
             socket(my $name, AF_UNIX, SOCK_SEQPACKET, 0) or die;
             bind($name, pack_sockaddr_un(\"\\0synconce/{name:016x}\")) or die;
             listen($name, 8) or die; print \"bound\\n\";
             while (accept(my $caller, $name)) {{
                 next if fork;
                 send($caller, 'x' x 8, 0); recv($caller, my $asked, 99, 0);
                 send($caller, $ARGV[0], 0); exit 0;
             }}"
    );
    let mut forger = place.command("setpriv");
    let user = ALICE.to_string();
    forger.args(["--reuid", &user, "--regid", &user, "--clear-groups", "perl", "-e"]);
    forger.args(["use IO::Handle; STDOUT->autoflush(1);", "-e", &script, answer]);
    let forger = StartedCommand::new(&mut forger);
    eventually("the name is bound", || forger.text().contains("bound"));
    let asked = finish(&mut synconce(place, 0, &["commit", id]));
    assert_eq!(asked.status.code(), Some(125), "{asked:?}");
    let error = format!(
        "synconce: cannot commit {id}: its socket belongs to user {ALICE}, its marker to user \
         {owner}\n"
    );
    assert!(asked.stderr.starts_with(&error), "{asked:?}");
    // Where no marker is looked for, root reads that the answer may be another user's.
    let mut unchecked = synconce(place, 0, &["commit", id]);
    let asked = finish(unchecked.env("SYNCONCE_STATE_DIR", place.path("nowhere")));
    assert_eq!(asked.status.code(), Some(0), "{asked:?}");
    let notice = format!("synconce: cannot check that the user of {id} answered: ");
    assert!(asked.stderr.contains(&notice), "{asked:?}");
    // The marker may be in a directory that root could not look at.
    fs::remove_file(marker).unwrap();
    let asked = finish(&mut synconce(place, 0, &["commit", id]));
    assert_eq!((asked.status.code(), asked.stderr.as_str()), (Some(0), ""), "{asked:?}");
    let state = place.path("alice/.local/state");
    fs::create_dir_all(&state).unwrap();
    symlink("synconce", state.join("synconce")).unwrap();
    let asked = finish(&mut synconce(place, 0, &["commit", id]));
    fs::remove_file(state.join("synconce")).unwrap();
    assert_eq!(asked.status.code(), Some(0), "{asked:?}");
    let notice = format!("{notice}not all state directories were read\n");
    assert!(asked.stderr.contains(&notice), "{asked:?}");
}
