//! `synconce tree run`: a command in a clone, under a hold.

use super::bar::Bar;
use super::bound_disks::disks_of;
use super::environment::{self, Variables};
use super::failure::verb_on;
use super::limits::Limited;
use super::modes::Modes;
use super::store::tell_of_memory;
use super::trash::empty_in_background;
use crate::arguments::tree::{Network, Personality, RunIn};
use crate::commands::error::CommandError;
use crate::commands::output::Output;
use crate::commands::run::{Screen, end_as, fail};
use crate::commands::signal_forwarder::SignalForwarder;
use crate::commands::stats::{self, Clock, Manner, TreeCommit};
use crate::exit;
use crate::text::{self, say};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use synconce_durable::error::{Context, Error};
use synconce_durable::standard_paths;
use synconce_run::{Accounts, Balance, Ending, Finished, RunError, RunOptions, RunOutcome};
use synconce_sys::process::give_up_inherited;
use synconce_sys::{origin, reason};
use synconce_tree::enter::{Bind, TIME_IS_OVER};
use synconce_tree::record::TreeName;
use synconce_tree::{Base, Begun, Guard, Guarded, Session, Store, namespace};

/// How long the commit of a bind waits while its disk transfers no data.
const PATIENCE: Duration = Duration::from_secs(120);

const THROWN_AWAY: &str = "the command's changes in the tree are thrown away";

/// What becomes of the changes of the command.
enum ChangesFate {
    /// They stay in the clone.
    Kept,
    /// If the command exits with 0, they become this tree, which keeps the given number of older
    /// generations.
    Committed(TreeName, Base, Option<u32>),
    /// They are discarded.
    Discarded,
}

pub fn run(store: &Store, arguments: RunIn, output: Output) -> Result<ExitCode, CommandError> {
    let clock = Clock::start();
    let counts = arguments.stats || output.is_json();
    let binds: Vec<Bind> =
        arguments.bind.iter().map(|text| bind(text)).collect::<Result<_, _>>()?;
    let added = environment::added(&arguments)?;
    // Read now: in a chroot the kernel shows another path once this process has left the mount
    // namespace.
    let own = env::current_exe().on("cannot find our own program", Path::new("/proc/self/exe"))?;
    // Before the trial mount of a session: root of a user namespace may mount in a mount namespace
    // of its own alone.
    namespace::enter_private()?;
    let (begun, fate) = begin(store, &arguments)?;
    // Before a copy of the base, which can take minutes.
    store.unmount_copies(&needed(&own, &binds));
    let session = begun.prepare(&Bar::silent_to_signals("copied"))?;
    let mut screen = Screen::default();
    let began = Instant::now();
    let finished = match work(&session, &arguments, (own, added), &binds, (&mut screen, counts)) {
        Ok(finished) => finished,
        Err(failure) => {
            session.discard()?;
            return Err(failure);
        }
    };
    let timeout = arguments.timeout.filter(|timeout| {
        finished.ending == Ending::Killed(TIME_IS_OVER) && began.elapsed() >= *timeout
    });
    let tree = end(session, fate, &finished, timeout)?;
    if counts {
        let commit = !arguments.no_hold && binds.iter().any(|bind| !bind.read_only);
        let manner = Manner { sealed: screen.became_sealed, commit, tree };
        stats::print(&finished, &clock, &manner, output);
    }
    // Here and not later: if a signal killed the command, synconce ends by the same signal
    // below.
    empty_in_background(store);
    Ok(match &finished.error {
        Some(error) => {
            let code = fail(error, &finished);
            if matches!(
                error,
                RunError::Marker(_)
                    | RunError::Commit
                    | RunError::Clear(_)
                    | RunError::SupervisorDied { started: true }
            ) {
                say(THROWN_AWAY);
            }
            code
        }
        None if timeout.is_some() => exit::TIME_IS_OVER.into(),
        None => end_as(finished.ending),
    })
}

