//! containerd's own option: `no_sync` of its metadata database, since 2.1.0. Those of the mount
//! manager and of the erofs snapshotter are proposed only (containerd#13143).

use crate::Engine;
use crate::containerd::{PLACES, version_1};
use crate::error::{Error, Fault};
use crate::held::configuration::Configuration;
use crate::held::containerd::{self, METADATA};
use crate::held::{Daemon, Description};
use crate::host::Host;
use crate::imports::{self, Part};
use crate::journal::Journal;
use crate::plan::Plan;
use crate::text;
use crate::toml::Toml;
use std::path::{Path, PathBuf};

/// The first version with the option.
const SINCE: (u32, u32) = (2, 1);
/// The name of a file in a directory that is imported.
const DROP_IN: &str = "synconce-no-sync.toml";
const KEYS: [&str; 3] = ["plugins", METADATA, "no_sync"];

/// Plans the option, and describes the recovery.
pub(super) fn describe(host: &Host, plan: &mut Plan) -> Result<Description, Error> {
    refuse_both(host, Engine::Held(Daemon::Containerd))?;
    check_version(host)?;
    let containerd = Configuration::read(host)?;
    set(host, plan, &containerd)?;
    let hold = host.setup(Engine::Held(Daemon::Containerd).command());
    plan.notes.push(format!(
        "the snapshotters and the mount manager have no such option: their syncs stay; \
         `{hold}` holds theirs, too"
    ));
    containerd::describe_own_option(host, plan, &containerd)
}

/// Refuses if containerd is set up as `other`: both would describe the same hold.
pub(super) fn refuse_both(host: &Host, other: Engine) -> Result<(), Error> {
    if Journal::read(host, other)?.is_none() {
        return Ok(());
    }
    let command = host.setup(other.command());
    let reason = format!("shows that containerd is set up by `{command}`");
    let remedy = format!("first: {command} --undo");
    let journal = crate::journal::path(host, other);
    Err(Fault::new(reason, remedy).in_file(&journal).into())
}

fn check_version(host: &Host) -> Result<(), Error> {
    let (major, minor) = SINCE;
    let path = Path::new(host.first_executable(&PLACES).unwrap_or(PLACES[0]));
    let reason = match containerd::version(host) {
        Some(version) if version >= SINCE => return Ok(()),
        Some((old, own)) => {
            format!("is containerd {old}.{own}: it has no_sync only since {major}.{minor}")
        }
        None => format!("prints no version: containerd has no_sync only since {major}.{minor}"),
    };
    let hold = host.setup(Engine::Held(Daemon::Containerd).command());
    let remedy = format!("this works with every version: {hold}");
    Err(Fault::new(reason, remedy).in_file(&host.real(path)).into())
}

/// Plans `no_sync = true`: in the last file that has the section of the metadata, else in a
/// file of synconce's own in a directory that is imported, else in the main file.
fn set(host: &Host, plan: &mut Plan, containerd: &Configuration) -> Result<(), Error> {
    let section = &KEYS[..2];
    let own = drop_in(host, containerd)?;
    let others = containerd.parts.iter().filter(|part| Some(&part.path) != own.as_ref());
    let with_section = others.rev().find(|part| part.toml.get(section).is_some());
    match (with_section, own) {
        (Some(part), _) => edit(host, plan, &part.path),
        (None, None) => edit(host, plan, &containerd.main),
        (None, Some(own)) => {
            let real = host.real(&own);
            let text = alone(containerd).map_err(|fault| fault.in_file(&real))?;
            plan.own(host, &own, text)
        }
    }
}

/// Returns the path of a file of synconce's own that containerd would import.
fn drop_in(host: &Host, containerd: &Configuration) -> Result<Option<PathBuf>, Error> {
    let Some(Part { path, toml }) = containerd.parts.first() else { return Ok(None) };
    let imports = toml.texts(&["imports"]).map_err(|fault| fault.in_file(&host.real(path)))?;
    // Without a version in the main file, that of a drop-in file might count for both.
    let has_version = toml.get(&["version"]).is_some();
    let directory = imports::drop_in_directory(path, &imports.unwrap_or_default());
    Ok(directory.filter(|_| has_version).map(|directory| directory.join(DROP_IN)))
}

/// Returns the text of synconce's own file, of the same version as the main file.
fn alone(containerd: &Configuration) -> Result<String, Fault> {
    let version = containerd.parts.first().and_then(|part| part.toml.get(&["version"]));
    let version = version.and_then(|(item, _)| item.as_integer()).unwrap_or(3);
    let head = format!("{}version = {version}\n", crate::header(Engine::NoSync));
    let mut edited = Toml::parse(&head)?.edit();
    edited.set(&KEYS, true)?;
    Ok(edited.into_text())
}

fn edit(host: &Host, plan: &mut Plan, path: &Path) -> Result<(), Error> {
    plan.edit(host, path, |text| {
        text::edit(text.unwrap_or_default(), |text| {
            let toml = Toml::parse(text)?;
            check_format(&toml, &host.real(path))?;
            if toml.flag(&KEYS)? == Some(true) {
                return Ok(None);
            }
            let mut edited = toml.edit();
            if toml.is_empty() {
                edited.set(&["version"], 3)?;
            }
            edited.set(&KEYS, true)?;
            Ok(Some(edited.into_text()))
        })
    })
}

/// Refuses a file of version 1, whose plugins have other names; `file` is its real path.
fn check_format(toml: &Toml, file: &Path) -> Result<(), Fault> {
    let version = toml.get(&["version"]).map(|(item, line)| (item.as_integer(), line));
    match version {
        Some((Some(2..=4), _)) => Ok(()),
        None if toml.is_empty() => Ok(()),
        None => Err(version_1(file)),
        Some((Some(1), line)) => Err(version_1(file).on_line(line)),
        Some((_, line)) => {
            let reason = "is of a version that is not known here (2, 3 and 4 are)";
            let remedy = "use a later synconce, or edit it by hand";
            Err(Fault::new(reason, remedy).on_line(line))
        }
    }
}
