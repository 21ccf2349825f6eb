//! synconce called by the name `eatmydata`: the command line and exit codes of Debian's script of
//! that name, with a commit at the end.
//!
//! Callers of eatmydata want their command to run wherever the script would run it. So a hold
//! that cannot be set up is a notice here, and the command runs with real syncs.

use super::run::{Screen, end, options, refuse_own_script, warn_of_preloads};
use crate::arguments::{self, Command};
use crate::exit;
use crate::text::{notice, say};
use rustix::fs::Access;
use std::collections::VecDeque;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use synconce_run::{Finished, RunError, RunOptions};
use synconce_sys::search;

const NAME: &str = "eatmydata";

/// Where dash(1), the interpreter of the script, looks for programs if PATH is unset.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The kernel follows at most this number of links in a path (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Acts as eatmydata if the program was called by that name, or by a link that leads to that
/// name: `aptitude -> eatmydata` runs aptitude.
pub fn called_as_eatmydata() -> Option<ExitCode> {
    let mut words = env::args_os();
    let name = words.next()?;
    let words: VecDeque<_> = words.collect();
    match Path::new(&name).file_name()?.to_str() {
        Some("synconce") => None,
        Some(NAME) => Some(by_name(words)),
        _ => {
            let path = Path::new(OsStr::from_bytes(rustix::param::linux_execfn().to_bytes()));
            leads_to_eatmydata(path).then(|| by_link(path, words))
        }
    }
}

/// Whether `path` is a symbolic link from which a chain of links comes to the name `eatmydata`.
fn leads_to_eatmydata(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&path) else { return false };
        path = path.parent().unwrap_or(Path::new("")).join(target);
        if path.file_name() == Some(OsStr::new(NAME)) {
            return true;
        }
    }
    false
}

/// `eatmydata [--] COMMAND ARG...`
fn by_name(mut words: VecDeque<OsString>) -> ExitCode {
    if words.front().is_some_and(|word| word == "--") {
        words.pop_front();
    }
    match words.front() {
        Some(command) if !command.is_empty() => {
            let found = find(command, |_| true);
            start(words, found)
        }
        _ => {
            // A write error is ignored, as by the script.
            let _ = writeln!(std::io::stderr(), "usage: {NAME} [--] command [arg ...]");
            exit::WRONG_FOR_EATMYDATA.into()
        }
    }
}

/// The link `path` has the name of the program that `words` are for.
fn by_link(path: &Path, mut words: VecDeque<OsString>) -> ExitCode {
    let name = path.file_name().unwrap_or_default().to_owned();
    // Compared by inode: a chroot may have no /proc/self/exe.
    let own = identity(path);
    // A link to another eatmydata would find this link, and so on without end.
    let found = find(&name, |path| identity(path) != own && !leads_to_eatmydata(path));
    words.push_front(name);
    start(words, found)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Returns the path of `command`: itself if it contains a slash, else the first file of that name
/// in PATH that can be executed and is `wanted`.
fn find(command: &OsStr, wanted: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(command.into());
    }
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let paths = search::candidates(command, Some(&path)).map(|path| {
        if path == *command {
            // Without a slash the path would be looked up in PATH again.
            Path::new(".").join(path)
        } else {
            path
        }
    });
    // The script finds a directory, too.
    let is_executable = |path: &PathBuf| rustix::fs::access(path, Access::EXEC_OK).is_ok();
    paths.filter(is_executable).find(|path| wanted(path))
}

/// Starts `typed`, whose program is at `found`.
fn start(typed: VecDeque<OsString>, found: Option<PathBuf>) -> ExitCode {
    let typed = Vec::from(typed);
    let Some(path) = found else {
        say(&format!("cannot find {} in PATH", typed[0].to_string_lossy()));
        return exit::NOT_FOUND_BY_EATMYDATA.into();
    };
    let mut screen = Screen::typed(&["synconce", "run", "--"].map(OsString::from), &typed);
    let mut command = typed;
    command[0] = path.into();
    if let Err(refusal) = refuse_own_script(&command) {
        return refusal.report();
    }
    let finished = hold_if_possible(command, &mut screen);
    end(&finished)
}

/// Runs `command` under a hold with a commit, or without a hold if there can be none.
fn hold_if_possible(command: Vec<OsString>, screen: &mut Screen) -> Finished {
    let program = Path::new(&command[0]);
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && synconce_run::gains(program) && !synconce_run::is_held() {
        notice(&format!(
            "{} gains no privileges in a run without CAP_SYS_ADMIN: the command runs with real \
             syncs",
            program.display()
        ));
        screen.hint_at_privileges(program);
        return synconce_run::execute_unheld(&command);
    }
    warn_of_preloads(&command);
    let words = ["synconce", "run", "--"].map(OsString::from).into_iter();
    let words: Vec<_> = words.chain(command.iter().cloned()).collect();
    let run = match arguments::parse(&words).map(|parsed| parsed.command) {
        Ok(Command::Run(run)) => run,
        _ => unreachable!("the words of a run"),
    };
    let options = RunOptions { or_real: true, ..options(run) };
    let finished = synconce_run::run(&options, screen);
    match &finished.error {
        Some(error) if !finished.began && !matches!(error, RunError::Exec { .. }) => {
            say(&format!("the command runs with real syncs: {error}"));
            synconce_run::execute_unheld(&command)
        }
        _ => finished,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_chain_of_links_may_come_to_the_name_anywhere_but_at_its_begin() {
        let directory = env::temp_dir().join(format!("synconce-eatmydata-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let link = |from: &str, to: &str| symlink(to, directory.join(from)).unwrap();
        fs::write(directory.join("synconce"), "").unwrap();
        link("eatmydata", "synconce");
        link("apt", "eatmydata");
        link("apt-get", "./apt");
        link("other", "synconce");
        link("round", "round");
        let leads = |name: &str| leads_to_eatmydata(&directory.join(name));
        let names = ["apt", "apt-get", "eatmydata", "other", "round", "synconce", "none"];
        let leads = names.map(leads);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(leads, [true, true, false, false, false, false, false]);
    }
}