fn begin<'a>(
    store: &'a Store,
    arguments: &RunIn,
) -> Result<(Session<'a, Begun>, ChangesFate), CommandError> {
    let strategy = arguments.strategy;
    if let Some(name) = &arguments.name {
        if arguments.discard {
            let session = synconce_tree::open_to_discard(store, name, strategy)?;
            return Ok((session, ChangesFate::Discarded));
        }
        let session = synconce_tree::open_session(store, name, strategy);
        return Ok((session.map_err(|error| refused(error, arguments))?, ChangesFate::Kept));
    }
    let base =
        arguments.from.as_ref().ok_or_else(|| CommandError::from("name a clone or a base"))?;
    let (session, base) = synconce_tree::open_anonymous(store, base, strategy)?;
    let Some(new) = &arguments.commit else { return Ok((session, ChangesFate::Discarded)) };
    // Checked before the command runs, so that its work is not lost, and again after it.
    match synconce_tree::next_generation(store, new, Some(&base)) {
        Ok(_) => {
            tell_of_memory(store);
            Ok((session, ChangesFate::Committed(new.clone(), base, arguments.keep)))
        }
        Err(error) => {
            session.discard()?;
            Err(error.into())
        }
    }
}

/// Returns the failure of a run in a tree. For a protected tree or a generation, the failure has a
/// hint with the command line that works.
fn refused(error: Error, arguments: &RunIn) -> CommandError {
    let (store, tree, by) = match Guarded::in_error(error.io()) {
        Some(Guarded { store, tree, by }) => (store, tree, by),
        None => return error.into(),
    };
    if !matches!(by, Guard::Protection | Guard::Generation) {
        return error.into();
    }
    // Values of variables and words of the command may be secrets, which belong in no log.
    let mut from = if arguments.setenv.is_empty() {
        options_from(arguments)
    } else {
        format!("{} ...", verb_on(store, &["run", "--from", tree]))
    };
    if !arguments.words.is_empty() {
        from += " -- COMMAND";
    }
    let mut hint = format!("`{from}` runs it in a clone that is thrown away");
    if *by == Guard::Protection {
        let unprotect = verb_on(store, &["unprotect", tree]);
        hint += &format!(
            "; --commit {tree} makes the result the next generation; `{unprotect}` allows changes"
        );
    }
    CommandError::from(error.to_string()).hint(hint)
}

/// Returns the command line with `--from` in place of the name, and without the command.
fn options_from(arguments: &RunIn) -> String {
    let RunIn { from_name, words: command, .. } = arguments;
    let options = &from_name[..from_name.len() - command.len()];
    let mut words: Vec<_> =
        options.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(program) = words.first_mut() {
        "synconce".clone_into(program);
    }
    if !command.is_empty() && words.last().is_some_and(|word| word == "--") {
        words.pop();
    }
    text::shell(&words)
}

