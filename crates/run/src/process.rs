//! The processes of a run: their descent, whose syncs are real, and what is left after a crash.

pub(crate) mod environment;
pub(crate) mod job;
pub(crate) mod limits;
pub(crate) mod privileges;
pub(crate) mod process_tree;
pub(crate) mod real;
pub(crate) mod remains;
pub(crate) mod supervisor_death;
