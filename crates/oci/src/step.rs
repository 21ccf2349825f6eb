//! A build step whose root is volatile, from the engine's first call of the runtime to the last.
//!
//! BuildKit calls `run`, which returns at the end of the step. A shim of containerd calls
//! `create`, and `delete` once no process of the step runs any more. Between these calls, the
//! mount table records that the root is volatile, and a note in its work directory names the
//! bundle.

use crate::bundle::Bundle;
use crate::classify::{CallContext, Reason, Treatment};
use crate::config::StepRoot as Setting;
use crate::foreground;
use crate::held_steps::{self, LastStep};
use crate::invocation::Invocation;
use crate::outliving::resolved;
use crate::runtime::{RuntimeEnd, Tried};
use crate::step_root::{Kept, NotVolatile, StepRoot, VolatileRoot};
use crate::step_sync::{self, Unsynced};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use synconce_durable::mutant;
use synconce_sys::reason;

/// Returns the root of the step of `context`, or why the root stays as the engine mounted it.
/// Returns `None` if the container is not a step whose root the engine mounts plainly.
///
/// A step that is not held, because it can write to data that outlive it, has a volatile root, too.
/// The syncs of those data stay real; those of the root cost nothing.
pub(crate) fn root(
    context: &CallContext<'_>,
    verdict: &Treatment,
) -> Option<Result<StepRoot, Kept>> {
    let (Treatment::Hold(why) | Treatment::Leave(why @ Reason::Outliving(_))) = verdict else {
        return None;
    };
    let is_of_shim = context.is_buildkit_on_containerd() || *why == Reason::ClassicBuild;
    if !is_of_shim && !context.is_buildkit() {
        return None;
    }
    Some(find(context, is_of_shim))
}

