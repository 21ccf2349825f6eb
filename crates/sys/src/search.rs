//! Looks up programs in PATH like execvp(3). Lists the directories of programs and of units of
//! systemd.

use rustix::fs::Access;
use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The search path of execvp(3) if PATH is unset.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Where the programs of a system are. sudo searches them, and synconce-oci beside an engine's
/// PATH, which may lack some.
pub const SYSTEM_DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The directories of systemd's units, in the order of precedence (systemd.unit(5)).
pub const UNIT_DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Returns the paths at which execvp(3) looks for `name`, in order, if `path` is the value of
/// PATH: `name` itself if it contains a slash, else `name` in each directory. An empty directory
/// is the current one. An empty name is nowhere.
pub fn candidates<'a>(
    name: &'a OsStr,
    path: Option<&'a OsStr>,
) -> impl Iterator<Item = PathBuf> + 'a {
    let has_slash = name.as_bytes().contains(&b'/');
    let itself = has_slash.then(|| PathBuf::from(name));
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH)).as_bytes();
    let directories = path.split(|byte| *byte == b':').map(|it| Path::new(OsStr::from_bytes(it)));
    let is_looked_up = !has_slash && !name.is_empty();
    let found = directories.filter(move |_| is_looked_up).map(move |it| it.join(name));
    itself.into_iter().chain(found)
}

/// Returns the first file of [`candidates`], by this process's PATH, that it may execute.
pub fn find(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    candidates(name.as_ref(), env::var_os("PATH").as_deref()).find(|path| is_executable(path))
}

/// Whether sudo finds `program` by its name (`secure_path` in sudoers(5)).
pub fn is_found_by_sudo(program: &Path) -> bool {
    let directory = program.parent().and_then(Path::to_str);
    directory.is_some_and(|directory| SYSTEM_DIRECTORIES.contains(&directory))
}

/// Returns what names this program in a command line of sudo: its path, if sudo does not find it.
pub fn name_for_sudo() -> PathBuf {
    env::current_exe()
        .ok()
        .filter(|program| !is_found_by_sudo(program))
        .unwrap_or_else(|| "synconce".into())
}

/// Whether `path` leads to a file that this process may execute, by its real ids (access(2)).
/// faccessat(2) with AT_EACCESS is no call that every container allows.
pub fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, path: Option<&str>) -> Vec<PathBuf> {
        candidates(OsStr::new(name), path.map(OsStr::new)).collect()
    }

    #[test]
    fn a_name_without_a_slash_is_looked_for_in_every_directory_of_the_path() {
        assert_eq!(found("ls", Some("/a::/b")), ["/a/ls", "ls", "/b/ls"].map(PathBuf::from));
        assert_eq!(found("ls", Some("")), [PathBuf::from("ls")]);
        assert_eq!(found("ls", None), ["/bin/ls", "/usr/bin/ls"].map(PathBuf::from));
    }

    #[test]
    fn a_name_with_a_slash_is_taken_as_it_is() {
        assert_eq!(found("./ls", Some("/a")), [PathBuf::from("./ls")]);
    }

    #[test]
    fn an_empty_name_is_nowhere() {
        assert!(found("", Some("/a")).is_empty());
    }

    #[test]
    fn a_directory_is_no_program() {
        assert!(is_executable(Path::new("/bin/sh")) && !is_executable(Path::new("/bin")));
    }
}
