//! Reads a bundle's `config.json`, changes `linux.seccomp`, and replaces the file.
//!
//! All other values are carried over unparsed: no number is rounded, and no unknown field is
//! lost.

mod fields;

use fields::Fields;
pub(crate) use fields::folded;
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};
use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_probe::filesystem::stores_nothing;
use synconce_sys::reason;

/// `config.json` of a bundle, as it was read.
#[derive(Debug)]
pub(crate) struct Bundle {
    path: PathBuf,
    text: String,
    metadata: std::fs::Metadata,
}

/// The parts of a configuration that the classification needs.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// `annotations`
    pub(crate) annotations: IndexMap<String, String>,
    /// `mounts`
    pub(crate) mounts: Vec<BundleMount>,
    /// Whether the configuration is for a virtual machine or for another system than Linux.
    pub(crate) foreign: bool,
    /// `root`
    pub(crate) root: ContainerRoot,
    /// `linux.namespaces`
    pub(crate) namespaces: Vec<Namespace>,
    /// The block devices of `linux.devices`, by their paths in the container.
    pub(crate) block_devices: Vec<PathBuf>,
}

/// The root of a container.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerRoot {
    /// The path on the host, relative to the bundle.
    pub(crate) path: PathBuf,
    /// Whether the container may not write to it.
    pub(crate) readonly: bool,
}

/// A namespace of a container.
#[derive(Debug, Deserialize)]
pub(crate) struct Namespace {
    r#type: String,
    /// The namespace to join; a new one when absent.
    path: Option<PathBuf>,
}

/// A device of a container.
#[derive(Debug, Deserialize)]
struct Device {
    r#type: String,
    path: PathBuf,
}

/// A mount of a container.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct BundleMount {
    /// The path in the container.
    pub(crate) destination: PathBuf,
    /// The type of the file system; absent of a bind mount.
    #[serde(default)]
    pub(crate) r#type: Option<String>,
    /// What is mounted there.
    pub(crate) source: Option<PathBuf>,
    /// The options, as for mount(8).
    pub(crate) options: Option<Vec<String>>,
}

impl BundleMount {
    /// Returns the path on the host that the container can write to: the source of a bind mount, or
    /// the upper directory of an overlay.
    pub(crate) fn writable(&self) -> Option<&Path> {
        if self.is_read_only() {
            return None;
        }
        let mut options = self.options.iter().flatten();
        if let Some(upper) = options.find_map(|option| option.strip_prefix("upperdir=")) {
            return Some(Path::new(upper));
        }
        self.source.as_deref().filter(|_| self.is_bound())
    }

    /// Returns the source if the mounts below it come with it, and stay writable: `ro` is of its
    /// top alone, `rro` of all.
    pub(crate) fn bound_below(&self) -> Option<&Path> {
        let is_writable = self.last_of(["rro", "rrw"]) != Some("rro");
        self.source.as_deref().filter(|_| self.has("rbind") && is_writable)
    }

    /// Whether the container mounts a disk itself, as of snapshots of btrfs, zfs and devmapper.
    pub(crate) fn is_disk(&self) -> bool {
        let kind = self.r#type.as_deref().unwrap_or_default();
        let is_other = matches!(kind, "" | "none" | "bind" | "overlay") || stores_nothing(kind);
        !is_other && !self.is_bound() && !self.is_read_only()
    }

    /// Whether the top of the mount is read-only. Runtimes apply `ro` and `rw` in their order, and
    /// then, to bind mounts alone, `rro` and `rrw` (`parseMountOptions` and `mountToRootfs` of runc
    /// 1.1 to 1.3).
    fn is_read_only(&self) -> bool {
        let of_all = self.last_of(["rro", "rrw"]).filter(|_| self.is_bound());
        of_all.or_else(|| self.last_of(["ro", "rw"])).is_some_and(|last| last.ends_with("ro"))
    }

    fn is_bound(&self) -> bool {
        self.has("bind") || self.has("rbind")
    }

    /// Returns which of the options `names` is the last.
    fn last_of(&self, names: [&str; 2]) -> Option<&str> {
        let mut options = self.options.iter().flatten().map(String::as_str);
        options.rfind(|option| names.contains(option))
    }

    fn has(&self, name: &str) -> bool {
        self.options.iter().flatten().any(|option| option == name)
    }
}

impl Facts {
    /// Returns the source of the mount at `destination`.
    pub(crate) fn source(&self, destination: &str) -> Option<&Path> {
        let there = |mount: &&BundleMount| mount.destination == Path::new(destination);
        self.mounts.iter().rfind(there)?.source.as_deref()
    }

