//! Side-by-side measurements of `synconce` and its rivals.
//!
//! A *scenario* is data: variants, the commands they run and the hooks that
//! set the stage ([`scenario`]). One *runner* interleaves all variants round
//! by round ([`runner`]), pure *statistics* judge the samples
//! ([`statistics`]), and a *report* shows them to people and to programs
//! ([`report`]). The scenarios themselves are [`mod@install`], [`mod@image`],
//! [`mod@compile`], [`mod@cost`] and [`mod@tree`].
//!
//! The binary under test is run as a process, never linked: what is measured
//! is what a user would get.
//!
//! Invariants of absence:
//! - No variant is measured through a wrapper that another one is spared.
//! - No mount made here is visible outside: every mount happens in a private
//!   mount namespace that ends with the process, however it ends.
//! - No sample is dropped, and no null result is left unprinted.

#![forbid(unsafe_code)]

pub mod base;

pub mod compile;
pub mod cost;
mod error;
mod failure;
pub mod image;
pub mod install;
mod interrupt;
pub mod launcher;
mod measure;
mod mount;
mod mounts;
mod processes;
pub mod report;
pub mod runner;
pub mod scenario;
pub mod statistics;
pub mod tree;
mod workplace;

pub use error::Error;
pub use failure::Failure;
pub use measure::{LoopKind, measure_loop};

use std::io::Write;
use std::path::Path;

/// Runs the install scenario and writes its report to `out`: a table, or one
/// JSON document with every sample.
///
/// # Errors
/// When the host cannot run it (not root, work directory not on a disk, no
/// apt source), when a variant fails, on an interrupt, or when `out` cannot
/// be written.
pub fn install(
    options: &install::Options,
    synconce: &Path,
    out: &mut dyn Write,
    json: bool,
) -> Result<(), Error> {
    install::measure(options, synconce)?.write(out, json)
}

/// Runs the build scenario and writes its report to `out`.
///
/// # Errors
/// When the host cannot run it (not root, no Docker, work directory not on a
/// disk, no apt source), when dockerd or a build fails, on an interrupt, or when
/// `out` cannot be written.
pub fn build(
    options: &image::Options,
    synconce: &Path,
    out: &mut dyn Write,
    json: bool,
) -> Result<(), Error> {
    image::measure(options, synconce)?.write(out, json)
}

/// Runs the micro-cost scenario and writes its report to `out`.
///
/// # Errors
/// When a variant fails, on an interrupt, or when `out` cannot be written.
pub fn cost(
    options: &cost::Options,
    synconce: &Path,
    out: &mut dyn Write,
    json: bool,
) -> Result<(), Error> {
    cost::measure(options, synconce)?.write(out, json)
}

/// Runs the compile scenario and writes its report to `out`.
///
/// # Errors
/// When the source tree is not there, the work directory is not on a disk or a
/// program is not installed, when the preparation or a build fails, on an interrupt, or when `out` cannot be
/// written.
pub fn compile(
    options: &compile::Options,
    synconce: &Path,
    out: &mut dyn Write,
    json: bool,
) -> Result<(), Error> {
    compile::measure(options, synconce)?.write(out, json)
}

/// Runs the tree scenario and writes its report to `out`.
///
/// # Errors
/// When the host cannot run it (not root, work directory not on a disk, no apt source),
/// when a variant or the making of the base fails, on an interrupt, or when `out` cannot
/// be written.
pub fn tree(
    options: &tree::Options,
    synconce: &Path,
    out: &mut dyn Write,
    json: bool,
) -> Result<(), Error> {
    tree::measure(options, synconce)?.write(out, json)
}
