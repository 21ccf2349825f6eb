//! Decides, adds the hold to the bundle, and executes the runtime.

use crate::bundle::Bundle;
use crate::classify::{Context, Reason, Verdict, classify};
use crate::config::Settings;
use crate::invocation::Invocation;
use crate::profile::{self, Edited};
use crate::runtime::{self, Tried};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use synconce_sys::reason;

/// Executes the runtime for an engine that called it as `name`. Returns only on errors, with a
/// message.
pub fn wrap(name: &OsStr, arguments: &[OsString]) -> String {
    let call = Invocation::parse(arguments);
    let pid = std::process::id();
    let tried = Tried::parse(std::env::var_os(Tried::VARIABLE).as_deref(), pid);
    let path = std::env::var_os("PATH");
    let find = |settings: &Settings| runtime::find(settings, name, path.as_deref(), &tried);
    let found = Settings::of_this_machine().and_then(|settings| Ok((find(&settings)?, settings)));
    let (runtime, settings) = match found {
        Ok(found) => found,
        Err(error) if call.makes_container() => return error,
        // Containers that run already must still be stopped and removed.
        Err(error) => match find(&Settings::default()) {
            Ok(runtime) => (runtime, Settings::default()),
            Err(_) => return error,
        },
    };
    if call.makes_container() {
        if let Some(why) = runtime::refusal(&runtime) {
            return format!("cannot hold under {}: {why}", runtime.display());
        }
        if let Err(error) = hold(&call, &settings) {
            // The container's syncs are done. If the bundle is invalid, the runtime reports it
            // as usual.
            note(&call, &format!("{error}; this container is not held"));
        }
    }
    let mark = (Tried::VARIABLE, tried.with(&runtime, pid));
    let error = synconce_sys::process::replace_by(&runtime, arguments, mark);
    format!("cannot execute {}: {}", runtime.display(), reason(&error))
}

/// Writes a warning for the operator to the runtime's log, if that is a JSON file, because
/// standard error may be the container's own. Engines treat only lines of the level `error` as
/// failures.
fn note(call: &Invocation, message: &str) {
    let line = json!({
        "level": "warning",
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
        None => writeln!(std::io::stderr(), "synconce-oci: {message}"),
    };
}

/// Adds the hold to the bundle of `call`, if its container is to be held.
fn hold(call: &Invocation, settings: &Settings) -> Result<(), String> {
    let plan = match Plan::of(call.clone(), settings, None) {
        // The runtime reports the missing bundle.
        Err(PlanError::Missing(_)) => return Ok(()),
        other => other.map_err(|error| error.to_string())?,
    };
    match (plan.verdict, plan.edited) {
        (Verdict::Hold(_), Some(edited)) if !edited.held.is_empty() || edited.io_uring_refused => {
            plan.bundle.replace(&plan.bundle.with_seccomp(&edited.profile)?)
        }
        (Verdict::Leave(why @ Reason::Unclear(_)), _) => Err(why.to_string()),
        _ => Ok(()),
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
        Ok(Self { bundle, verdict, edited })
    }
}
