//! An OCI runtime that is another one, with the hold in its containers' seccomp.
//!
//! # Terms
//! - **runtime**: what the engine believes to call, and what we execute: runc,
//!   crun, or what the operator configured.
//! - **invocation** ([`invocation::Invocation`]): one command line for a runtime.
//! - **bundle** ([`bundle::Bundle`]): the directory with `config.json`.
//! - **build container**: runs one step of an image build; every process in it
//!   ends with the step, and the engine stores the result.
//! - **verdict** ([`classify::Verdict`]): whether a container is held, and why.
//!
//! Only `create` and `run` are looked at. The sealed hold goes into
//! `linux.seccomp` of the bundle's `config.json` ([`profile`]), and the runtime is
//! executed in our place, with the same arguments, descriptors and environment.
//! Whatever goes wrong before that leaves a container as it is: its syncs are
//! real then.
#![forbid(unsafe_code)]

pub mod bundle;
pub mod classify;
pub mod config;
pub mod docker;
pub mod explain;
pub mod invocation;
pub mod podman;
pub mod profile;
pub mod runtime;
pub mod wrap;
