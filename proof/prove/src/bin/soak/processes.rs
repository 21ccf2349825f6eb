//! Reads the state of processes from /proc.

use std::fs;
use synconce_sys::procfs;
use synconce_testkit::harness::exists;

/// Returns the children of `pid`, oldest first.
pub(crate) fn children(pid: u64) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Whether `pid` is running; a zombie is not.
pub(crate) fn is_alive(pid: u64) -> bool {
    u32::try_from(pid).is_ok_and(exists)
}

/// Describes where each thread of the processes waits, one line each: shows why a run does not
/// end.
pub(crate) fn describe(pids: &[u64]) -> String {
    let mut text = String::new();
    for pid in pids {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let status = read("status");
            let lines = status.lines().filter(|line| {
                ["Name:", "State:", "TracerPid:"].iter().any(|name| line.starts_with(name))
            });
            let states = lines.collect::<Vec<_>>().join(" ").replace('\t', " ");
            let name = thread.file_name();
            let (wchan, call) = (read("wchan"), read("syscall"));
            let call = call.split(' ').next().unwrap_or_default().trim();
            text += &format!("\n{pid} {}: {states} {wchan} {call}", name.display());
        }
    }
    text
}

/// Returns every process with its arguments.
pub(crate) fn all() -> impl Iterator<Item = (String, Vec<String>)> {
    procfs::pids().filter_map(|pid| Some((pid.to_string(), procfs::words(pid, "cmdline").ok()?)))
}
