//! `synconce doctor` at places with a planted cause: the cause is named first; and
//! `synconce doctor -- COMMAND`.
//!
//! Every test runs isolated (see `harness::isolated`), as root. A test whose program or
//! hierarchy of control groups is missing is ignored, and prints why. No test judges by a time
//! that a busy machine makes longer: the rig's flushes have a least time.

mod bundle;
mod causes;
mod command;
mod context;
mod counts;
mod ends;
mod ignore_cases;
mod limits;
mod manners;
mod page;
mod programs;
mod record;
mod skipped;
mod step_socket;
mod support;
mod writes;

use libtest_mimic::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    let of_files = [
        bundle::trials(),
        causes::trials(),
        command::trials(),
        context::trials(),
        counts::trials(),
        ends::trials(),
        limits::trials(),
        manners::trials(),
        page::trials(),
        programs::trials(),
        record::trials(),
        skipped::trials(),
        step_socket::trials(),
        writes::trials(),
    ];
    let trials = of_files.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
