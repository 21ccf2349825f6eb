//! Names of callers and of their ancestors.

use crate::process::process_tree::{ancestors, process_of};
use serde::Serialize;
use std::collections::HashMap;
use synconce_sys::procfs::{Stat, process_name};

/// The process that made a call.
#[derive(Clone, Default, Serialize)]
pub(super) struct Caller {
    process: u32,
    program: String,
    /// Names of the ancestors up to the command, nearest first.
    ancestry: Vec<String>,
}

/// At most so many ancestors of a process are named.
const GENERATIONS: usize = 6;
/// How many threads are remembered.
const KEPT: usize = 4096;

/// Remembers processes and ancestors of threads, by id and start time: an id is reused.
#[derive(Default)]
pub(super) struct Callers(HashMap<(u32, u64), (u32, Vec<String>)>);

impl Callers {
    /// Returns the caller whose thread is `thread`; without names if /proc does not show it. `init`
    /// is the first process of the caller's container: no ancestor of `init` is named.
    pub(super) fn find(&mut self, thread: u32, init: Option<u32>) -> Caller {
        self.look_up(thread, init).unwrap_or_default()
    }

    fn look_up(&mut self, thread: u32, init: Option<u32>) -> Option<Caller> {
        let stat = Stat::read(thread)?;
        let key = (thread, stat.began()?);
        if !self.0.contains_key(&key) {
            let process = process_of(thread)?;
            if self.0.len() >= KEPT {
                self.0.clear();
            }
            self.0.insert(key, (process, names_above(process, init)));
        }
        let (process, ancestry) = self.0.get(&key)?;
        // Read each time: execve(2) changes the name. A thread can have a name of its own.
        let program = match stat.name() {
            Some(name) if *process == thread => name.to_owned(),
            _ => process_name(*process).unwrap_or_default(),
        };
        Some(Caller { process: *process, program, ancestry: ancestry.clone() })
    }
}

fn names_above(process: u32, init: Option<u32>) -> Vec<String> {
    if init == Some(process) {
        return Vec::new();
    }
    let us = std::process::id();
    let mut names = Vec::new();
    for ancestor in ancestors(process).take_while(|it| it.pid != us).take(GENERATIONS) {
        names.push(ancestor.name);
        if init == Some(ancestor.pid) {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_a_name_of_its_own_has_the_name_and_the_ancestors_of_its_process() {
        let process = std::process::id();
        let look = move || {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            let mut callers = Callers::default();
            // The second one is remembered.
            (thread, [callers.find(thread, None), callers.find(thread, None)])
        };
        let (thread, found) =
            std::thread::Builder::new().name("own".into()).spawn(look).unwrap().join().unwrap();
        assert_ne!(thread, process);
        for caller in found {
            assert_eq!((caller.process, caller.program), (process, process_name(process).unwrap()));
            // This process is the supervisor here, whose own ancestors are not named.
            assert_eq!(caller.ancestry, names_above(process, None));
        }
    }

    #[test]
    fn no_ancestor_of_the_first_process_of_a_container_is_named() {
        let process = std::process::id();
        let parent = Stat::read(process).unwrap().parent().unwrap();
        assert_eq!(names_above(process, Some(process)), [""; 0]);
        assert_eq!(names_above(process, Some(parent)), [process_name(parent).unwrap()]);
    }

    #[test]
    fn a_thread_that_has_ended_has_no_name() {
        let caller = Callers::default().find(0, None);
        assert_eq!((caller.process, caller.program.as_str()), (0, ""));
    }
}
