//! What the caller gets: the command's exit status, or one of three exit codes.

use std::os::unix::process::ExitStatusExt;
use synconce_testkit::harness::{Place, StartedCommand, isolated, perl, without_fuse_notice};

const MODES: [&[&str]; 3] = [&[], &["--sealed"], &["--no-commit"]];

#[test]
fn the_exit_code_is_the_commands_own_in_every_mode() {
    isolated(|place| {
        for options in MODES {
            for code in [0, 1, 2, 77, 125, 126, 127, 128, 255] {
                let finished = place.run(options, &["sh", "-c", &format!("exit {code}")]);
                assert_eq!(finished.status.code(), Some(code), "{options:?}: {finished:?}");
                let said = finished.stdout + &finished.stderr;
                assert_eq!(without_fuse_notice(&said), "", "{options:?}");
            }
        }
    });
}

#[test]
fn death_by_a_signal_is_passed_on_as_that_signal() {
    isolated(|place| {
        // 34 and 64 are the first and the last of the real-time signals.
        for signal in [1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 24, 31, 34, 50, 64] {
            for options in MODES {
                let script = format!("kill -{signal} $$; sleep 20");
                let finished = place.run(options, &["sh", "-c", &script]);
                assert_eq!(finished.status.signal(), Some(signal), "{options:?} {finished:?}");
            }
        }
    });
}

/// The number of io_uring_setup(2) is the same on all machines.
#[test]
fn io_uring_is_named_only_after_an_end_that_its_refusal_may_cause() {
    isolated(|place| {
        let setup = libc::SYS_io_uring_setup;
        for (end, is_named) in [
            ("exit 0", false),
            ("exit 1", true),
            ("exit 124", false),
            ("exit 127", false),
            ("exit 134", true),
            ("exit 143", false),
            ("kill 'ABRT', $$; sleep 20", true),
            ("kill 'TERM', $$; sleep 20", false),
        ] {
            let ended = place.run(&[], &perl(&format!("syscall({setup}, 1, 0); {end};")));
            let notice = "synconce: io_uring was refused (ENOSYS), and the command failed\n";
            assert_eq!(ended.stderr.contains(notice), is_named, "{end}: {ended:?}");
        }
    });
}

#[test]
fn only_the_command_dumps_core() {
    isolated(|place| {
        let script = "ulimit -c unlimited; exec \"$@\"";
        let dies = ["sh", "-c", "kill -QUIT $$; sleep 20"];
        let bare = place.bare(&[&["sh", "-c", script, "sh"][..], &dies].concat());
        assert!(bare.status.core_dumped(), "a core can be dumped here: {bare:?}");

        let mut held = place.command("sh");
        held.args(["-c", script, "sh", synconce_testkit::harness::binary(), "run", "--"])
            .args(dies);
        let held = StartedCommand::new(&mut held).end();
        assert_eq!(held.signal(), Some(libc::SIGQUIT));
        assert!(!held.core_dumped());
    });
}

/// Returns commands that cannot be executed, each for another reason.
fn unusable(place: &Place) -> Vec<Vec<String>> {
    place.write("plain", "echo no right to execute\n");
    executable(place, "no-interpreter", "#!/no/such/interpreter\n");
    executable(place, "bad-magic", "\u{7f}ELF but no more\n");
    let words: [&[&str]; 11] = [
        &["no-such-command-anywhere"],
        &["./no-such-file"],
        &["/no/such/directory/file"],
        &[""],
        &["./plain"],
        &["./plain/below"],
        &["."],
        &["/"],
        &["./no-interpreter"],
        &["/dev/null"],
        &[&"x".repeat(300)],
    ];
    let words = words.iter().map(|words| words.iter().map(|word| (*word).to_owned()).collect());
    words.collect()
}

pub fn executable(place: &Place, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = place.write(name, text);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_command_that_cannot_be_executed_ends_as_under_env() {
    isolated(|place| {
        for words in unusable(place) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let bare = place.bare(&[&["env", "--"][..], &words].concat());
            for options in MODES {
                let held = place.run(options, &words);
                assert_eq!(held.status.code(), bare.status.code(), "{words:?} {held:?}");
                assert!(matches!(held.status.code(), Some(126 | 127)));
                let name = if words[0].is_empty() { "''" } else { words[0] };
                let named = format!("synconce: cannot execute {name}: ");
                assert!(held.stderr.starts_with(&named), "{held:?}");
                let hint = held.stderr.lines().nth(1).unwrap_or_default();
                let wanted = match words[0] {
                    "./no-interpreter" => {
                        "synconce: hint: install its interpreter /no/such/interpreter, or change its \
                         first line"
                    }
                    _ => "",
                };
                assert_eq!(hint, wanted, "{held:?}");
            }
        }
        assert!(place.markers().is_empty() && place.run_files().is_empty());
    });
}

