//! `synconce tree` at the command line: a clone never changes its base, and committed content
//! is complete.
//!
//! The tests use real file systems on disks of their own, as root. Every test runs isolated
//! (see `harness::isolated`). A test whose program is not installed is ignored, and prints
//! why.

mod attributes;
mod base_unchanged;
mod boots;
mod builds;
mod chroots;
mod concurrent;
mod contents;
mod copies;
mod differences;
mod ends;
mod everything;
mod full_disks;
mod generations;
mod guards;
mod habits;
mod limits;
mod losses;
mod mounts;
mod options;
mod probes;
mod programs;
mod promises;
mod readers;
mod rooms;
mod roots;
mod runs;
mod site;
mod snapshots;
mod sparse;
mod terminals;
mod users;
mod verbs;
mod waits;
mod words;

use libtest_mimic::Arguments;
use std::process::ExitCode;
use synconce_testkit::harness::trials_on;
use synconce_testkit::rig::FsKind;

fn main() -> ExitCode {
    let trials = [
        trials_on(&FsKind::ALL, base_unchanged::by_no_way_to_write, &base_unchanged::NEEDS),
        trials_on(&FsKind::ALL, base_unchanged::by_large_changes, &base_unchanged::DEBIAN),
        attributes::trials(),
        boots::trials(),
        builds::trials(),
        chroots::trials(),
        ends::trials(),
        full_disks::trials(),
        generations::trials(),
        guards::trials(),
        habits::trials(),
        limits::trials(),
        contents::trials(),
        losses::trials(),
        rooms::trials(),
        terminals::trials(),
        readers::trials(),
        verbs::trials(),
        waits::trials(),
        words::trials(),
        runs::trials(),
        concurrent::trials(),
        copies::trials(),
        differences::trials(),
        mounts::trials(),
        options::trials(),
        snapshots::trials(),
        sparse::trials(),
        users::trials(),
        probes::trials(),
        programs::trials(),
        promises::trials(),
    ];
    let trials = trials.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
