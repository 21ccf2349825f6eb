//! Resource limits of a run: the command keeps them, the supervisor raises its own.

use synconce_sys::procfs::status_field;
use synconce_testkit::harness::{Place, StartedCommand, binary, eventually, isolated};

/// A process of root that may not raise a hard limit.
const WITHOUT_CAPABILITY: &str = "setpriv --bounding-set -sys_resource";

/// Returns the soft limits of processor time and of open files of the process `pid`, as /proc shows
/// them.
fn limits_of(pid: u32) -> [String; 2] {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    ["Max cpu time", "Max open files"].map(|name| {
        let limit = limits.lines().find_map(|line| line.strip_prefix(name)).expect("the limit");
        limit.split_whitespace().next().expect("a soft limit").to_owned()
    })
}

/// Whether this process has CAP_SYS_RESOURCE.
fn may_raise_hard_limits() -> bool {
    let capabilities = status_field(std::process::id(), "CapEff:").expect("capabilities");
    u64::from_str_radix(&capabilities, 16).expect("a number") >> 24 & 1 == 1
}

/// Starts a run below `program` and checks the limits of its supervisor.
fn assert_raised(place: &Place, program: &str, options: &str, raised: [&str; 2]) {
    let limits = "ulimit -St 70; ulimit -Ht 90; ulimit -Sn 48; ulimit -Hn 64;";
    let script =
        "echo $(ulimit -St) $(ulimit -Sn) >ready; while ! [ -e stop ]; do sleep 0.05; done";
    let started = format!("{limits} exec {program} \"$0\" run {options} -- sh -c '{script}'");
    let run = StartedCommand::new(place.command("sh").args(["-c", &started, binary()]));
    place.wait_for("ready");
    eventually("the command has its limits", || place.read("ready") == "70 48\n");
    let supervisor = place.supervisor();
    eventually("the supervisor has raised its limits", || limits_of(supervisor) == raised);
    place.write("stop", "");
    assert!(run.end().success(), "{}", run.text());
    ["stop", "ready"].into_iter().for_each(|name| place.remove(name));
}

#[test]
fn the_supervisor_raises_its_limits_and_the_command_keeps_its_own() {
    isolated(|place| {
        // In a container root may not raise a hard limit either.
        let cpu = if may_raise_hard_limits() { "unlimited" } else { "90" };
        for options in ["", "--sealed"] {
            assert_raised(place, "", options, [cpu, "64"]);
            assert_raised(place, WITHOUT_CAPABILITY, options, ["90", "64"]);
        }
    });
}
