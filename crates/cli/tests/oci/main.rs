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
mod image;
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
        trial(
            dockerfile::our_shell_holds_the_steps_in_dockers_classic_builder,
            &dockerfile::DOCKER,
        ),
        trial(dockerfile::our_shell_holds_the_steps_in_dockers_own_buildkit, &dockerfile::DOCKER),
        trial(dockerfile::our_shell_holds_the_steps_in_podman, &dockerfile::PODMAN),
        trial(dockerfile::our_shell_holds_the_steps_in_buildah, &dockerfile::BUILDAH),
        trial(dockerfile::our_shell_holds_the_steps_in_buildkitd, &dockerfile::BUILDKIT),
        trial(image::the_image_is_the_same_whenever_it_is_made, &[image::STRIP]),
        trial(image::a_binary_that_is_not_static_is_refused, &[image::STRIP]),
        trial(image::the_guide_and_the_readme_say_what_is_tested, &[]),
        trial(set_up::dockerd_reads_what_was_set_up_and_undone, &plain::DOCKER),
        trial(set_up::podman_and_buildah_read_what_was_set_up_and_undone, &set_up::PODMAN),
        trial(set_up::buildkitd_reads_what_was_set_up_and_undone, &plain::BUILDKIT),
        trial(set_up::debians_containerd_reads_what_was_set_up_and_undone, &set_up::CONTAINERD),
        trial(set_up::containerd_2_reads_what_was_set_up_and_undone, &set_up::CONTAINERD_2),
        trial(explain::says_what_would_be_done_and_why, &cc),
        trial(explain::what_is_no_bundle_is_told, &cc),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
