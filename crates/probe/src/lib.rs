//! What this host is made of: mounts, file systems, devices.
//!
//! Everything here only reads. Parsers take text and return values; one
//! function each does the I/O.
#![forbid(unsafe_code)]

pub mod device;
pub mod filesystem;
pub mod mounts;
