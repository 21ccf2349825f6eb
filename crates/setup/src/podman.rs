//! Podman and Buildah: puts synconce-oci first among the candidates of their runtime.
//!
//! The name of the runtime is not changed: Podman stores it in its database, and derives from
//! it what the runtime supports (JSON, no cgroups). If synconce-oci is removed, Podman takes
//! the next candidate.

pub(crate) mod probe;
pub(crate) mod users;

use crate::error::{Error, NotEdited};
use crate::host::Host;
use crate::original;
use crate::plan::Plan;
use crate::toml::TomlFile;
use std::path::Path;

/// The directory of drop-in files, which are read after /etc/containers/containers.conf, in
/// the order of names; a list replaces the earlier one, and other keys are kept. Debian 12's
/// Podman 4.3.1 and Buildah 1.28.2 read it (containers.conf(5) of containers-common 0.50.1).
/// So no file of the operator's is edited.
const DROP_INS: &str = "/etc/containers/containers.conf.d";
/// Links to synconce-oci, each named like the runtime that synconce-oci must execute behind
/// it: crun and runc have different features.
const DIRECTORY: &str = "/usr/local/lib/synconce/podman";
const DROP_IN: &str = "/etc/containers/containers.conf.d/synconce.conf";
pub(crate) const PLACES: [&str; 4] =
    ["/usr/bin/podman", "/usr/local/bin/podman", "/usr/bin/buildah", "/usr/local/bin/buildah"];
const FILES: [&str; 2] =
    ["/usr/share/containers/containers.conf", "/etc/containers/containers.conf"];

/// The runtimes that are tried where none is configured, in that order, and their candidates
/// (DefaultConfig in containers/common).
const BUILT_IN: [(&str, &[&str]); 2] = [
    (
        "crun",
        &[
            "/usr/bin/crun",
            "/usr/sbin/crun",
            "/usr/local/bin/crun",
            "/usr/local/sbin/crun",
            "/sbin/crun",
            "/bin/crun",
            "/run/current-system/sw/bin/crun",
        ],
    ),
    (
        "runc",
        &[
            "/usr/bin/runc",
            "/usr/sbin/runc",
            "/usr/local/bin/runc",
            "/usr/local/sbin/runc",
            "/sbin/runc",
            "/bin/runc",
            "/usr/lib/cri-o-runc/sbin/runc",
            "/run/current-system/sw/bin/runc",
        ],
    ),
];

/// Plans the changes that make Podman and Buildah call `synconce-oci`.
pub(crate) fn plan(host: &Host) -> Result<Plan, Error> {
    let parts = parts(host)?;
    let name = name(host, &parts)?;
    let list = ["engine", "runtimes", &name];
    let ours = Path::new(DIRECTORY).join(&name);
    let is_ours = |path: &String| Path::new(path) == ours || path == host.runtime();
    let mut candidates = None;
    for part in &parts {
        let Some(own) = part.texts(&list)? else { continue };
        let line = part.toml.get(&list).and_then(|(_, line)| line);
        let is_ours = own.first().is_some_and(is_ours);
        let is_later = part.path.starts_with(DROP_INS) && part.path.as_path() > Path::new(DROP_IN);
        if is_later && !is_ours {
            let reason = format!("sets {}, and is read after {DROP_IN}", list.join("."));
            let remedy = "give it an earlier name, and set up again";
            return Err(part.refuse(NotEdited::new(reason, remedy).on_line(line)));
        }
        candidates = Some((own, is_ours, Some((part.real.clone(), line))));
    }
    let mut plan = Plan::default();
    let (candidates, said) = match candidates {
        // The operator has configured it by hand.
        Some((_, true, _)) => return Ok(plan),
        Some((own, false, said)) => (own, said),
        None => (built_in(&name), None),
    };
    // Like Podman, take the first that exists.
    if let Some(wanted) = candidates.iter().find(|path| host.is_executable(Path::new(path))) {
        let wanted = Path::new(wanted);
        // A built-in candidate is named in the error itself.
        let (real, line) = said.unwrap_or_else(|| (host.real(wanted), None));
        let checked = original::check(host, "podman", wanted, &[&name])?;
        let note = checked.map_err(|fault| fault.on_line(line).in_file(&real))?;
        plan.notes.extend(note);
    }
    plan.link(host, &ours, Path::new(host.runtime()))?;
    plan.own(host, Path::new(DROP_IN), drop_in(&name, &ours, &candidates))?;
    plan.notes.push(format!(
        "{name} is what podman and buildah use; builds by BUILDAH_ISOLATION=chroot call no \
         runtime, and are not held"
    ));
    plan.notes.push(
        "a user's own ~/.config/containers/containers.conf is read later; one that sets \
         engine.runtime or engine.runtimes wins"
            .to_owned(),
    );
    Ok(plan)
}

