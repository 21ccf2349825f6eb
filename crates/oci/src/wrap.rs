//! Decides, adds the hold to the bundle, and executes the runtime.

use crate::bundle::Bundle;
use crate::classify::{CallContext, Reason, Treatment, classify};
use crate::config::Settings;
use crate::held_steps::{self, LastStep};
use crate::invocation::Invocation;
use crate::profile::{self, Edited, Purpose};
use crate::runtime::{self, RuntimeEnd, Tried};
use crate::step;
use crate::step_root::{Kept, StepRoot, VolatileRoot};
use crate::step_sync::{self, MountedBy, Unsynced};
use crate::step_watch;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use synconce_sys::reason;

/// Executes the runtime for an engine that called it as `name`: in this process, or, if the root
/// of a step has to be mounted back afterwards, in a child process.
pub fn wrap(name: &OsStr, arguments: &[OsString]) -> RuntimeEnd {
    let call = Invocation::parse(arguments);
    let pid = std::process::id();
    let tried = Tried::parse(std::env::var_os(Tried::VARIABLE).as_deref(), pid);
    let path = std::env::var_os("PATH");
    let find = |settings: &Settings| runtime::find(settings, name, path.as_deref(), &tried);
    let found = Settings::of_this_machine().and_then(|settings| Ok((find(&settings)?, settings)));
    let (runtime, settings) = match found {
        Ok(found) => found,
        Err(error) if call.makes_container() => return RuntimeEnd::Failed(error),
        // Containers that run already must still be stopped and removed.
        Err(error) => match find(&Settings::default()) {
            Ok(runtime) => (runtime, Settings::default()),
            Err(_) => return RuntimeEnd::Failed(error),
        },
    };
    if let Some(ended) = step::mount_back(&call, &runtime, arguments, &tried) {
        return ended;
    }
    if call.makes_container() {
        if let Some(why) = runtime::refusal(&runtime) {
            let runtime = runtime.display();
            return RuntimeEnd::Failed(format!("cannot hold under {runtime}: {why}"));
        }
        match hold(&call, &settings, &runtime) {
            Ok(None) => {}
            Ok(Some(step)) => match make_volatile(&call, step.root) {
                Err(error) => return RuntimeEnd::Failed(error),
                // The root of a `create` ends with `delete`.
                Ok(_) if call.verb != "run" || call.detaches => {}
                Ok(Some(root)) => return step::run(root, &runtime, arguments, &tried),
                Ok(None) if step.unsynced.is_nothing() => {}
                Ok(None) => {
                    return step::run_and_sync(&step.unsynced, &runtime, arguments, &tried);
                }
            },
            // The container's syncs are done. If the bundle is invalid, the runtime reports it
            // as usual.
            Err(error) => call.note("warning", &format!("{error}; this container is not held")),
        }
    }
    let mark = (Tried::VARIABLE, tried.with(&runtime, pid));
    let error = synconce_sys::process::replace_by(&runtime, arguments, mark);
    RuntimeEnd::Failed(format!("cannot execute {}: {}", runtime.display(), reason(&error)))
}

/// What the calls after the one that makes the container have to do for a build step.
#[derive(Default)]
struct BegunStep {
    root: Option<RootOf>,
    /// What to sync at the end, unless the root is volatile.
    unsynced: Unsynced,
}

