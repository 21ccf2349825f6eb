//! The set-up of builds alone: the default runtime stays as it is, and daemon.json is not edited.
//!
//! BuildKit in dockerd has no default runtime. It looks `runc` up in dockerd's PATH at each step
//! (`runcexecutor` of BuildKit, `os/exec` of Go). A link that leads nowhere is passed over, so that
//! the next runc in PATH runs the step if synconce-oci is gone.

use super::{DROP_IN, VARIABLE, in_environment, path, unless_overridden};
use crate::engine::BUILDS_ONLY;
use crate::error::{Error, NotEdited};
use crate::host::{Host, PathState, RUNTIME_NAME};
use crate::plan::Plan;
use crate::systemd::Service;
use std::path::{Path, PathBuf};

/// A directory with nothing but a link named runc, to be first in dockerd's PATH. Only this set-up
/// makes it, which shows what is set up.
pub(super) const DIRECTORY: &str = "/usr/local/lib/synconce/docker-builds";

/// The default runtime of dockerd, and the line that sets it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DefaultRuntime {
    pub name: String,
    pub path: PathBuf,
    pub line: usize,
}

impl DefaultRuntime {
    /// Whether it is neither synconce's nor Docker's own.
    pub(super) fn is_other(&self) -> bool {
        self.name != RUNTIME_NAME && self.name != "runc"
    }

    /// Says that it stays.
    fn stays(&self, host: &Host) -> String {
        let Self { name, path, line } = self;
        format!(
            "{}, line {line}: the default runtime stays {name}: only builds are held",
            host.real(path).display()
        )
    }
}

/// Plans the changes by which dockerd calls `synconce-oci` for builds alone. `other` is the default
/// runtime if it is neither runc nor synconce's.
pub(super) fn plan(
    host: &Host,
    service: &Service,
    other: Option<&DefaultRuntime>,
) -> Result<Plan, Error> {
    let set = [service.variable_of_files(VARIABLE), service.variable(VARIABLE)];
    if let Some(said) = set.into_iter().flatten().next() {
        let reason = format!("sets {VARIABLE}, which BuildKit takes before the runc in PATH");
        return Err(said.refuse(host, &reason, "take it out, and set up again").into());
    }
    unless_overridden(host, service, "PATH")?;
    let mut plan = Plan { builds_only: true, ..Plan::default() };
    plan.link(host, &Path::new(DIRECTORY).join("runc"), Path::new(host.runtime()))?;
    plan.notes.extend(other.map(|other| other.stays(host)));
    plan.notes.push(
        "its BuildKit is reached by the runc first in dockerd's PATH; without synconce-oci it \
         takes the next runc"
            .to_owned(),
    );
    plan.notes.push(classic(service).to_owned());
    let setting = format!("PATH={}", path(host, service, DIRECTORY)?);
    in_environment(&mut plan, host, service, &setting, BUILDS_ONLY)?;
    Ok(plan)
}

/// Plans the set-up for builds alone although the user asked for all containers, and says why.
pub(super) fn plan_instead(
    host: &Host,
    service: &Service,
    other: Option<&DefaultRuntime>,
) -> Result<Plan, Error> {
    let plan = plan(host, service, other)?;
    let undone = || {
        let (undo, setup) = (host.setup("docker --undo"), host.setup("docker"));
        format!("for all containers, not only builds: {undo} && {setup}")
    };
    Ok(Plan { instead: Some(other.map_or_else(undone, |other| other.stays(host))), ..plan })
}

/// Says which steps of the classic builder are held: containerd starts them with the default
/// runtime, and has dockerd's PATH only if dockerd starts it.
fn classic(service: &Service) -> &'static str {
    if service.flag("--containerd").is_some() {
        "steps of the classic builder (DOCKER_BUILDKIT=0) are not held: the system's containerd \
         starts them"
    } else {
        "steps of the classic builder (DOCKER_BUILDKIT=0) are held only where dockerd starts \
         containerd itself"
    }
}

/// Returns the refusal of a set-up of builds alone where all containers are set up.
pub(super) fn refusal_of_whole(host: &Host, default: &DefaultRuntime) -> Error {
    let reason = format!("has \"{}\" as the default runtime, for all containers", default.name);
    let remedy = format!("first undo that set-up: {} --undo", host.setup("docker"));
    let fault = NotEdited::new(reason, remedy).on_line(default.line);
    fault.in_file(&host.real(&default.path)).into()
}

/// Whether builds alone are set up. One of the two files may be gone.
pub(super) fn is_made(host: &Host) -> bool {
    let link = host.resolve(Path::new(DIRECTORY)).map(|path| host.look(&path.join("runc")));
    let drop_in = host.text(Path::new(DROP_IN)).ok().and_then(|(_, text)| text);
    matches!(link, Ok(Ok(PathState::Link(_))))
        || drop_in.is_some_and(|text| text.contains(DIRECTORY))
}
