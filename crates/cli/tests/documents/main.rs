//! The documents of the project: what they tell a reader to type works, in a fresh Debian root;
//! what they quote is in the sources; their links lead somewhere.
//!
//! Each document with commands is one test. Its blocks are run in order, in one root on a disk
//! of its own, as root. See `markdown::FencedBlock` for what is read from a document, and
//! CONTRIBUTING.md for how a block is marked.

mod circles;
mod commands;
mod expected;
mod links;
mod map;
mod markdown;
mod messages;

use libtest_mimic::{Arguments, Failed, Trial};
use markdown::Document;
use std::process::ExitCode;
use std::time::Duration;
use synconce_sys::search;
use synconce_testkit::isolation::isolated_as;
use synconce_testkit::patiently;

/// The directory of the project.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// In practice several times what the longest document takes.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let documents = markdown::user_documents();
    // With `--exact` a single test runs. This list would come before its failure.
    if !arguments.list && !arguments.exact {
        print_unrun(&documents);
    }
    let mut trials = vec![
        Trial::test("links::lead_to_a_file_and_a_heading", || all(links::broken())),
        Trial::test("links::of_the_packaged_readme_lead_to_a_file_and_a_heading", || {
            all(links::broken_in_the_package())
        }),
        Trial::test("links::anchors_are_those_of_github", || all(links::wrong_anchors())),
        Trial::test("map::files_and_modules_exist", || all(map::gone())),
        Trial::test("map::names_each_module", || all(map::unnamed())),
        Trial::test("map::modules_use_each_other_in_no_circle", || all(circles::found())),
        Trial::test("map::a_planted_circle_is_found", || {
            circles::planted();
            Ok(())
        }),
        Trial::test("messages::are_in_the_sources", || all(messages::unknown())),
    ];
    let missing = ["mmdebstrap", "bash"].into_iter().find(|name| search::find(name).is_none());
    if let Some(name) = missing {
        eprintln!("SKIPPED: the commands of documents: no {name}; install it");
    }
    let with_commands = documents.into_iter().filter(|document| document.blocks.iter().any(is_run));
    trials.extend(with_commands.map(|document| {
        let name = format!("commands::{}", document.name);
        let run = move || {
            isolated_as(&format!("commands::{}", document.name), patiently(LIMIT), || {
                commands::run(&document);
            });
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(missing.is_some())
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Fails with every one of `faults`.
fn all(faults: Vec<String>) -> Result<(), Failed> {
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n").into()) }
}

fn is_run(block: &markdown::FencedBlock) -> bool {
    block.has_commands() && block.not_run.is_none()
}

/// Prints the blocks that cannot run in a root, with their reasons.
fn print_unrun(documents: &[Document]) {
    let (mut run, mut unrun) = (0, 0);
    for document in documents {
        run += document.blocks.iter().filter(|block| is_run(block)).count();
        for block in &document.blocks {
            let Some(reason) = &block.not_run else { continue };
            unrun += 1;
            eprintln!("NOT RUN: {}:{}: {reason}", document.name, block.line);
        }
    }
    eprintln!("blocks of commands that are run: {run}; that are not: {unrun}");
}
