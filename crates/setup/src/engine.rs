//! What can be set up, and its names.

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
    /// The hold of a daemon's databases.
    Held(HeldDaemon),
}

impl Engine {
    /// All set-ups of a host.
    pub const ALL: [Self; 7] = [
        Self::Docker,
        Self::Podman,
        Self::Buildkit,
        Self::Containerd,
        Self::Held(HeldDaemon::Docker),
        Self::Held(HeldDaemon::Buildkit),
        Self::Held(HeldDaemon::Containerd),
    ];

    /// Returns the name of the journal's directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Buildkit => "buildkit",
            Self::Containerd => "containerd",
            Self::Held(HeldDaemon::Docker) => "docker-hold",
            Self::Held(HeldDaemon::Buildkit) => "buildkit-hold",
            Self::Held(HeldDaemon::Containerd) => "containerd-hold",
        }
    }

    /// Returns the set-up of the hold of the same daemon.
    pub fn hold(self) -> Option<Self> {
        match self {
            Self::Held(_) => None,
            _ => self.daemon().map(Self::Held),
        }
    }

    /// Returns the daemon, if the engine has one.
    pub(crate) fn daemon(self) -> Option<HeldDaemon> {
        match self {
            Self::Podman => None,
            Self::Docker => Some(HeldDaemon::Docker),
            Self::Buildkit => Some(HeldDaemon::Buildkit),
            Self::Containerd => Some(HeldDaemon::Containerd),
            Self::Held(daemon) => Some(daemon),
        }
    }

    /// Returns the words after `synconce setup`.
    pub fn command(self) -> &'static str {
        match self {
            Self::Held(HeldDaemon::Docker) => "docker --hold",
            Self::Held(HeldDaemon::Buildkit) => "buildkit --hold",
            Self::Held(HeldDaemon::Containerd) => "containerd --hold",
            Self::Docker | Self::Podman | Self::Buildkit | Self::Containerd => self.name(),
        }
    }
}

/// A daemon whose databases can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldDaemon {
    /// containerd.
    Containerd,
    /// The BuildKit in dockerd.
    Docker,
    /// buildkitd.
    Buildkit,
}

impl HeldDaemon {
    /// Returns the name of the hold, which is the word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Docker => "docker",
            Self::Buildkit => "buildkit",
        }
    }

    /// Returns the name of the daemon's program.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Docker => "dockerd",
            Self::Buildkit => "buildkitd",
        }
    }
}

/// The words after `synconce setup` for builds by dockerd alone.
pub(crate) const BUILDS_ONLY: &str = "docker --builds-only";

/// Returns the first line of a file that belongs to synconce.
pub(crate) fn header(engine: Engine) -> String {
    let command = engine.command();
    format!(
        "# Written by `synconce setup {command}`; `synconce setup {command} --undo` takes it away.\n"
    )
}
