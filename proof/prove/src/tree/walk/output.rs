//! Parses a command's result from its exit code and its messages.

use super::child::WalkReport;
use super::verbs::{NAMES, Name, Verb};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use synconce_sys::process::FAILED;
use synconce_testkit::manifest::{Entry, FileKind, Manifest};

/// The result of a command.
#[derive(Debug)]
pub(super) enum VerbOutcome {
    /// The command succeeded and showed this.
    Done(Shown),
    /// The command did nothing, for this reason.
    Refused(VerbRefusal),
    /// The command or one of its processes was killed.
    Killed,
}

/// What a command showed of a store.
#[derive(Debug)]
pub(super) enum Shown {
    Nothing,
    /// The tree has one layer, and there is nothing to squash.
    OneLayer,
    Content(Arc<Manifest>),
    Changes(Changes),
    Trees(Vec<Listed>),
}

/// A tree as `list` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Listed {
    pub name: String,
    pub state: String,
    pub generation: u64,
}

/// Why a command did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerbRefusal {
    Absent(Name),
    Exists(Name),
    /// The tree has uncommitted changes.
    Open(Name),
    /// The tree is protected.
    Protected(Name),
    InUse(Name),
    /// Another command changed the tree in the meantime.
    Changed(Name),
    /// Nothing is mounted at the path.
    NotMounted,
}

/// Words of a message, and the refusal that the message means.
type Known = (&'static [&'static str], fn(Name) -> VerbRefusal);

/// Returns why `verb` was refused, if the message is one of those that the verb may end with.
pub(super) fn refusal(verb: Verb, report: &WalkReport) -> Option<VerbRefusal> {
    if report.code != Some(FAILED) {
        return None;
    }
    let of = |line: &str| -> Option<VerbRefusal> {
        if line.contains("no tree of this store is mounted there") {
            return Some(VerbRefusal::NotMounted);
        }
        let has = |name: &Name| line.contains(&format!(" {name}: "));
        let name =
            *NAMES.iter().filter(|name| verb.names().contains(name)).find(|name| has(name))?;
        let kinds: [Known; 6] = [
            (&["no such tree"], VerbRefusal::Absent),
            (&["already exists"], VerbRefusal::Exists),
            (&["it has changes that are not committed"], VerbRefusal::Open),
            (&["it is a protected base"], VerbRefusal::Protected),
            (&["it is in use by process", "it is mounted at", "its mount at"], VerbRefusal::InUse),
            (&["meanwhile", "by now, or another tree"], VerbRefusal::Changed),
        ];
        let is = |texts: &[&str]| texts.iter().any(|text| line.contains(text));
        kinds.into_iter().find(|(texts, _)| is(texts)).map(|(_, kind)| kind(name))
    };
    report.stderr.lines().find_map(of)
}

/// Lines of `diff`: a letter and a path.
pub(super) type Changes = BTreeSet<(char, String)>;

/// Parses the output of `diff`.
pub(super) fn written(stdout: &str) -> Changes {
    let line = |line: &str| {
        let (letter, path) = line.split_once(' ').unwrap_or((line, ""));
        (letter.chars().next().unwrap_or('?'), path.to_owned())
    };
    stdout.lines().map(line).collect()
}

/// Returns what `diff` must print for two contents.
pub(super) fn changes(one: &Manifest, other: &Manifest) -> Changes {
    let path = |path: &String| if path == "." { String::new() } else { path.clone() };
    let before = one.entries.iter().filter_map(|(name, entry)| match other.entries.get(name) {
        None => Some(('D', path(name))),
        Some(now) => (compared(entry) != compared(now)).then(|| ('C', path(name))),
    });
    let mut changes: Changes = before.collect();
    let new = other.entries.keys().filter(|name| !one.entries.contains_key(*name));
    changes.extend(new.map(|name| ('A', path(name))));
    changes
}

/// Returns the entry without the fields that `diff` does not compare.
fn compared(entry: &Entry) -> Entry {
    let mut entry = entry.clone();
    entry.links = None;
    if entry.kind == FileKind::Directory {
        entry.mtime = None;
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(stderr: &str) -> WalkReport {
        WalkReport {
            code: Some(125),
            stderr: format!("synconce: {stderr}\n"),
            ..WalkReport::default()
        }
    }

    #[test]
    fn a_refusal_is_read_from_the_message_and_names_a_tree_of_the_verb() {
        let clone = Verb::Clone("a", "b");
        let known = [
            ("cannot find the tree a: no such tree", VerbRefusal::Absent("a")),
            ("cannot clone to b: a tree of this name already exists", VerbRefusal::Exists("b")),
            ("cannot use a: it has changes that are not committed", VerbRefusal::Open("a")),
            ("cannot use a: it is mounted at /point-b: it", VerbRefusal::InUse("a")),
            ("cannot use a: its mount at /point is gone, and its", VerbRefusal::InUse("a")),
        ];
        for (text, refusal_known) in known {
            assert_eq!(refusal(clone, &report(text)), Some(refusal_known), "{text}");
        }
        assert_eq!(refusal(clone, &report("cannot find the tree c: no such tree")), None);
        assert_eq!(refusal(clone, &report("cannot read /x: Input/output error")), None);
        let killed = WalkReport { code: Some(1), ..report(known[0].0) };
        assert_eq!(refusal(clone, &killed), None);
    }
}
