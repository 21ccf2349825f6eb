//! Tools for the project's tests. Never shipped.
//!
//! - [`rig`]: a disk that is slow, fails, is recorded and loses its power on demand, with a
//!   file system on it.
//! - [`manifest`]: the content of a tree, to check whether two trees are identical and where
//!   they differ.
//! - [`isolation`]: each test in a process, a mount namespace and a pid namespace of its own.
//! - [`process`]: a command with a timeout, whose whole process group is killed when its
//!   handle is dropped.
//! - [`harness`]: tests of the command line.
//! - [`build`]: programs of the build that made a test.
//! - [`go`]: programs in Go, for daemons' databases.
//! - [`patiently`]: time limits that can be extended for slow machines.
//!
//! For a scratch directory use `tempfile`.
#![forbid(unsafe_code)]

pub mod build;
mod error;
pub mod go;
pub mod harness;
pub mod isolation;
pub mod manifest;
mod patience;
pub mod process;
pub mod rig;
pub mod units;

pub use error::{Error, Result};
pub use patience::patiently;
