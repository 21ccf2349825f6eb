//! Probe containers: a build step and an ordinary container of a running engine, which show whether
//! their syncs are held.

pub(crate) mod client;
pub(crate) mod directory;
pub(crate) mod program;
pub(crate) mod requests;

pub use self::requests::{Probed, Removed, Tried};

use crate::engine::Engine;
use crate::host::Host;
use crate::{buildkit, containerd, docker, podman, running};

/// Runs probe containers in the running `engine`, and removes them. `is_cancelled` ends the wait
/// for the engine, and then what was made is removed. Returns `None` for an engine or a user that
/// can have none.
///
/// # Errors
/// Why none can be run, which is no fault of the set-up.
pub fn probe(
    engine: Engine,
    host: &Host,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<Tried>, String> {
    if !host.is_running() || !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let probe = match engine {
        Engine::Podman => return Ok(podman::probe::probe(host, is_cancelled)),
        Engine::Held(_) => return Ok(None),
        Engine::Docker => docker::probe::probe,
        Engine::Buildkit => buildkit::probe::probe,
        Engine::Containerd => containerd::probe::probe,
    };
    let process = engine.daemon().map(|daemon| running::find(host, daemon));
    match process {
        Some(Ok(Some((process, None)))) => probe(host, &process, is_cancelled).map(Some),
        _ => Ok(None),
    }
}
