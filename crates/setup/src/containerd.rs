//! containerd: adds a runtime `synconce` to the CRI plugin, which a pod requests by its
//! RuntimeClass. The default runtime is not changed.

pub(crate) mod probe;

use crate::buildkit::SHIM;
use crate::error::{Error, NotEdited};
use crate::host::{Host, RUNTIME_NAME};
use crate::imports;
use crate::original;
use crate::plan::Plan;
use crate::systemd::Service;
use crate::text;
use crate::toml::{Edited, Toml, TomlFile};
use std::path::{Path, PathBuf};
use synconce_durable::text::quote;
use toml_edit::{Array, Value};

pub(crate) const CONFIGURATION: &str = "/etc/containerd/config.toml";
const DROP_IN: &str = "synconce.toml";
/// The runtime whose settings are copied, except the binary.
const ORIGINAL: &str = "runc";
const BINARY: [&str; 2] = ["options", "BinaryName"];
/// The pod annotations that are passed to containers, by which a container requests a hold.
const ANNOTATIONS: &str = "io.synconce.*";
pub(crate) const PLACES: [&str; 2] = ["/usr/bin/containerd", "/usr/local/bin/containerd"];

/// A version of the configuration file, and the name of its CRI plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Format {
    version: i64,
    plugin: &'static str,
}

/// containerd 1.x; 2.x reads this version as well.
const SECOND: Format = Format { version: 2, plugin: "io.containerd.grpc.v1.cri" };
/// containerd 2.x; version 4 (2.4) moved nothing that is used here.
const THIRD: Format = Format { version: 3, plugin: "io.containerd.cri.v1.runtime" };
const FOURTH: Format = Format { version: 4, ..THIRD };

/// What the set-up reaches, and what holds the steps of builds.
const REACHES: &str = "a pod requests a hold by the RuntimeClass that `synconce setup kubernetes` \
                       prints; `nerdctl build` is done by buildkitd: `synconce setup buildkit` holds \
                       its steps";

/// Plans the changes that give containerd the runtime `synconce`.
pub(crate) fn plan(host: &Host) -> Result<Plan, Error> {
    let service = Service::read(host, "containerd", Path::new(""))?;
    service.check_program(host, "containerd")?;
    let main = main(host, &service)?;
    let file = TomlFile::read(host, &main)?;
    let mut plan = Plan::default();
    let format = match format(&file).map_err(|fault| file.refuse(fault))? {
        Some(format) => format,
        None => by_version(host, &mut plan),
    };
    let imports = file.texts(&["imports"])?.unwrap_or_default();
    // In version 2, containerd 1.x takes a plugin's whole section from the last file that has
    // one: a drop-in file would remove the rest of the CRI plugin's section.
    let directory = imports::drop_in_directory(&main, &imports).filter(|_| format != SECOND);
    let drop_in = directory.map(|directory| directory.join(DROP_IN));
    let parts = imports::read(host, file, drop_in.as_deref())?;
    if is_known(host, &parts, format)? {
        return Ok(plan);
    }
    plan.notes.extend(check_binary(host, &parts, format)?);
    plan.notes.push(REACHES.to_owned());
    let original = original_settings(&parts, format);
    let wanted = Wanted { format, runtime: host.runtime(), original };
    match drop_in {
        Some(path) => {
            let real = host.real(&path);
            plan.own(host, &path, wanted.alone().map_err(|fault| fault.in_file(&real))?)?;
        }
        None => {
            plan.edit(host, &main, |text| {
                text::edit(text.unwrap_or_default(), |text| wanted.in_main(text))
            })?;
        }
    }
    Ok(plan)
}

/// The flags of containerd that name its configuration file.
pub(crate) const FLAGS: [&str; 3] = ["--config", "-config", "-c"];

/// The flags of containerd that name its socket.
const FLAGS_OF_ADDRESS: [&str; 3] = ["--address", "-address", "-a"];

/// Returns the configuration file of the containerd that `service` starts.
pub(crate) fn main(host: &Host, service: &Service) -> Result<PathBuf, Error> {
    service.file(host, &FLAGS, CONFIGURATION)
}

/// Returns the refusal of `file`, a real path, which is of version 1.
pub(crate) fn version_1(file: &Path) -> NotEdited {
    let file = quote(file);
    let remedy = format!("to print it in a later one: containerd --config {file} config migrate");
    NotEdited::new("is of version 1", remedy)
}

