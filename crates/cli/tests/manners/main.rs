//! The command line apart from its work: help, short forms, messages, JSON, abbreviated IDs, manual
//! pages and completion.
//!
//! Every test runs isolated (see `harness::isolated`), as root. A test whose program is not
//! installed is ignored, and prints why.

mod build_daemons;
mod errors;
mod ids;
mod lines;
mod outputs;
mod pages;
mod reports;
mod shells;

use libtest_mimic::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    let of_files = [
        build_daemons::trials(),
        errors::trials(),
        ids::trials(),
        lines::trials(),
        outputs::trials(),
        pages::trials(),
        reports::trials(),
        shells::trials(),
    ];
    let trials = of_files.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
