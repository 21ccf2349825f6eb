//! The documents of the project: what they tell a reader to type works, in a fresh Debian root;
//! what they quote is in the sources; their links lead somewhere.
//!
//! Each document with commands is one test. Its blocks are run in order, in one root on a disk
//! of its own, as root. See `markdown::Block` for what is read from a document, and
//! CONTRIBUTING.md for how a block is marked.

mod commands;
mod expected;
mod links;
mod markdown;
mod messages;
mod root;

use libtest_mimic::{Arguments, Failed, Trial};
use markdown::Document;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use synconce_testkit::isolation::isolated_as;
use synconce_testkit::patiently;

/// The directory of the project.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// In practice several times what the longest document takes.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let documents = markdown::user_documents();
    if !arguments.list {
        print_unrun(&documents);
    }
    let mut trials = vec![
        Trial::test("links::lead_to_a_file_and_a_heading", || all(links::broken())),
        Trial::test("messages::are_in_the_sources", || all(messages::unknown())),
    ];
    let missing = ["mmdebstrap", "bash"].into_iter().find(|name| !is_installed(name));
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

fn is_run(block: &markdown::Block) -> bool {
    block.has_commands() && block.not_run.is_none()
}

/// Prints the blocks that cannot run in a root, with their reasons.
fn print_unrun(documents: &[Document]) {
    let blocks = || {
        let of = |document: &'_ Document| -> Vec<_> {
            let line = |block: &markdown::Block| {
                let reason = block.not_run.as_ref()?;
                Some(format!("NOT RUN: {}:{}: {reason}", document.name, block.line))
            };
            document.blocks.iter().filter_map(line).collect()
        };
        documents.iter().flat_map(of)
    };
    blocks().for_each(|line| eprintln!("{line}"));
    let runs = documents.iter().flat_map(|document| &document.blocks).filter(|block| is_run(block));
    eprintln!("blocks that are run: {}; that are not: {}", runs.count(), blocks().count());
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| Path::new(&directory).join(program).is_file())
}
