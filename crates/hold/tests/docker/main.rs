//! The layers that a real dockerd leaves behind when BuildKit's databases are set aside, and those
//! that a crash damaged.
//!
//! A test whose program is not installed is ignored, and prints why. The tests run isolated,
//! as root (see `harness::isolated`).

mod damaged;
mod engine;
mod wiped;

use libtest_mimic::Arguments;
use std::process::ExitCode;
use synconce_testkit::harness::trial;

fn main() -> ExitCode {
    let trials = vec![
        trial(wiped::layers_of_buildkit_are_set_aside_and_all_else_works, &engine::NEEDS),
        trial(
            damaged::images_with_damaged_layers_are_set_aside_and_can_be_made_again,
            &engine::NEEDS,
        ),
        trial(damaged::a_container_with_a_damaged_layer_is_left_and_can_be_removed, &engine::NEEDS),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