/// Reads the system's files in Podman's order, without synconce's own.
fn parts(host: &Host) -> Result<Vec<TomlFile>, Error> {
    let mut paths: Vec<_> = FILES.map(Into::into).into();
    let drop_ins = host.list(Path::new(DROP_INS), ".conf")?;
    paths.extend(drop_ins.into_iter().filter(|path| path != Path::new(DROP_IN)));
    paths.iter().map(|path| TomlFile::read(host, path)).collect()
}

/// Returns the name of the runtime in use.
fn name(host: &Host, parts: &[TomlFile]) -> Result<String, Error> {
    for part in parts.iter().rev() {
        let Some((name, line)) = part.text(&["engine", "runtime"])? else { continue };
        let name = or_default(host, name);
        if BUILT_IN.iter().any(|(known, _)| *known == name) {
            return Ok(name.to_owned());
        }
        let (reason, remedy) = refusal(name);
        return Err(part.refuse(NotEdited::new(reason, remedy).on_line(line)));
    }
    // Like Podman, take the first that exists.
    let is_there = |(_, paths): &(&str, &[&str])| host.first_executable(paths).is_some();
    match BUILT_IN.iter().find(|built_in| is_there(built_in)) {
        Some((name, _)) => Ok((*name).to_owned()),
        None => {
            let fault =
                NotEdited::new("holds neither crun nor runc", "install one, and set up again");
            Err(fault.in_file(&host.real(Path::new("/"))).into())
        }
    }
}

/// Returns the runtime that Podman takes for `name`. An empty name takes back what an earlier file
/// sets; Podman then takes crun with control groups of version 2, and runc otherwise
/// (`newRuntimeFromConfig` of libpod 4.3 and 5.5).
fn or_default<'n>(host: &Host, name: &'n str) -> &'n str {
    let is_unified = || host.exists(Path::new("/sys/fs/cgroup/cgroup.controllers"));
    match name {
        "" if is_unified() => "crun",
        "" => "runc",
        _ => name,
    }
}

fn refusal(name: &str) -> (String, &'static str) {
    let held = |why: &str| {
        (format!("has engine.runtime = \"{name}\", {why}"), "set up again with crun or runc in it")
    };
    match name {
        "runsc" => held("a kernel in user space: its syncs cannot be held"),
        "kata" | "krun" => held("a virtual machine: its syncs cannot be held"),
        path if path.contains('/') => {
            let reason = format!("has engine.runtime = \"{path}\", a path, which no list replaces");
            (reason, "give the name, crun or runc, and set up again")
        }
        _ => held("which is not known to take a seccomp profile as crun and runc do"),
    }
}

fn built_in(name: &str) -> Vec<String> {
    let own = BUILT_IN.iter().find(|(known, _)| *known == name);
    own.map_or_else(Vec::new, |(_, paths)| paths.iter().map(|path| (*path).to_owned()).collect())
}

fn drop_in(name: &str, ours: &Path, candidates: &[String]) -> String {
    let ours = ours.display().to_string();
    let quoted = |path: &String| format!("  {},\n", toml_edit::Value::from(path));
    let list: String = std::iter::once(&ours).chain(candidates).map(quoted).collect();
    format!(
        "# Written by `synconce setup podman`; `synconce setup podman --undo` takes it away.\n\
         # The candidates of {name}: the first that is there is used.\n\
         [engine.runtimes]\n{name} = [\n{list}]\n"
    )
}
