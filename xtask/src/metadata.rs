//! What cargo knows of the packages that `Cargo.lock` names.

use serde_json::Value;
use std::error::Error;
use std::process::Command;

/// Returns the target for which this program, like the others of the workspace, was built.
/// Dependencies of other platforms are neither shipped nor downloaded.
pub fn platform() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Returns the packages of a target, their licences and their dependencies.
pub fn metadata(target: &str) -> Result<Value, Box<dyn Error>> {
    let target = format!("--filter-platform={target}");
    let arguments = ["metadata", "--format-version=1", "--locked", "--offline", &target];
    Ok(serde_json::from_str(&cargo(&arguments)?)?)
}

/// Returns `NAME vVERSION` of each package in the binaries that are shipped for a target: synconce
/// and its test rig.
pub fn shipped(target: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let tree = ["tree", "--package=synconce", "--package=synconce-testkit", "--edges=normal"];
    let format = ["--prefix=none", "--format={p}", "--locked", "--offline", "--target", target];
    let text = cargo(&[&tree[..], &format].concat())?;
    let name = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let mut names: Vec<_> = text.lines().filter(|line| !line.is_empty()).map(name).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn cargo(arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(arguments).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
