//! Side-by-side measurements of `synconce` and its rivals.
//!
//! A *scenario* is data: variants, their commands, and hooks that prepare a fixture
//! ([`scenario`]). One *runner* interleaves all variants round by round ([`runner`]), pure
//! *statistics* evaluate the samples ([`statistics`]), and a *report* is printed as tables or
//! as JSON ([`report`]). The scenarios are [`mod@install`], [`mod@image`], [`mod@compile`],
//! [`mod@cost`] and [`mod@tree`].
//!
//! The binary under test runs as a process and is never linked, so that a measurement is what
//! a user would get.
//!
//! Invariants:
//! - No variant is measured through a wrapper that another variant does not use.
//! - No mount made here is visible outside: every mount is made in a private mount namespace
//!   that ends with the process, however the process ends.
//! - No sample is dropped, and every null result is printed.

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

/// Runs the install scenario and writes its report to `out`: a table, or one JSON document
/// with every sample.
///
/// # Errors
/// The host is unsuitable (not root, work directory not on a disk, no apt source), a variant
/// fails, an interrupt arrives, or `out` cannot be written.
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
/// The host is unsuitable (not root, no Docker, work directory not on a disk, no apt source),
/// dockerd or a build fails, an interrupt arrives, or `out` cannot be written.
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
/// A variant fails, an interrupt arrives, or `out` cannot be written.
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
/// The source tree is missing, the work directory is not on a disk, a program is not
/// installed, the preparation or a build fails, an interrupt arrives, or `out` cannot be
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
/// The host is unsuitable (not root, work directory not on a disk, no apt source), a variant
/// or the making of the base fails, an interrupt arrives, or `out` cannot be written.
pub fn tree(
    options: &tree::Options,
    synconce: &Path,
    out: &mut dyn Write,
    json: bool,
) -> Result<(), Error> {
    tree::measure(options, synconce)?.write(out, json)
}
