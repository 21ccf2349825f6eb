//! The processes of a run: who descends from whom, whose syncs are real, and what is left after a crash.

pub(crate) mod job;
pub(crate) mod privileges;
pub(crate) mod process_tree;
pub(crate) mod real;
pub(crate) mod remains;
pub(crate) mod supervisor_death;
