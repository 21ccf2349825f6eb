//! An OCI runtime that adds the hold to a container's seccomp profile and executes the real
//! runtime.
//!
//! # Terms
//! - **runtime**: the program that the engine means to call, and that synconce-oci executes:
//!   runc, crun, or the operator's choice.
//! - **invocation** (`invocation::Invocation`): one command line for a runtime.
//! - **bundle** (`bundle::Bundle`): the directory with `config.json`.
//! - **build container**: runs one step of an image build; every process in it ends with the
//!   step, and the engine stores the result.
//! - **treatment** (`classify::Treatment`): whether a container is held, and why.
//!
//! Only `create`, `run` and `delete` are handled. The sealed hold is added to `linux.seccomp` of
//! the bundle's `config.json` (`profile`), and the runtime is executed in this process, with the
//! same arguments, descriptors and environment. On any error before that, the container is not
//! changed, and its syncs are done.
//!
//! If the root of a step becomes volatile (`step`, `step_root`), one call mounts the root back
//! after the runtime has ended. That call executes the runtime in a child process (`foreground`):
//! `run`, or `delete`. The root of a held step that no unmount syncs (`step_sync`) is synced after
//! `run`, or before `delete`.
#![forbid(unsafe_code)]

mod bundle;
mod classify;
mod config;
mod docker;
pub mod explain;
mod foreground;
pub mod held_steps;
mod invocation;
mod outliving;
mod podman;
pub mod probe;
mod profile;
mod runtime;
mod step;
mod step_root;
mod step_sync;
mod step_watch;
pub mod wrap;

pub use config::are_step_roots_volatile;
pub use runtime::{RuntimeEnd, is_runtime};
