//! `gate`: runs everything that must pass before a change lands, and names every failure at
//! the end of its output (`scripts/test`); or runs the tests many times and names those that do
//! not pass each time (`scripts/steady`).
//!
//! No failure ends the run. A *check* is a command that passes as a whole, such as a linter or
//! the proof. A *test* is one function of a test program, and runs in a process of its own, as
//! in cargo-nextest. That runner is not used: it repeats a failed test at once, beside the
//! tests that may have disturbed it, and Debian does not have it.
#![forbid(unsafe_code)]

mod checks;
mod command;
mod pool;
mod programs;
mod report;
mod steady;
mod tests;

use checks::{Leftovers, Priority};
use clap::{Parser, Subcommand};
use programs::Scope;
use report::Report;
use std::process::ExitCode;
use std::time::Instant;

/// Run everything that must pass before a change lands
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct GateArguments {
    /// Run only what needs neither root nor a disk
    #[arg(long)]
    quick: bool,
    #[command(subcommand)]
    other: Option<Other>,
}

#[derive(Debug, Subcommand)]
enum Other {
    /// Run the tests many times and list those that do not pass each time
    Steady(steady::SteadyArguments),
}

fn main() -> ExitCode {
    let arguments = GateArguments::parse();
    let passed = match &arguments.other {
        Some(Other::Steady(arguments)) => steady::run(arguments),
        None => gate(if arguments.quick { Scope::Quick } else { Scope::All }),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs every check and every test of `scope`; returns whether all passed.
fn gate(scope: Scope) -> bool {
    let began = Instant::now();
    let mut report = Report::default();
    let mark = checks::new_mark();
    let leftovers = Leftovers::before(&mark);
    if scope == Scope::All {
        // Otherwise the first test that uses the Debian root makes it, and others wait.
        std::thread::spawn(synconce_testkit::harness::debian::base);
    }
    for check in checks::BEFORE {
        report.check(check, &mark, Priority::Normal);
    }
    let (programs, failure) = programs::build();
    report.outcome("build", failure);
    report.outcome("names in proof/gate/src/programs.rs", programs::unknown_names(&programs));
    for check in checks::AFTER_BUILD {
        report.check(check, &mark, Priority::Normal);
    }
    std::thread::scope(|threads| {
        let beside = threads.spawn(|| beside_tests(&mark));
        tests::run(&programs, scope, &mark, &mut report);
        report.merge(beside.join().expect("no check panics"));
    });
    if scope == Scope::All {
        for check in checks::AFTER_TESTS {
            report.check(check, &mark, Priority::Normal);
        }
    }
    report.outcome("leftovers", leftovers.map_or_else(Some, |leftovers| leftovers.found()));
    report.print(began.elapsed())
}

/// Runs the checks that compile, while tests run.
fn beside_tests(mark: &str) -> Report {
    let mut report = Report::default();
    for check in checks::BESIDE_TESTS {
        report.check(check, mark, Priority::Idle);
    }
    report
}
