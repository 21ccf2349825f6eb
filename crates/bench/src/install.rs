//! Scenario `install`: apt installs packages into a fresh Debian root.
//!
//! Every variant runs the same `env -i ... apt-get install` inside a root unpacked from one
//! tar, with downloaded packages and without starting services. Needs root, apt sources for
//! the suite, and mmdebstrap or debootstrap.

mod fixture;
mod manifest;
mod variants;
mod wrappers;

pub use fixture::InstallOptions;

use crate::Error;
use crate::harness::Harness;
use crate::report::BenchReport;
use crate::scenario::{Scenario, Tool};
use fixture::InstallFixture;
use std::path::Path;

/// Runs the scenario and returns its report.
///
/// # Errors
/// The host is unsuitable (not root, work directory not on a disk, no apt source), a variant
/// fails, or an interrupt arrives. The logs of a failure stay in place, and the error names
/// them.
pub fn measure(options: &InstallOptions, synconce: &Path) -> Result<BenchReport, Error> {
    let harness = Harness {
        scenario: "install",
        root: Some("it unpacks and enters a root directory, which needs root"),
        disk: true,
        spared: true,
        keep: options.keep,
        ..Harness::default()
    };
    harness.measure(&options.common, synconce, |synconce| scenario(options, synconce))
}

fn scenario(options: &InstallOptions, synconce: &Path) -> Result<Scenario, Error> {
    Ok(Scenario {
        name: "install".to_owned(),
        about: format!(
            "apt-get install {} into a fresh {} root, without recommended packages",
            options.base.packages.join(" "),
            options.base.suite,
        ),
        variants: variants::all(synconce, &options.base.packages),
        tools: Tool::with_synconce(synconce, &["systemd-nspawn", "chroot"]),
        steps: Box::new(InstallFixture::new(options)?),
    })
}
