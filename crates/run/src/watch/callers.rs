//! Names of callers and of their ancestors.

use crate::process_tree::{ancestors, lineage, process_of};
use serde::Serialize;
use std::collections::HashMap;
use synconce_sys::procfs::process_name;

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
/// How many processes are remembered.
const KEPT: usize = 4096;

/// Remembers the ancestors of processes, by id and start time: an id is reused.
#[derive(Default)]
pub(super) struct Callers(HashMap<(u32, u64), Vec<String>>);

impl Callers {
    /// Returns the caller whose thread is `thread`; without names if /proc does not show it.
    pub(super) fn of(&mut self, thread: u32) -> Caller {
        let known = process_of(thread).and_then(|process| Some((process, lineage(process)?)));
        let Some((process, (_, began))) = known else { return Caller::default() };
        // Read each time: execve(2) changes the name.
        let program = process_name(process).unwrap_or_default();
        if self.0.len() >= KEPT {
            self.0.clear();
        }
        let ancestry = self.0.entry((process, began)).or_insert_with(|| names_above(process));
        Caller { process, program, ancestry: ancestry.clone() }
    }
}

fn names_above(process: u32) -> Vec<String> {
    let us = std::process::id();
    let above = ancestors(process).take_while(|ancestor| ancestor.pid != us);
    above.take(GENERATIONS).map(|ancestor| ancestor.name).collect()
}
