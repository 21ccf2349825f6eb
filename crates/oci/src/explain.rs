//! `--explain BUNDLE`: prints whether a container would be held, and why.

use crate::classify::Treatment;
use crate::config::Settings;
use crate::invocation::Invocation;
use crate::profile;
use crate::runtime::{self, Tried};
use crate::step_root::Kept;
use crate::wrap::WrapPlan;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::Path;
use synconce_sys::reason;

const GAPS: &str = "opens with O_SYNC or O_DSYNC, writes with RWF_SYNC or RWF_DSYNC, syncs by aio: \
                    a filter cannot take a flag away";

/// Explains the bundle that `arguments` begin with. The runtime's arguments may follow; by
/// default they are guessed from the bundle's path.
pub fn explain(name: &OsStr, arguments: &[OsString]) -> Result<String, String> {
    let Some((bundle, rest)) = arguments.split_first() else {
        return Err("usage: synconce-oci --explain BUNDLE [RUNTIME ARGUMENT...]".to_owned());
    };
    let bundle = Path::new(bundle);
    let place = bundle
        .canonicalize()
        .map_err(|error| format!("cannot find {}: {}", bundle.display(), reason(&error)))?;
    let settings = Settings::of_this_machine()?;
    let (mut call, directory) = match rest {
        [] => (guess(&place), Some(place.as_path())),
        words => (Invocation::parse(words), None),
    };
    call.bundle.get_or_insert_with(|| place.clone());
    let plan = WrapPlan::for_call(call, &settings, directory).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let mut line = |title: &str, what: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{title:<10}{what}");
    };
    line("bundle", &place.display().to_string());
    match runtime::find(&settings, name, std::env::var_os("PATH").as_deref(), &Tried::default()) {
        Err(error) => line("runtime", &error),
        Ok(runtime) => match runtime::refusal(&runtime) {
            None => line("runtime", &runtime.display().to_string()),
            Some(why) => line("runtime", &format!("{}, refused: {why}", runtime.display())),
        },
    }
    match &plan.verdict {
        Treatment::Hold(why) => line("verdict", &format!("held: {why}")),
        Treatment::Leave(why) => line("verdict", &format!("not held: {why}")),
    }
    let has_begun =
        matches!(plan.bundle.seccomp(), Ok(Some(profile)) if profile::is_held(&profile));
    if has_begun {
        line("held", "already: the container was made before, and config.json has the hold");
    } else if let Some(edited) = &plan.edited {
        line("held", &edited.held.join(" "));
        if !edited.left.is_empty() {
            line("left", &format!("{} (its profile restricts them)", edited.left.join(" ")));
        }
        let io_uring = if edited.io_uring_refused {
            "answered ENOSYS, so that programs fall back to calls that are held"
        } else {
            "left to its profile"
        };
        line("io_uring", io_uring);
    }
    if plan.edited.is_some() {
        line("not held", GAPS);
    }
    match &plan.root {
        None => {}
        Some(Ok(_)) => line("root", "volatile while the step runs"),
        Some(Err(Kept::Volatile)) if has_begun => line("root", "volatile until the step ends"),
        Some(Err(why)) => line("root", &format!("as the engine mounted it: {why}")),
    }
    Ok(text)
}

/// Guesses the call of the engine that uses the path `bundle`.
fn guess(bundle: &Path) -> Invocation {
    let name = bundle.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = bundle.parent().unwrap_or(Path::new("/"));
    let id = Some(name.clone());
    if parent.file_name() == Some(OsStr::new("executor")) {
        let log = Some(parent.join("runc-log.json"));
        return Invocation { verb: "run".to_owned(), log, id, ..Invocation::default() };
    }
    let verb = "create".to_owned();
    if name.starts_with("buildah") {
        let pid_file = Some(bundle.join("pid"));
        return Invocation {
            verb,
            pid_file,
            id: Some(format!("buildah-{name}")),
            ..Invocation::default()
        };
    }
    // .../io.containerd.runtime.v2.task/NAMESPACE/ID
    let log = Some(bundle.join("log.json"));
    Invocation { verb, root: Some(parent.to_owned()), log, id, ..Invocation::default() }
}
