//! The resource limits of the supervisor, which are those of the job that started the run.

use rustix::process::{Resource, Rlimit, setrlimit};
use synconce_sys::process::raise_soft_limit;

/// Raises this process's limits of processor time and of open files as far as the kernel permits.
/// Processes that were forked before keep their limits (setrlimit(2)).
///
/// The supervisor takes processor time for each call of the command, and a descriptor for each
/// file system of the commit.
pub(crate) fn raise() {
    let unlimited = Rlimit { current: None, maximum: None };
    // Only CAP_SYS_RESOURCE permits to raise a hard limit.
    if setrlimit(Resource::Cpu, unlimited).is_err() {
        // At a hard limit of processor time the kernel sends SIGKILL, and no SIGXCPU before.
        raise_soft_limit(Resource::Cpu);
    }
    raise_soft_limit(Resource::Nofile);
}