/// Returns the format of `file`; `None` for a file without settings.
fn format(file: &TomlFile) -> Result<Option<Format>, NotEdited> {
    let toml = &file.toml;
    let disabled = toml.texts(&["disabled_plugins"])?.unwrap_or_default();
    let is_cri = |name: &String| ["cri", SECOND.plugin, THIRD.plugin].contains(&name.as_str());
    if let Some(name) = disabled.iter().find(|name| is_cri(name)) {
        let line = toml.get(&["disabled_plugins"]).and_then(|(_, line)| line);
        let reason = format!("disables the plugin {name}, which is the one that has runtimes");
        let remedy = "Docker does not need this set-up; for Kubernetes, enable the plugin first";
        return Err(NotEdited::new(reason, remedy).on_line(line));
    }
    let (version, line) = match toml.get(&["version"]) {
        None if toml.is_empty() => return Ok(None),
        None => (Some(1), None),
        Some((item, line)) => (item.as_integer(), line),
    };
    match version {
        Some(2) => Ok(Some(SECOND)),
        Some(3) => Ok(Some(THIRD)),
        Some(4) => Ok(Some(FOURTH)),
        Some(1) => Err(version_1(&file.real).on_line(line)),
        _ => {
            let reason = "is of a version that is not known here (2, 3 and 4 are)";
            Err(NotEdited::new(reason, "use a later synconce, or edit it by hand").on_line(line))
        }
    }
}

/// Returns the format for a new file, by containerd's version.
fn by_version(host: &Host, plan: &mut Plan) -> Format {
    match host.version(host.first_executable(&PLACES)) {
        Some((2, _)) => THIRD,
        Some(_) => SECOND,
        None => {
            plan.notes.push(
                "containerd is not installed, or does not say its version: the file is of \
                 version 2, which 1.x and 2.x read"
                    .to_owned(),
            );
            SECOND
        }
    }
}

/// Returns whether the runtime is configured already. Fails if its name is in use for another
/// runtime, or if containerd would ignore the section.
fn is_known(host: &Host, parts: &[TomlFile], format: Format) -> Result<bool, Error> {
    for (at, part) in parts.iter().enumerate() {
        if at > 0
            && let Some((item, line)) = part.toml.get(&["version"])
            && let Some(version) = item.as_integer().filter(|version| *version > format.version)
        {
            // containerd 2 reads all files as of the later version, or leaves this one out
            // (containerd#12891).
            let main = format.version;
            let reason = format!(
                "is of version {version}, later than version {main} of the file that imports it"
            );
            let remedy = "write both in one version, and set up again";
            return Err(part.refuse(NotEdited::new(reason, remedy).on_line(line)));
        }
        if at > 0
            && format == SECOND
            && let Some((_, line)) = part.toml.get(&["plugins", format.plugin])
        {
            let reason = "has a section of the CRI plugin, which containerd 1.x takes instead of \
                          the whole one in the file that imports it";
            let remedy = "move the section into config.toml, and set up again";
            return Err(part.refuse(NotEdited::new(reason, remedy).on_line(line)));
        }
        let keys = |more: &[&'static str]| runtime_keys(format, RUNTIME_NAME, more);
        let Some((_, line)) = part.toml.get(&keys(&[])) else { continue };
        let kind = part.text(&keys(&["runtime_type"]))?.map(|(text, _)| text);
        let binary = part.text(&keys(&BINARY))?.map(|(text, _)| text);
        if kind == Some(SHIM) && binary == Some(host.runtime()) {
            return Ok(true);
        }
        let reason = format!("has a runtime {RUNTIME_NAME} that is not {}", host.runtime());
        let remedy = "take it away, or name its BinaryName by --runtime";
        return Err(part.refuse(NotEdited::new(reason, remedy).on_line(line)));
    }
    Ok(false)
}

fn runtime_keys<'a>(format: Format, name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let above = ["plugins", format.plugin, "containerd", "runtimes", name];
    above.into_iter().chain(more.iter().copied()).collect()
}

