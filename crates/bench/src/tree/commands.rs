//! Commands that several variants share, and the names of their parts.

use crate::command::words;
use crate::scenario::{Need, Variant};

/// The name of the base in synconce's store.
pub(super) const BASE: &str = "base";

/// Returns a `synconce tree` command with the benchmark's own store.
pub(super) fn tree(program: &str, rest: &[&str]) -> Vec<String> {
    [words(&[program, "tree", "--store", "{store}"]), words(rest)].concat()
}

/// Returns a command that syncs the file system under test alone.
pub(super) fn sync() -> Vec<String> {
    words(&["sync", "-f", "{work}"])
}

/// Returns a variant of named commands.
pub(super) fn variant(
    name: &str,
    about: &str,
    against: &str,
    steps: Vec<(&str, Vec<String>)>,
) -> Variant {
    let (parts, commands): (Vec<&str>, Vec<Vec<String>>) = steps.into_iter().unzip();
    Variant {
        about: about.to_owned(),
        commands,
        parts: words(&parts),
        against: against.to_owned(),
        ..Variant::new(name, Vec::<String>::new())
    }
}

/// Returns a variant of synconce: it is left out unless a clone can be entered.
pub(super) fn ours(program: &str, strategy: Option<&str>, variant: Variant) -> Variant {
    let mut trial = tree(program, &["run", "--from", BASE, "--discard"]);
    trial.extend(strategy.into_iter().flat_map(|name| words(&["--strategy", name])));
    trial.extend(words(&["--", "/bin/true"]));
    Variant { needs: vec![Need::new(program, "synconce")], trial: Some(trial), ..variant }
}
