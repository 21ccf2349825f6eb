//! The only crate with `unsafe`: the system calls that `rustix` does not wrap.
//!
//! Each module wraps one kernel interface in safe functions: [`seccomp`] installs filters,
//! [`notify`] answers their notifications, [`launch`] starts a command under a filter,
//! [`trace`] repeats a call with changed arguments, which [`registers`] finds on each
//! architecture, [`handover`] outlives a killed supervisor, [`process`] has fork, wait and process
//! attributes, [`child`] bounds the time of a program,
//! [`namespace`] makes namespaces, [`signals`] has masks and readers of signals,
//! [`peer`] has the process behind a socket, [`origin`] records what the process inherited before
//! the Rust runtime started, and [`btrfs`], [`mounting`] and [`handle`] are for trees: snapshots,
//! attributes of mounts, files by their handles, which identify held files, too; [`overlay`] mounts
//! one. [`file_sync`] syncs a file of another process, [`aio`] makes many writes at a time.
//! [`ustat`] says whether a file system is in use. [`lease`] says whether a file is open for
//! writing, [`descriptors`] whether threads share their descriptors; it also passes descriptors
//! through sockets. [`search`] looks up programs in PATH; [`accounts`] reads passwd(5) and
//! group(5). [`reason()`] puts an error in words.
#![cfg(target_os = "linux")]

// What an architecture needs is in docs/kernel.md, "Architectures". Modules that need its registers
// are left out where there are none, so that nothing but this sentence is an error.
#[cfg(target_arch = "riscv64")]
compile_error!("synconce does not support riscv64 yet");
#[cfg(target_arch = "s390x")]
compile_error!("synconce does not support s390x yet");
#[cfg(not(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little"),
    target_arch = "riscv64",
    target_arch = "s390x",
)))]
compile_error!("synconce supports x86_64 and little-endian aarch64 only");

pub mod accounts;
pub mod aio;
pub mod btrfs;
pub mod child;
pub mod descriptors;
pub mod directory;
pub mod file_sync;
pub mod handle;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod handover;
pub mod launch;
pub mod lease;
pub mod mounting;
pub mod namespace;
pub mod notify;
pub mod origin;
pub mod overlay;
pub mod peer;
pub mod process;
pub mod procfs;
#[cfg(feature = "questions")]
pub mod questions;
mod reason;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod registers;
pub mod search;
pub mod seccomp;
pub mod signals;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub mod trace;
pub mod ustat;
pub mod write_back;

pub use reason::reason;
use std::io;

/// Turns the `-1` convention of libc into a `Result`.
pub(crate) fn check(value: libc::c_long) -> io::Result<libc::c_long> {
    if value == -1 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
