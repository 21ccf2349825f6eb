//! Decides which containers are held.
//!
//! A build container is recognised by properties that a user of the engine does not choose:
//! the runtime's arguments and the bundle's path, and for the classic builder dockerd's
//! records (see [`crate::docker`]). Host names, labels and cgroups can be chosen by `docker
//! run`, so they do not count. An image's own annotations and labels cannot request a hold.

use crate::bundle::Facts;
use crate::config::Settings;
use crate::docker::Records;
use crate::invocation::Invocation;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

/// The annotation, or Docker label, by which a container requests or refuses a hold.
pub(crate) const HOLD: &str = "io.synconce.hold";
/// With this annotation crun loads a filter of its own in place of the profile.
const CRUN_FILTER: &str = "run.oci.seccomp_bpf_data";
/// With this annotation crun may start a virtual machine, in whose kernel the profile has no
/// effect.
const CRUN_HANDLER: &str = "run.oci.handler";

/// Whether a container is held, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// The container is held.
    Hold(Reason),
    /// The container is not held.
    Leave(Reason),
}

/// Why a container is held or not held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A build step of BuildKit's runc worker, also the one embedded in dockerd.
    BuildKit,
    /// A build step of BuildKit's containerd worker.
    BuildKitOnContainerd,
    /// A build step of Buildah or of `podman build`.
    Buildah,
    /// A build step of dockerd's classic builder.
    ClassicBuild,
    /// The container's annotation [`HOLD`].
    Annotation,
    /// The container's Docker label [`HOLD`].
    Label,
    /// The configured rule of this number, counted from 1.
    Rule(usize),
    /// A build step can write to this path of the host, whose data outlive the step.
    Outliving(PathBuf),
    /// Nothing requests a hold.
    Ordinary,
    /// The annotation or label [`HOLD`] has this value, which is neither true nor false.
    Unclear(String),
    /// The container is for a virtual machine or another system than Linux.
    Foreign,
    /// Another filter replaces the profile; this annotation requests it.
    OtherFilter(&'static str),
}

/// What is known when a runtime is called.
#[derive(Debug)]
pub(crate) struct CallContext<'a> {
    /// The runtime's arguments.
    pub(crate) call: &'a Invocation,
    /// The bundle, absolute.
    pub(crate) bundle: &'a Path,
    /// The directory in which the runtime was called.
    pub(crate) directory: &'a Path,
    /// The container's configuration.
    pub(crate) facts: &'a Facts,
    /// The operator's configuration.
    pub(crate) settings: &'a Settings,
    /// The mounts in the namespace in which the runtime was called.
    pub(crate) mounts: &'a [synconce_probe::mounts::Mount],
}

/// Returns whether the container of `context` is held.
///
/// The checks come in this order: reasons that make a hold impossible, the container's own
/// refusal, the configured rules, whether it is a build step, and its own request.
pub(crate) fn classify(context: &CallContext<'_>) -> Treatment {
    let annotation = |key: &str| context.facts.annotations.get(key).map(String::as_str);
    let own = |key: &str| annotation(key).filter(|_| context.is_own(key));
    let other = [CRUN_FILTER, CRUN_HANDLER].into_iter().find(|key| annotation(key).is_some());
    if context.facts.foreign {
        return Treatment::Leave(Reason::Foreign);
    }
    if let Some(key) = other {
        return Treatment::Leave(Reason::OtherFilter(key));
    }
    let asked = annotation(HOLD).map(truth).transpose();
    if asked == Ok(Some(false)) {
        return Treatment::Leave(Reason::Annotation);
    }
    let mut rules = context.settings.rules.iter().zip(1..);
    let records = context.records();
    let label = records.as_ref().and_then(|records| records.label(HOLD)).map(truth).transpose();
    if label == Ok(Some(false)) {
        return Treatment::Leave(Reason::Label);
    }
    if let Some(value) = asked.err().or(label.err()) {
        return Treatment::Leave(Reason::Unclear(value));
    }
    if let Some((rule, at)) = rules.find(|(rule, _)| rule.fits(context.namespace(), own)) {
        let reason = Reason::Rule(at);
        return if rule.hold { Treatment::Hold(reason) } else { Treatment::Leave(reason) };
    }
    if let Some(reason) = context.build() {
        return match context.outliving() {
            Some(path) => Treatment::Leave(Reason::Outliving(path)),
            None => Treatment::Hold(reason),
        };
    }
    if own(HOLD).map(truth) == Some(Ok(true)) {
        return Treatment::Hold(Reason::Annotation);
    }
    match records {
        Some(records) if records.is_classic_build() => Treatment::Hold(Reason::ClassicBuild),
        Some(records) if records.own_label(HOLD).map(truth) == Some(Ok(true)) => {
            Treatment::Hold(Reason::Label)
        }
        _ => Treatment::Leave(Reason::Ordinary),
    }
}