fn find(context: &CallContext<'_>, is_of_shim: bool) -> Result<StepRoot, Kept> {
    if context.settings.step_root == Setting::AsMounted {
        return Err(Kept::Settings);
    }
    if context.call.detaches || is_of_shim && context.call.bundle_of_shim() != Some(context.bundle)
    {
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

/// Makes the root of a step of `engine` volatile. Returns `None` if the root stays as the engine
/// mounted it. A line in the runtime's log says which. `unheld` is a step that is not held.
///
/// # Errors
/// The root is not mounted any more. The message is for the user.
pub(crate) fn make_volatile(
    call: &Invocation,
    engine: &str,
    unheld: Option<&LastStep>,
    root: Result<StepRoot, Kept>,
) -> Result<Option<VolatileRoot>, String> {
    let bundle = call.bundle_of_shim().map(resolved);
    let why = match root.map(|root| root.make_volatile(bundle.as_deref())) {
        Ok(Ok(root)) => {
            call.note("info", "the root of this step is volatile");
            held_steps::note_volatile(engine, unheld);
            return Ok(Some(root));
        }
        Ok(Err(NotVolatile::Lost(error))) => return Err(error),
        Ok(Err(NotVolatile::Kept(why))) | Err(why) => why,
    };
    if why != Kept::Settings {
        let why = why.to_string();
        call.note("info", &format!("the root of this step is as the engine mounted it: {why}"));
        held_steps::note_as_mounted(engine, &why);
    }
    Ok(None)
}

/// Executes the runtime's `run` for a step whose root is volatile.
pub(crate) fn run(
    root: VolatileRoot,
    runtime: &Path,
    arguments: &[OsString],
    tried: &Tried,
) -> RuntimeEnd {
    let ended = execute(runtime, arguments, tried);
    root.end().map_or_else(RuntimeEnd::Failed, |()| ended)
}

/// Executes the runtime's `run` for a held step, and then syncs its root.
pub(crate) fn run_and_sync(
    unsynced: &Unsynced,
    runtime: &Path,
    arguments: &[OsString],
    tried: &Tried,
) -> RuntimeEnd {
    let opened = unsynced.open();
    let ended = execute(runtime, arguments, tried);
    opened.sync().map_or_else(RuntimeEnd::Failed, |()| ended)
}

/// Mounts a root as the engine had mounted it, if an earlier call has made the root volatile. A
/// `delete` finds such a root after the step; a `create` finds one if the engine was killed during
/// a step and uses the layer again. A `delete` syncs the root of any other held step that no
/// unmount syncs. Returns how the call ended, or `None` if the runtime is still to be executed.
pub(crate) fn mount_back(
    call: &Invocation,
    runtime: &Path,
    arguments: &[OsString],
    tried: &Tried,
) -> Option<RuntimeEnd> {
    if !matches!(call.verb.as_str(), "create" | "delete") {
        return None;
    }
    let delete = || execute(runtime, arguments, tried);
    match (left_volatile(call), call.verb.as_str()) {
        (Ok(root), "create") => root?.end().err().map(RuntimeEnd::Failed),
        (Ok(None), _) => match step_sync::of_delete(call) {
            Ok(unsynced) => step_sync::end_by_delete(&unsynced, call, delete),
            // The engine can repeat the call.
            Err(error) => Some(RuntimeEnd::Failed(error)),
        },
        (Ok(Some(root)), _) => Some(if is_of_dead_shim_of_dockerd(call) {
            give_up(&root, call, delete)
        } else {
            end_by_delete(root, call, delete)
        }),
        // The engine can repeat the call: the runtime has deleted nothing.
        (Err(error), _) => Some(RuntimeEnd::Failed(error)),
    }
}

/// Ends the step of a `call` of `delete`, which `delete` executes.
fn end_by_delete(
    root: VolatileRoot,
    call: &Invocation,
    delete: impl FnOnce() -> RuntimeEnd,
) -> RuntimeEnd {
    // A large step takes long to sync, and dockerd kills a `delete` after 30 seconds. A repeated
    // call needs the runtime's state.
    let synced = root.sync_marked();
    let ended = delete();
    let is_deleted = is_deleted(call, &ended);
    let end = match synced {
        Err(error) => {
            if is_deleted {
                root.abandon();
            }
            Err(error)
        }
        // `delete --force` has ended processes only now, so `end` syncs once more.
        Ok(()) if is_deleted => root.end(),
        Ok(()) => Ok(()),
    };
    end.map_or_else(RuntimeEnd::Failed, |()| ended)
}

/// Whether containerd deletes a container of dockerd whose shim has died. A shim itself deletes
/// without force (containerd 1.6 to 2.4).
fn is_of_dead_shim_of_dockerd(call: &Invocation) -> bool {
    let namespace = call.root.as_deref().and_then(Path::file_name);
    call.forces && namespace == Some(OsStr::new("moby"))
}

/// Ends a step of dockerd that was cut short, without a sync. After a kill of dockerd, containerd
/// and the shims, the new containerd starts only when it has deleted all containers, in up to 5
/// seconds each, and dockerd gives up after 15. dockerd copies the layer of a container into an
/// image, so no image has the unsynced layer.
///
/// The mark in the engine's work directory is not synced, because a sync could take longer than
/// dockerd waits. A power cut may lose the mark.
fn give_up(
    root: &VolatileRoot,
    call: &Invocation,
    delete: impl FnOnce() -> RuntimeEnd,
) -> RuntimeEnd {
    // The mutant leaves every root volatile, also that of a step that has ended.
    if mutant::is("step-root-unsynced") {
        return delete();
    }
    let marked = root.mark();
    let ended = delete();
    if is_deleted(call, &ended) {
        root.abandon();
    }
    marked.map_or_else(RuntimeEnd::Failed, |()| ended)
}

/// Whether a call of `delete` that `ended` has deleted the container. A runtime refuses to delete
/// a container with processes, and keeps its state.
fn is_deleted(call: &Invocation, ended: &RuntimeEnd) -> bool {
    let state = call.root.as_ref().zip(call.id.as_ref()).map(|(root, id)| root.join(id));
    let is_gone = |state: PathBuf| {
        state.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    matches!(ended, RuntimeEnd::Exited(0)) || state.is_some_and(is_gone)
}

fn execute(runtime: &Path, arguments: &[OsString], tried: &Tried) -> RuntimeEnd {
    foreground::run(runtime, arguments, tried).unwrap_or_else(|error| {
        RuntimeEnd::Failed(format!("cannot execute {}: {}", runtime.display(), reason(&error)))
    })
}

/// Finds the root of the container of a shim's `call` if an earlier call has made it volatile.
///
/// # Errors
/// Whether the step has a volatile root is unknown. The message is for the user.
fn left_volatile(call: &Invocation) -> Result<Option<VolatileRoot>, String> {
    let Some(bundle) = call.bundle_of_shim() else { return Ok(None) };
    let found = step_sync::read_mounts().and_then(|mounts| {
        let facts = Bundle::read(&bundle.join("config.json")).and_then(|read| read.facts());
        let root = facts.ok().and_then(|facts| bundle.join(facts.root.path).canonicalize().ok());
        VolatileRoot::find(root.as_deref(), &resolved(bundle), &mounts)
    });
    if found.is_err() && call.verb == "delete" {
        // Any file system can be the layer's, and an engine may ignore the error.
        rustix::fs::sync();
    }
    found
}
