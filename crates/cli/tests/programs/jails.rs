//! Programs that a tracer confines by a seccomp filter: their tracer does not see an open that a
//! supervised run stops. A notice names the run in which the tracer does. strace has such a filter
//! only with an option, and sees each call without that option.

use crate::comparison::compile;
use synconce_testkit::harness::{Need, Place, finish};
use synconce_testkit::process::Finished;

pub const NEEDS_PROOT: [Need; 2] = [Need::Program("proot", "proot"), Need::Program("perl", "perl")];

pub const NEEDS_STRACE: [Need; 1] = [Need::Program("strace", "strace")];

const NOTICE: &str = "installs a seccomp filter with a tracer, which does not see the calls";

/// Returns the first hint of `held`.
fn hint(held: &Finished) -> &str {
    let hint = held.stderr.lines().find_map(|line| line.strip_prefix("synconce: hint: "));
    hint.unwrap_or_else(|| panic!("no hint: {held:?}"))
}

/// Runs the command in the hint of `held`.
fn hinted(place: &Place, held: &Finished) -> Finished {
    finish(place.command("sh").args(["-c", hint(held)]))
}

pub fn a_jail_that_does_not_see_each_call_is_named(place: &Place) {
    let jail = compile(place, include_str!("jail.c"), "");
    assert_eq!(place.bare(&[&jail, "file"]).stdout, "refused\n");
    let held = place.run(&[], &[&jail, "file"]);
    assert_eq!(held.stdout, "escaped\n", "{held:?}");
    assert_eq!(held.stderr.matches(NOTICE).count(), 1, "{held:?}");
    place.remove("file");
    assert!(hint(&held).contains(" run --sealed -- "), "{held:?}");
    let sealed = hinted(place, &held);
    assert_eq!((&sealed.stdout[..], &sealed.stderr[..]), ("refused\n", ""), "{sealed:?}");
    assert!(!place.path("file").exists());
}

pub fn an_open_in_a_proot_is_outside_of_it_only_with_a_notice(place: &Place) {
    std::fs::create_dir(place.path("root")).unwrap();
    let root = place.text("root");
    let script = "use Fcntl; sysopen(my $file, '/inside', O_WRONLY | O_CREAT | O_SYNC) or die $!;";
    let mut words = vec!["proot", "-r", &root];
    for shared in ["/bin", "/lib", "/lib64", "/usr", "/etc", "/dev", "/proc"] {
        words.extend(["-b", shared]);
    }
    words.extend(["perl", "-e", script]);
    let bare = place.bare(&words);
    assert!(bare.status.success() && place.path("root/inside").exists(), "{bare:?}");
    place.remove("root/inside");
    // Some versions of proot stop every call, and need no filter.
    let held = place.run(&[], &words);
    let is_inside = place.path("root/inside").exists();
    assert!(is_inside || held.stderr.contains(NOTICE), "{held:?}");
    let _ = std::fs::remove_file(place.path("root/inside"));
    let sealed = place.run(&["--sealed"], &words);
    assert!(sealed.status.success() && place.path("root/inside").exists(), "{sealed:?}");
}

pub fn strace_sees_each_sync_by_the_command_of_the_hint(place: &Place) {
    let file = place.write("file", "");
    let synced = || {
        let trace = std::fs::read_to_string(place.path("trace")).expect("a trace");
        place.remove("trace");
        trace.contains("fsync(")
    };
    let trace = place.text("trace");
    let options = ["--seccomp-bpf", "-f", "-e", "trace=fsync", "-o", &trace, "sync"];
    let words = [&["strace"], &options[..], &[file.to_str().expect("UTF-8")]].concat();
    assert!(place.bare(&words).status.success() && synced());
    let held = place.run(&[], &words);
    assert!(held.stderr.contains(NOTICE) && !synced(), "{held:?}");
    let hinted = hinted(place, &held);
    assert!(hinted.status.success() && synced(), "{held:?} {hinted:?}");
    let script = words.join(" ");
    let held = place.run(&[], &["sh", "-c", &script]);
    assert_eq!(hint(&held), "start strace without --seccomp-bpf", "{held:?}");
}
