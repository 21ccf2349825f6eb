//! Test suites of other projects, bare and held, supervised and sealed: every test has the
//! same result, except for the differences in `differences.txt`.
//!
//! `scripts/suites` installs, fetches and builds the suites, and sets SYNCONCE_SUITES to the
//! directory of the suites that it built. Without SYNCONCE_SUITES there is one test here, and
//! it is ignored. Each test of the LTP, each stressor of stress-ng, each module of CPython's
//! tests and each program of libeatmydata's tests is a trial of its own, isolated (see
//! `synconce_testkit::isolation`).

mod case;
mod differences;
mod eatmydata;
mod ltp;
mod python;
mod results;
mod stress;

use case::Case;
use libtest_mimic::{Arguments, Trial};
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let Some(suites) = std::env::var_os("SYNCONCE_SUITES").map(PathBuf::from) else {
        eprintln!("SKIPPED: suites: run scripts/suites");
        let nothing = Trial::test("suites", || Ok(())).with_ignored_flag(true);
        return libtest_mimic::run(&arguments, vec![nothing]).exit_code();
    };
    let mut cases = eatmydata::cases(&suites.join("libeatmydata"));
    cases.extend(ltp::cases(&suites.join("ltp")));
    cases.extend(python::cases());
    cases.extend(stress::cases());
    libtest_mimic::run(&arguments, cases.into_iter().map(Case::trial).collect()).exit_code()
}
