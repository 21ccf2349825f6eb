//! The life of a run, from the command line to the last survivor, by topic.
//!
//! Every test runs in a process, a mount namespace and a pid namespace of its own (see
//! `harness::isolated`) and so needs root, util-linux, perl and strace.

mod blocks;
mod changing;
mod checkpoints;
mod checkpoints_reach;
mod commit;
mod coverage;
mod degraded;
mod directories;
mod earlier;
mod errors;
mod exit_codes;
mod failures;
mod first_moments;
mod foreign;
mod frozen;
mod hostile;
mod journal;
mod kills;
mod limits;
mod marker;
mod mend;
mod names;
mod nesting;
mod network;
mod other_users;
mod overlays;
mod own_filters;
mod private;
mod processes;
mod raw_disks;
mod real;
mod registry;
mod restarts;
mod roots;
mod rules;
mod rules_errors;
mod rules_paths;
mod scope;
mod scope_edges;
mod scope_errors;
mod sealed;
mod sealed_scope;
mod signals;
mod slow_disks;
mod statistics;
mod status;
mod survivors;
mod terminal;
mod traces;
mod transparency;
mod unmounts;
mod unseen;
mod write_cache;