    /// Returns whether the container gets a new namespace of this kind.
    pub(crate) fn has_own_namespace(&self, kind: &str) -> bool {
        let is_new =
            |path: &Option<PathBuf>| path.as_ref().is_none_or(|path| path == Path::new(""));
        self.namespaces.iter().any(|it| it.r#type == kind && is_new(&it.path))
    }
}

impl Bundle {
    /// Reads the configuration at `path`.
    ///
    /// # Errors
    /// A message for the user: the act, the path and the errno.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let failed = |error| format!("cannot read {}: {}", path.display(), reason(&error));
        // If the path is a link, its target is replaced.
        let path = path.canonicalize().map_err(failed)?;
        let metadata = path.metadata().map_err(failed)?;
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        Ok(Self { path, text, metadata })
    }

    /// Returns what the classification needs.
    ///
    /// # Errors
    /// The file is no valid configuration.
    pub(crate) fn facts(&self) -> Result<Facts, String> {
        let fields = self.fields()?;
        let linux = self.field(&fields, "linux")?;
        // These are read by their own types, which ignore keys of another spelling.
        self.field::<Fields<'_>>(&fields, "root")?;
        for (of, key) in [(&fields, "mounts"), (&linux, "namespaces"), (&linux, "devices")] {
            self.field::<Vec<Fields<'_>>>(of, key)?;
        }
        let devices: Vec<Device> = self.field(&linux, "devices")?;
        Ok(Facts {
            annotations: self.field(&fields, "annotations")?,
            mounts: self.field(&fields, "mounts")?,
            foreign: ["vm", "windows", "solaris", "zos"]
                .iter()
                .any(|key| fields.0.contains_key(*key)),
            root: self.field(&fields, "root")?,
            namespaces: self.field(&linux, "namespaces")?,
            block_devices: devices
                .into_iter()
                .filter_map(|device| (device.r#type == "b").then_some(device.path))
                .collect(),
        })
    }

    /// Returns `process.args`; none if it cannot be read.
    pub(crate) fn command(&self) -> Vec<String> {
        let fields = self.fields().ok();
        let process = fields.and_then(|fields| self.field::<Fields<'_>>(&fields, "process").ok());
        process.and_then(|process| self.field(&process, "args").ok()).unwrap_or_default()
    }

    /// Returns `linux.seccomp`, or `None` when there is none.
    ///
    /// # Errors
    /// The file is no valid configuration.
    pub(crate) fn seccomp(&self) -> Result<Option<Map<String, Value>>, String> {
        let fields = self.fields()?;
        let linux: Fields<'_> = self.field(&fields, "linux")?;
        let Some(section) = linux.0.get("seccomp") else { return Ok(None) };
        // The section is written anew, so each object in it has to mean the same to every runtime.
        if let Some(section) = self.parse(section.get())? {
            let rules: Vec<Fields<'_>> = self.field(&section, "syscalls")?;
            rules
                .iter()
                .try_for_each(|rule| self.field::<Vec<Fields<'_>>>(rule, "args").map(drop))?;
        }
        self.parse(section.get())
    }

    /// Returns the whole text with another `linux.seccomp`.
    ///
    /// # Errors
    /// The file is no valid configuration.
    pub(crate) fn with_seccomp(&self, seccomp: &Map<String, Value>) -> Result<String, String> {
        let broken = |error| self.misunderstood(&error);
        let mut fields = self.fields()?;
        let mut linux: Fields<'_> = self.field(&fields, "linux")?;
        let seccomp = to_raw_value(seccomp).map_err(broken)?;
        linux.0.insert("seccomp".to_owned(), &seccomp);
        let linux = to_raw_value(&linux.0).map_err(broken)?;
        fields.0.insert("linux".to_owned(), &linux);
        serde_json::to_string(&fields.0).map_err(broken)
    }

    /// Replaces the file by `text`, with the old file's owner and mode.
    ///
    /// # Errors
    /// The errors of making, writing and renaming a file in the directory. The old file is
    /// then unchanged.
    pub(crate) fn replace(&self, text: &str) -> Result<(), String> {
        self.try_replace(text)
            .map_err(|error| format!("cannot replace {}: {}", self.path.display(), reason(&error)))
    }

    fn try_replace(&self, text: &str) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        // Not synced: a bundle is not used after a reboot.
        let mut file = tempfile::Builder::new().prefix(".config.json.").tempfile_in(directory)?;
        file.write_all(text.as_bytes())?;
        let handle = file.as_file();
        let made = handle.metadata()?;
        if (made.uid(), made.gid()) != (self.metadata.uid(), self.metadata.gid()) {
            std::os::unix::fs::fchown(
                handle,
                Some(self.metadata.uid()),
                Some(self.metadata.gid()),
            )?;
        }
        handle.set_permissions(self.metadata.permissions())?;
        file.persist(&self.path)?;
        Ok(())
    }

    fn fields(&self) -> Result<Fields<'_>, String> {
        self.parse(&self.text)
    }

    /// Returns the value of `key`, or the default where the value is absent or null.
    fn field<'a, T: Deserialize<'a> + Default>(
        &self,
        fields: &Fields<'a>,
        key: &str,
    ) -> Result<T, String> {
        let Some(raw) = fields.0.get(key) else { return Ok(T::default()) };
        Ok(self.parse::<Option<T>>(raw.get())?.unwrap_or_default())
    }

    fn parse<'a, T: Deserialize<'a>>(&self, text: &'a str) -> Result<T, String> {
        serde_json::from_str(text).map_err(|error| self.misunderstood(&error))
    }

    /// Makes an error about the content of the file.
    pub(crate) fn misunderstood(&self, error: &dyn fmt::Display) -> String {
        format!("cannot understand {}: {error}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    const CONFIG: &str = r#"{
  "ociVersion": "1.0.2",
  "strange": {"b": 1.50, "a": 18446744073709551615},
  "linux": {"resources": {"x": 1e3}, "seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}, "z": null},
  "mounts": [{"destination": "/etc/hosts", "source": "/x/hosts"}, {"destination": "/proc"}],
  "annotations": null
}"#;

    fn bundle(directory: &tempfile::TempDir, text: &str) -> Bundle {
        let path = directory.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        Bundle::read(&path).unwrap()
    }

    #[test]
    fn only_the_seccomp_section_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let bundle = bundle(&directory, CONFIG);
        let mut seccomp = bundle.seccomp().unwrap().unwrap();
        seccomp.insert("syscalls".to_owned(), json!([]));
        let text = bundle.with_seccomp(&seccomp).unwrap();
        assert!(text.starts_with(r#"{"ociVersion":"1.0.2","strange":{"b": 1.50, "a": 18446744073709551615},"linux":{"resources":{"x": 1e3},"seccomp":{"#), "{text}");
        assert!(text.contains(r#""syscalls":[]},"z":null},"mounts":"#), "{text}");
    }

    #[test]
    fn a_section_is_made_where_there_is_none() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["{}", r#"{"linux":null}"#, r#"{"linux":{}}"#, r#"{"linux":{"seccomp":null}}"#]
        {
            let bundle = bundle(&directory, text);
            assert_eq!(bundle.seccomp().unwrap(), None, "{text}");
            let made = bundle.with_seccomp(&Map::new()).unwrap();
            assert_eq!(made, r#"{"linux":{"seccomp":{}}}"#);
        }
    }

    #[test]
    fn facts_are_read_where_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let facts = bundle(&directory, CONFIG).facts().unwrap();
        assert_eq!(facts.source("/etc/hosts"), Some(Path::new("/x/hosts")));
        assert!(facts.annotations.is_empty() && !facts.foreign);
        assert!(bundle(&directory, r#"{"vm":{}}"#).facts().unwrap().foreign);
    }

    #[test]
    fn what_is_no_configuration_is_refused_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let error = bundle(&directory, "{\n\"linux\": 7\n}").seccomp().unwrap_err();
        assert!(error.contains("config.json: invalid type"), "{error}");
        let missing = Bundle::read(&directory.path().join("none")).unwrap_err();
        assert!(missing.contains("none: No such file or directory"), "{missing}");
    }

    #[test]
    fn an_object_that_runtimes_would_merge_is_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        let profile = |text: &str| format!(r#"{{"linux":{{"seccomp":{{{text}}}}}}}"#);
        for text in [
            r#"{"linux":{},"linux":{}}"#,
            r#"{"linux":{},"Linux":{}}"#,
            r#"{"Linux":{}}"#,
            &profile(r#""Syscalls":[]"#),
            &profile(r#""syscalls":[],"syscalls":[]"#),
            &profile(r#""syscalls":[{"Names":[]}]"#),
            &profile(r#""syscalls":[{"args":[{"index":0,"Index":1}]}]"#),
        ] {
            let error = bundle(&directory, text).seccomp().unwrap_err();
            assert!(error.contains("is there twice") || error.contains("otherwise"), "{error}");
        }
        for text in [
            r#"{"root":{"path":"/x","Readonly":true}}"#,
            r#"{"mounts":[{"destination":"/x","Source":"/y"}]}"#,
            r#"{"linux":{"namespaces":[{"type":"user","Path":"/x"}]}}"#,
            r#"{"linux":{"devices":[{"type":"c","path":"/x","Type":"b"}]}}"#,
        ] {
            let error = bundle(&directory, text).facts().unwrap_err();
            assert!(error.contains("is there twice") || error.contains("otherwise"), "{error}");
        }
    }

    #[test]
    fn the_new_file_has_the_mode_of_the_old_and_nothing_stays_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        std::fs::write(&path, "{}").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        Bundle::read(&path).unwrap().replace("{\"linux\":{}}").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"linux\":{}}");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
