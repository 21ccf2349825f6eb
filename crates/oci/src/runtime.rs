//! The real runtime: how it is found, and how a call of it ends.

use crate::config::Settings;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use synconce_sys::search;

/// The names of runtimes that are wrapped. They are tried in this order, if the caller's name does
/// not determine one. The last is buildkitd's own runc.
const NAMES: [&str; 3] = ["runc", "crun", "buildkit-runc"];

/// Whether a program of this name acts as a runtime: `synconce-oci`, `synconce-oci-RUNTIME`, or the
/// name of a runtime itself.
pub fn is_runtime(name: &str) -> bool {
    name.starts_with("synconce-oci") || NAMES.contains(&name)
}

/// How a call of the runtime ended.
#[derive(Debug)]
pub enum RuntimeEnd {
    /// synconce-oci failed. The message is for the user.
    Failed(String),
    /// The runtime exited with this code.
    Exited(u8),
    /// The runtime was killed by this signal.
    Killed(i32),
}

/// Runtimes whose containers run on another kernel, and why the hold has no effect there.
const REFUSED: [(&str, &str); 4] = [
    ("runsc", "gVisor makes the calls of its containers in a kernel of its own"),
    ("kata", "Kata's containers have a kernel of their own, and no profile by default"),
    ("krun", "krun's containers have a kernel of their own"),
    ("crun-vm", "crun-vm's containers have a kernel of their own"),
];

/// Finds the runtime for a synconce-oci that was called as `name`: the operator's choice, else
/// the runtime of that name (`runc` or `synconce-oci-runc`), else the first known one. Skips
/// the programs in `tried`, which led back to synconce-oci.
///
/// # Errors
/// There is no runtime but synconce-oci itself.
pub(crate) fn find(
    settings: &Settings,
    name: &OsStr,
    path: Option<&OsStr>,
    tried: &Tried,
) -> Result<PathBuf, String> {
    let ourselves = ProgramIdentity::read(Path::new("/proc/self/exe"))
        .ok_or("cannot find ourselves by /proc/self/exe, to execute another")?;
    if let Some(runtime) = &settings.runtime {
        return match ProgramIdentity::read(runtime) {
            None => Err(format!("cannot find the runtime {}", runtime.display())),
            Some(found) if found == ourselves || tried.has(runtime) => {
                Err(format!("the runtime {} leads back to synconce", runtime.display()))
            }
            Some(_) => Ok(runtime.clone()),
        };
    }
    let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let wanted = name.strip_prefix("synconce-oci-").unwrap_or(&name);
    let names: Vec<&str> = if NAMES.contains(&wanted) { vec![wanted] } else { NAMES.to_vec() };
    let also = |name| search::SYSTEM_DIRECTORIES.map(|directory| Path::new(directory).join(name));
    let in_path =
        |name| path.into_iter().flat_map(move |path| search::candidates(name, Some(path)));
    let all = |name| in_path(OsStr::new(name)).chain(also(name));
    let candidates = names.iter().copied().flat_map(all);
    candidates
        .filter(|path| path.is_absolute() && !tried.has(path))
        .find(|path| ProgramIdentity::read(path).is_some_and(|found| found != ourselves))
        .ok_or_else(|| format!("cannot find a runtime ({}) beside synconce", names.join(", ")))
}

/// The programs that this process has executed already: a copy of synconce-oci, or a wrapper
/// script, may execute synconce-oci again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tried(Vec<PathBuf>);

impl Tried {
    /// The environment variable with this process's pid and the paths.
    pub(crate) const VARIABLE: &str = "SYNCONCE_OCI_TRIED";

    /// Returns the programs that process `pid` has tried, from the variable's value.
    pub(crate) fn parse(value: Option<&OsStr>, pid: u32) -> Self {
        let mut paths = value.map(|value| std::env::split_paths(value)).into_iter().flatten();
        // Child processes inherit the variable, but have another pid.
        match paths.next() {
            Some(first) if first == Path::new(&pid.to_string()) => Self(paths.collect()),
            _ => Self::default(),
        }
    }

