//! Many processes, and processes without a parent that reaps them.

use std::os::unix::fs::PermissionsExt;
use synconce_testkit::harness::{
    StartedCommand, binary, children, eventually, finish, isolated, perl,
};

#[test]
fn hundreds_of_short_processes_sync_and_end() {
    isolated(|place| {
        place.write("data", "x");
        let script = "for i in $(seq 300); do sync data & done; wait; echo all";
        let finished = place.run(&["--stats", "--json"], &["sh", "-c", script]);
        assert_eq!(finished.stdout, "all\n", "{finished:?}");
        let stats: serde_json::Value = serde_json::from_str(&finished.stderr).unwrap();
        assert_eq!(stats["calls"]["fsync"]["held"], 300, "{stats}");
    });
}

#[test]
fn orphans_are_reaped_while_the_command_goes_on() {
    isolated(|place| {
        let script = "for (1..300) { next if my $child = fork; fork; sync_file('data') if $_ % 10 == 0; \
                      exit } 1 while wait != -1; say_to('forked', 'yes'); wait_for('stop');";
        let run = StartedCommand::new(&mut place.held(&[], &perl(script)));
        place.wait_for("forked");
        let supervisor = place.supervisor();
        eventually("only the command is the supervisor's child", || {
            children(supervisor).len() == 1
        });
        place.write("stop", "");
        assert!(run.end().success(), "{}", run.text());
    });
}

#[test]
fn a_bounded_fork_bomb_ends_with_the_commands_own_code() {
    isolated(|place| {
        // A user id that is not used elsewhere, because the limit counts all processes of the
        // user.
        let all = std::fs::Permissions::from_mode(0o777);
        for name in ["state", "runtime", "work"] {
            std::fs::create_dir(place.path(name)).unwrap();
            std::fs::set_permissions(place.path(name), all.clone()).unwrap();
        }
        let script = "chdir 'work'; \
                      for (1..8) { defined(fork) or open(my $file, '>', 'failed'); } \
                      my $end = time + 20; \
                      select(undef, undef, undef, 0.1) until -e 'failed' || time > $end; \
                      sync_file(\"data$$\"); select(undef, undef, undef, 0.5); \
                      1 while wait != -1; exit(-e 'failed' ? 33 : 0);";
        let mut run = place.command("setpriv");
        run.args(["--reuid", "64123", "--regid", "64123", "--clear-groups", "prlimit"])
            .args(["--nproc=60", binary(), "run", "--stats", "--json", "--"])
            .args(perl(script));
        let finished = finish(&mut run);
        assert_eq!(finished.status.code(), Some(33), "{finished:?}");
        // A run that fails names a setuid program that another process starts meanwhile.
        let stats = finished.stderr.lines().find(|line| line.starts_with('{')).unwrap();
        let stats: serde_json::Value = serde_json::from_str(stats).unwrap();
        assert!(stats["calls"]["fsync"]["held"].as_u64() > Some(20), "{stats}");
        assert!(place.status(&[]).status.success());
    });
}

#[test]
fn with_a_proc_of_another_pid_namespace_every_sync_is_held() {
    isolated(|place| {
        place.write("data", "x");
        let mut run = place.command("unshare");
        run.args(["--pid", "--fork", binary(), "run", "--stats", "--json", "--"]).args([
            "sh",
            "-c",
            "sync; sync data",
        ]);
        let finished = finish(&mut run);
        assert_eq!(finished.status.code(), Some(0), "{finished:?}");
        let stats = finished.stderr.lines().find(|line| line.starts_with('{')).unwrap();
        let stats: serde_json::Value = serde_json::from_str(stats).unwrap();
        for call in ["sync", "fsync"] {
            assert_eq!(stats["calls"][call]["held"], 1, "{stats}");
            assert_eq!(stats["calls"][call]["passed"], 0, "{stats}");
        }
        let programs = stats["programs"].as_object().unwrap();
        assert!(programs.is_empty(), "the ids are of other processes there: {stats}");
    });
}