/// Parses `A:B`, `A:B:ro` or `A:B:rw`.
fn bind(text: &str) -> Result<Bind, CommandError> {
    let refuse = |why: &str| CommandError::from(format!("cannot use --bind {text}: {why}"));
    let mut words = text.split(':');
    let (source, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let read_only = match (words.next(), words.next()) {
        (None | Some("rw"), None) => false,
        (Some("ro"), None) => true,
        _ => return Err(refuse("it is A:B, A:B:ro or A:B:rw")),
    };
    if source.is_empty() || !target.starts_with('/') {
        return Err(refuse("it is A:B, where B begins with /"));
    }
    if !Path::new(target).components().any(|part| matches!(part, Component::Normal(_))) {
        return Err(refuse("nothing can be shown at the root itself"));
    }
    let found = fs::canonicalize(source)
        .map_err(|error| refuse(&format!("cannot find {source}: {}", reason(&error))))?;
    Ok(Bind { source: found.into_os_string(), target: target.into(), read_only })
}

/// Mounts the copy in the private mount namespace of this process, and runs the command in it.
/// `own` is the path of this program.
fn work(
    session: &Session<'_>,
    arguments: &RunIn,
    (own, added): (PathBuf, Variables),
    binds: &[Bind],
    report: (&mut Screen, bool),
) -> Result<Finished, CommandError> {
    let root = session.attach()?;
    let inside = |path: &Path| is_in(&root, path, OFlags::DIRECTORY);
    let variables = environment::for_command(arguments, added, inside);
    let limits = Limited::begin(session, arguments)?;
    let entering = entering(own, arguments, root, (binds, limits.groups()));
    let command = (entering, variables);
    let modes = Modes::of_terminal();
    let commit_only = disks_of(binds, session.store().path());
    let finished = hold(arguments, command, commit_only, report);
    modes.restore();
    let finished = finished?;
    limits.end();
    session.detach().map_err(not_kept)?;
    Ok(finished)
}

/// Returns the failure of a run after the command has ended.
fn not_kept(error: Error) -> CommandError {
    CommandError::from(error).and(THROWN_AWAY.into())
}

/// Returns the paths on the host that a run needs while it works. They may be in a mounted tree.
fn needed(own: &Path, binds: &[Bind]) -> Vec<PathBuf> {
    let written = [standard_paths::state(), standard_paths::runtime()].into_iter().flatten();
    let written = written.chain([standard_paths::registry()]).map(|path| resolved(&path));
    let sources = binds.iter().map(|bind| PathBuf::from(&bind.source));
    written.chain(sources).chain([own.to_owned()]).collect()
}

/// Returns `path`, whose last components may be missing, without symbolic links.
fn resolved(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    let rest = |above| path.strip_prefix(above).unwrap_or(Path::new(""));
    found.map_or_else(|| path.to_owned(), |(above, real)| real.join(rest(above)))
}

/// Returns the command line of the process that enters the tree at `root`; `own` is the path of
/// this program.
fn entering(
    own: PathBuf,
    arguments: &RunIn,
    root: PathBuf,
    (binds, groups): (&[Bind], &[PathBuf]),
) -> Vec<OsString> {
    let command = match &arguments.words[..] {
        [] => vec![shell(&root).into_os_string()],
        words => words.to_vec(),
    };
    let mut words = vec![own.into(), "tree".into(), "enter".into(), root.into()];
    // In one word, because a value may begin with a hyphen.
    let option = |name: &str, value: &OsStr| [OsStr::new(name), value].into_iter().collect();
    words.extend(arguments.user.iter().map(|user| option("--user=", user.as_ref())));
    words.extend(arguments.directory.iter().map(|path| option("--directory=", path.as_ref())));
    words.extend(arguments.hostname.iter().map(|name| option("--hostname=", name.as_ref())));
    if arguments.network == Network::None {
        words.push("--network=none".into());
    }
    if arguments.personality == Personality::Linux32 {
        words.push("--personality=linux32".into());
    }
    let seconds = arguments.timeout.map(|timeout| timeout.as_secs_f64().to_string());
    words.extend(seconds.map(|seconds| option("--timeout=", seconds.as_ref())));
    words.extend(groups.iter().map(|group| option("--group=", group.as_ref())));
    for Bind { source, target, read_only } in binds {
        let mode = if *read_only { "ro" } else { "rw" };
        words.extend(["--bind".into(), source.clone(), target.clone(), mode.into()]);
    }
    words.push("--".into());
    words.extend(command);
    words
}

/// Returns the user's shell, if the tree at `root` has it, or /bin/sh.
fn shell(root: &Path) -> PathBuf {
    let wanted = env::var_os("SHELL").map(PathBuf::from).filter(|shell| shell.is_absolute());
    let is_there = |shell: &PathBuf| is_in(root, shell, OFlags::empty());
    wanted.filter(is_there).unwrap_or_else(|| "/bin/sh".into())
}

/// Returns whether the tree at `root` has the file `path`, which is opened with `flags`.
fn is_in(root: &Path, path: &Path, flags: OFlags) -> bool {
    let base = OFlags::PATH | OFlags::CLOEXEC;
    let inside = |root| openat2(root, path, base | flags, Mode::empty(), ResolveFlags::IN_ROOT);
    openat2(CWD, root, base, Mode::empty(), ResolveFlags::empty()).and_then(inside).is_ok()
}

fn hold(
    arguments: &RunIn,
    (command, environment): (Vec<OsString>, Vec<(OsString, OsString)>),
    commit_only: Vec<PathBuf>,
    (screen, counts): (&mut Screen, bool),
) -> Result<Finished, CommandError> {
    let options = RunOptions {
        command,
        environment: Some(environment),
        commit: !commit_only.is_empty(),
        commit_only,
        patience: PATIENCE,
        by_program: counts,
        ..RunOptions::default()
    };
    if arguments.no_hold || synconce_run::is_held() {
        return bare(&options);
    }
    Ok(synconce_run::run(&options, screen))
}

/// Runs the command without a hold: every sync is done, or held by an outer run.
fn bare(options: &RunOptions) -> Result<Finished, CommandError> {
    use std::os::unix::process::ExitStatusExt;
    let failed = |error: io::Error| {
        CommandError::from(format!("cannot run the command: {}", reason(&error)))
    };
    origin::forget_runtime_stdio();
    let forwarder = SignalForwarder::new().map_err(failed)?;
    let mut command = std::process::Command::new(&options.command[0]);
    command.args(&options.command[1..]);
    origin::pass_on_dispositions(&mut command);
    if let Some(environment) = &options.environment {
        command.env_clear().envs(environment.iter().cloned());
    }
    let mut child = command.spawn().map_err(failed)?;
    // A pipe must close when the command's copies close; this process only prints notices.
    give_up_inherited(Some(rustix::stdio::stderr()));
    forwarder.pass_on_to(&child).map_err(failed)?;
    let status = child.wait().map_err(failed)?;
    let ending = match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, Some(signal)) => Ending::Killed(signal),
        (None, None) => Ending::Unknown,
    };
    let accounts = Accounts::default();
    let (outcome, balance, unfinished) = (RunOutcome::NotAsked, Balance::default(), Vec::new());
    let (commit, error) = (None, None);
    Ok(Finished { began: true, ending, accounts, balance, outcome, commit, error, unfinished })
}

