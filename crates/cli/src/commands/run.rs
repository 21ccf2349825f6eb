//! `synconce run`

mod rights;

use self::rights::Typed;
use crate::arguments::{IoUring, Run};
use crate::commands::{root, stats};
use crate::exit;
use crate::text::{bytes, say};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use synconce_hold::{
    CommitReport, Committed, Ending, Finished, Gain, IoUring as Answer, Notice, Observer, Options,
    Trouble,
};

const ENOENT: i32 = 2;

/// Makes the run and ends as its command did.
pub fn run(arguments: Run) -> ExitCode {
    let to_make = |root| format!("check the name; to make the directory: mkdir --parents {root}");
    if let Some(lines) = arguments.root.as_deref().and_then(|root| root::trouble(root, to_make)) {
        lines.iter().for_each(|line| say(line));
        return exit::FAILED.into();
    }
    let (wants_stats, json) = (arguments.stats, arguments.json);
    let mut screen = Screen { typed: Some(Typed::new(&arguments.command)), ..Screen::default() };
    let finished = match synconce_hold::run(&options(arguments), &mut screen) {
        Ok(finished) => finished,
        Err(error) => {
            say(&format!("cannot set up the run: {error}"));
            return exit::FAILED.into();
        }
    };
    if wants_stats {
        stats::print(&finished, json);
    }
    match &finished.trouble {
        Some(trouble) => fail(trouble, &finished),
        None => end_as(finished.ending),
    }
}

fn options(arguments: Run) -> Options {
    Options {
        command: arguments.command,
        sealed: arguments.sealed,
        commit: !arguments.no_commit,
        commit_only: arguments.commit_only,
        patience: Duration::from_secs(arguments.commit_timeout),
        // The supervisor works in "/".
        root: arguments.root.map(|root| std::path::absolute(&root).unwrap_or(root)),
        io_uring: match arguments.io_uring {
            IoUring::Refuse => Answer::Refuse,
            IoUring::Pass => Answer::Pass,
        },
        by_program: arguments.stats,
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

pub(super) fn fail(trouble: &Trouble, finished: &Finished) -> ExitCode {
    match trouble {
        Trouble::SetUp(why) => {
            say(why);
            hint(why);
        }
        Trouble::Exec { command, errno } => {
            let error = std::io::Error::from_raw_os_error(*errno);
            say(&format!("cannot execute {command}: {error}"));
            let code = if *errno == ENOENT { exit::NOT_FOUND } else { exit::CANNOT_EXECUTE };
            return code.into();
        }
        Trouble::Marker(why) => {
            say(&format!("{why}; no sync was held, and the command was asked to end"));
        }
        Trouble::Commit => say_not_durable(finished),
        Trouble::Clear(why) => {
            say(&format!("everything is durable, but {why}"));
            say(
                "hint: `synconce status`, with the same --root, shows the run as interrupted until \
                 it is cleared",
            );
        }
        Trouble::SupervisorDied { started: false } => {
            say("the supervisor was killed before the command started");
            say("hint: run the command again");
        }
        Trouble::SupervisorDied { started: true } => {
            say("the supervisor was killed after the command had started: \
                 the run is interrupted, nothing was committed");
            say("hint: `synconce status` shows what to do about it");
        }
    }
    exit::FAILED.into()
}

fn hint(why: &str) {
    if why.contains("volatile overlay") {
        say("hint: use --no-commit when the result is thrown away, or --commit-only PATH");
    } else if why.contains("FUSE file system") {
        say("hint: leave --sealed out, or use --no-commit when the result is thrown away");
    } else if why.contains("seccomp filter") {
        say("hint: the kernel or a container's profile refuses seccomp(2)");
    } else if ["state directory", "/runs", "cannot create"].iter().any(|text| why.contains(text)) {
        say("hint: the marker needs a writable disk; SYNCONCE_STATE_DIR names another directory");
    }
}

/// What is not durable by `report`, and why: a line for each.
pub fn not_durable(report: &CommitReport) -> Vec<String> {
    let of_system = |one: &Committed| {
        let (point, kind, source) = (one.mount_point.display(), &one.type_name, &one.source);
        let error = one.error.as_ref()?;
        Some(format!("not durable: {point} ({kind} on {source}): {error}"))
    };
    let everything = report.everything.iter().filter_map(|everything| everything.error.as_ref());
    let everything = everything.map(|error| format!("not durable: all disks (sync(2)): {error}"));
    report.file_systems.iter().filter_map(of_system).chain(everything).collect()
}

fn say_not_durable(finished: &Finished) {
    if finished.commit.is_none() {
        let places: Vec<_> =
            finished.unfinished.iter().map(|path| path.display().to_string()).collect();
        let places = if places.is_empty() { "everything".into() } else { places.join(", ") };
        say(&format!("not yet durable: {places}"));
        say("hint: the commit goes on in the background; `synconce status` tells when it is done");
        return;
    }
    finished.commit.iter().flat_map(not_durable).for_each(|line| say(&line));
    say("hint: the run stays marked as interrupted; `synconce status` shows what to do about it");
}

/// Notices and progress on standard error.
#[derive(Default)]
pub(super) struct Screen {
    /// The run, where the user typed it.
    typed: Option<Typed>,
    bar: Option<ProgressBar>,
}

impl Observer for Screen {
    fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::ForeignListener => {
                say("another supervisor listens to this process: the run is sealed");
            }
            Notice::NoRightsGained(path) => {
                say(&format!(
                    "{} gains no rights: a run of an ordinary user sets no_new_privs",
                    path.display()
                ));
                if let Some(typed) = &self.typed {
                    say(&format!("hint: {}", typed.with_rights(Gain::of(path))));
                }
            }
            Notice::SealedSurvivors(names) => say(&format!(
                "their syncs stay held: {}; restart them, because a sealed hold cannot be lifted",
                names.join(", ")
            )),
            Notice::UnsyncedDescriptors(names) => say(&format!(
                "opened files without their O_SYNC during the run: {}; restart them to write through again",
                names.join(", ")
            )),
            Notice::UnfinishedCalls(names) => say(&format!(
                "still in a call without its sync flag: {}; restart them to write through again",
                names.join(", ")
            )),
            Notice::MarkerInMemory(path) => say(&format!(
                "the marker is in memory, at {}: an interrupted run will not be found after a power cut",
                path.display()
            )),
            Notice::FuseNotCommitted(points) => say(&format!(
                "not committed, although their syncs were held: FUSE file systems at {}",
                points
                    .iter()
                    .map(|point| point.display().to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
            Notice::EarlierInterrupted => {
                say("an earlier run was interrupted; `synconce status` shows what to do");
            }
            Notice::IoUringPassed => say("io_uring was let through: its syncs were not held"),
        }
    }

    fn progress(&mut self, waiting: &[PathBuf], dirty: u64) {
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("synconce: {msg} [{elapsed}]");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        if bar.elapsed() >= Duration::from_secs(1) {
            let places: Vec<_> = waiting.iter().map(|path| path.display().to_string()).collect();
            bar.set_message(format!("committing {}: {} dirty", places.join(", "), bytes(dirty)));
            bar.tick();
        }
    }

    fn progress_ends(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
