//! What the project's tests are made with. Never shipped.
//!
//! - [`rig`]: a disk that is slow, fails, is recorded and loses its power on demand, with a file system on it.
//! - [`manifest`]: what a tree contains, to say whether two trees are identical and where they differ.
//! - [`isolation`]: each test in a process, a mount namespace and a pid namespace of its own.
//! - [`process`]: a command with a timeout whose whole process group dies with its handle.
//! - [`patiently`]: limits of time that a slow machine stretches.
//!
//! For a scratch directory use `tempfile`.
#![forbid(unsafe_code)]

mod error;
pub mod isolation;
pub mod manifest;
mod patience;
pub mod process;
pub mod rig;
pub mod units;

pub use error::{Error, Result};
pub use patience::patiently;
