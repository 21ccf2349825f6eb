//! Completion of arguments: names of trees and holds, and IDs of runs.

use crate::text::shell;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use synconce_durable::record::RunRecord;
use synconce_durable::recovery::{self, MarkerState};
use synconce_durable::standard_paths;
use synconce_hold::config::Config;
use synconce_tree::{Store, default_path};

/// Completes a word from `candidates`.
pub(super) fn starting_with(
    current: &OsStr,
    candidates: impl IntoIterator<Item = CompletionCandidate>,
) -> Vec<CompletionCandidate> {
    let wanted = current.as_encoded_bytes();
    let fits = |it: &CompletionCandidate| it.get_value().as_encoded_bytes().starts_with(wanted);
    candidates.into_iter().filter(fits).collect()
}

/// Completes the names of trees in the store of the command line; after an `@` also those of
/// their generations.
pub(crate) fn tree_names(current: &OsStr) -> Vec<CompletionCandidate> {
    let store = named_store().or_else(|| default_path(rustix::process::geteuid().is_root()));
    let store = store.and_then(|path| Store::open(&path).ok());
    let records = store.and_then(|store| store.records().ok()).unwrap_or_default().0;
    let mut names: Vec<_> = records.iter().map(|record| record.name.to_string()).collect();
    if current.as_encoded_bytes().contains(&b'@') {
        for record in &records {
            let generations = record.generations();
            let of_tree =
                generations.iter().map(|one| format!("{}@{}", record.name, one.generation));
            names.extend(of_tree);
        }
    }
    starting_with(current, names.into_iter().map(CompletionCandidate::new))
}

/// Completes the names of trees, and paths.
pub(crate) fn trees_and_paths(current: &OsStr) -> Vec<CompletionCandidate> {
    let paths = PathCompleter::dir().complete(current);
    tree_names(current).into_iter().chain(paths).collect()
}

/// Returns the value of --store on the command line that is completed.
fn named_store() -> Option<PathBuf> {
    let words: Vec<_> = env::args_os().collect();
    let at = words.iter().position(|word| word.as_encoded_bytes().starts_with(b"--store"))?;
    let joined = words[at].to_str()?.strip_prefix("--store=").map(PathBuf::from);
    // bash makes three words of `--store=DIR`.
    let next = words[at + 1..].iter().find(|word| *word != "=");
    joined.or_else(|| next.map(PathBuf::from))
}

/// Completes the IDs of the user's interrupted runs.
pub(crate) fn interrupted_runs(current: &OsStr) -> Vec<CompletionCandidate> {
    let found = standard_paths::state().and_then(|state| recovery::markers(&state).ok());
    let mut found = found.unwrap_or_default();
    found.retain(|found| found.state == MarkerState::Interrupted);
    starting_with(current, found.iter().map(|found| run(&found.id, found.record.as_ref())))
}

/// Completes the names of holds.
pub(crate) fn holds(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = Config::names().unwrap_or_default();
    starting_with(current, names.into_iter().map(CompletionCandidate::new))
}

/// Completes the IDs of the user's runs in flight.
pub(crate) fn runs_in_flight(current: &OsStr) -> Vec<CompletionCandidate> {
    let runs = synconce_run::in_flight();
    starting_with(current, runs.iter().map(|record| run(&record.id, Some(record))))
}

fn run(id: &str, record: Option<&RunRecord>) -> CompletionCandidate {
    let private = record.and_then(|record| record.private.as_ref());
    CompletionCandidate::new(id).help(private.map(|private| shell(&private.command).into()))
}