/// The root of a step of this engine that may become volatile; the step if it is not held.
type RootOf = (&'static str, Option<LastStep>, Result<StepRoot, Kept>);

/// Adds the hold to the bundle of `call`, if its container is to be held. Returns `None` if it is
/// no step of a build.
fn hold(
    call: &Invocation,
    settings: &Settings,
    runtime: &Path,
) -> Result<Option<BegunStep>, String> {
    let plan = match WrapPlan::for_call(call.clone(), settings, None) {
        // The runtime reports the missing bundle.
        Err(PlanError::Missing(_)) => return Ok(None),
        other => other.map_err(|error| error.to_string())?,
    };
    if let Some((engine, step)) = &plan.step
        && step_watch::begin(&plan.bundle, runtime, engine, step)?
    {
        call.note("info", "synconce doctor watches this step, which is not held");
        return Ok(None);
    }
    match (plan.verdict, plan.edited) {
        (Treatment::Hold(_), Some(edited))
            if !edited.held.is_empty() || edited.io_uring_refused =>
        {
            plan.bundle.replace(&plan.bundle.with_seccomp(&edited.profile)?)?;
            let Some((engine, step)) = plan.step else { return Ok(None) };
            held_steps::note(engine, &step);
            let root = plan.root.map(|root| (engine, None, root));
            Ok(Some(BegunStep { root, unsynced: plan.unsynced }))
        }
        (Treatment::Leave(why @ Reason::Unclear(_)), _) => Err(why.to_string()),
        (Treatment::Leave(why @ Reason::Outliving(_)), _) => {
            call.note("info", &format!("the syncs of this step are not held: {why}"));
            let root = plan.root.zip(plan.step);
            let root = root.map(|(root, (engine, step))| (engine, Some(step), root));
            Ok(Some(BegunStep { root, ..BegunStep::default() }))
        }
        _ => Ok(None),
    }
}

fn make_volatile(call: &Invocation, root: Option<RootOf>) -> Result<Option<VolatileRoot>, String> {
    let Some((engine, unheld, root)) = root else { return Ok(None) };
    step::make_volatile(call, engine, unheld.as_ref(), root)
}

/// What synconce-oci would do for one call.
#[derive(Debug)]
pub(crate) struct WrapPlan {
    /// The bundle's configuration.
    pub(crate) bundle: Bundle,
    /// Whether the container is held.
    pub(crate) verdict: Treatment,
    /// The profile with the hold, if the container is held.
    pub(crate) edited: Option<Edited>,
    /// The root that becomes volatile, or why it does not; `None` if the container is not a
    /// step of BuildKit or of the classic builder.
    pub(crate) root: Option<Result<StepRoot, Kept>>,
    /// What is noted of a step of a build, with its engine.
    step: Option<(&'static str, LastStep)>,
    /// What to sync at the end of a held step.
    unsynced: Unsynced,
}

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum PlanError {
    /// The configuration is missing.
    Missing(String),
    /// The configuration is invalid, or the mounts that it names cannot be read.
    Content(String),
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Missing(what) | Self::Content(what)) = self;
        f.write_str(what)
    }
}

impl WrapPlan {
    /// Plans for `call`, which was made in `directory`, by default the working directory.
    pub(crate) fn for_call(
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
        let mounts = step_sync::read_mounts().map_err(PlanError::Content)?;
        let context = CallContext {
            call: &call,
            bundle: &place,
            directory: &directory,
            facts: &facts,
            settings,
            mounts: &mounts,
        };
        let verdict = classify(&context);
        let step = held_steps::step(&context, &verdict);
        // A rule can hold a step that writes to data that outlive it: no engine stores those.
        let stores_its_files = step.is_some() && !context.writes_outliving();
        let edited = match &verdict {
            Treatment::Leave(_) => None,
            Treatment::Hold(_) => {
                let seccomp = bundle.seccomp().map_err(PlanError::Content)?;
                let wrong = |error: String| PlanError::Content(bundle.misunderstood(&error));
                let purpose = if stores_its_files { Purpose::BuildStep } else { Purpose::Other };
                Some(profile::hold(seccomp, purpose).map_err(wrong)?)
            }
        };
        let root = step::root(&context, &verdict);
        let unsynced = if stores_its_files {
            // Only a `run` uses it, and no shim calls `run` (containerd 1.6 to 2.4).
            step_sync::unsynced(&place, &facts, &mounts, MountedBy::Engine)
        } else {
            Unsynced::default()
        };
        Ok(Self { bundle, verdict, edited, root, step, unsynced })
    }
}
