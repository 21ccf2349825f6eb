//! Reads the state of processes from /proc.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::fs;
use synconce_sys::procfs;

/// Whether the process `pid` exists and is no zombie.
pub fn exists(pid: u32) -> bool {
    process_status(pid).get("State").is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// Sends `signal` to the process `pid` alone (kill(2)).
pub fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
    kill_process(pid, signal).expect("the process is there");
}

/// Returns the fields of `/proc/PID/status`; none for a process that is gone.
pub fn process_status(pid: u32) -> HashMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// Returns the parent of the living process `pid`.
pub fn parent(pid: u32) -> u32 {
    process_status(pid).get("PPid").and_then(|pid| pid.parse().ok()).expect("a living process")
}

/// Returns the children of `pid` and their states, zombies included.
pub fn children(pid: u32) -> Vec<(u32, String)> {
    let with_status = procfs::pids().map(|pid| (pid, process_status(pid)));
    let ours = with_status.filter(|(_, status)| status.get("PPid") == Some(&pid.to_string()));
    ours.map(|(pid, status)| (pid, status.get("State").cloned().unwrap_or_default())).collect()
}
