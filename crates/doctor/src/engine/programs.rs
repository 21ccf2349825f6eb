//! Versions of the programs of engines.

use crate::program::stdout_within;
use serde::Serialize;
use std::process::{Command, Stdio};
use std::time::Duration;
use synconce_sys::search;

const PROGRAMS: [&str; 7] =
    ["dockerd", "containerd", "buildkitd", "podman", "buildah", "runc", "crun"];

/// The time that a program has to say its version.
const PATIENCE: Duration = Duration::from_secs(5);

/// A program of an engine in PATH.
#[derive(Clone, Debug, Serialize)]
pub struct InstalledProgram {
    /// Its name.
    pub program: &'static str,
    /// The first line of what it prints for `--version`; `None` if it prints none.
    pub version: Option<String>,
}

/// Asks each program of an engine in PATH for its version.
pub fn installed_programs() -> Vec<InstalledProgram> {
    let found = PROGRAMS.into_iter().filter_map(|program| Some((program, search::find(program)?)));
    found
        .map(|(program, path)| {
            let mut asked = Command::new(path);
            asked.arg("--version").stdin(Stdio::null());
            let said = stdout_within(&mut asked, PATIENCE).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            InstalledProgram { program, version: said.lines().next().map(str::to_owned) }
        })
        .collect()
}
