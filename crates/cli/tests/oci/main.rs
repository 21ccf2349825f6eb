//! `synconce-oci` with real runtimes and engines. Bundles in the form that engines make are
//! run by runc and crun, bare and wrapped.
//!
//! A test whose program is not installed is ignored, and prints why. Every test runs isolated
//! (see `harness::isolated`), as root. With SYNCONCE_REPORT=FILE the counts of flushes are
//! added to FILE.

mod benchmark;
mod builds_only;
mod bundles;
mod check;
mod counted;
mod database;
mod dockerfile;
mod doctor;
mod doctor_context;
mod doctor_databases;
mod doctor_images;
mod doctor_load;
mod doctor_places;
mod doctor_podman;
mod doctor_sending;
mod doctor_step_counts;
mod doctor_steps;
mod doctor_storage;
mod engines;
mod explain;
mod faults;
mod flushes;
mod groups;
#[path = "../doctor/ignore_cases.rs"]
mod ignore_cases;
mod images;
mod import;
mod in_steps;
mod jobs;
mod killed_checks;
mod other_snapshots;
mod our_image;
mod plain;
#[path = "../setup/planted.rs"]
mod planted;
mod probes;
mod runtimes;
mod same_layers;
mod set_up;
mod step_roots;
mod volatile_builds;
mod working_containers;

use engines::{buildkit, containerd, daemonless, docker};
use libtest_mimic::Arguments;
use std::process::ExitCode;
use synconce_testkit::harness::trial;

fn main() -> ExitCode {
    let trials = vec![
        trial(runtimes::under_runc, &runtimes::RUNC),
        trial(runtimes::under_crun, &runtimes::CRUN),
        trial(daemonless::buildahs_steps_are_held, &daemonless::BUILDAH),
        trial(daemonless::podmans_steps_are_held_and_its_containers_are_not, &daemonless::PODMAN),
        trial(daemonless::buildahs_and_podmans_steps_are_held_with_crun, &daemonless::CRUN),
        trial(buildkit::its_steps_are_held, &buildkit::NEEDS),
        trial(buildkit::its_steps_are_held_on_containerd, &buildkit::NEEDS_CONTAINERD),
        trial(
            buildkit::in_another_namespace_its_steps_are_held_by_a_rule,
            &buildkit::NEEDS_CONTAINERD,
        ),
        trial(containerd::its_containers_keep_their_syncs_unless_they_ask, &containerd::NEEDS),
        trial(
            docker::its_steps_are_held_by_either_builder_and_its_containers_are_not,
            &docker::NEEDS,
        ),
        trial(images::of_podman_and_buildah_are_the_same, &daemonless::BOTH),
        trial(images::of_docker_have_the_same_layers, &docker::NEEDS),
        trial(images::of_buildkit_are_the_same, &buildkit::NEEDS),
        trial(images::of_buildkit_on_containerd_are_the_same, &buildkit::NEEDS_CONTAINERD),
        trial(flushes::of_podman_and_buildah, &daemonless::BOTH),
        trial(flushes::of_docker, &docker::NEEDS),
        trial(flushes::of_buildkit, &buildkit::NEEDS),
        trial(flushes::of_containerd, &buildkit::NEEDS_CONTAINERD),
        trial(database::commits_are_flushed_beside_a_build_that_is_held, &database::NEEDS),
        trial(import::held_databases_save_most_flushes_of_both_snapshotters, &import::NEEDS),
    ];
    let of_files = [
        benchmark::trials(),
        builds_only::trials(),
        check::trials(),
        counted::trials(),
        dockerfile::trials(),
        doctor::trials(),
        doctor_context::trials(),
        doctor_databases::trials(),
        doctor_images::trials(),
        doctor_load::trials(),
        doctor_places::trials(),
        doctor_podman::trials(),
        doctor_sending::trials(),
        doctor_step_counts::trials(),
        doctor_steps::trials(),
        doctor_storage::trials(),
        explain::trials(),
        faults::trials(),
        in_steps::trials(),
        jobs::trials().into(),
        other_snapshots::trials(),
        our_image::trials(),
        set_up::trials(),
        probes::trials().into_iter().chain(killed_checks::trials()).collect(),
        same_layers::trials(),
        step_roots::trials(),
        volatile_builds::trials(),
        working_containers::trials(),
    ];
    let trials = trials.into_iter().chain(of_files.into_iter().flatten()).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
