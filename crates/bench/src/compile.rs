//! Scenario `compile`: a build that hardly syncs, so that the tool's overhead shows without a gain.
//!
//! Every variant runs the same command through the same shell, in a fresh copy of one prepared
//! tree, at the same path.

mod fixture;
mod target;

pub use fixture::CompileOptions;

use crate::Error;
use crate::command::{program, shell, show};
use crate::harness::Harness;
use crate::report::BenchReport;
use crate::scenario::{Promise, Scenario, Tool, Variant};
use fixture::CompileFixture;
use std::path::Path;
use target::BARE;

/// The variants beside the baseline: name, difference, promise of exit code 0, flags of
/// `synconce run`. Only the disk of the tree is committed: a commit of other disks would measure
/// other work of this machine.
const WAYS: [(&str, &str, Promise, &[&str]); 3] = [
    ("supervised-no-commit", "held, no commit", Promise::Nothing, &["--no-commit"]),
    ("supervised", "held, one commit", Promise::Durable, &["--commit-only", "{tree}"]),
    (
        "sealed-no-commit",
        "held in the kernel, no commit",
        Promise::Nothing,
        &["--sealed", "--no-commit"],
    ),
];

/// Build programs whose version is relevant and that have an option to print it.
const BUILDERS: [&str; 3] = ["make", "ninja", "cargo"];

/// Runs the scenario and returns its report.
///
/// # Errors
/// The source tree is missing, the work directory is not on a disk, a program is not
/// installed, the preparation or a build fails, or an interrupt arrives. The logs of a failure
/// stay in place, and the error names them.
pub fn measure(options: &CompileOptions, synconce: &Path) -> Result<BenchReport, Error> {
    let harness = Harness { scenario: "compile", disk: true, spared: true, ..Harness::default() };
    let scenario = |synconce: &Path| scenario(options, synconce);
    let mut report = harness.measure(&options.common, synconce, scenario)?;
    let measured: Vec<_> = report.results.iter().map(|result| &result.measured).collect();
    let findings = target::compare_with_target(&measured, report.settings.seed);
    report.findings.extend(findings);
    Ok(report)
}

fn scenario(options: &CompileOptions, synconce: &Path) -> Result<Scenario, Error> {
    let fixture = CompileFixture::new(options)?;
    let builder = program(fixture.command()).filter(|program| BUILDERS.contains(program));
    let tools: Vec<&str> = std::iter::once("cc").chain(builder).collect();
    Ok(Scenario {
        name: "compile".to_owned(),
        about: format!("{} in a copy of {}", fixture.command(), options.source.display()),
        variants: variants(fixture.command(), synconce),
        tools: Tool::with_synconce(synconce, &tools),
        steps: Box::new(fixture),
    })
}

fn variants(command: &str, synconce: &Path) -> Vec<Variant> {
    let variant = |name: &str, about: &str, promise| Variant {
        about: about.to_owned(),
        promise,
        against: BARE.to_owned(),
        ..Variant::new(name, shell(command))
    };
    let bare = variant(BARE, "the build by itself", Promise::OwnSyncs);
    let held = WAYS.map(|(name, about, promise, flags)| {
        variant(name, about, promise).held(&show(synconce), flags)
    });
    std::iter::once(bare).chain(held).collect()
}
