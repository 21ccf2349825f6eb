//! `synconce run`

mod addresses;
mod build_daemons;
mod clients;
mod hints;
mod inner_command;
mod preloads;
mod privileges;
mod script;
mod servers;

pub(crate) use self::hints::{builder_here, is_asked_here, is_set_up, set_up_for};
pub(in crate::commands) use self::preloads::warn_of_preloads;
use self::privileges::Typed;
pub(in crate::commands) use self::script::refuse_own as refuse_own_script;
use crate::arguments::{IoUring, RunArguments};
use crate::commands::error::CommandError;
use crate::commands::output::{Output, Stream};
use crate::commands::root;
use crate::commands::stats::{self, Clock, Manner};
use crate::exit;
use crate::text::{bytes, is_quiet, notice, say, set_quiet};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::io::Errno;
use std::borrow::Cow;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use synconce_run::{
    CommitReport, Committed, Ending, Finished, Gain, Notice, Observer, OwnFilter, RunError,
    RunOptions, RunOutcome,
};

/// The option by which strace installs a seccomp filter with a tracer.
const STRACE_FILTER: &str = "--seccomp-bpf";

/// Runs the command under a hold and ends as the command did.
///
/// # Errors
/// Why the command cannot be run.
pub fn run(arguments: RunArguments) -> Result<ExitCode, CommandError> {
    let clock = Clock::start();
    set_quiet(arguments.quiet);
    synconce_run::refuse_deadly_filter().map_err(|error| {
        CommandError::from(error.to_string()).with_remedy(error.remedy().map(Cow::into_owned))
    })?;
    refuse_own_script(&arguments.command)?;
    root::check_any(arguments.root.as_deref())?;
    let mut json = arguments.json.as_deref();
    if (arguments.stats || json.is_some()) && synconce_run::is_held() {
        notice(if synconce_run::is_in_step() {
            "no statistics: this build step is held in the kernel, which counts no calls"
        } else {
            "no statistics: this run is inside another one, which counts its calls"
        });
        json = None;
    }
    if !arguments.no_commit && synconce_run::is_uncommitted() {
        notice("nothing is committed: the run around this one commits nothing");
    }
    let output = Output::open(json, Stream::Errors)?;
    let wants_stats = arguments.stats || output.is_json();
    let commit = !arguments.no_commit;
    let mut manner = Manner { sealed: arguments.sealed, commit, tree: None };
    let words: Vec<_> = env::args_os().collect();
    let own = &words[..words.len().saturating_sub(arguments.command.len())];
    let has_rules = !arguments.only.is_empty() || !arguments.except.is_empty();
    let is_never_sealed = has_rules || arguments.or_real;
    let commits_chosen = !commit || arguments.commit_all || !arguments.commit_only.is_empty();
    let typed = Screen::typed(own, &arguments.command);
    let mut screen = Screen { is_never_sealed, commits_chosen, ..typed };
    warn_of_preloads(&arguments.command);
    let command = arguments.command.clone();
    let typed = screen.typed.as_ref().map(|typed| typed.options().to_vec());
    let options = RunOptions { typed, ..options(arguments) };
    let finished = synconce_run::run(&options, &mut screen);
    if wants_stats {
        manner.sealed |= screen.became_sealed;
        stats::print(&finished, &clock, &manner, output);
    }
    let code = end(&finished);
    hints::missing_command(&finished, own, &command);
    // The last line of a client that failed is its own error. But statistics say that no sync was
    // held, and the notice says why.
    if wants_stats || finished.ending == Ending::Exited(0) {
        hints::work_of_a_daemon(&finished, manner.sealed, &command);
    }
    hints::mostly_passed(&finished, screen.sealed().as_deref());
    Ok(code)
}

/// Prints why the run failed, if it did, and ends as the command did.
pub(super) fn end(finished: &Finished) -> ExitCode {
    match &finished.error {
        Some(error) => fail(error, finished),
        None => {
            hints::refused_io_uring(finished);
            end_as(finished.ending)
        }
    }
}

pub(super) fn options(arguments: RunArguments) -> RunOptions {
    RunOptions {
        command: arguments.command,
        typed: None,
        argv0: arguments.argv0,
        environment: None,
        sealed: arguments.sealed,
        commit: !arguments.no_commit,
        commit_only: arguments.commit_only,
        only: arguments.only,
        except: arguments.except,
        commit_all: arguments.commit_all,
        commit_every: arguments.commit_every,
        patience: arguments.commit_timeout,
        // The supervisor's working directory is "/".
        root: arguments.root.map(|root| std::path::absolute(&root).unwrap_or(root)),
        or_real: arguments.or_real,
        io_uring_pass: arguments.io_uring == IoUring::Pass,
        by_program: arguments.stats || arguments.json.is_some(),
        record: None,
        watch_steps: false,
    }
}

