//! Decides, adds the hold to the bundle, and executes the runtime.

use crate::bundle::Bundle;
use crate::classify::{Context, Reason, Verdict, classify};
use crate::config::{Settings, StepRoot as Setting};
use crate::foreground;
use crate::invocation::Invocation;
use crate::profile::{self, Edited};
use crate::runtime::{self, Tried};
use crate::step_root::{Failure, Kept, StepRoot, VolatileRoot};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use synconce_sys::reason;

/// How a call of the runtime ended.
#[derive(Debug)]
pub enum Ended {
    /// synconce-oci failed. The message is for the user.
    Failed(String),
    /// The runtime exited with this code.
    Exited(u8),
    /// The runtime was killed by this signal.
    Killed(i32),
}

/// Executes the runtime for an engine that called it as `name`: in this process, or, if the root
/// of a step is volatile, in a child process.
pub fn wrap(name: &OsStr, arguments: &[OsString]) -> Ended {
    let call = Invocation::parse(arguments);
    let pid = std::process::id();
    let tried = Tried::parse(std::env::var_os(Tried::VARIABLE).as_deref(), pid);
    let path = std::env::var_os("PATH");
    let find = |settings: &Settings| runtime::find(settings, name, path.as_deref(), &tried);
    let found = Settings::of_this_machine().and_then(|settings| Ok((find(&settings)?, settings)));
    let (runtime, settings) = match found {
        Ok(found) => found,
        Err(error) if call.makes_container() => return Ended::Failed(error),
        // Containers that run already must still be stopped and removed.
        Err(error) => match find(&Settings::default()) {
            Ok(runtime) => (runtime, Settings::default()),
            Err(_) => return Ended::Failed(error),
        },
    };
    if call.makes_container() {
        if let Some(why) = runtime::refusal(&runtime) {
            let runtime = runtime.display();
            return Ended::Failed(format!("cannot hold under {runtime}: {why}"));
        }
        match hold(&call, &settings) {
            Ok(None) => {}
            Ok(Some(root)) => match make_volatile(&call, root) {
                Ok(None) => {}
                Ok(Some(root)) => return step(root, &runtime, arguments, &tried),
                Err(error) => return Ended::Failed(error),
            },
            // The container's syncs are done. If the bundle is invalid, the runtime reports it
            // as usual.
            Err(error) => note(&call, "warning", &format!("{error}; this container is not held")),
        }
    }
    let mark = (Tried::VARIABLE, tried.with(&runtime, pid));
    let error = synconce_sys::process::replace_by(&runtime, arguments, mark);
    Ended::Failed(format!("cannot execute {}: {}", runtime.display(), reason(&error)))
}

/// Makes the root of a step volatile. Returns `None` if the root stays as the engine mounted it.
/// A line in the runtime's log says which, so that an operator can count them.
///
/// # Errors
/// The root is not mounted any more. The message is for the user.
fn make_volatile(
    call: &Invocation,
    root: Result<StepRoot, Kept>,
) -> Result<Option<VolatileRoot>, String> {
    let why = match root.map(StepRoot::make_volatile) {
        Ok(Ok(root)) => {
            note(call, "info", "the root of this step is volatile");
            return Ok(Some(root));
        }
        Ok(Err(Failure::Lost(error))) => return Err(error),
        Ok(Err(Failure::Kept(why))) | Err(why) => why,
    };
    if why != Kept::Settings {
        note(call, "info", &format!("the root of this step is as the engine mounted it: {why}"));
    }
    Ok(None)
}

/// Executes the runtime for a step whose root is volatile.
fn step(root: VolatileRoot, runtime: &Path, arguments: &[OsString], tried: &Tried) -> Ended {
    let ended = foreground::run(runtime, arguments, tried).unwrap_or_else(|error| {
        Ended::Failed(format!("cannot execute {}: {}", runtime.display(), reason(&error)))
    });
    match root.end() {
        Ok(()) => ended,
        Err(error) => Ended::Failed(error),
    }
}

/// Writes a line for the operator to the runtime's log, if that is a JSON file, because standard
/// error may be the container's own. Engines treat only lines of the level `error` as failures.
/// Without such a log, warnings are written to standard error.
fn note(call: &Invocation, level: &str, message: &str) {
    let line = json!({
        "level": level,
        "msg": format!("synconce-oci: {message}"),
        "time": humantime::format_rfc3339_nanos(SystemTime::now()).to_string(),
    });
    // crun also logs to journald:NAME, syslog:NAME and file:PATH.
    let is_file = |log: &&PathBuf| call.logs_json && !log.to_string_lossy().contains(':');
    let log = call.log.as_ref().filter(is_file);
    let log = log.and_then(|log| OpenOptions::new().append(true).create(true).open(log).ok());
    // Best effort: there is no other place for an error.
    let _ = match log {
        Some(mut log) => writeln!(log, "{line}"),
        None if level == "info" => Ok(()),
        None => writeln!(std::io::stderr(), "synconce-oci: {message}"),
    };
}

