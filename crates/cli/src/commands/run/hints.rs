//! Hints after a run that ended without an error of its own, or could not start.

use super::list;
use crate::text::{needs_a_shell, notice, say, shell, whole};
use rustix::io::Errno;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use synconce_durable::{pins, standard_paths};
use synconce_probe::mounts;
use synconce_run::{Ending, Finished, PassReason, RunError, RunOutcome};
use synconce_setup::{Engine, HeldDaemon};

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

/// How many survivors are named.
const NAMED: usize = 3;

/// Prints which processes outlive the run, each by its name and pid.
pub(super) fn survivors(names: &[String]) {
    let mut list = names[..names.len().min(NAMED)].join(", ");
    if names.len() > NAMED {
        list += &format!(" and {} more", names.len() - NAMED);
    }
    match names.len() {
        1 => notice(&format!("{list} outlives the run: its syncs are real from now on")),
        _ => notice(&format!("{list} outlive the run: their syncs are real from now on")),
    }
    notice("hint: stop it in the command; to hold a daemon's files: man synconce-hold");
}

/// Says that a run waits for the disk of its marker, before the command starts or at the end.
pub(super) fn marker_disk_waits(places: &[PathBuf], has_ended: bool) {
    let at = list(places);
    notice(&if has_ended {
        format!("the command has ended; waiting for the disk of the marker, {at}")
    } else {
        format!("the command has not started; waiting for the disk of the marker, {at}")
    });
    hint_at_thaw(places);
}

/// Says that a commit waits for disks that make no progress.
pub(super) fn commit_stands_still(points: &[PathBuf]) {
    notice(&format!("the commit waits for {}: no progress for 10 seconds", list(points)));
    hint_at_thaw(points);
}

/// Prints what helps if a file system of `places` is frozen, which no process can find out.
fn hint_at_thaw(places: &[PathBuf]) {
    let mounts = mounts::ours().unwrap_or_default();
    // The directory of a marker may not exist yet.
    let mount =
        |place: &PathBuf| place.ancestors().find_map(|above| pins::mount_of(above, &mounts).ok());
    let thaw = |point: &Path| {
        shell(&["fsfreeze".into(), "--unfreeze".into(), point.display().to_string()])
    };
    let mut commands: Vec<_> =
        places.iter().filter_map(mount).map(|mount| thaw(&mount.point)).collect();
    commands.dedup();
    if !commands.is_empty() {
        notice(&format!("hint: if the file system is frozen: {}", commands.join(" && ")));
    }
}

/// How many syncs pass before it is worth a line.
const WORTH: u64 = 10;

/// Prints a notice if most syncs passed for want of a disk that a supervised run commits. `sealed`
/// is the command line that holds them, if the options of the run permit it.
pub(super) fn mostly_passed(finished: &Finished, sealed: Option<&str>) {
    let total = finished.accounts.total();
    let passed = |reason| total.reasons.get(&reason).copied().unwrap_or(0);
    let reasons = [PassReason::Network, PassReason::Fuse, PassReason::OtherType];
    let Some(main) = reasons.into_iter().max_by_key(|reason| passed(*reason)) else { return };
    let count = passed(main);
    if finished.error.is_some() || count < WORTH || count <= total.held {
        return;
    }
    let file_system = match main {
        PassReason::Network => "a network file system",
        PassReason::Fuse => "a FUSE file system",
        _ => "a file system of another type",
    };
    // Each number is in `--stats`. Syncs in memory cost nothing, and are no reason for a hint.
    let (count, held) = (whole(count), whole(total.held));
    notice(&format!("{count} syncs on {file_system} were done, not held (held: {held})"));
    match sealed.filter(|_| main == PassReason::Network) {
        Some(sealed) => notice(&format!("hint: {sealed}")),
        None if is_off_disk(".") && !is_off_disk(TEMPORARY) => {
            notice(&format!("hint: work on a disk: cd \"$(mktemp -d -p {TEMPORARY})\""));
        }
        None => {}
    }
}

/// For temporary files that outlast a boot, so on most machines on a disk.
const TEMPORARY: &str = "/var/tmp";

/// Whether a supervised run holds no sync at `path`.
fn is_off_disk(path: &str) -> bool {
    let mounts = mounts::ours().unwrap_or_default();
    pins::mount_of(Path::new(path), &mounts).is_ok_and(|mount| !mount.kind().is_held())
}

/// Prints a hint if nothing was held and the command is the client of a daemon, whose syncs are
/// not part of the run.
pub(super) fn work_of_a_daemon(finished: &Finished, command: &[OsString]) {
    if finished.ending != Ending::Exited(0) || !matches!(finished.outcome, RunOutcome::NothingHeld)
    {
        return;
    }
    let Some((daemon, engine)) = daemon_without_set_up(command) else { return };
    notice(&format!("nothing was held: {daemon} does the syncs, and is not part of the run"));
    match engine {
        Some(engine) => notice(&format!("hint: sudo synconce setup {}", engine.command())),
        None => notice("hint: start the server in the run; or hold its files: man synconce-hold"),
    }
}

