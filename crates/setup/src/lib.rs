//! `synconce setup`: edits the configuration of container engines so that they call
//! `synconce-oci` in place of runc or crun; and undoes the edits.
//!
//! # Terms
//! - **engine** ([`Engine`]): docker, podman, buildkit, containerd, kubernetes.
//! - **host** ([`host::Host`]): the system whose root is given; the running one or an image.
//!   Every path is a path within this system.
//! - **plan** ([`plan::Plan`]): the files as they are and as they would be, and notes for the
//!   operator. Making a plan writes nothing.
//! - **journal** ([`journal::Journal`]): the original files; durable before the first of them
//!   is changed.
//! - **undo** ([`undo::Undo`]): restores the files from the journal.
//!
//! Editors take a text and return one ([`toml_edit`] and [`jsonc_parser`] keep comments and
//! order). A text that they cannot parse is refused with its line.
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
    /// containerd: a runtime that Kubernetes may request.
    Containerd,
}

impl Engine {
    /// All engines with a set-up on the host.
    pub const ALL: [Self; 4] = [Self::Docker, Self::Podman, Self::Buildkit, Self::Containerd];

    /// Returns the word on the command line, which is also the name of the journal's
    /// directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Buildkit => "buildkit",
            Self::Containerd => "containerd",
        }
    }

    /// Returns what makes `engine` read its files again.
    pub fn restart(self) -> &'static str {
        match self {
            Self::Docker => "restart dockerd: systemctl daemon-reload && systemctl restart docker",
            Self::Podman => "the next podman or buildah goes by it",
            Self::Buildkit => "restart buildkitd",
            Self::Containerd => "restart containerd: systemctl restart containerd",
        }
    }
}

/// Plans the set-up of `engine`.
///
/// # Errors
/// A configuration that cannot be parsed, or where the change would do harm, is refused with
/// the file, the line and a remedy.
pub fn plan(engine: Engine, host: &Host) -> Result<Plan, Error> {
    host.check_runtime()?;
    match engine {
        Engine::Docker => docker::plan(host),
        Engine::Podman => podman::plan(host),
        Engine::Buildkit => buildkit::plan(host),
        Engine::Containerd => containerd::plan(host),
    }
}

/// Returns an error if something could no longer work after an undo of `engine`.
///
/// # Errors
/// A configuration that cannot be read.
pub fn still_in_use(engine: Engine, host: &Host) -> Result<Option<Error>, Error> {
    match engine {
        Engine::Docker => docker::still_in_use(host),
        _ => Ok(None),
    }
}
