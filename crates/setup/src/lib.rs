//! `synconce setup`: edits the configuration of container engines so that they call
//! `synconce-oci` in place of runc or crun; has daemons start with their databases held; puts
//! wrappers in the place of apt and dpkg; and undoes that.
//!
//! # Terms
//! - **engine** ([`Engine`]): docker, podman, buildkit, containerd; the hold of a daemon's
//!   databases is a set-up of its own.
//! - **host** ([`host::Host`]): the system whose root is given; the running one or an image.
//!   Every path is a path within this system.
//! - **plan** ([`plan::Plan`]): the files as they are and as they would be, and notes for the
//!   operator. Making a plan writes nothing.
//! - **journal** ([`journal::Journal`]): the original files; durable before the first of them
//!   is changed.
//! - **undo** ([`undo::Undo`]): restores the files from the journal.
//!
//! The set-up of [`apt`] has no journal of its own: it edits no file, and what it does can be
//! read from the programs and from dpkg's list of diversions.
//!
//! Editors take a text and return one ([`toml_edit`] and [`jsonc_parser`] keep comments and
//! order). A text that they cannot parse is refused with its line.
#![forbid(unsafe_code)]

pub mod apply;
pub mod apt;
mod buildkit;
mod containerd;
pub mod diff;
mod docker;
mod engine;
pub mod error;
mod held;
pub mod host;
mod imports;
pub mod journal;
mod json;
pub mod kubernetes;
pub mod lock;
mod original;
mod owners;
pub mod plan;
mod podman;
pub mod probe;
pub mod running;
mod systemd;
mod text;
mod toml;
pub mod undo;
pub mod version;

pub use engine::{Engine, HeldDaemon};

use engine::BUILDS_ONLY;
use error::Error;
use host::Host;
use journal::Journal;
use plan::Plan;
use std::path::Path;

impl Engine {
    /// Returns what makes the engine read its files again.
    pub fn restart(self, host: &Host) -> String {
        match self.daemon() {
            None => "the next podman or buildah reads the changed files".to_owned(),
            Some(daemon) => held::restart(host, daemon),
        }
    }
}

/// Whether `engine` was set up on the system with the state directory `state`, also for a user
/// without the right to read the journal.
pub fn is_set_up(engine: Engine, state: &Path) -> bool {
    journal::path_below(state, engine).exists()
}

/// Whether `engine` is set up on this system for builds alone, so that it holds no other container.
pub fn is_builds_only(engine: Engine) -> bool {
    engine == Engine::Docker && docker::is_builds_only()
}

/// Returns the command that undoes the hold of the daemon of `engine`, if that hold is set up on
/// `host`.
///
/// # Errors
/// A journal that cannot be read.
pub fn undo_of_hold(engine: Engine, host: &Host) -> Result<Option<String>, Error> {
    let Some(hold) = engine.hold() else { return Ok(None) };
    let journal = Journal::read(host, hold)?;
    Ok(journal.map(|_| format!("{} --undo", host.setup(hold.command()))))
}

/// Plans the set-up of `engine`.
///
/// # Errors
/// The configuration cannot be parsed, or the change would do harm: the error names the file, the
/// line and a remedy. Or a user other than root can change the program: the error names a remedy.
pub fn plan(engine: Engine, host: &Host) -> Result<Plan, Error> {
    let plan = match engine {
        Engine::Docker => docker::plan,
        Engine::Podman => podman::plan,
        Engine::Buildkit => buildkit::plan,
        Engine::Containerd => containerd::plan,
        Engine::Held(daemon) => return held::plan(host, daemon),
    };
    host.check_runtime(engine.command())?;
    plan(host)
}

/// Plans the set-up of [`Engine::Docker`] for builds alone: the default runtime stays as it is.
///
/// # Errors
/// As for [`plan()`]; a set-up of all containers is refused.
pub fn plan_builds_only(host: &Host) -> Result<Plan, Error> {
    host.check_runtime(BUILDS_ONLY)?;
    docker::plan_builds_only(host)
}

/// Returns how many databases `plan` would add to a hold, if it would change nothing else.
pub fn new_databases(plan: &Plan, host: &Host) -> Option<usize> {
    held::new_databases(plan, host)
}

/// Returns a note if the programs of `engine` are not installed: the set-up then takes effect
/// later.
///
/// # Errors
/// A unit that cannot be read.
pub fn not_installed(engine: Engine, host: &Host) -> Result<Option<String>, Error> {
    let (names, places): (&str, &[&str]) = match engine.daemon() {
        None => ("podman and buildah are", &podman::PLACES),
        Some(HeldDaemon::Docker) => ("dockerd is", &docker::PLACES),
        Some(HeldDaemon::Buildkit) => ("buildkitd is", &buildkit::PLACES),
        Some(HeldDaemon::Containerd) => ("containerd is", &containerd::PLACES),
    };
    let started = running::program(engine, host)?;
    let places: Vec<_> = started.as_deref().into_iter().chain(places.iter().copied()).collect();
    // A program elsewhere may have been started by hand.
    let is_there = host.first_executable(&places).is_some() || running::is_running(engine, host);
    let place = host.place();
    Ok((!is_there).then(|| format!("{names} not installed {place}; the set-up takes effect later")))
}

/// Returns an error if no option permits an undo of the set-up of `engine` now: a hold is in force,
/// and could not be stopped without its file.
///
/// # Errors
/// A marker or a unit that cannot be read.
pub fn in_force(engine: Engine, host: &Host) -> Result<Option<Error>, Error> {
    match engine {
        Engine::Held(daemon) => held::in_force(host, daemon),
        Engine::Docker | Engine::Podman | Engine::Buildkit | Engine::Containerd => Ok(None),
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
