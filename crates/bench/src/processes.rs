//! Finding and ending processes that a measured command left behind.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// Rounds of looking for processes that appear while others are being ended.
const SWEEPS: u32 = 50;

/// Ends a process and all its descendants, children before parents, so that
/// none is lost from sight by being handed to another parent.
pub(crate) fn kill_tree(top: Pid) {
    for _ in 0..SWEEPS {
        let below = descendants(top);
        if below.is_empty() {
            break;
        }
        for pid in below.into_iter().rev() {
            // Gone already is as good as ended.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = kill_process(top, Signal::KILL);
}

/// Ends every process whose root is the directory, and says how many there
/// were: a service that a package started would keep its mounts busy.
pub(crate) fn kill_rooted(root: &Path) -> usize {
    let mut ended = 0;
    for _ in 0..SWEEPS {
        let inside: Vec<Pid> = all()
            .into_keys()
            .filter(|pid| {
                std::fs::read_link(format!("/proc/{}/root", pid.as_raw_pid()))
                    .is_ok_and(|theirs| theirs == root)
            })
            .collect();
        if inside.is_empty() {
            break;
        }
        for pid in inside {
            ended += usize::from(kill_process(pid, Signal::KILL).is_ok());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    ended
}

/// Every live descendant, parents before children.
fn descendants(top: Pid) -> Vec<Pid> {
    let parents = all();
    let mut found = vec![top];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(
            parents.iter().filter(|(_, above)| **above == Some(parent)).map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found.split_off(1)
}

/// Every process that is not a zombie, with its parent.
fn all() -> HashMap<Pid, Option<Pid>> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return HashMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (state, parent) = state_and_parent(&stat)?;
            (state != 'Z').then_some((pid, Pid::from_raw(parent)))
        })
        .collect()
}

/// Reads fields 3 and 4 of proc_pid_stat(5); the name before them may hold
/// spaces and brackets.
fn state_and_parent(stat: &str) -> Option<(char, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        assert_eq!(state_and_parent("12 (a) b (c) S 7 1 1"), Some(('S', 7)));
    }

    #[test]
    fn a_tree_is_ended_down_to_the_last_grandchild() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sh -c 'sleep 100 & sleep 100' & wait"])
            .spawn()
            .expect("sh runs");
        let top = Pid::from_child(&child);
        while descendants(top).len() < 3 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let below = descendants(top);
        kill_tree(top);
        child.wait().expect("the child can be waited for");
        let alive = all();
        assert!(below.iter().all(|pid| !alive.contains_key(pid)));
    }
}
