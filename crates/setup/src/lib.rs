//! `synconce setup`: container engines are told, in their own configuration, to
//! call `synconce-oci` where they called runc or crun; and are told otherwise again.
//!
//! # Terms
//! - **engine** ([`Engine`]): docker, podman, buildkit, containerd, kubernetes.
//! - **host** ([`host::Host`]): the system whose root is given; the running one or
//!   an image. Every path is one that this system sees.
//! - **plan** ([`plan::Plan`]): the files as they are and as they would be, and what
//!   the operator has to know. Making one writes nothing.
//! - **journal** ([`journal::Journal`]): the files as they were; durable before the
//!   first of them is touched.
//! - **undo** ([`undo::Undo`]): the way back by the journal.
//!
//! Editors take a text and return one ([`toml_edit`] and [`jsonc_parser`] keep
//! comments and order); what they do not understand is refused with its line.
#![forbid(unsafe_code)]

pub mod apply;
mod buildkit;
mod containerd;
pub mod diff;
mod docker;
pub mod error;
pub mod host;
mod imports;
pub mod journal;
mod json;
pub mod kubernetes;
mod original;
pub mod plan;
mod podman;
mod systemd;
mod text;
mod toml;
pub mod undo;
pub mod version;

use error::Error;
use host::Host;
use plan::Plan;

/// What is configured on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// dockerd, its classic builder and its embedded BuildKit.
    Docker,
    /// Podman and Buildah.
    Podman,
    /// buildkitd on its own.
    Buildkit,
    /// containerd: a runtime that Kubernetes may ask for.
    Containerd,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Docker, Self::Podman, Self::Buildkit, Self::Containerd];

    /// The word on the command line, and the name of the journal's directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Buildkit => "buildkit",
            Self::Containerd => "containerd",
        }
    }

    /// What has to be done before `engine` goes by its files again.
    pub fn restart(self) -> &'static str {
        match self {
            Self::Docker => "restart dockerd: systemctl daemon-reload && systemctl restart docker",
            Self::Podman => "the next podman or buildah goes by it",
            Self::Buildkit => "restart buildkitd",
            Self::Containerd => "restart containerd: systemctl restart containerd",
        }
    }
}

/// What setting up `engine` would change.
///
/// # Errors
/// A configuration that is not understood, or where it would do harm, is refused
/// with the file, the line and what to do.
pub fn plan(engine: Engine, host: &Host) -> Result<Plan, Error> {
    host.check_runtime()?;
    match engine {
        Engine::Docker => docker::plan(host),
        Engine::Podman => podman::plan(host),
        Engine::Buildkit => buildkit::plan(host),
        Engine::Containerd => containerd::plan(host),
    }
}

/// Why undoing `engine` would leave something behind that cannot work, if so.
///
/// # Errors
/// A configuration that cannot be read.
pub fn still_in_use(engine: Engine, host: &Host) -> Result<Option<Error>, Error> {
    match engine {
        Engine::Docker => docker::still_in_use(host),
        _ => Ok(None),
    }
}