    /// Returns the variable's value for executing `runtime` next.
    pub(crate) fn with(&self, runtime: &Path, pid: u32) -> OsString {
        let pid = PathBuf::from(pid.to_string());
        let paths = [&pid].into_iter().chain(&self.0).map(PathBuf::as_path).chain([runtime]);
        // A path with a colon cannot be stored; it could not be in PATH either.
        std::env::join_paths(paths).unwrap_or_default()
    }

    fn has(&self, path: &Path) -> bool {
        self.0.iter().any(|tried| tried == path)
    }
}

/// Returns why containers of `runtime` cannot be held, or `None` when they can.
pub(crate) fn refusal(runtime: &Path) -> Option<&'static str> {
    let real = runtime.canonicalize().unwrap_or_else(|_| runtime.to_owned());
    [runtime, &real].into_iter().find_map(|path| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        REFUSED.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, why)| *why)
    })
}

/// The device and inode of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProgramIdentity(u64, u64);

impl ProgramIdentity {
    /// Returns `None` when `path` is not an executable file.
    fn read(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok()?;
        let executable = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
        executable.then(|| Self(metadata.dev(), metadata.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(directory: &Path, name: &str) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn who_stands_before_a_runtime_finds_it_behind_himself() {
        let (before, behind) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ourselves = std::env::current_exe().unwrap();
        std::os::unix::fs::symlink(&ourselves, before.path().join("runc")).unwrap();
        let runc = program(behind.path(), "runc");
        let crun = program(before.path(), "crun");
        let path = std::env::join_paths([before.path(), behind.path()]).unwrap();
        let found = |name: &str| {
            find(&Settings::default(), OsStr::new(name), Some(&path), &Tried::default()).unwrap()
        };
        assert_eq!(found("runc"), runc);
        assert_eq!(found("/x/synconce-oci-crun"), crun);
        assert_eq!(found("synconce-oci"), runc);
    }

    #[test]
    fn the_operators_choice_is_not_searched_for_and_is_not_ourselves() {
        let directory = tempfile::tempdir().unwrap();
        let mine = program(directory.path(), "mine");
        let of = |runtime: PathBuf| {
            let settings = Settings { runtime: Some(runtime), ..Settings::default() };
            find(&settings, OsStr::new("runc"), None, &Tried::default())
        };
        assert_eq!(of(mine.clone()), Ok(mine));
        assert!(of("/nowhere/runc".into()).unwrap_err().contains("/nowhere/runc"));
        assert!(of(std::env::current_exe().unwrap()).unwrap_err().contains("leads back"));
    }

    #[test]
    fn who_led_back_to_us_is_not_tried_again() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let copy = program(first.path(), "runc");
        let real = program(second.path(), "runc");
        let path = std::env::join_paths([first.path(), second.path()]).unwrap();
        let value = Tried::default().with(&copy, 7);
        let of = |tried: &Tried| find(&Settings::default(), OsStr::new("runc"), Some(&path), tried);
        assert_eq!(of(&Tried::parse(Some(&value), 7)), Ok(real));
        assert_eq!(of(&Tried::parse(Some(&value), 8)), Ok(copy), "another process's");
    }

    #[test]
    fn runtimes_with_a_kernel_of_their_own_are_refused_also_by_another_name() {
        let directory = tempfile::tempdir().unwrap();
        let runsc = program(directory.path(), "runsc");
        let link = directory.path().join("sandbox");
        std::os::unix::fs::symlink(&runsc, &link).unwrap();
        assert!(refusal(&runsc).is_some() && refusal(&link).is_some());
        assert!(refusal(Path::new("/opt/kata/bin/kata-runtime")).is_some());
        assert!(refusal(Path::new("/usr/bin/crun")).is_none());
    }
}
