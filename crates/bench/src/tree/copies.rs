//! Copies of a whole tree: the cost of a strategy that shares no layers.

use super::clones::{COPY, EMPTY, REMOVE};
use super::commands::{BASE, ours, sync, tree, variant};
use crate::command::words;
use crate::scenario::{Need, Promise, Variant};

/// The baselines of the copies.
const PLAIN: &str = "copy/cp-a";
const REFLINK: &str = "copy/cp-reflink";

/// Returns all copies; the baseline first.
pub(super) fn variants(program: &str) -> Vec<Variant> {
    let cp = |flag: &str| words(&["cp", "-a", flag, "--", "{base}", "{clone}"]);
    let rm = |rm: &[&str]| vec![(REMOVE, [words(rm), words(&["{clone}"])].concat())];
    let probe = words(&["cp", "--reflink=always", "{base}/synconce-bench/build.sh", "{clone}"]);
    let import =
        |strategy: &str| tree(program, &["import", "{name}", "{base}", "--strategy", strategy]);
    let forget = || {
        let gone = tree(program, &["remove", "{name}"]);
        vec![(REMOVE, gone), (EMPTY, tree(program, &["gc", "--wait"]))]
    };
    let imported = |strategy: &str, against: &str| {
        let name = format!("copy/synconce-import-{strategy}");
        let about = "tree import, with the fingerprint and the commit";
        ours(program, Some(strategy), copy(&name, about, against, import(strategy), forget()))
    };
    let export = tree(program, &["export", BASE, "{clone}"]);
    let exported = copy("copy/synconce-export", "tree export", PLAIN, export, Vec::new());
    vec![
        copy(
            PLAIN,
            "cp -a, all data copied",
            PLAIN,
            cp("--reflink=never"),
            rm(&["rm", "-rf", "--"]),
        ),
        Variant {
            trial: Some(probe),
            ..copy(
                REFLINK,
                "cp -a, all data shared",
                PLAIN,
                cp("--reflink=always"),
                rm(&["rm", "-rf", "--"]),
            )
        },
        Variant {
            needs: vec![Need::new("cpz", "fuc"), Need::new("rmz", "fuc")],
            ..copy(
                "copy/cpz",
                "without owners, times and attributes",
                PLAIN,
                words(&["cpz", "{base}", "{clone}"]),
                rm(&["rmz"]),
            )
        },
        ours(program, None, exported),
        imported("copy", PLAIN),
        imported("reflink", REFLINK),
    ]
}

fn copy(
    name: &str,
    about: &str,
    against: &str,
    copy: Vec<String>,
    remove: Vec<(&str, Vec<String>)>,
) -> Variant {
    let mut steps = vec![(COPY, copy), ("copy sync", sync())];
    let removed = !remove.is_empty();
    steps.extend(remove);
    steps.extend(removed.then(|| ("remove sync", sync())));
    Variant { promise: Promise::Durable, ..variant(name, about, against, steps) }
}
