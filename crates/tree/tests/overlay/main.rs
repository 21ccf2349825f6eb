//! Overlays of layers on real file systems; the kernel's view is the reference.
//!
//! Needs root. Each test has a process, a mount namespace and a pid namespace of its own.

mod btrfs;
mod freezing;
mod mounting;
mod random;
mod snapshots;
mod subvolumes;
mod support;
mod trials;