/// Adds the hold to the bundle of `call`, if its container is to be held. Returns the root if it
/// is a step of a build whose root may become volatile.
fn hold(call: &Invocation, settings: &Settings) -> Result<Option<Result<StepRoot, Kept>>, String> {
    let plan = match Plan::of(call.clone(), settings, None) {
        // The runtime reports the missing bundle.
        Err(PlanError::Missing(_)) => return Ok(None),
        other => other.map_err(|error| error.to_string())?,
    };
    match (plan.verdict, plan.edited) {
        (Verdict::Hold(_), Some(edited)) if !edited.held.is_empty() || edited.io_uring_refused => {
            plan.bundle.replace(&plan.bundle.with_seccomp(&edited.profile)?)?;
            Ok(plan.root)
        }
        (Verdict::Leave(why @ Reason::Unclear(_)), _) => Err(why.to_string()),
        _ => Ok(None),
    }
}

/// What synconce-oci would do for one call.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The bundle's configuration.
    pub(crate) bundle: Bundle,
    /// Whether the container is held.
    pub(crate) verdict: Verdict,
    /// The profile with the hold, if the container is held.
    pub(crate) edited: Option<Edited>,
    /// The root that becomes volatile, or why it does not; `None` if the container is not a held
    /// step of BuildKit.
    pub(crate) root: Option<Result<StepRoot, Kept>>,
}

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum PlanError {
    /// The configuration is missing.
    Missing(String),
    /// The configuration is invalid.
    Content(String),
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Missing(what) | Self::Content(what)) = self;
        f.write_str(what)
    }
}

impl Plan {
    /// Plans for `call`, which was made in `directory`, by default the working directory.
    ///
    /// # Errors
    /// A message for the user.
    pub(crate) fn of(
        call: Invocation,
        settings: &Settings,
        directory: Option<&Path>,
    ) -> Result<Self, PlanError> {
        let here = || std::env::current_dir();
        let directory =
            directory.map_or_else(here, |directory| Ok(directory.to_owned())).map_err(|error| {
                PlanError::Missing(format!("cannot find the working directory: {}", reason(&error)))
            })?;
        let call = call.resolved(&directory);
        let place = call.bundle.clone().unwrap_or_else(|| directory.clone());
        let file = call.config.clone().unwrap_or_else(|| PathBuf::from("config.json"));
        let file = place.join(file);
        let missing = !file.exists();
        let bundle = Bundle::read(&file).map_err(if missing {
            PlanError::Missing
        } else {
            PlanError::Content
        })?;
        let facts = bundle.facts().map_err(PlanError::Content)?;
        let mounts = synconce_probe::mounts::read("self").unwrap_or_default();
        let context = Context {
            call: &call,
            bundle: &place,
            directory: &directory,
            facts: &facts,
            settings,
            mounts: &mounts,
        };
        let verdict = classify(&context);
        let edited = match &verdict {
            Verdict::Leave(_) => None,
            Verdict::Hold(_) => {
                let seccomp = bundle.seccomp().map_err(PlanError::Content)?;
                let wrong = |error: String| PlanError::Content(bundle.misunderstood(&error));
                Some(profile::hold(seccomp).map_err(wrong)?)
            }
        };
        let is_step = edited.is_some() && context.is_buildkit();
        let root = is_step.then(|| step_root(&context));
        Ok(Self { bundle, verdict, edited, root })
    }
}

/// Returns the root of the step of `context`, or why the root stays as the engine mounted it.
fn step_root(context: &Context<'_>) -> Result<StepRoot, Kept> {
    if context.settings.step_root == Setting::AsMounted {
        return Err(Kept::Settings);
    }
    if context.call.detaches {
        return Err(Kept::Detached);
    }
    let facts = context.facts;
    // All processes of a pid namespace end with its first.
    if !["pid", "mount"].iter().all(|kind| facts.has_own_namespace(kind)) {
        return Err(Kept::Shared);
    }
    if facts.root.readonly {
        return Err(Kept::ReadOnly);
    }
    let root = context.bundle.join(&facts.root.path);
    let root = root.canonicalize().map_err(|_| Kept::NoOverlay)?;
    StepRoot::find(&root, context.mounts)
}
