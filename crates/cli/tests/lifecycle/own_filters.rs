//! Programs that install seccomp filters of their own, bare beside held.

use synconce_testkit::harness::{Place, finish, isolated, perl};
use synconce_testkit::process::Finished;

/// Defines `install(FLAGS, ACTION)`: `ACTION` for openat(2), and success for other calls.
fn prelude() -> String {
    format!(
        "sub install {{ my ($flags, $action) = @_; \
             my $code = pack('SCCL' x 4, 0x20, 0, 0, 0, 0x15, 0, 1, {}, 0x06, 0, 0, $action, \
                 0x06, 0, 0, 0x7fff0000); \
             my $program = pack('S x6 P', 4, $code); \
             return syscall({}, 1, $flags, $program); }} \
         sub opens {{ my $fd = syscall({}, -100, my $name = 'data', {}, 0600); \
             print $fd < 0 ? \"open: $!\\n\" : \"open\\n\"; }} $| = 1; ",
        libc::SYS_openat,
        libc::SYS_seccomp,
        libc::SYS_openat,
        libc::O_WRONLY | libc::O_CREAT | libc::O_SYNC,
    )
}

const LISTENER: &str = "my $fd = install(8, 0x7fff0000); print $fd < 0 ? $! : 'listens', \"\\n\";";
const REFUSE: &str = "install(0, 0x00050000 | 13) == 0 or die $!; opens;";

/// Enters the strict mode by prctl(2), in which only write(2) and exit(2) are allowed.
fn strict() -> String {
    format!(
        "my $set = syscall({}, 22, 1, 0); print $set < 0 ? $! : 'strict', \"\\n\"; syscall({}, 0);",
        libc::SYS_prctl,
        libc::SYS_exit
    )
}

fn bare(place: &Place, script: &str) -> String {
    place.bare(&perl(script)).stdout
}

fn run(place: &Place, options: &[&str], script: &str) -> Finished {
    place.run(options, &perl(script))
}

#[test]
fn a_listener_is_refused_and_named_once_with_the_run_in_which_it_works() {
    isolated(|place| {
        let (script, alone) = (LISTENER, "listens\n");
        // Twice: the notice comes once.
        let twice = format!("{} if (!fork) {{ {script} exit; }} wait; {script}", prelude());
        assert_eq!(bare(place, &twice), alone.repeat(2));
        let supervised = run(place, &[], &twice);
        let busy = "Device or resource busy\n";
        assert_eq!(supervised.stdout, busy.repeat(2), "{supervised:?}");
        let said = supervised.stderr.matches("with a listener (EBUSY)");
        assert_eq!(said.count(), 1, "{supervised:?}");
        assert!(supervised.stderr.starts_with("synconce: perl "), "{supervised:?}");
        // The hint is a command line that works.
        let hint = supervised.stderr.split_once("hint: ").expect("a hint").1;
        assert!(hint.contains(" run --sealed -- perl -e "), "{hint}");
        let sealed = finish(place.command("bash").args(["-c", hint.trim_end()]));
        assert_eq!((&sealed.stdout[..], &sealed.stderr[..]), (&alone.repeat(2)[..], ""));
    });
}

#[test]
fn with_rules_no_sealed_run_is_proposed() {
    isolated(|place| {
        let script = format!("{} {LISTENER}", prelude());
        let held = run(place, &["--except", "other"], &script);
        assert!(held.stderr.contains("with a listener (EBUSY)"), "{held:?}");
        assert!(held.stderr.contains("hint: start the program outside of the run"), "{held:?}");
        assert!(!held.stderr.contains("--sealed"), "{held:?}");
    });
}

#[test]
fn the_strict_mode_is_refused_and_named() {
    isolated(|place| {
        let script = format!("$| = 1; {}", strict());
        assert_eq!(bare(place, &script), "strict\n");
        let held = run(place, &[], &script);
        assert_eq!(held.stdout, "Invalid argument\n", "{held:?}");
        assert!(held.stderr.contains("cannot enter the strict mode of seccomp"), "{held:?}");
        assert!(held.stderr.contains("hint: start the program outside of the run"), "{held:?}");
        assert_eq!(run(place, &["--sealed"], &script).stdout, "Invalid argument\n");
    });
}

#[test]
fn a_filter_that_works_in_a_run_gives_no_notice() {
    isolated(|place| {
        let script = format!("{} {REFUSE}", prelude());
        let alone = bare(place, &script);
        assert_eq!(alone, "open: Permission denied\n");
        for options in [&[][..], &["--sealed"]] {
            let held = run(place, options, &script);
            assert_eq!((&held.stdout[..], &held.stderr[..]), (&alone[..], ""), "{options:?}");
        }
    });
}

/// A filter that answers fsync(2) with success, as that of `systemd-nspawn --suppress-sync`.
#[test]
fn a_filter_that_drops_syncs_is_named_with_the_run_that_commits_them() {
    isolated(|place| {
        let drop_syncs = prelude().replace(
            &format!("0x15, 0, 1, {}", libc::SYS_openat),
            &format!("0x15, 0, 1, {}", libc::SYS_fsync),
        );
        let script = format!(
            "{drop_syncs} use IO::Handle; install(0, 0x00050000) == 0 or die $!; \
             open(my $file, '>', 'data') or die $!; print $file 'text'; $file->flush; \
             $file->sync or die $!;"
        );
        let held = run(place, &[], &script);
        assert!(held.status.success(), "{held:?}");
        let said =
            "perl installs a seccomp filter that drops syncs: what it drops is not committed";
        assert_eq!(held.stderr.matches(said).count(), 1, "{held:?}");
        let hint = held.stderr.split_once("hint: ").expect("a hint").1;
        assert!(hint.contains(" run --commit-all -- perl -e "), "{hint}");
        let all = finish(place.command("bash").args(["-c", hint.trim_end()]));
        assert!(all.status.success() && all.stderr.is_empty(), "{all:?}");
        // A run without a commit promises nothing; a sealed run commits everything.
        for options in [&["--no-commit"][..], &["--sealed"]] {
            let other = run(place, options, &script);
            assert_eq!((&other.stderr[..], other.status.code()), ("", Some(0)), "{options:?}");
        }
    });
}

#[test]
fn the_calls_by_which_libseccomp_asks_what_the_kernel_has_give_no_notice() {
    isolated(|place| {
        let ask = |operation, flags| {
            format!("syscall({}, {operation}, {flags}, 0); print $!, \"\\n\"; ", libc::SYS_seccomp)
        };
        // The strict mode with a flag, and no program for a listener and for a log.
        let script = format!("$| = 1; {}{}{}", ask(0, 1), ask(1, 8), ask(1, 2));
        let alone = bare(place, &script);
        assert_eq!(alone, "Invalid argument\nBad address\nBad address\n");
        for options in [&[][..], &["--sealed"]] {
            let held = run(place, options, &script);
            assert_eq!((&held.stdout[..], &held.stderr[..]), (&alone[..], ""), "{options:?}");
        }
    });
}
