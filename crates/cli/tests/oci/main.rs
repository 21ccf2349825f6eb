//! `synconce-oci` before real runtimes: bundles as the engines make them, run by
//! runc and crun, bare and with us before them; and in real engines' hands.
//!
//! What needs a program that is not installed is ignored, and says so. Every test
//! runs isolated (see `support::isolated`), as root.

mod bundles;
mod dockerfile;
mod engines;
mod explain;
#[path = "../programs/harness.rs"]
#[allow(dead_code, reason = "shared with tests that use the rest")]
mod harness;
mod our_image;
mod plain;
mod runtimes;
mod set_up;
#[path = "../lifecycle/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with tests that use the rest")]
mod support;

use harness::{Need, trial};
use libtest_mimic::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cc = [Need::Program("cc", "gcc libc6-dev")];
    let trials = vec![
        trial(runtimes::under_runc, &runtimes::RUNC),
        trial(runtimes::under_crun, &runtimes::CRUN),
        trial(engines::buildahs_steps_are_held, &engines::BUILDAH),
        trial(engines::podmans_steps_are_held_and_its_containers_are_not, &engines::PODMAN),
        trial(engines::buildkits_steps_are_held, &engines::BUILDKIT),
        trial(
            engines::dockers_steps_are_held_by_either_builder_and_its_containers_are_not,
            &engines::DOCKER,
        ),
        trial(explain::says_what_would_be_done_and_why, &cc),
        trial(explain::what_is_no_bundle_is_told, &cc),
    ];
    let of_files = [dockerfile::trials(), our_image::trials(), set_up::trials()];
    let trials = trials.into_iter().chain(of_files.into_iter().flatten()).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