#[test]
fn a_file_without_a_header_is_run_by_sh_with_its_path_and_arguments() {
    isolated(|place| {
        executable(place, "script", "echo \"$0|$1|$2|$#\"; exit 9\n");
        let words = ["./script", "a b", ""];
        let bare = place.bare(&[&["env", "--"][..], &words].concat());
        let held = place.run(&[], &words);
        assert_eq!(held.stdout, "./script|a b||2\n");
        assert_eq!(held.stdout, bare.stdout);
        assert_eq!(held.status.code(), Some(9));
        assert_eq!(held.status, bare.status);
    });
}

#[test]
fn a_command_is_looked_for_in_the_path_as_execvp_does() {
    isolated(|place| {
        for (directory, mode) in [("first", "plain"), ("second", "executable")] {
            std::fs::create_dir(place.path(directory)).unwrap();
            match mode {
                "plain" => drop(place.write(&format!("{directory}/tool"), "echo plain\n")),
                _ => executable(place, &format!("{directory}/tool"), "#!/bin/sh\necho found\n"),
            }
        }
        let path = format!("/nowhere:{}:{}", place.text("first"), place.text("second"));
        let mut held = place.held(&[], &["tool"]);
        let held = synconce_testkit::harness::finish(held.env("PATH", path));
        assert_eq!((held.stdout.as_str(), held.status.code()), ("found\n", Some(0)));

        let mut only_plain = place.held(&[], &["tool"]);
        let only_plain =
            synconce_testkit::harness::finish(only_plain.env("PATH", place.text("first")));
        assert_eq!(only_plain.status.code(), Some(126), "{only_plain:?}");

        executable(place, "tool", "#!/bin/sh\necho here\n");
        let mut here = place.held(&[], &["tool"]);
        assert_eq!(
            synconce_testkit::harness::finish(here.env("PATH", ":/nowhere")).stdout,
            "here\n"
        );
    });
}

#[test]
fn a_command_line_that_makes_no_sense_is_125_and_starts_nothing() {
    isolated(|place| {
        let touch = "touch started";
        let lines: [&[&str]; 7] = [
            &[],
            &["run"],
            &["run", "--"],
            &["run", "--no-such-option", "--", "sh", "-c", touch],
            &["run", "--no-commit", "--commit-only", "/", "--", "sh", "-c", touch],
            &["run", "--commit-timeout", "0", "--", "sh", "-c", touch],
            &["no-such-command"],
        ];
        for line in lines {
            let finished = synconce_testkit::harness::finish(&mut place.synconce(line));
            assert_eq!(finished.status.code(), Some(125), "{line:?} {finished:?}");
            assert!(finished.stdout.is_empty() && !finished.stderr.is_empty(), "{finished:?}");
        }
        assert!(!place.path("started").exists());
    });
}

#[test]
fn help_and_version_go_to_standard_output_and_are_no_failure() {
    isolated(|place| {
        for line in [&["--help"][..], &["run", "--help"], &["status", "--help"], &["--version"]] {
            let finished = synconce_testkit::harness::finish(&mut place.synconce(line));
            assert!(finished.status.success() && finished.stderr.is_empty(), "{finished:?}");
            assert!(finished.stdout.contains("synconce"), "{finished:?}");
        }
    });
}

#[test]
fn options_of_the_command_stay_the_commands() {
    isolated(|place| {
        let [perl, dash_e, script] = perl("print join('|', @ARGV), \"\\n\"; exit 4");
        let words = [&perl, &dash_e, &script, "--", "--sealed", "-x", "--", "--help"];
        let held = place.run(&[], &words.map(|word: &str| word));
        assert_eq!(held.stdout, "--sealed|-x|--|--help\n");
        assert_eq!(held.status.code(), Some(4));
    });
}
