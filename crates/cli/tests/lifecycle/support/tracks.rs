//! Reads what /proc and strace report about processes.

use super::place::{Place, finish};
use std::collections::HashMap;
use std::fs;

/// Whether the process `pid` exists and is no zombie.
pub fn exists(pid: u32) -> bool {
    process_status(pid).get("State").is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// Returns the fields of `/proc/PID/status`; none for a process that is gone.
pub fn process_status(pid: u32) -> HashMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

pub fn parent(pid: u32) -> u32 {
    process_status(pid).get("PPid").and_then(|pid| pid.parse().ok()).expect("a living process")
}

/// Returns the children of `pid` and their states, zombies included.
pub fn children(pid: u32) -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let with_status = pids.map(|pid| (pid, process_status(pid)));
    let ours = with_status.filter(|(_, status)| status.get("PPid") == Some(&pid.to_string()));
    ours.map(|(pid, status)| (pid, status.get("State").cloned().unwrap_or_default())).collect()
}

/// The calls in the output of `strace -f`, in order.
pub struct Trail(Vec<String>);

impl Trail {
    /// Runs `words` in `place` under strace, and expects success.
    pub fn follow(place: &Place, words: &[&str]) -> Self {
        let calls = "trace=fsync,fdatasync,sync,syncfs,linkat,unlinkat,rename,renameat,ioctl,\
                     execve,openat,mkdirat,rmdir";
        let mut strace = place.command("strace");
        strace.args(["-f", "-y", "-s", "200", "-o", "trace", "-e", calls]).args(words);
        let finished = finish(&mut strace);
        assert!(finished.status.success(), "{finished:?}");
        Self::of(&place.read("trace"))
    }

    /// Parses the output of strace.
    pub fn of(text: &str) -> Self {
        Self(text.lines().map(str::to_owned).collect())
    }

    /// Returns the position of the first call at or after `from` that contains all of `words`.
    pub fn find(&self, from: usize, words: &[&str]) -> Option<usize> {
        let has_all = |line: &String| words.iter().all(|word| line.contains(word));
        self.0.iter().skip(from).position(has_all).map(|at| at + from)
    }

    /// Like [`Self::find`]; panics with the whole trail if there is none.
    pub fn expect(&self, from: usize, words: &[&str]) -> usize {
        self.find(from, words)
            .unwrap_or_else(|| panic!("no {words:?} from line {from} on:\n{}", self.0.join("\n")))
    }

    /// Returns how many calls contain all of `words`.
    pub fn count(&self, words: &[&str]) -> usize {
        self.0.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    pub fn line(&self, at: usize) -> &str {
        &self.0[at]
    }
}