/// Keeps, commits or discards the session.
fn end(
    session: Session<'_>,
    fate: ChangesFate,
    finished: &Finished,
    timeout: Option<Duration>,
) -> Result<Option<TreeCommit>, CommandError> {
    let mut tree = match &fate {
        ChangesFate::Committed(name, ..) => {
            Some(TreeCommit { name: name.to_string(), micros: None })
        }
        ChangesFate::Kept | ChangesFate::Discarded => None,
    };
    let fate = if finished.error.is_some() { ChangesFate::Discarded } else { fate };
    if let Some(timeout) = timeout {
        let lost = if matches!(fate, ChangesFate::Discarded) {
            ""
        } else {
            "; its changes are thrown away"
        };
        let seconds = timeout.as_secs_f64();
        say(&format!("the command was ended after {seconds} s (--timeout){lost}"));
        session.discard()?;
        return Ok(tree);
    }
    match (fate, finished.ending) {
        (ChangesFate::Discarded, _) => session.discard()?,
        (ChangesFate::Kept | ChangesFate::Committed(..), Ending::Killed(signal)) => {
            session.discard()?;
            say(&format!("signal {signal} ended the command; its changes are thrown away"));
        }
        (ChangesFate::Kept, _) => {
            session.freeze(&()).and_then(|frozen| frozen.keep(&())).map_err(not_kept)?;
        }
        (ChangesFate::Committed(name, base, keep), Ending::Exited(0)) => {
            if let Err(error) = synconce_run::make_syncs_real() {
                session.discard()?;
                return Err(CommandError::from(format!("cannot commit {name}: {error}")));
            }
            let bar = Bar::silent_to_signals("looked at");
            let began = Instant::now();
            session.freeze(&bar)?.commit_as(&name, Some(base), keep, &bar)?;
            let micros = Some(began.elapsed().as_micros() as u64);
            tree = tree.map(|tree| TreeCommit { micros, ..tree });
        }
        (ChangesFate::Committed(name, ..), _) => {
            session.discard()?;
            say(&format!("the command failed; {name} is not committed"));
        }
    }
    Ok(tree)
}
