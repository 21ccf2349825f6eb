//! Side-by-side measurements of `synconce` and its rivals.
//!
//! A *scenario* is data: variants, their commands, and hooks that make a fixture
//! ([`scenario`]). The *harness* checks the host and makes the report, one *runner* interleaves
//! all variants round by round ([`runner`]), pure *statistics* evaluate the samples
//! ([`statistics`]), and a *report* is printed as tables or as JSON ([`report`]). The scenarios
//! are [`mod@install`], [`mod@image`], [`mod@import`], [`mod@db`], [`mod@compile`],
//! [`mod@cost`] and [`mod@tree`].
//!
//! The binary under test runs as a process and is never linked, so that users get what is
//! measured.
//!
//! Invariants:
//! - No variant is measured through a wrapper that another variant does not use.
//! - No mount made here is visible outside: every mount is made in a private mount namespace. The
//!   namespace ends with the process, even if the process is killed.
//! - No sample is dropped, and every null result is printed.

#![forbid(unsafe_code)]

pub mod base;
mod call_loop;
mod command;
pub mod compile;
pub mod cost;
mod daemon;
pub mod db;
mod error;
mod failure;
mod files;
mod harness;
mod hold;
pub mod image;
pub mod import;
pub mod install;
mod interrupt;
pub mod launcher;
mod mount;
mod mounts;
mod processes;
pub mod report;
pub mod runner;
pub mod scenario;
mod speeds;
pub mod statistics;
pub mod tree;
mod walk;
mod work_dir;

pub use call_loop::{LoopKind, measure_loop};
pub use error::Error;
use failure::CommandFailure;
pub use harness::Common;
