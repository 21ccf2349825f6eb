//! Overlays of layers on real file systems, with the kernel as the judge.
//!
//! Needs root. Each test is in a process, a mount namespace and a pid namespace of its
//! own.

#[path = "../../../cli/tests/common/isolation.rs"]
mod isolation;

mod btrfs;
mod freezing;
mod mounting;
mod random;
mod support;
mod trials;
