//! Held files of daemons, with real databases and on real file systems.
//!
//! A test whose program is not installed is ignored, and prints why. Every test runs isolated
//! (see `harness::isolated`), as root.

mod go;
mod kind;
mod misfit;

use libtest_mimic::Arguments;
use std::process::ExitCode;
use synconce_testkit::harness::trial;

fn main() -> ExitCode {
    let trials = vec![
        trial(kind::a_bolt_database_is_one_file_of_bbolt, &go::NEEDS),
        trial(kind::a_file_of_a_set_is_refused_with_its_directory, &[]),
        trial(kind::members_of_replicated_systems_are_refused, &go::NEEDS),
        trial(kind::a_part_of_a_set_is_refused_by_what_is_above, &[]),
        trial(kind::postgresql_is_held_only_if_it_may_be_thrown_away, &[]),
        trial(kind::mounts_and_layers_are_refused, &[]),
        trial(kind::each_layer_of_an_overlay_is_refused, &[]),
        trial(misfit::each_kind_on_the_files_of_another_is_refused_with_what_is_there, &[]),
        trial(misfit::a_path_that_is_too_deep_or_has_nothing_known_is_named, &[]),
        trial(misfit::every_file_of_a_large_directory_is_looked_at, &[]),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