/// Returns the builder that does the work of `command`, a build.
pub(crate) fn builder_of(command: &[OsString]) -> Option<Engine> {
    let (_, engine) = daemon_of(command)?;
    engine.filter(|engine| matches!(engine, Engine::Docker | Engine::Buildkit))
}

/// Whether the daemon that a client asks may be on another machine.
pub(crate) fn is_daemon_elsewhere() -> bool {
    let is_set = |name| env::var_os(name).is_some();
    ["DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "PGHOST"].into_iter().any(is_set)
}

/// Whether `engine` is set up on this machine.
pub(crate) fn is_set_up(engine: Engine) -> bool {
    synconce_setup::is_set_up(engine, &standard_paths::system(None))
}

/// Returns the daemon of `command` and its engine, as [`daemon_of`] does, unless the daemon is set up
/// already or may be on another machine.
fn daemon_without_set_up(command: &[OsString]) -> Option<(&'static str, Option<Engine>)> {
    let daemon = daemon_of(command).filter(|(_, engine)| !engine.is_some_and(is_set_up));
    daemon.filter(|_| !is_daemon_elsewhere())
}

/// Returns the daemon that `command` has made sync, and the engine whose set-up holds these
/// syncs; no engine has a set-up for a database server. A daemon elsewhere is set up elsewhere.
fn daemon_of(command: &[OsString]) -> Option<(&'static str, Option<Engine>)> {
    let words: Vec<_> = command.iter().filter_map(|word| word.to_str()).collect();
    let at = words.iter().position(|word| !matches!(name(word), "sudo" | "doas"))?;
    let (program, words) = (name(words[at]), &words[at + 1..]);
    if matches!(program, "psql" | "mysql" | "mariadb" | "redis-cli" | "mongosh") {
        let is_local = words.iter().all(|word| !word.starts_with("-h") && !word.starts_with("--"));
        return is_local.then_some(("the server", None));
    }
    let is_remote =
        program == "podman-remote" || (program == "podman" && words.first() == Some(&"--remote"));
    let words = if is_remote && program == "podman" { &words[1..] } else { words };
    // Options before the verb may name another machine.
    let [verb, rest @ ..] = words else { return None };
    let builds = match (*verb, rest.first()) {
        ("build" | "bake", _)
        | ("buildx" | "compose" | "image", Some(&("build" | "bake" | "up"))) => true,
        ("pull" | "load" | "import" | "push" | "commit" | "rmi", _) => false,
        _ => return None,
    };
    Some(match program {
        "docker" | "docker-buildx" if builds => ("dockerd", Some(Engine::Docker)),
        "docker" => ("dockerd", Some(Engine::Held(HeldDaemon::Docker))),
        "buildctl" => ("buildkitd", Some(Engine::Buildkit)),
        // A client of containerd that has images built by BuildKit.
        "nerdctl" if builds => ("buildkitd", Some(Engine::Buildkit)),
        "podman" | "podman-remote" if is_remote => ("the Podman service", Some(Engine::Podman)),
        "nerdctl" => ("containerd", Some(Engine::Held(HeldDaemon::Containerd))),
        _ => return None,
    })
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
    // A script exists, but its interpreter may be missing.
    let is_line = |text: &&str| is_missing && text.contains(' ') && !Path::new(text).exists();
    let Some(text) = only.to_str().filter(is_line) else { return };
    let hint = if needs_a_shell(text) {
        format!("synconce run -- sh -c {}", shell(&[text.to_owned()]))
    } else {
        format!("leave the quotes out: synconce run -- {text}")
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
    fn clients_that_make_a_local_daemon_sync_are_known() {
        for (line, daemon) in [
            ("docker build -t run .", Some("dockerd")),
            ("docker buildx build .", Some("dockerd")),
            ("docker compose up", Some("dockerd")),
            ("sudo /usr/bin/docker pull debian", Some("dockerd")),
            ("docker --context far pull debian", None),
            ("docker run debian true", None),
            ("docker ps", None),
            ("podman --remote build .", Some("the Podman service")),
            ("podman-remote build .", Some("the Podman service")),
            ("podman build .", None),
            ("nerdctl build .", Some("buildkitd")),
            ("nerdctl pull debian", Some("containerd")),
            ("psql -c select", Some("the server")),
            ("psql --version", None),
            ("psql -h db.example", None),
            ("make docker", None),
            ("sudo", None),
        ] {
            assert_eq!(daemon_of(&words(line)).map(|(daemon, _)| daemon), daemon, "{line}");
        }
    }
}
