//! The processes that a row has started, by their words.

use std::fs;
use synconce_sys::procfs::{self, process_name};

/// A process whose words or environment have a path.
#[derive(Debug)]
pub(crate) struct Process {
    pub pid: u32,
    pub words: String,
    pub is_guard: bool,
}

/// Returns the processes whose words have `path`, and guards whose environment has it: the words of
/// a guard are its title. An ended process has neither.
pub(crate) fn with_path(path: &str) -> Vec<Process> {
    let found = procfs::pids().filter_map(|pid| {
        let read = |name: &str| {
            let words = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            String::from_utf8_lossy(&words).replace('\0', " ")
        };
        let is_guard = process_name(pid).is_ok_and(|name| name == "synconce-guard");
        let words = read("cmdline");
        let is_of_path = words.contains(path) || is_guard && read("environ").contains(path);
        is_of_path.then_some(Process { pid, words, is_guard })
    });
    found.collect()
}
