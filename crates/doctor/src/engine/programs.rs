//! Versions of the programs of engines.

use crate::program::stdout_of;
use serde::Serialize;
use std::process::Command;
use synconce_sys::search;

const PROGRAMS: [&str; 7] =
    ["dockerd", "containerd", "buildkitd", "podman", "buildah", "runc", "crun"];

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
            let said = stdout_of(Command::new(path).arg("--version")).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            InstalledProgram { program, version: said.lines().next().map(str::to_owned) }
        })
        .collect()
}
