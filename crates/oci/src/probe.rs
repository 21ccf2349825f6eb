//! Whether containers would be held, by the calls that engines make. No engine is asked, and no
//! container is made.

use crate::bundle::Facts;
use crate::classify::{CallContext, HOLD, Treatment, classify};
use crate::config::{self, Settings};
use crate::invocation::Invocation;
use std::ffi::OsString;
use std::path::Path;

/// A container that an engine could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// A build step of BuildKit, on its own or in dockerd.
    BuildKitStep,
    /// A build step of Buildah or of `podman build`.
    BuildahStep,
    /// A container whose annotation requests a hold.
    Annotated,
    /// A container that nothing asks to hold.
    Ordinary,
}

/// Returns whether `container` would be held on the system at `root`, and why.
///
/// # Errors
/// The operator's file cannot be read or understood. A message for the user.
pub fn is_held(root: &Path, container: Container) -> Result<(bool, String), String> {
    let settings = Settings::read(&root.join(config::PATH.trim_start_matches('/')))?;
    let (line, directory) = match container {
        Container::BuildKitStep => (
            "--log /probe/executor/runc-log.json --log-format json run \
             --bundle /probe/executor/id --keep id",
            "/probe",
        ),
        Container::BuildahStep => (
            "create --bundle /probe/buildah1 --pid-file /probe/buildah1/pid buildah-buildah1",
            "/probe/buildah1",
        ),
        Container::Annotated | Container::Ordinary => {
            ("--root /run/probe create --bundle /probe/bundle id", "/probe")
        }
    };
    let call = Invocation::parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
    let mut facts = Facts::default();
    if container == Container::Annotated {
        facts.annotations.insert(HOLD.to_owned(), "true".to_owned());
    }
    let bundle = call.bundle.clone().unwrap_or_default();
    let verdict = classify(&CallContext {
        call: &call,
        bundle: &bundle,
        directory: Path::new(directory),
        facts: &facts,
        settings: &settings,
        mounts: &[],
    });
    Ok(match verdict {
        Treatment::Hold(why) => (true, why.to_string()),
        Treatment::Leave(why) => (false, why.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_requests_are_held_and_others_are_not_unless_a_rule_says_so() {
        let root = tempfile::tempdir().unwrap();
        let held = || {
            use Container::{Annotated, BuildKitStep, BuildahStep, Ordinary};
            [BuildKitStep, BuildahStep, Annotated, Ordinary]
                .map(|container| is_held(root.path(), container).unwrap().0)
        };
        assert_eq!(held(), [true, true, true, false]);
        let file = root.path().join("etc/synconce/oci.toml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "[[rule]]\nhold = false\n").unwrap();
        assert_eq!(held(), [false; 4]);
        std::fs::write(&file, "[[rule]]\nhold = true\n").unwrap();
        assert_eq!(held(), [true; 4]);
        std::fs::write(&file, "[[rul]]\n").unwrap();
        assert!(is_held(root.path(), Container::Ordinary).unwrap_err().contains("oci.toml"));
    }
}
