//! Finds the `rig` program, which the library starts as the daemon.
//!
//! cargo does not pass the path of this crate's programs to the tests of other crates, and a
//! program in the target directory may be older than the library in the test. Therefore cargo
//! builds the program, once per process. cargo checks whether a build is necessary (0.1 s if
//! not), and its lock serialises parallel test programs; `cargo test` has released that lock
//! before tests run. The alternative is to fork the daemon from the test. That needs unsafe
//! code and a fork of a multi-threaded process, whose child may do next to nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::build;
use crate::error::run;
use crate::{Error, Result};

/// Returns the program to start: `SYNCONCE_RIG_BIN`, or one built now beside the running test,
/// or, without cargo, an existing one beside the test.
pub(super) fn locate() -> Result<PathBuf> {
    static FOUND: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| find().map_err(|error| error.to_string()));
    found.clone().map_err(Error::Refused)
}

fn find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("SYNCONCE_RIG_BIN") {
        return Ok(path.into());
    }
    let beside = build::path_of("rig");
    let Some(workspace) = workspace() else {
        return beside.filter(|path| path.exists()).ok_or_else(|| {
            Error::Refused("cannot find the `rig` program: name it in SYNCONCE_RIG_BIN".to_owned())
        });
    };
    build_rig(&workspace, beside.as_deref())
}

/// Returns the workspace of the crate whose test or program cargo runs. It is not the path in which
/// this file was compiled: a released rig would contain that path, and differ by checkout.
fn workspace() -> Option<PathBuf> {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    manifest.ancestors().find(|dir| dir.join("Cargo.lock").exists()).map(Path::to_owned)
}

fn build_rig(workspace: &Path, beside: Option<&Path>) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(workspace);
    command.args([
        "build",
        "--quiet",
        "--offline",
        "--package",
        "synconce-testkit",
        "--bin",
        "rig",
    ]);
    command.args(["--message-format", "json-render-diagnostics"]);
    // Use the profile and the target directory of the test itself, so that its build results
    // are reused.
    if beside.is_some_and(|path| path.parent().is_some_and(|dir| dir.ends_with("release"))) {
        command.arg("--release");
    }
    if let Some(target) = beside.and_then(target_dir) {
        command.arg("--target-dir").arg(target);
    }
    let messages = run(&mut command)?;
    let artifact = messages.lines().rev().find_map(executable);
    artifact.ok_or_else(|| Error::Refused("cargo built `rig` but did not say where".to_owned()))
}

/// Returns the target directory above `[TRIPLE/]debug/rig`. cargo tags the target directory as
/// a cache, and the directory of the triple, too.
fn target_dir(program: &Path) -> Option<&Path> {
    let tagged = |dir: &&Path| dir.join("CACHEDIR.TAG").exists();
    let inner = program.ancestors().find(tagged)?;
    Some(inner.parent().filter(tagged).unwrap_or(inner))
}

fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    Some(message.get("executable")?.as_str()?.into())
}