/// Reads a value as engines read one (strconv.ParseBool of Go). Returns a value that is neither
/// true nor false.
fn truth(value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        other => Err(other.to_owned()),
    }
}

impl CallContext<'_> {
    /// Returns containerd's namespace: the shim uses a separate `--root` for each namespace.
    fn namespace(&self) -> Option<&str> {
        self.call.root.as_deref()?.file_name()?.to_str()
    }

    /// Returns whether an annotation is the container's own, not its image's.
    fn is_own(&self, key: &str) -> bool {
        !crate::podman::is_stored(self.bundle)
            || crate::podman::image_brings(self.bundle, key) == Some(false)
    }

    /// Returns which kind of build step the container is, by what its engine calls.
    pub(crate) fn build(&self) -> Option<Reason> {
        [
            (self.is_buildkit(), Reason::BuildKit),
            (self.is_buildkit_on_containerd(), Reason::BuildKitOnContainerd),
            (self.is_buildah(), Reason::Buildah),
        ]
        .into_iter()
        .find_map(|(is, reason)| is.then_some(reason))
    }

    /// Recognises `--log R/executor/runc-log.json run --bundle R/executor/ID ... ID` (BuildKit
    /// 0.8 to 0.30, executor/runcexecutor). Shims and conmon use `create`.
    pub(crate) fn is_buildkit(&self) -> bool {
        let (Some(log), Some(id)) = (&self.call.log, &self.call.id) else { return false };
        let Some(executor) = log.parent() else { return false };
        self.call.verb == "run"
            && log.file_name() == Some(OsStr::new("runc-log.json"))
            && executor.file_name() == Some(OsStr::new("executor"))
            && self.bundle == executor.join(id)
    }

    /// Recognises a shim's `create` in buildkitd's default namespace. Only root on
    /// containerd's socket can choose that namespace.
    pub(crate) fn is_buildkit_on_containerd(&self) -> bool {
        let is_made = |id: &String| {
            id.len() == 25
                && id.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
        };
        self.call.verb == "create"
            && self.namespace() == Some("buildkit")
            && self.call.id.as_ref().is_some_and(is_made)
    }

    /// Recognises `create --bundle TMP/buildahN --pid-file TMP/buildahN/pid ...
    /// buildah-buildahN`, called in the bundle (Buildah 1.28 to 1.39, run_common.go). Podman's
    /// own containers have ids of 64 digits.
    pub(crate) fn is_buildah(&self) -> bool {
        let (Some(name), Some(id)) = (self.bundle.file_name(), &self.call.id) else { return false };
        let name = name.to_string_lossy();
        let number = name.strip_prefix("buildah").unwrap_or_default();
        self.call.verb == "create"
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && *id == format!("buildah-{name}")
            && self.directory == self.bundle
            && self.call.pid_file.as_deref() == Some(&self.bundle.join("pid"))
    }

    pub(crate) fn records(&self) -> Option<Records> {
        Records::find(self.facts, self.call.id.as_deref()?)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuildKit => f.write_str("a build step of BuildKit"),
            Self::BuildKitOnContainerd => f.write_str("a build step of BuildKit on containerd"),
            Self::Buildah => f.write_str("a build step of Buildah"),
            Self::ClassicBuild => f.write_str("a build step of dockerd's classic builder"),
            Self::Annotation => write!(f, "its annotation {HOLD}"),
            Self::Label => write!(f, "its label {HOLD}"),
            Self::Rule(at) => write!(f, "rule {at} of {}", crate::config::PATH),
            Self::Outliving(path) => {
                let path = path.display();
                write!(f, "a build step that can write to {path}, which outlives the step")
            }
            Self::Ordinary => f.write_str("an ordinary container, which nothing asks to hold"),
            Self::Unclear(value) => write!(f, "{HOLD}={value} is neither true nor false"),
            Self::Foreign => f.write_str("not a container of this machine's Linux"),
            Self::OtherFilter(key) => {
                write!(f, "its annotation {key}, with which crun does not load a profile")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::BundleMount;
    use std::ffi::OsString;

    fn recognised(line: &str, directory: &str, facts: &Facts, settings: &Settings) -> Treatment {
        let call = Invocation::parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let bundle = call.bundle.clone().unwrap_or_else(|| directory.into());
        classify(&CallContext {
            call: &call,
            bundle: &bundle,
            directory: Path::new(directory),
            facts,
            settings,
            mounts: &[],
        })
    }

    fn plainly(line: &str, directory: &str) -> Treatment {
        recognised(line, directory, &Facts::default(), &Settings::default())
    }

    const BUILDKIT: &str =
        "--log /r/executor/runc-log.json --log-format json run --bundle /r/executor/x7 --keep x7";
    const SHIM: &str = "--root /run/containerd/runc/default --log /b/log.json create --bundle /b --pid-file /b/init.pid c";

    fn annotated(pairs: &[(&str, &str)]) -> Facts {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Facts { annotations: pairs.collect(), ..Facts::default() }
    }

    #[test]
    fn buildkits_steps_are_known_by_the_place_of_the_bundle() {
        assert_eq!(plainly(BUILDKIT, "/"), Treatment::Hold(Reason::BuildKit));
        for other in [
            BUILDKIT.replace("--bundle /r/executor/x7", "--bundle /elsewhere/x7"),
            BUILDKIT.replace("run --bundle", "create --bundle"),
            BUILDKIT.replace("executor", "state"),
            BUILDKIT.replace("runc-log", "log"),
        ] {
            assert_eq!(plainly(&other, "/"), Treatment::Leave(Reason::Ordinary), "{other}");
        }
    }

    #[test]
    fn buildkits_steps_on_containerd_are_known_by_namespace_and_id() {
        let line = |namespace: &str, id: &str| {
            format!(
                "--root /run/containerd/runc/{namespace} --log /b/log.json create --bundle /b {id}"
            )
        };
        let id = "0123456789abcdefghijklmno";
        let held = plainly(&line("buildkit", id), "/");
        assert_eq!(held, Treatment::Hold(Reason::BuildKitOnContainerd));
        for (namespace, id) in
            [("moby", id), ("buildkit", "mine"), ("buildkit", &id.to_uppercase())]
        {
            let verdict = plainly(&line(namespace, id), "/");
            assert_eq!(verdict, Treatment::Leave(Reason::Ordinary), "{namespace} {id}");
        }
    }

    #[test]
    fn buildahs_steps_are_known_by_id_and_bundle() {
        let line = "--systemd-cgroup create --bundle /var/tmp/buildah42 --pid-file /var/tmp/buildah42/pid buildah-buildah42";
        let bundle = "/var/tmp/buildah42";
        assert_eq!(plainly(line, bundle), Treatment::Hold(Reason::Buildah));
        assert_eq!(plainly(line, "/"), Treatment::Leave(Reason::Ordinary));
        for (from, to) in [("buildah-buildah42", "mine"), ("42/pid", "42/init"), ("create", "run")]
        {
            let other = line.replace(from, to);
            assert_eq!(plainly(&other, bundle), Treatment::Leave(Reason::Ordinary), "{other}");
        }
    }

    #[test]
    fn a_step_that_can_write_to_data_that_outlive_it_keeps_its_syncs() {
        let buildah =
            "create --bundle /tmp/buildah42 --pid-file /tmp/buildah42/pid buildah-buildah42";
        for (line, reason) in [(BUILDKIT, Reason::BuildKit), (buildah, Reason::Buildah)] {
            let verdict = |option: &str| {
                let options = Some(vec!["rbind".to_owned(), option.to_owned()]);
                let mount = BundleMount {
                    destination: "/cache".into(),
                    source: Some("/d/overlay2/ab/diff".into()),
                    options,
                    ..BundleMount::default()
                };
                let facts = Facts { mounts: vec![mount], ..Facts::default() };
                recognised(line, "/tmp/buildah42", &facts, &Settings::default())
            };
            let left = Treatment::Leave(Reason::Outliving("/d/overlay2/ab/diff".into()));
            assert_eq!(verdict("rw"), left);
            assert_eq!(verdict("ro"), Treatment::Hold(reason));
        }
    }

    #[test]
    fn an_annotation_that_an_image_may_have_brought_does_not_count() {
        let line = "create --bundle /s/overlay-containers/ab/userdata ab";
        let yes = annotated(&[(HOLD, "true")]);
        let verdict = recognised(line, "/", &yes, &Settings::default());
        assert_eq!(verdict, Treatment::Leave(Reason::Ordinary));
    }

    #[test]
    fn a_container_asks_by_an_annotation_and_a_build_can_decline() {
        let none = Settings::default();
        let yes = annotated(&[(HOLD, "true")]);
        let no = annotated(&[(HOLD, "false")]);
        assert_eq!(recognised(SHIM, "/", &yes, &none), Treatment::Hold(Reason::Annotation));
        assert_eq!(recognised(BUILDKIT, "/", &no, &none), Treatment::Leave(Reason::Annotation));
        for (value, expected) in [
            ("TRUE", Treatment::Hold(Reason::Annotation)),
            ("1", Treatment::Hold(Reason::Annotation)),
            ("False", Treatment::Leave(Reason::Annotation)),
            ("yes", Treatment::Leave(Reason::Unclear("yes".to_owned()))),
        ] {
            assert_eq!(recognised(SHIM, "/", &annotated(&[(HOLD, value)]), &none), expected);
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let settings: Settings = toml::from_str(
            "[[rule]]\nnamespace = \"default\"\nannotation = \"a\"\nhold = false\n[[rule]]\nhold = true",
        )
        .unwrap();
        let facts = annotated(&[("a", "")]);
        assert_eq!(recognised(SHIM, "/", &facts, &settings), Treatment::Leave(Reason::Rule(1)));
        let plain = Facts::default();
        assert_eq!(recognised(SHIM, "/", &plain, &settings), Treatment::Hold(Reason::Rule(2)));
    }

    #[test]
    fn where_no_profile_of_ours_would_be_loaded_nothing_is_said_to_be_held() {
        let none = Settings::default();
        let facts = annotated(&[(HOLD, "true"), (CRUN_FILTER, "AA==")]);
        let verdict = recognised(SHIM, "/", &facts, &none);
        assert_eq!(verdict, Treatment::Leave(Reason::OtherFilter(CRUN_FILTER)));
        let foreign = Facts { foreign: true, ..Facts::default() };
        assert_eq!(recognised(BUILDKIT, "/", &foreign, &none), Treatment::Leave(Reason::Foreign));
    }
}
