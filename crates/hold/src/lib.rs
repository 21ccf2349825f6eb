//! Held files of a daemon: files and directories whose syncs the kernel answers, for every
//! process that opens them, by a volatile overlay.
//!
//! A seccomp filter on a daemon would be inherited by every container that the daemon starts,
//! for ever. A held file affects only the file. A hold begins with [`start`], which writes a
//! durable marker ([`record`]) before the first mount, and ends with [`stop`], which syncs the
//! file systems before it removes the marker. If the marker outlives the boot, [`recover`]
//! decides what happens to the files before the daemon starts again.
#![forbid(unsafe_code)]

pub mod aside;
mod attributes;
pub mod awaited_lock;
mod boot;
pub mod config;
mod directories;
pub mod docker_layers;
mod elsewhere;
pub mod error;
pub mod file_id;
pub mod file_system;
pub mod kind;
pub mod live;
mod lost;
mod lost_writes;
mod made;
pub mod marker_place;
pub mod mounted;
mod note;
pub mod open_files;
pub mod overlaps;
pub mod overlay;
mod patience;
pub mod reach;
mod read_only;
pub mod record;
pub mod recover;
pub mod resolved_path;
pub mod runtime;
pub mod safe_directory;
pub mod start;
pub mod state_directory;
pub mod status;
pub mod stop;
pub mod unclean;
mod users;
