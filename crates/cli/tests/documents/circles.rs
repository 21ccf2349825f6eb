//! Circles of modules: ones that use each other, by whatever way around.
//!
//! A module and those in it may use each other. Any other circle can only be understood, and moved, as
//! a whole.

use crate::PROJECT;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter::successors;
use std::path::Path;
use synconce_testkit::harness::contents_below;

/// The modules of a crate, as `/a/b` for the module `a::b`, and which of them each uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Returns the circles of modules in each crate of the product.
pub fn found() -> Vec<String> {
    let crates = fs::read_dir(Path::new(PROJECT).join("crates")).expect("the crates");
    let mut found = Vec::new();
    for source in crates.map(|entry| entry.expect("a crate").path().join("src")) {
        let uses = uses(&source);
        for module in uses.keys() {
            let circle = circle_of(module, &uses);
            let is_area = circle.iter().any(|area| circle.iter().all(|one| is_in(one, area)));
            // Each circle once.
            if !is_area && circle.first() == Some(module) {
                found.push(format!("{}: {circle:?}", source.display()));
            }
        }
    }
    found
}

/// Returns the modules that `module` reaches and that reach `module`.
fn circle_of(module: &str, uses: &Uses) -> BTreeSet<String> {
    let reaches = |one: &String| reached(one, uses).contains(module);
    reached(module, uses).into_iter().filter(reaches).collect()
}

fn reached(module: &str, uses: &Uses) -> BTreeSet<String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
    while let Some(module) = next.pop() {
        next.extend(
            uses[module].iter().filter(|one| reached.insert((*one).clone())).map(|it| &**it),
        );
    }
    reached
}

fn is_in(module: &str, area: &str) -> bool {
    module.strip_prefix(area).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads which modules of the crate with the sources in `source` each module uses.
fn uses(source: &Path) -> Uses {
    let texts: BTreeMap<_, _> = contents_below(source)
        .into_iter()
        .filter_map(|(path, (_, content))| {
            let path = path.strip_prefix(source).unwrap_or(&path).to_str()?;
            let module = format!("/{}", path.strip_suffix(".rs")?);
            let is_test = module.ends_with("/tests") || module.contains("/tests/");
            let text = String::from_utf8(content).expect("a source");
            (!is_test && !module.ends_with("/fuzz")).then_some((module, text))
        })
        .collect();
    let in_one = |(module, text): (&String, &String)| {
        let used = paths_in(module, text).into_iter().filter_map(|path| {
            let inner = |it: &&str| texts.contains_key(*it);
            let all = successors(Some(&*path), |it| it.rsplit_once('/').map(|at| at.0));
            all.into_iter().find(inner).map(str::to_owned)
        });
        (module.clone(), used.filter(|used| used != module).collect())
    };
    texts.iter().map(in_one).collect()
}

/// Returns the paths, from the root of the crate, that the product's part of `text` names.
fn paths_in(module: &str, text: &str) -> Vec<String> {
    let product = text.split("mod tests {").next().unwrap_or(text);
    let lines = product.lines().map(|line| line.split("//").next().unwrap_or(line));
    let code = lines.collect::<Vec<_>>().join(" ");
    let mut paths = Vec::new();
    for (word, base) in [("crate", ""), ("super", above(module)), ("self", module)] {
        after_each(word, &code, |rest| add_paths(rest, base, &mut paths));
    }
    // Of a module that is imported by its name.
    for base in paths.clone() {
        if let Some((_, name)) = base.rsplit_once('/') {
            after_each(name, &code, |rest| add_paths(rest, &base, &mut paths));
        }
    }
    paths
}

/// Returns the module that has `module`.
fn above(module: &str) -> &str {
    module.rsplit_once('/').map_or("", |at| at.0)
}

/// Calls `look` with what follows each path in `code` that begins with `word`.
fn after_each<'a>(word: &str, code: &'a str, mut look: impl FnMut(&'a str)) {
    let is_of_word = |it: char| it == ':' || it == '_' || it.is_alphanumeric();
    for (at, _) in code.match_indices(&format!("{word}::")) {
        if !code[..at].ends_with(is_of_word) {
            look(&code[at + word.len() + 2..]);
        }
    }
}

/// Adds the paths with which `code` begins: one, or those of a list in braces.
fn add_paths(code: &str, base: &str, paths: &mut Vec<String>) {
    let code = code.trim_start();
    if let Some(list) = code.strip_prefix('{') {
        let (mut depth, mut start) = (0, 0);
        for (at, it) in list.char_indices() {
            match it {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    add_paths(&list[start..at], base, paths);
                    start = at + 1;
                }
                _ => {}
            }
            if it == '}' && start > at {
                break;
            }
        }
        return;
    }
    let end = code.find(|it: char| it != '_' && !it.is_alphanumeric());
    let (word, rest) = code.split_at(end.unwrap_or(code.len()));
    let base = match word {
        "" | "self" => base.to_owned(),
        "super" => above(base).to_owned(),
        name => format!("{base}/{name}"),
    };
    match rest.strip_prefix("::") {
        Some(rest) => add_paths(rest, &base, paths),
        None => paths.push(base),
    }
}
