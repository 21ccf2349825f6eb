//! Hints after a run that ended without an error of its own, or could not start.

use super::addresses::{self, DaemonHost};
use super::build_daemons;
use super::clients::{DaemonOfClient, HoldRequest, daemon_of};
use super::list;
use super::script;
use crate::arguments::RunArguments;
use crate::text::{name_for_sudo, needs_a_shell, notice, say, shell, whole};
use clap::Args;
use rustix::io::Errno;
use rustix::process::Signal;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use synconce_durable::{commit::STILL, pins, standard_paths};
use synconce_probe::mounts;
use synconce_run::{Ending, Finished, PassReason, RunError, RunOutcome};
use synconce_setup::Engine;
use synconce_sys::accounts;

/// Prints a hint if the command failed after its io_uring was refused: some programs then say
/// that the kernel has none. A sealed run counts no calls, so it has no such hint.
pub(super) fn refused_io_uring(finished: &Finished) {
    let setup = finished.accounts.calls.get("io_uring_setup");
    let is_refused = setup.is_some_and(|tally| tally.refused > 0);
    if is_refused && may_be_by_io_uring(finished.ending) {
        notice("io_uring was refused (ENOSYS), and the command failed");
        notice("hint: if it needs io_uring: synconce run --io-uring pass");
    }
}

