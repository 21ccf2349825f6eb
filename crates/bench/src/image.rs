//! Scenario `build`: a Docker build installs or reinstalls packages with apt, changes the owner of
//! files in a lower layer, or appends to a large file in a lower layer.
//!
//! Every variant builds the same measured step from the same base with downloaded packages.
//! Variants may differ in dpkg's configuration, in words before the step's command, and in
//! instructions before the step. The benchmark has its own dockerd: the daemon's state is in the
//! work directory, its sockets are in a /run that no other process sees, and only its own cache is
//! emptied. dockerd is restarted before every iteration, outside the measured time. So the daemons
//! of two variants differ only in their runtime, and in whether their databases are held. Needs
//! root and Docker.

mod cgroup;
mod docker;
mod fixture;
mod progress;
mod variants;

pub use fixture::{ImageOptions, MeasuredStep};

use crate::Error;
use crate::harness::Harness;
use crate::mounts::refuse_in_run;
use crate::report::BenchReport;
use crate::scenario::{Need, Scenario, Tool};
use fixture::ImageFixture;
use std::path::Path;

/// Runs the scenario and returns its report.
///
/// # Errors
/// The host is unsuitable (not root, no Docker, work directory not on a disk, no apt source),
/// dockerd or a build fails, or an interrupt arrives. The logs of a failure stay in place, and
/// the error names them.
pub fn measure(options: &ImageOptions, synconce: &Path) -> Result<BenchReport, Error> {
    let harness = Harness {
        scenario: "build",
        root: Some("it starts a dockerd, which needs root"),
        needs: ["dockerd", "docker"].map(|program| Need::new(program, "docker.io")).to_vec(),
        disk: true,
        spared: true,
        ..Harness::default()
    };
    harness.measure(&options.common, synconce, |synconce| scenario(options, synconce))
}

fn scenario(options: &ImageOptions, synconce: &Path) -> Result<Scenario, Error> {
    refuse_in_run(&[&options.common.dir, &std::env::temp_dir(), &options.base.cache])?;
    Ok(Scenario {
        name: "build".to_owned(),
        about: format!(
            "docker build: COPY {}, {} on {}",
            options.copied(),
            options.command(),
            options.base.suite,
        ),
        variants: variants::all(),
        tools: Tool::with_synconce(synconce, &["dockerd", "runc"]),
        steps: Box::new(ImageFixture::new(options, synconce)?),
    })
}
