//! The architecture, mounts, mount namespaces, file systems, devices, emulators, systemd, dockerd
//! and databases of bbolt of this host.
//!
//! The crate only reads. Parsers take text and return values; one function for each parser
//! does the I/O.
#![forbid(unsafe_code)]

pub mod architecture;
pub mod bolt;
pub mod device;
pub mod docker;
pub mod emulator;
pub mod filesystem;
pub mod mounts;
pub mod namespaces;
pub mod super_block;
pub mod systemd;
pub mod version;
