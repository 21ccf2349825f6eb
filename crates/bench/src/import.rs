//! Scenario `import`: containerd imports and unpacks an image of several layers.
//!
//! The image is made by the benchmark, the same in each run. Every iteration has its own
//! containerd with an empty root on the disk under test. Its sockets and state are in a /run
//! that no other process sees. Only the client's import is timed. Needs root and containerd 2.

mod containerd;
mod fixture;
mod image;
mod variants;

pub use fixture::ImportOptions;

use crate::Error;
use crate::command::show;
use crate::harness::Harness;
use crate::mounts::refuse_in_run;
use crate::report::BenchReport;
use crate::scenario::{Need, Scenario, Tool};
use crate::speeds::{self, Rates};
use fixture::ImportFixture;
use std::path::Path;

/// Runs the scenario and returns its report.
///
/// # Errors
/// The host is unsuitable (not root, no containerd 2.1 or later, work directory not on a
/// disk), containerd or an import fails, or an interrupt arrives. The logs of a failure stay in
/// place, and the error names them.
pub fn measure(options: &ImportOptions, synconce: &Path) -> Result<BenchReport, Error> {
    let harness = Harness {
        scenario: "import",
        root: Some("it starts a containerd, which needs root"),
        needs: vec![Need::new(&show(&options.containerd), "containerd")],
        disk: true,
        spared: true,
        ..Harness::default()
    };
    let scenario = |synconce: &Path| scenario(options, synconce);
    let mut report = harness.measure(&options.common, synconce, scenario)?;
    let measured: Vec<_> = report.results.iter().map(|result| &result.measured).collect();
    let findings = speeds::compare(
        &measured,
        &[variants::PLAIN, variants::NO_SYNC, variants::ALL_OPTIONS],
        Rates::LeftOut,
        report.settings.seed,
    );
    report.findings.extend(findings);
    Ok(report)
}

fn scenario(options: &ImportOptions, synconce: &Path) -> Result<Scenario, Error> {
    refuse_in_run(&[&options.common.dir, &std::env::temp_dir()])?;
    let mut tools = Tool::with_synconce(synconce, &[]);
    tools.push(Tool::new("containerd", &show(&options.containerd)));
    tools.push(Tool::new("mkfs.erofs", "mkfs.erofs"));
    Ok(Scenario {
        name: "import".to_owned(),
        about: format!(
            "ctr images import: {} layers of {} files, unpacked",
            options.layers, options.files
        ),
        variants: variants::all(),
        tools,
        steps: Box::new(ImportFixture::new(options, synconce)),
    })
}