/// Whether a program without io_uring may have ended so. A signal from outside, a program that is
/// not found (126, 127) and a time limit (124 of timeout(1)) have other causes. A shell returns 128
/// plus the number of a signal. Of these signals, only SIGABRT is one that a program sends to
/// itself.
fn may_be_by_io_uring(ending: Ending) -> bool {
    let aborted = Signal::ABORT.as_raw();
    match ending {
        Ending::Exited(0 | 124 | 126 | 127) => false,
        Ending::Exited(code) => !(129..=192).contains(&code) || code == 128 + aborted,
        Ending::Killed(signal) => signal == aborted,
        Ending::Unknown => false,
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
    const { assert!(STILL.as_secs() == 10) };
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

/// Fewer syncs than these are few: few passed syncs are worth no notice, and few held ones may be
/// those of a client alone.
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
/// not part of the run. For the client of an engine, also if few syncs were held: docker-compose
/// syncs a few files of its own for each build.
pub(super) fn work_of_a_daemon(finished: &Finished, is_sealed: bool, command: &[OsString]) {
    let held = finished.accounts.total().held;
    let held_few = match finished.outcome {
        RunOutcome::NothingHeld => true,
        // A sealed run counts no calls.
        RunOutcome::NotAsked | RunOutcome::Committed => !is_sealed && held < WORTH,
        _ => false,
    };
    if finished.error.is_some() || !held_few {
        return;
    }
    if held > 0 {
        let engine = daemon_that_syncs(command).filter(|(daemon, _)| daemon.engine.is_some());
        if let Some((daemon, is_set_up)) = engine {
            say_daemon_syncs(held, daemon, is_set_up);
        }
        return;
    }
    if let Some(daemon) = build_daemons::older_than_run(command) {
        let name = daemon.name;
        notice(&format!("nothing was held: {name} is older than the run, and may do the syncs"));
        return notice(&format!("hint: {}; then run the command again", daemon.stop));
    }
    if let Some((daemon, is_set_up)) = daemon_that_syncs(command) {
        say_daemon_syncs(0, daemon, is_set_up);
    }
}

/// Says that `daemon` makes the syncs, but for the `held` ones, and how to hold them.
fn say_daemon_syncs(held: u64, daemon: DaemonOfClient, is_set_up: bool) {
    let on = match &daemon.host {
        DaemonHost::Here => String::new(),
        DaemonHost::Socket(path) => format!(" at {path}"),
        DaemonHost::Elsewhere(host) => format!(" on {host}"),
    };
    let name = daemon.name;
    notice(&match held {
        0 => format!("nothing was held: {name}{on} does the syncs, and is not part of the run"),
        1 => {
            format!("only 1 sync was held: {name}{on} does the others, and is not part of the run")
        }
        _ => format!(
            "only {held} syncs were held: {name}{on} does the others, and is not part of the run"
        ),
    });
    let synconce = match daemon.host {
        DaemonHost::Here | DaemonHost::Socket(_) => name_for_sudo(),
        DaemonHost::Elsewhere(_) => "synconce".to_owned(),
    };
    let (hint, is_known) = match (daemon.engine, daemon.request) {
        (Some(Engine::Docker | Engine::Buildkit), request) if is_rootless(&daemon.host) => {
            let is_step = request == HoldRequest::NotNeeded;
            (if is_step { IN_STEPS } else { IN_CONTAINER }.to_owned(), true)
        }
        (Some(_), HoldRequest::Missing(request)) if is_set_up => (request.to_owned(), true),
        (Some(engine), HoldRequest::Missing(request) | HoldRequest::Unknown(request)) => {
            (format!("sudo {synconce} setup {}; then {request}", engine.command()), false)
        }
        (Some(Engine::Containerd), _) => {
            (format!("sudo {synconce} setup containerd; then {synconce} setup kubernetes"), false)
        }
        (Some(engine), _) => (format!("sudo {synconce} setup {}", engine.command()), false),
        (None, HoldRequest::Missing(request)) => (request.to_owned(), true),
        (None, _) => {
            ("start the server in the run; or hold its files: man synconce-hold".into(), true)
        }
    };
    let there = match &daemon.host {
        DaemonHost::Here => String::new(),
        DaemonHost::Socket(_) if is_known => String::new(),
        DaemonHost::Socket(_) => "unless it is rootless: ".to_owned(),
        DaemonHost::Elsewhere(host) if is_known => format!("on {host}: "),
        DaemonHost::Elsewhere(host) => format!("on {host}, unless it is set up: "),
    };
    notice(&format!("hint: {there}{hint}"));
}

/// What holds a step of a Dockerfile where no set-up does.
const IN_STEPS: &str = "copy synconce into the image, and in the Dockerfile: \
                        RUN synconce run --sealed --no-commit -- COMMAND";

/// What holds the command of a container where no set-up does.
const IN_CONTAINER: &str =
    "copy synconce into the image, and in the container: synconce run -- COMMAND";

/// Whether the socket is below the directory of a user's sockets. No set-up reaches a dockerd or a
/// buildkitd there.
fn is_rootless(host: &DaemonHost) -> bool {
    matches!(host, DaemonHost::Socket(path) if path.starts_with("/run/user/"))
}

/// Returns the engine on this machine whose set-up alone holds the syncs of `command`.
pub(crate) fn set_up_for(command: &[OsString]) -> Option<Engine> {
    let is_enough =
        |it: &DaemonOfClient| it.host == DaemonHost::Here && it.request == HoldRequest::NotNeeded;
    find_daemon(command).filter(is_enough)?.engine
}

/// Returns the daemon that makes the syncs of `command`. In a container that got the socket of its
/// host's daemon, that is the daemon of the host.
fn find_daemon(command: &[OsString]) -> Option<DaemonOfClient> {
    let daemon = daemon_of(command, &variable)?;
    let is_outside = daemon.host == DaemonHost::Here
        && daemon.engine.is_some_and(|engine| {
            addresses::is_daemon_of_host(engine, &mounts::ours().unwrap_or_default())
        });
    let host = if is_outside { DaemonHost::Elsewhere("the host".to_owned()) } else { daemon.host };
    Some(DaemonOfClient { host, ..daemon })
}

/// Returns the builder on this machine that does the work of `command`, a build.
pub(crate) fn builder_here(command: &[OsString]) -> Option<Engine> {
    set_up_for(command).filter(|engine| matches!(engine, Engine::Docker | Engine::Buildkit))
}

/// Whether the environment leads clients of `engine` to the daemon of this machine.
pub(crate) fn is_asked_here(engine: Engine) -> bool {
    addresses::is_asked_here(engine, &variable)
}

/// Whether `engine` is set up on this machine.
pub(crate) fn is_set_up(engine: Engine) -> bool {
    synconce_setup::is_set_up(engine, &standard_paths::system())
}

/// Returns the daemon that makes the syncs of `command`, and whether its engine is set up on this
/// machine, not for builds alone if it is a container, and the daemon may be that one. Returns None
/// if the set-up holds these syncs.
fn daemon_that_syncs(command: &[OsString]) -> Option<(DaemonOfClient, bool)> {
    let daemon = find_daemon(command)?;
    // A node can be this machine, and another socket can lead to the daemon that is set up.
    let is_elsewhere = matches!(daemon.host, DaemonHost::Elsewhere(_)) || is_rootless(&daemon.host);
    let may_be_here = !is_elsewhere || daemon.engine == Some(Engine::Containerd);
    let is_container = daemon.request != HoldRequest::NotNeeded;
    let reaches =
        |engine| is_set_up(engine) && !(is_container && synconce_setup::is_builds_only(engine));
    let is_set_up = daemon.engine.is_some_and(|engine| may_be_here && reaches(engine));
    let is_enough = is_set_up && !matches!(daemon.request, HoldRequest::Missing(_));
    (!is_enough).then_some((daemon, is_set_up))
}

/// Returns the value of an environment variable that is not empty, or what a file has in its place.
fn variable(name: &str) -> Option<String> {
    let value = env::var(name).ok().filter(|value| !value.is_empty());
    value.or_else(|| match name {
        addresses::ENDPOINT => endpoint(),
        "HOME" => home(),
        _ => None,
    })
}

/// Returns the home directory of this user in passwd(5), which clients take without HOME.
fn home() -> Option<String> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    let user = rustix::process::geteuid().as_raw();
    accounts::passwd(&text).find(|line| line.user == user).map(|line| line.home.to_owned())
}

/// Returns the address in the file of crictl.
fn endpoint() -> Option<String> {
    let text = std::fs::read_to_string("/etc/crictl.yaml").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("runtime-endpoint:"))?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned()).filter(|value| !value.is_empty())
}

