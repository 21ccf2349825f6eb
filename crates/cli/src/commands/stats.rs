//! Prints the accounts of a run.

use crate::text::micros;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use synconce_hold::{Accounts, CommitReport, Finished, Tally};

#[derive(Serialize)]
struct Stats<'a> {
    #[serde(flatten)]
    accounts: &'a Accounts,
    commit: &'a Option<CommitReport>,
}

/// Prints the accounts of `finished` to standard error.
pub fn print(finished: &Finished, json: bool) {
    let stats = Stats { accounts: &finished.accounts, commit: &finished.commit };
    let text = if json {
        serde_json::to_string(&stats).unwrap_or_default() + "\n"
    } else {
        table(&finished.accounts, finished.commit.as_ref())
    };
    // A closed standard error is not a failure of the run.
    let _ = io::stderr().write_all(text.as_bytes());
}

fn table(accounts: &Accounts, commit: Option<&CommitReport>) -> String {
    let mut text = String::new();
    section(&mut text, "call", &accounts.calls);
    section(&mut text, "program", &accounts.programs);
    for one in commit.iter().flat_map(|commit| &commit.file_systems) {
        let how = one.micros.map_or_else(|| "not durable".to_owned(), micros);
        text += &format!("commit {} ({}) {how}\n", one.mount_point.display(), one.type_name);
    }
    if let Some(everything) = commit.and_then(|commit| commit.everything.as_ref()) {
        let how = everything.micros.map_or_else(|| "not durable".to_owned(), micros);
        text += &format!("commit all disks (sync(2)) {how}\n");
    }
    if let Some(commit) = commit {
        text += &format!("commit in all {}\n", micros(commit.micros));
    }
    text
}

fn section(text: &mut String, title: &str, rows: &BTreeMap<String, Tally>) {
    if rows.is_empty() {
        return;
    }
    let width = rows.keys().map(String::len).max().unwrap_or(0).max(title.len());
    // Most runs have no process with real syncs.
    let any_real = rows.values().any(|tally| tally.real > 0);
    let column = |text: String| if any_real { format!(" {text:>10}") } else { String::new() };
    let real = column("real".to_owned());
    *text += &format!("{title:width$} {:>10} {:>10}{real} {:>10}\n", "held", "passed", "refused");
    for (name, tally) in rows {
        let Tally { held, passed, real, refused } = tally;
        let real = column(real.to_string());
        *text += &format!("{name:width$} {held:>10} {passed:>10}{real} {refused:>10}\n");
    }
}
