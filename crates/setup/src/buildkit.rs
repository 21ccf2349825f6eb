//! buildkitd: sets the runtime of its OCI worker and of its containerd worker.

pub(crate) mod probe;

use crate::error::{Error, NotEdited};
use crate::host::Host;
use crate::plan::Plan;
use crate::systemd::Service;
use crate::text;
use crate::toml::Toml;
use std::path::Path;
use synconce_durable::text::quote;
use toml_edit::Value;

pub(crate) const CONFIGURATION: &str = "/etc/buildkit/buildkitd.toml";
pub(crate) const PLACES: [&str; 3] =
    ["/usr/local/bin/buildkitd", "/usr/bin/buildkitd", "/usr/sbin/buildkitd"];
/// The shim that calls a runtime with runc's command line.
pub(crate) const SHIM: &str = "io.containerd.runc.v2";

/// Plans the changes that make buildkitd call `synconce-oci`.
pub(crate) fn plan(host: &Host) -> Result<Plan, Error> {
    let service = service(host)?;
    service.check_program(host, "buildkitd")?;
    if let Some((said, _)) = service.flag("--oci-worker-binary") {
        let reason = "gives buildkitd --oci-worker-binary, which wins over its configuration";
        let remedy = format!("name {} there, or take the flag away", host.runtime());
        return Err(said.refuse(host, reason, &remedy).into());
    }
    let path = service.file(host, &["--config", "-config"], CONFIGURATION)?;
    let mut plan = Plan::default();
    plan.edit(host, &path, |text| edit(text.unwrap_or_default(), host.runtime()))?;
    if host.first_executable(&PLACES).is_none() {
        let real = host.real(&path);
        plan.notes.push(format!(
            "a buildkitd that runs in a container (docker buildx) needs {} in there too, and this \
             file: docker buildx create --config {}",
            host.runtime(),
            quote(&real)
        ));
    }
    Ok(plan)
}

/// Returns the service that starts buildkitd. No distribution ships a unit, and both names are
/// in use.
pub(crate) fn service(host: &Host) -> Result<Service, Error> {
    let service = Service::read(host, "buildkit", Path::new(""))?;
    if service.is_there { Ok(service) } else { Service::read(host, "buildkitd", Path::new("")) }
}

/// Returns `text` with `runtime` in every enabled worker, or `None` if nothing changes.
fn edit(text: &str, runtime: &str) -> Result<Option<String>, NotEdited> {
    text::edit(text, |text| {
        let toml = Toml::parse(text)?;
        let mut wanted: Vec<(&[&str], &str)> = Vec::new();
        if toml.flag(&["worker", "oci", "enabled"])? != Some(false) {
            wanted.push((&["worker", "oci", "binary"], runtime));
        }
        // If the file has no section of the containerd worker, the worker is enabled where
        // containerd's socket exists, but builds still use the OCI worker.
        if toml.get(&["worker", "containerd"]).is_some()
            && toml.flag(&["worker", "containerd", "enabled"])? != Some(false)
        {
            wanted.push((&["worker", "containerd", "runtime", "name"], SHIM));
            let name = &["worker", "containerd", "runtime", "options", "BinaryName"];
            wanted.push((name, runtime));
        }
        if wanted.is_empty() {
            let remedy = "set enabled = true in [worker.oci] or [worker.containerd]";
            return Err(NotEdited::new("turns both workers off", remedy));
        }
        let mut edited = toml.edit();
        let mut is_changed = false;
        for (keys, value) in wanted {
            is_changed |= needs(&toml, keys, value)?;
            if needs(&toml, keys, value)? {
                edited.set(keys, Value::from(value))?;
            }
        }
        Ok(is_changed.then(|| edited.into_text()))
    })
}

/// Returns whether `keys` have to be set to `value`. A name of the default runc is replaced;
/// any other value is the operator's choice and is refused.
fn needs(toml: &Toml, keys: &[&str], value: &str) -> Result<bool, NotEdited> {
    let Some((now, line)) = toml.text(keys)? else { return Ok(true) };
    match now {
        now if now == value => Ok(false),
        "" | "runc" | "buildkit-runc" => Ok(true),
        other => {
            let reason = format!("has {} = \"{other}\", not BuildKit's own", keys.join("."));
            let remedy = "take it away if runc will do as well, and set up again";
            Err(NotEdited::new(reason, remedy).on_line(line))
        }
    }
}

#[cfg(test)]
mod tests;
