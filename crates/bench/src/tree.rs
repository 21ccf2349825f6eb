//! Scenario `tree`: a root of about 100,000 files is cloned, changed and removed.
//!
//! Five groups, interleaved: the life of a clone (clone, write, remove, with the sync after
//! each), a session in one command, the copy of a whole tree, entering and leaving a clone,
//! and mounting and unmounting a clone. The variants of synconce run the binary with the
//! benchmark's own store. Needs root: every tree is entered as a root directory.

mod build_script;
mod cleanup;
mod clones;
mod commands;
mod copies;
mod fixture;
mod visits;

pub use fixture::{CloneOptions, PACKAGES};

use crate::Error;
use crate::command::show;
use crate::harness::Harness;
use crate::report::BenchReport;
use crate::scenario::{Scenario, Tool, Variant};
use fixture::CloneFixture;
use std::path::Path;

/// Runs the scenario and returns its report.
///
/// # Errors
/// The host is unsuitable (not root, work directory not on a disk, no apt source), a variant
/// or the making of the base fails, or an interrupt arrives. The logs of a failure stay in
/// place, and the error names them.
pub fn measure(options: &CloneOptions, synconce: &Path) -> Result<BenchReport, Error> {
    let harness = Harness {
        scenario: "tree",
        root: Some("it enters root directories and mounts, which needs root"),
        disk: true,
        // An interrupt discards the store with all its work.
        spared: false,
        ..Harness::default()
    };
    harness.measure(&options.common, synconce, |synconce| scenario(options, synconce))
}

fn scenario(options: &CloneOptions, synconce: &Path) -> Result<Scenario, Error> {
    let cache = if options.cold { "cold" } else { "warm" };
    Ok(Scenario {
        name: "tree".to_owned(),
        about: format!("clones of a root, {cache} caches"),
        variants: variants(synconce),
        tools: Tool::with_synconce(synconce, &["cp", "btrfs", "cpz"]),
        steps: Box::new(CloneFixture::new(options, synconce)?),
    })
}

fn variants(synconce: &Path) -> Vec<Variant> {
    let program = show(synconce);
    let groups = [
        clones::variants(&program),
        clones::sessions(&program),
        copies::variants(&program),
        visits::variants(&program),
    ];
    groups.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_a_baseline_in_its_group_and_a_part_for_each_command() {
        let all = variants(Path::new("/opt/synconce"));
        let group = |name: &str| name.split('/').next().map(str::to_owned);
        for variant in &all {
            let baseline = all.iter().find(|other| other.name == variant.against);
            assert!(baseline.is_some(), "{}", variant.name);
            assert_eq!(group(&variant.against), group(&variant.name));
            assert_eq!(variant.parts.len(), variant.commands.len(), "{}", variant.name);
        }
    }

    #[test]
    fn whatever_writes_runs_the_same_script_in_the_clone() {
        let all = variants(Path::new("/opt/synconce"));
        for variant in all.iter().filter(|variant| variant.name.starts_with("clone/")) {
            let write = variant.parts.iter().position(|part| part == clones::WRITE);
            let words = &variant.commands[write.expect("it writes")];
            assert_eq!(
                words[words.len() - 2..],
                ["/bin/sh", build_script::SCRIPT],
                "{}",
                variant.name
            );
        }
    }
}
