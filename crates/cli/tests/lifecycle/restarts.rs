//! reboot(2) restarts or halts the machine without a sync, so a program syncs before:
//! `sync; reboot -f`, kexec. That sync was held.

use std::fs;
use synconce_testkit::harness::{StartedCommand, finish, isolated, perl};
use synconce_testkit::rig::{Cut, Rig, Survivors};

/// `RESTART`, `HALT`, `POWER_OFF`, `RESTART2` and `KEXEC` (include/uapi/linux/reboot.h).
const COMMANDS: [u32; 5] = [0x0123_4567, 0xCDEF_0123, 0x4321_FEDC, 0xA1B2_C3D4, 0x4558_4543];

/// Returns perl that calls reboot(2) with `command`. The magic numbers are wrong, so that the
/// kernel refuses the call: the machine of the test goes on.
fn reboot(command: u32) -> String {
    format!("syscall({}, 0, 0, {command}, 0) == -1 or die;", libc::SYS_reboot)
}

#[test]
fn what_the_command_synced_survives_a_restart_that_it_makes() {
    isolated(|place| {
        for command in COMMANDS {
            let rig = Rig::builder().size(64 << 20).record(true).up().unwrap();
            let data = rig.path().join("data");
            let script = format!(
                "sync_file('{}'); {} say_to('restarted', 1); wait_for('go');",
                data.display(),
                reboot(command)
            );
            let run = StartedCommand::new(&mut place.held(&[], &perl(&script)));
            place.wait_for("restarted");
            rig.disk().mark("restarted").unwrap();
            assert_eq!(place.markers().len(), 1, "the run was cut short");
            place.write("go", "");
            assert!(run.end().success(), "{}", run.text());
            assert_eq!(run.text(), "");
            ["restarted", "go"].iter().for_each(|name| place.remove(name));
            let tape = rig.finish().unwrap();
            let at = tape.log().unwrap().mark("restarted").unwrap();
            let replay = tape.replay().up().unwrap();
            let cut = replay.mounted(Cut::at(at).survivors(Survivors::None)).unwrap();
            let read = fs::read_to_string(cut.path().join("data")).unwrap_or_default();
            assert_eq!(read, "data\n", "{command:#x}");
            cut.unmount().unwrap();
            replay.down().unwrap();
        }
    });
}

#[test]
fn a_run_without_a_commit_restarts_at_once() {
    isolated(|place| {
        let script = format!("sync_file('data'); {}", reboot(COMMANDS[0]));
        let run = StartedCommand::new(&mut place.held(&["--no-commit"], &perl(&script)));
        assert!(run.end().success(), "{}", run.text());
        assert_eq!(run.text(), "");
    });
}

#[test]
fn a_call_that_cannot_end_the_machine_waits_for_no_commit() {
    isolated(|place| {
        let script = format!("sync_file('data'); {}", reboot(COMMANDS[2]));
        let in_container = ["unshare", "--pid", "--fork"];
        let without_the_right = ["setpriv", "--bounding-set=-sys_boot", "--inh-caps=-sys_boot"];
        for (words, commits) in
            [(&[][..], true), (&in_container[..], false), (&without_the_right[..], false)]
        {
            let words: Vec<_> =
                words.iter().map(ToString::to_string).chain(perl(&script)).collect();
            let run = finish(&mut place.held(&["--json"], &words));
            assert!(run.status.success(), "{words:?}: {run:?}");
            let figures: serde_json::Value = serde_json::from_str(run.stderr.trim()).unwrap();
            let spent = figures["checkpoint_micros"].as_u64();
            assert_eq!(spent > Some(0), commits, "{words:?}: {run:?}");
        }
    });
}
