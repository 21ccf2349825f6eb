//! A stopped call: what it leads to, the decision about it, and its answer.

pub(crate) mod caller;
pub(crate) mod fd_info;
pub(crate) mod lookups;
pub(crate) mod mapping;
pub(crate) mod paths;
pub(crate) mod policy;
pub(crate) mod responder;
pub(crate) mod rewrite;
pub(crate) mod rules;
pub(crate) mod serve;
pub(crate) mod tracee_locks;
pub(crate) mod workers;
