//! Durability: the marker of a run in flight, the one commit at its end, recovery after a crash,
//! and the durable replacement of a file.
//!
//! The `run` crate calls the steps in order. A step that has to be durable is durable when its
//! function here returns. Assumptions about the medium: a completed flush is durable, an unflushed
//! write may or may not survive, and a failed flush loses what it covered (see docs/durability.md).
#![forbid(unsafe_code)]

pub mod boot;
pub mod commit;
pub mod count;
mod directories;
pub mod earlier;
pub mod error;
pub mod everything;
pub mod failures;
pub mod file_system;
mod in_flight;
pub mod in_root;
pub mod marker;
#[doc(hidden)]
pub mod mutant;
pub mod pins;
pub mod record;
pub mod recovery;
pub mod registry;
pub mod replace;
pub mod standard_paths;
pub mod state_file;
pub mod step_watch;
pub mod synced;
#[doc(hidden)]
pub mod text;
#[doc(hidden)]
pub mod wildcards;