/// Refuses a binary of runc's section that synconce-oci would not execute.
fn check_binary(host: &Host, parts: &[TomlFile], format: Format) -> Result<Option<String>, Error> {
    let keys = runtime_keys(format, ORIGINAL, &BINARY);
    for part in parts.iter().rev() {
        let Some((name, line)) = part.text(&keys)? else { continue };
        // An empty name means runc, as the shim finds it.
        if name.is_empty() {
            break;
        }
        let binary = if Path::new(name).is_absolute() {
            Some(PathBuf::from(name))
        } else {
            original::by_name(host, name)
        };
        let binary = binary.unwrap_or_else(|| name.into());
        let checked = original::check(host, "containerd", &binary, &["runc", "crun"])?;
        return checked.map_err(|fault| part.refuse(fault.on_line(line)));
    }
    Ok(None)
}

/// Returns all settings of runc, by their keys below runc's section; the last of duplicate
/// keys counts. They are copied because a runtime with another cgroup driver than the
/// kubelet's starts no pod, and without the base specification containers would differ.
fn original_settings(parts: &[TomlFile], format: Format) -> Vec<(Vec<String>, Value)> {
    let mut found: Vec<(Vec<String>, Value)> = Vec::new();
    for part in parts {
        for (keys, value) in part.toml.values(&runtime_keys(format, ORIGINAL, &[])) {
            found.retain(|(known, _)| *known != keys);
            found.push((keys, value));
        }
    }
    found
}

/// The runtime's section to write.
struct Wanted<'a> {
    format: Format,
    runtime: &'a str,
    /// The settings of runc.
    original: Vec<(Vec<String>, Value)>,
}

impl Wanted<'_> {
    /// Returns the text of a drop-in file.
    fn alone(&self) -> Result<String, NotEdited> {
        // If a drop-in file has another version or none, containerd 2.0 to 2.2 assume that
        // version for the whole configuration.
        let head = format!(
            "# Written by `synconce setup containerd`; `synconce setup containerd --undo` takes \
             it away.\nversion = {}\n",
            self.format.version
        );
        let mut edited = Toml::parse(&head)?.edit();
        self.set(&mut edited)?;
        Ok(edited.into_text())
    }

    /// Returns the main file's text with the section.
    fn in_main(&self, text: &str) -> Result<Option<String>, NotEdited> {
        let toml = Toml::parse(text)?;
        let mut edited = toml.edit();
        if toml.is_empty() {
            edited.set(&["version"], self.format.version)?;
        }
        let runtimes = ["plugins", self.format.plugin, "containerd", "runtimes"];
        let has_runtimes = toml.get(&runtimes).and_then(|(item, _)| item.as_table_like());
        if self.format == SECOND && has_runtimes.is_none_or(|table| table.is_empty()) {
            // containerd 1.x drops its default runc section when a file names any runtime, and
            // its CRI plugin does not start without that section.
            let keys: Vec<&str> = runtimes.into_iter().chain([ORIGINAL, "runtime_type"]).collect();
            edited.set(&keys, SHIM)?;
        }
        self.set(&mut edited)?;
        Ok(Some(edited.into_text()))
    }

    fn set(&self, edited: &mut Edited) -> Result<(), NotEdited> {
        let mut set = |keys: &[&str], value: Value| {
            edited.set(&runtime_keys(self.format, RUNTIME_NAME, keys), value)
        };
        set(&["runtime_type"], SHIM.into())?;
        set(&["pod_annotations"], self.annotations()?.into())?;
        let own: [&[&str]; 3] = [&["runtime_type"], &["pod_annotations"], &BINARY];
        for (keys, value) in &self.original {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            if !own.contains(&keys.as_slice()) {
                set(&keys, value.clone())?;
            }
        }
        set(&BINARY, self.runtime.into())
    }

    /// Returns runc's annotations and synconce's own.
    fn annotations(&self) -> Result<Array, NotEdited> {
        let annotations = self.original.iter().find(|(keys, _)| *keys == ["pod_annotations"]);
        let mut all = match annotations.map(|(_, value)| value.as_array()) {
            None => Array::new(),
            Some(Some(annotations)) => annotations.clone(),
            Some(None) => {
                let reason = "has pod_annotations of runc that are no list";
                return Err(NotEdited::new(reason, "repair the file"));
            }
        };
        if !all.iter().any(|one| one.as_str() == Some(ANNOTATIONS)) {
            all.push(ANNOTATIONS);
        }
        Ok(all)
    }
}