/// Commands of a shell, which the kernel finds as no program.
const BUILT_IN: [&str; 15] = [
    ".", ":", "alias", "cd", "command", "eval", "exec", "exit", "export", "set", "type", "ulimit",
    "umask", "unset", "wait",
];

/// Prints what helps if the command does not exist: the interpreter of a script that is there, or
/// the command line that works. `own` are the words before the command.
pub(super) fn missing_command(finished: &Finished, own: &[OsString], command: &[OsString]) {
    let Some(RunError::Exec { errno, .. }) = &finished.error else { return };
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let words: Vec<_> = command.iter().map(text).collect();
    let [first, rest @ ..] = &words[..] else { return };
    let rest = rest.strip_prefix(&["--".to_owned()]).unwrap_or(rest);
    let is_report = first.ends_with(".json") && !Path::new(first).exists();
    if is_report && own.last().is_some_and(|word| word == "--json") && !rest.is_empty() {
        let option = shell(&[format!("--json={first}")]);
        return say(&format!("hint: synconce run {option} -- {}", shell(rest)));
    }
    if Errno::from_raw_os_error(*errno) != Errno::NOENT {
        return;
    }
    if let Some((path, line)) = script::first_line_of(&command[0]) {
        let Some(interpreter) = line.split_whitespace().next() else { return };
        // The kernel reads the carriage return as a part of the interpreter's name.
        return say(&if line.ends_with('\r') {
            let script = shell(&[path.display().to_string()]);
            format!("hint: take the carriage returns out of its lines: sed -i 's/\\r$//' {script}")
        } else {
            let interpreter = shell(&[interpreter.to_owned()]);
            format!("hint: install its interpreter {interpreter}, or change its first line")
        });
    }
    let is_line = words.len() == 1 && first.contains(' ') && !Path::new(first).exists();
    let hint = if is_line && needs_a_shell(first) {
        format!("synconce run -- sh -c {}", shell(&words))
    } else if is_line {
        format!("leave the quotes out: synconce run -- {first}")
    } else if let Some(line) = with_options_in_front(own, &words) {
        line
    } else if first == "time" && rest.first().is_some_and(|word| !word.starts_with('-')) {
        format!("time synconce run -- {}", shell(rest))
    } else if is_assignment(first) {
        format!("synconce run -- env {}", shell(&words))
    } else if BUILT_IN.contains(&&first[..]) {
        format!("synconce run -- sh -c {}", shell(&[shell(&words)]))
    } else {
        return;
    };
    say(&format!("hint: {hint}"));
}

/// Returns the command line in which the options at the start of `command` stand before `--`, after
/// those of `own`. Only options without a value are known by their words.
fn with_options_in_front(own: &[OsString], command: &[String]) -> Option<String> {
    let run = RunArguments::augment_args(clap::Command::new("run"));
    let flags: Vec<_> = run.get_arguments().filter(|it| !it.get_action().takes_values()).collect();
    let is_flag = |word: &String| {
        flags.iter().any(|flag| {
            let short = flag.get_short().is_some_and(|short| *word == format!("-{short}"));
            short || flag.get_long().is_some_and(|long| *word == format!("--{long}"))
        })
    };
    let count = command.iter().take_while(|word| is_flag(word)).count();
    let (options, command) = command.split_at(count);
    let command = command.strip_prefix(&["--".to_owned()]).unwrap_or(command);
    if options.is_empty() || command.is_empty() {
        return None;
    }
    let own = own.iter().map(|word| word.to_string_lossy().into_owned());
    let own = own.skip_while(|word| word != "run").skip(1).filter(|word| word != "--");
    let options: Vec<_> = own.chain(options.iter().cloned()).collect();
    Some(format!("synconce run {} -- {}", shell(&options), shell(command)))
}

/// Whether `word` sets a variable, as before a command of a shell.
fn is_assignment(word: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| !name.is_empty() && name.chars().all(is_of_name))
}