pub(super) fn end_as(ending: Ending) -> ExitCode {
    match ending {
        // An exit code has 8 bits.
        Ending::Exited(code) => ExitCode::from(code as u8),
        Ending::Killed(signal) => exit::by_signal(signal),
        Ending::Unknown => exit::FAILED.into(),
    }
}

/// Prints why the run failed and what to do.
pub(super) fn fail(error: &RunError, finished: &Finished) -> ExitCode {
    match error {
        RunError::Commit => say_not_durable(finished),
        _ => say(&error.to_string()),
    }
    if let Some(hint) = error.remedy().or_else(|| next_step(error, finished).map(Cow::from)) {
        say(&format!("hint: {hint}"));
    }
    exit::of_run(error).into()
}

/// Returns the next step for the user, by what became of the run's work.
fn next_step(error: &RunError, finished: &Finished) -> Option<&'static str> {
    Some(match (error, &finished.outcome) {
        (RunError::Commit, _) if finished.commit.is_none() => {
            "the commit goes on in the background; `synconce status` shows when it is done"
        }
        (RunError::Clear(act), _) if act.errno == Errno::INTR.raw_os_error() => {
            "the removal goes on in the background; `synconce status` shows when it is done"
        }
        (RunError::Clear(_), _) => {
            "`synconce status`, with the --root of the run if it had one, shows the run as \
             interrupted until it is cleared"
        }
        (
            RunError::Commit | RunError::SupervisorDied { .. },
            RunOutcome::Interrupted { marker },
        ) => match marker {
            Some(_) => {
                "the run is marked as interrupted; `synconce status` shows what to do about it"
            }
            None => "nothing marks the run; throw its result away and run it again",
        },
        (RunError::SupervisorDied { .. }, RunOutcome::NothingHeld) => {
            "no sync had been held, so nothing is lost; run the command again"
        }
        (RunError::SupervisorDied { .. }, _) => "run the command again",
        _ => return None,
    })
}

/// Returns a line for each file system that is not durable by `report`, with the reason.
pub(crate) fn not_durable(report: &CommitReport) -> Vec<String> {
    let of_system = |one: &Committed| {
        let (point, kind, source) = (one.mount_point.display(), &one.type_name, &one.source);
        let error = one.error.as_ref()?;
        Some(format!("not durable: {point} ({kind} on {source}): {error}"))
    };
    let everything = report.everything.iter().filter_map(|everything| everything.error.as_ref());
    let everything = everything.map(|error| format!("not durable: all disks (sync(2)): {error}"));
    report.file_systems.iter().filter_map(of_system).chain(everything).collect()
}

/// Returns the line about a commit that the user does not wait for; `places` are not finished.
pub(super) fn not_yet_durable(places: &[PathBuf]) -> String {
    let places = if places.is_empty() { "everything".into() } else { list(places) };
    format!("not yet durable: {places}")
}

pub(super) fn list(places: &[PathBuf]) -> String {
    let places: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
    places.join(", ")
}

fn say_not_durable(finished: &Finished) {
    let Some(report) = &finished.commit else {
        return say(&not_yet_durable(&finished.unfinished));
    };
    for line in not_durable(report) {
        say(&line);
    }
}

/// Prints notices and progress to standard error.
#[derive(Default)]
pub(super) struct Screen {
    /// The command line of the run, if a user typed it.
    typed: Option<Typed>,
    /// Whether the options of the run exclude `--sealed`.
    is_never_sealed: bool,
    /// Whether the options of the run say what it commits, whichever syncs it sees.
    commits_chosen: bool,
    bar: Option<ProgressBar>,
    /// Whether the run could not be supervised.
    pub(super) became_sealed: bool,
}

impl Observer for Screen {
    fn notice(&mut self, of_run: &Notice) {
        match self.bar.clone() {
            Some(bar) => bar.suspend(|| self.print(of_run)),
            None => self.print(of_run),
        }
    }

