//! Durability: the marker that says a run is in flight, the one commit at its
//! end, and what is found after a crash; and the durable replacement of a file.
//!
//! The order is `hold`'s to keep; this crate makes each step durable before it
//! returns. What it assumes of the medium: a completed flush is durable, an
//! unflushed write may or may not survive, and a failed flush loses what it
//! covered (see docs/durability.md).
#![forbid(unsafe_code)]

pub mod commit;
mod directories;
pub mod earlier;
pub mod error;
pub mod everything;
pub mod marker;
#[doc(hidden)]
pub mod mutant;
pub mod pins;
pub mod record;
pub mod recovery;
pub mod registry;
pub mod replace;
pub mod standard_paths;
pub mod synced;
#[doc(hidden)]
pub mod text;
