//! `synconce tree` at the command line: a clone never changes its base, and committed content
//! is complete.
//!
//! The tests use real file systems on disks of their own, as root. Every test runs isolated
//! (see `harness::isolated`). A test whose program is not installed is ignored, and prints
//! why.

mod attributes;
mod beside;
mod everything;
mod meetings;
mod mounts;
mod options;
mod programs;
mod roots;
mod runs;
mod site;
mod sparse;
mod unharmed;
mod users;
mod verbs;

use libtest_mimic::Arguments;
use std::process::ExitCode;
use synconce_testkit::harness::trial;

fn main() -> ExitCode {
    let trials = vec![
        trial(unharmed::by_no_way_to_write_on_ext4, &unharmed::NEEDS),
        trial(unharmed::by_no_way_to_write_on_xfs, &unharmed::NEEDS),
        trial(unharmed::by_no_way_to_write_on_btrfs, &unharmed::NEEDS),
        trial(unharmed::by_large_changes_on_ext4, &unharmed::DEBIAN),
        trial(unharmed::by_large_changes_on_xfs, &unharmed::DEBIAN),
        trial(unharmed::by_large_changes_on_btrfs, &unharmed::DEBIAN),
    ];
    let of_files = [
        attributes::trials(),
        beside::trials(),
        verbs::trials(),
        runs::trials(),
        meetings::trials(),
        mounts::trials(),
        options::trials(),
        sparse::trials(),
        users::trials(),
        programs::trials(),
    ];
    let trials = trials.into_iter().chain(of_files.into_iter().flatten()).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