    fn progress(&mut self, waiting: &[PathBuf], dirty: u64) {
        if is_quiet() {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("synconce: {msg} [{elapsed}]");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        if bar.elapsed() >= Duration::from_secs(1) {
            bar.set_message(format!("committing {}: {} dirty", list(waiting), bytes(dirty)));
            bar.tick();
        }
    }

    fn progress_ends(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Screen {
    /// Returns the screen of a run of `command`, which was typed after the words `own`.
    pub(super) fn typed(own: &[OsString], command: &[OsString]) -> Self {
        Self { typed: Some(Typed::new(own, command)), ..Self::default() }
    }

    fn print(&mut self, of_run: &Notice) {
        match of_run {
            Notice::ForeignListener => {
                self.became_sealed = true;
                notice("another supervisor listens to this process: the run is sealed");
            }
            Notice::NoPrivilegesGained(path) => self.no_privileges(path, "gains"),
            Notice::PrivilegedProgramOpened(path) => {
                self.no_privileges(path, "was started, perhaps by this run, in which it gains");
            }
            Notice::OwnFilter(filter, program) => self.own_filter(*filter, program),
            Notice::SealedSurvivors(names) => say(&format!(
                "their syncs stay held: {}; restart them, because a sealed hold cannot be lifted",
                names.join(", ")
            )),
            Notice::Survivors(names) => hints::survivors(names),
            Notice::UnsyncedDescriptors(names) => say(&format!(
                "opened files without their O_SYNC during the run: {}; restart them to write through again",
                names.join(", ")
            )),
            Notice::UnfinishedCalls(names) => say(&format!(
                "still in a call without its sync flag: {}; restart them to write through again",
                names.join(", ")
            )),
            Notice::MarkerInMemory(path) => notice(&format!(
                "the marker is in memory, at {}: an interrupted run will not be found after a power cut",
                path.display()
            )),
            Notice::MarkerDiskWaits { places, has_ended } => {
                hints::marker_disk_waits(places, *has_ended);
            }
            Notice::CommitStandsStill(points) => hints::commit_stands_still(points),
            Notice::FuseNotCommitted(points) => say(&format!(
                "not committed, although their syncs were held: FUSE file systems at {}",
                list(points)
            )),
            Notice::EarlierInterrupted => {
                say("an earlier run was interrupted; `synconce status` shows what to do");
            }
            Notice::CheckpointFailed(report) => {
                not_durable(report).iter().for_each(|line| say(line));
            }
            Notice::UnseenPassed => {
                notice(
                    "some processes could not be examined, so the rules did not apply to them: \
                     their syncs were done",
                );
                notice("hint: docker run --cap-add SYS_PTRACE");
            }
            Notice::RealSyncs(error) => {
                say(&format!("the command runs with real syncs: {error}"));
            }
            Notice::IoUringPassed => {
                notice("io_uring was let through: the syncs that go through it were not held");
            }
        }
    }

    /// Returns the command line of the same run, sealed, if its options permit that.
    fn sealed(&self) -> Option<String> {
        self.typed.as_ref().filter(|_| !self.is_never_sealed).map(|typed| typed.with("--sealed"))
    }

    /// Says that `program` has no privileges, and what works.
    fn no_privileges(&self, program: &Path, gains: &str) {
        notice(&format!(
            "{} {gains} no privileges: a run without CAP_SYS_ADMIN sets no_new_privs",
            program.display()
        ));
        self.hint_at_privileges(program);
    }

    /// Prints the command line with which `program` gains its privileges.
    pub(super) fn hint_at_privileges(&self, program: &Path) {
        if let Some(typed) = &self.typed {
            notice(&format!("hint: {}", typed.with_privileges(Gain::read(program))));
        }
    }

    /// Says what does not work in the filter that `program` installs, and what does.
    fn own_filter(&self, filter: OwnFilter, program: &str) {
        let why = match filter {
            OwnFilter::Drops => return self.dropping_filter(program),
            OwnFilter::Tracer => {
                "installs a seccomp filter with a tracer, which does not see the calls that a \
                 supervised run stops, such as an open with O_SYNC"
            }
            OwnFilter::Listener => {
                "cannot install a seccomp filter with a listener (EBUSY): a supervised run has one"
            }
            OwnFilter::Strict => {
                "cannot enter the strict mode of seccomp (EINVAL): a run has a filter already"
            }
        };
        notice(&format!("{program} {why}"));
        let outside = || "start the program outside of the run".to_owned();
        let hint = match filter {
            // A sealed run would hide the syncs from strace, too.
            OwnFilter::Tracer if program == "strace" => {
                let without = self.typed.as_ref().and_then(|typed| typed.without(STRACE_FILTER));
                without.unwrap_or_else(|| format!("start strace without {STRACE_FILTER}"))
            }
            OwnFilter::Strict => outside(),
            _ => self.sealed().unwrap_or_else(outside),
        };
        notice(&format!("hint: {hint}"));
    }

    /// Says that the run does not see the syncs that the filter of `program` drops, and which run
    /// commits them all the same.
    fn dropping_filter(&self, program: &str) {
        let Some(typed) = self.typed.as_ref().filter(|_| !self.commits_chosen) else { return };
        notice(&format!(
            "{program} installs a seccomp filter that drops syncs: what it drops is not committed"
        ));
        notice(&format!("hint: {}", typed.with("--commit-all")));
    }
}
