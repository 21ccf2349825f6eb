//! The standard directories of markers and run files.

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::{env, fs, io};
use synconce_probe::filesystem::is_memory_magic;

/// Overrides the directory of markers; for tests and unusual layouts.
pub(crate) const STATE_VARIABLE: &str = "SYNCONCE_STATE_DIR";
/// Overrides the directory of run files.
pub(crate) const RUNTIME_VARIABLE: &str = "SYNCONCE_RUNTIME_DIR";
/// Overrides the registry of state directories.
pub(crate) const REGISTRY_VARIABLE: &str = "SYNCONCE_REGISTRY_DIR";

/// The directory of root's markers, relative to a root.
pub const STATE_BELOW_ROOT: &str = "var/lib/synconce";

/// The directory of root's run files.
const SYSTEMS_RUNTIME: &str = "/run/synconce";

/// Returns the directory of this user's markers: `/var/lib/synconce` for root,
/// `$XDG_STATE_HOME/synconce` or `~/.local/state/synconce` for other users. Returns `None` if
/// neither variable is set.
pub fn state() -> Option<PathBuf> {
    if let Some(path) = absolute(STATE_VARIABLE) {
        return Some(path);
    }
    if is_roots(Path::new("/var/lib")) {
        return Some(systems());
    }
    let named = absolute("XDG_STATE_HOME").map(|path| path.join("synconce"));
    named.or_else(|| Some(state_in_home(&absolute("HOME")?)))
}

/// Whether [`state`] was set in the environment.
pub fn is_state_named() -> bool {
    absolute(STATE_VARIABLE).is_some()
}

/// Returns the directory of root's markers.
pub fn systems() -> PathBuf {
    Path::new("/").join(STATE_BELOW_ROOT)
}

/// Returns the registry of state directories (see [`crate::registry`]).
pub fn registry() -> PathBuf {
    absolute(REGISTRY_VARIABLE).unwrap_or_else(|| systems().join("directories"))
}

/// Returns the directories of the numbers of failed syncs (see [`crate::failures`]), this user's
/// first. It outlives a login, and does not depend on one.
pub(crate) fn failures() -> Vec<PathBuf> {
    let systems = || PathBuf::from(SYSTEMS_RUNTIME);
    let own = if is_runtime_named() {
        vec![runtime()]
    } else if is_roots(Path::new("/run")) {
        vec![Some(systems())]
    } else {
        vec![state(), Some(systems())]
    };
    own.into_iter().flatten().map(|directory| directory.join("failures")).collect()
}

/// Returns the default directory of markers of a user whose home is `home`.
pub fn state_in_home(home: &Path) -> PathBuf {
    home.join(".local/state/synconce")
}

/// Returns the directory of data about the running system, for any user. `SYNCONCE_STATE_DIR`
/// overrides it.
pub fn system() -> PathBuf {
    absolute(STATE_VARIABLE).unwrap_or_else(systems)
}

/// Returns the directory of run files, which live as long as their run: `/run/synconce` for
/// root, `$XDG_RUNTIME_DIR/synconce` for other users.
pub fn runtime() -> Option<PathBuf> {
    if let Some(path) = absolute(RUNTIME_VARIABLE) {
        return Some(path);
    }
    if is_roots(Path::new("/run")) {
        return Some(PathBuf::from(SYSTEMS_RUNTIME));
    }
    absolute("XDG_RUNTIME_DIR").map(|path| path.join("synconce"))
}

/// Returns root's directory of run files for another user; `None` for root, and if [`runtime`] was
/// set in the environment.
pub fn runtime_of_root() -> Option<PathBuf> {
    let systems = PathBuf::from(SYSTEMS_RUNTIME);
    (!is_runtime_named() && runtime().as_ref() != Some(&systems)).then_some(systems)
}

/// Makes `directory`, a directory of run files, if it is missing. If root makes it, all users can
/// read it, with any umask: a command that has changed its user finds the run file there. A
/// directory that exists, or a link to it, stays as it is.
///
/// # Errors
/// Those of mkdir(2) and open(2).
pub fn make_runtime(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(directory)?;
    if rustix::process::geteuid().is_root() {
        // By descriptor, without following a link: the directory may be in another user's
        // tree.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::open(directory, flags, Mode::empty())?;
        // A file system without modes refuses the change, and its own modes apply.
        let _ = rustix::fs::fchmod(made, Mode::from_raw_mode(0o755));
    }
    Ok(())
}

/// Whether files may be made in `directory`, the directory of run files: the user named the
/// directory, or it is in memory. In an image build `/run` is part of the new layer, where the
/// directory and its parent's changed mtime would stay.
pub fn may_hold_run_files(directory: &Path) -> bool {
    let system = directory.ancestors().find_map(|above| rustix::fs::statfs(above).ok());
    is_runtime_named() || system.is_some_and(|it| is_memory_magic(it.f_type as u64))
}

/// Whether [`runtime`] was set in the environment.
pub fn is_runtime_named() -> bool {
    absolute(RUNTIME_VARIABLE).is_some()
}

/// Whether the program of this process was removed and not replaced, as by a purge of its package.
/// Then the run leaves nothing in these directories for a later run.
pub fn is_program_gone() -> bool {
    // proc_pid_exe(5).
    let program = fs::read_link("/proc/self/exe").unwrap_or_default();
    let removed = program.to_str().and_then(|program| program.strip_suffix(" (deleted)"));
    removed.is_some_and(|program| !Path::new(program).exists())
}

/// Whether this process is root and may write to `directory`: an unprivileged user is root in
/// a user namespace, and may not.
fn is_roots(directory: &Path) -> bool {
    let refused = rustix::fs::access(directory, Access::WRITE_OK) == Err(Errno::ACCESS);
    rustix::process::geteuid().is_root() && !refused
}

/// Returns the first of our variables that has a relative path, and the path. Another process would
/// look for the markers elsewhere. An empty value counts as none.
pub fn relative() -> Option<(&'static str, PathBuf)> {
    [STATE_VARIABLE, RUNTIME_VARIABLE, REGISTRY_VARIABLE].into_iter().find_map(|variable| {
        let path = PathBuf::from(env::var_os(variable)?);
        (path.is_relative() && path != Path::new("")).then_some((variable, path))
    })
}

fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
