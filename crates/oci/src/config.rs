//! The operator's configuration: `/etc/synconce/oci.toml`.
//!
//! ```toml
//! runtime = "/usr/sbin/runc"   # default: the first of runc and crun that is found
//! step-root = "as-mounted"     # the root of build steps; default: "volatile"
//!
//! [[rule]]                     # the first matching rule decides
//! namespace = "k8s.io"         # containerd's: the last part of the runtime's --root
//! annotation = "io.kubernetes.cri.sandbox-namespace=ci"   # KEY or KEY=VALUE
//! hold = true
//! ```

use serde::Deserialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use synconce_sys::reason;

/// The path of the file, unless [`FILE`] names another.
pub(crate) const PATH: &str = "/etc/synconce/oci.toml";
/// The environment variable that names another file.
pub(crate) const FILE: &str = "SYNCONCE_OCI_FILE";

/// The operator's file. An unknown field is an error: it may be a misspelled rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// The runtime to execute.
    pub(crate) runtime: Option<PathBuf>,
    /// How the root of a held step is mounted.
    #[serde(default, rename = "step-root")]
    pub(crate) step_root: StepRoot,
    /// The rules, in order.
    #[serde(default, rename = "rule")]
    pub(crate) rules: Vec<ContainerRule>,
}

/// How the root of a held step of a build is mounted while the step runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StepRoot {
    /// As the engine mounted it.
    AsMounted,
    /// With the option `volatile`.
    #[default]
    Volatile,
}

/// A rule that decides for some containers whether they are held.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContainerRule {
    /// containerd's namespace; any, when absent.
    pub(crate) namespace: Option<String>,
    /// `KEY` or `KEY=VALUE`; any, when absent.
    pub(crate) annotation: Option<String>,
    /// Whether matching containers are held.
    pub(crate) hold: bool,
}

/// Returns whether the operator's file of the system at `root` makes the roots of build steps
/// volatile.
pub fn are_step_roots_volatile(root: &Path) -> Result<bool, String> {
    let file = root.join(PATH.trim_start_matches('/'));
    Ok(Settings::read(&file)?.step_root == StepRoot::Volatile)
}

impl Settings {
    /// Reads the operator's file; a missing file is the default.
    pub(crate) fn of_this_machine() -> Result<Self, String> {
        let path = std::env::var_os(FILE).map_or_else(|| PathBuf::from(PATH), PathBuf::from);
        Self::read(&path)
    }

    /// Reads the file at `path`; a missing file is the default.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map_err(|error: toml::de::Error| {
                // It ends with an end of line.
                let error = error.to_string();
                format!("cannot understand {}: {}", path.display(), error.trim_end())
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("cannot read {}: {}", path.display(), reason(&error))),
        }
    }
}

impl ContainerRule {
    /// Returns whether the rule matches a container of `namespace` with annotations.
    pub(crate) fn fits<'a>(
        &self,
        namespace: Option<&str>,
        annotation: impl Fn(&str) -> Option<&'a str>,
    ) -> bool {
        let named = self.namespace.as_deref().is_none_or(|wanted| namespace == Some(wanted));
        let annotated =
            self.annotation.as_deref().is_none_or(|wanted| match wanted.split_once('=') {
                Some((key, value)) => annotation(key) == Some(value),
                None => annotation(wanted).is_some(),
            });
        named && annotated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_nothing_is_set() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Settings::read(&directory.path().join("none")), Ok(Settings::default()));
    }

    #[test]
    fn a_field_that_is_not_known_is_an_error_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("oci.toml");
        std::fs::write(
            &path,
            "runtime = \"/usr/bin/crun\"\n[[rule]]\nhold = true\nnamspace = \"x\"\n",
        )
        .unwrap();
        let error = Settings::read(&path).unwrap_err();
        assert!(error.contains("oci.toml") && error.contains("line 4"), "{error}");
    }

    #[test]
    fn a_root_is_volatile_unless_the_file_says_as_mounted() {
        let of = |text: &str| toml::from_str::<Settings>(text).map(|settings| settings.step_root);
        assert_eq!(of(""), Ok(StepRoot::Volatile));
        assert_eq!(of("step-root = \"as-mounted\""), Ok(StepRoot::AsMounted));
        assert_eq!(of("step-root = \"volatile\""), Ok(StepRoot::Volatile));
        assert!(of("step-root = \"fast\"").is_err());
    }

    #[test]
    fn a_rule_fits_by_namespace_and_annotation() {
        let annotation = |key: &str| (key == "team").then_some("ci");
        let fits = |text: &str, namespace| {
            toml::from_str::<ContainerRule>(text).unwrap().fits(namespace, annotation)
        };
        assert!(fits("hold = true", None));
        assert!(fits("hold = true\nnamespace = \"ci\"\nannotation = \"team=ci\"", Some("ci")));
        assert!(fits("hold = true\nannotation = \"team\"", None));
        assert!(!fits("hold = true\nnamespace = \"ci\"", None));
        assert!(!fits("hold = true\nannotation = \"team=db\"", None));
        assert!(!fits("hold = true\nannotation = \"tea\"", None));
    }
}
