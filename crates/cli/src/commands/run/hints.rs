//! Hints after a run that ended without an error of its own, or could not start.

use crate::text::{notice, say, shell};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use synconce_durable::standard_paths;
use synconce_run::{Ending, Finished, Outcome, RunError};
use synconce_setup::{Daemon, Engine};

/// Prints a hint if the command failed after its io_uring was refused: some programs then say
/// that the kernel has none.
pub(super) fn refused_io_uring(finished: &Finished) {
    let setup = finished.accounts.calls.get("io_uring_setup");
    let is_refused = setup.is_some_and(|tally| tally.refused > 0);
    if is_refused && finished.ending != Ending::Exited(0) {
        notice("io_uring was refused (ENOSYS), and the command failed");
        notice("hint: if it needs io_uring: synconce run --io-uring pass");
    }
}

/// Prints a hint if nothing was held and the command is the client of a daemon, whose syncs are
/// not part of the run.
pub(super) fn work_of_a_daemon(finished: &Finished, command: &[OsString]) {
    if finished.ending != Ending::Exited(0) || !matches!(finished.outcome, Outcome::NothingHeld) {
        return;
    }
    let Some((daemon, engine)) = daemon_of(command) else { return };
    if engine.is_some_and(|engine| synconce_setup::is_set_up(engine, &standard_paths::system(None)))
    {
        return;
    }
    notice(&format!("nothing was held: {daemon} does the syncs, and is not part of the run"));
    match engine {
        Some(engine) => notice(&format!("hint: sudo synconce setup {}", engine.command())),
        None => notice("hint: start the server in the run; or hold its files: man synconce-hold"),
    }
}

/// Returns the daemon of which `command` is a client, and the engine whose set-up holds the
/// syncs; no engine has a set-up for a database server.
fn daemon_of(command: &[OsString]) -> Option<(&'static str, Option<Engine>)> {
    let words: Vec<_> = command.iter().filter_map(|word| word.to_str()).collect();
    let at = words.iter().position(|word| !matches!(name(word), "sudo" | "doas"))?;
    let has = |wanted: &[&str]| words[at..].iter().any(|word| wanted.contains(word));
    let (daemon, engine) = match name(words[at]) {
        "docker" if has(&["run", "exec"]) => return None,
        "docker" | "docker-compose" if has(&["build", "buildx", "compose", "up"]) => {
            ("dockerd", Engine::Docker)
        }
        "docker" => ("dockerd", Engine::Held(Daemon::Docker)),
        "buildctl" => ("buildkitd", Engine::Buildkit),
        "podman" if has(&["--remote", "-r"]) => ("the Podman service", Engine::Podman),
        "podman-remote" => ("the Podman service", Engine::Podman),
        "nerdctl" | "ctr" | "crictl" => ("containerd", Engine::Held(Daemon::Containerd)),
        "psql" | "mysql" | "mariadb" | "redis-cli" | "mongosh" => {
            return Some(("the server", None));
        }
        _ => return None,
    };
    Some((daemon, Some(engine)))
}

/// Returns the file name of a program.
fn name(word: &str) -> &str {
    Path::new(word).file_name().and_then(OsStr::to_str).unwrap_or(word)
}

/// Prints the command line without the quotes that made one word of it, if no program has that
/// name: `run "make install"`.
pub(super) fn quoted_command(finished: &Finished, command: &[OsString]) {
    let (Some(RunError::Exec { errno, .. }), [only]) = (&finished.error, command) else { return };
    let is_missing = Errno::from_raw_os_error(*errno) == Errno::NOENT;
    let Some(text) = only.to_str().filter(|text| is_missing && text.contains(' ')) else { return };
    // Quotes and operators have a meaning for a shell only.
    let hint = match text.contains(|c: char| "'\"\\|&;<>()$`*?[]{}~#=\n".contains(c)) {
        true => format!("synconce run -- sh -c {}", shell(&[text.to_owned()])),
        false => format!("leave the quotes out: synconce run -- {text}"),
    };
    say(&format!("hint: {hint}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn clients_of_daemons_are_known_with_and_without_sudo() {
        for (line, daemon) in [
            ("docker build .", Some("dockerd")),
            ("sudo /usr/bin/docker pull debian", Some("dockerd")),
            ("podman --remote build .", Some("the Podman service")),
            ("podman build .", None),
            ("docker run debian true", None),
            ("nerdctl build .", Some("containerd")),
            ("psql -c 'select 1'", Some("the server")),
            ("make docker", None),
            ("sudo", None),
        ] {
            assert_eq!(daemon_of(&words(line)).map(|(daemon, _)| daemon), daemon, "{line}");
        }
    }
}
