//! Circles of modules: ones that use each other, by whatever way around.
//!
//! A module and those in it may use each other. Any other circle can only be understood, and moved,
//! as a whole.

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
    let (mut found, mut count) = (Vec::new(), 0);
    for source in crates.map(|entry| entry.expect("a crate").path().join("src")) {
        let uses = uses(&texts_in(&source));
        count += uses.values().map(BTreeSet::len).sum::<usize>();
        found.extend(circles(&uses).iter().map(|it| format!("{}: {it:?}", source.display())));
    }
    assert!(count > 1500, "{count} uses of modules are found");
    found
}

/// Finds a circle that is planted, and no other.
pub fn planted() {
    let texts = [
        ("/one", "use crate::{three, two::{A, B}};"),
        ("/two", "// use crate::none;\nmod below;\nfn f() { below::deep() }"),
        ("/two/below", "use super::super::three::C;"),
        ("/three", "use crate::four;\nfn f() { four::inner::f() }\nmod tests { use crate::one; }"),
        ("/four", "mod inner;"),
        ("/four/inner", "use crate::two::B;"),
    ];
    let texts = texts.map(|(module, text)| (module.to_owned(), text.to_owned()));
    let circle = ["/four/inner", "/three", "/two", "/two/below"].map(str::to_owned);
    assert_eq!(circles(&uses(&BTreeMap::from(texts))), [BTreeSet::from(circle)]);
}

/// Returns the circles in `uses`, each once.
fn circles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let is_area =
        |circle: &BTreeSet<String>| circle.iter().any(|it| circle.iter().all(|one| is_in(one, it)));
    let circles = uses.keys().map(|module| (module, circle_of(module, uses)));
    let first =
        circles.filter(|(module, circle)| circle.first() == Some(module) && !is_area(circle));
    first.map(|(_, circle)| circle).collect()
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

/// Returns the texts of the modules with the sources in `source`.
fn texts_in(source: &Path) -> BTreeMap<String, String> {
    contents_below(source)
        .into_iter()
        .filter_map(|(path, (_, content))| {
            let path = path.strip_prefix(source).unwrap_or(&path).to_str()?;
            let module = format!("/{}", path.strip_suffix(".rs")?);
            let is_test = module.ends_with("/tests") || module.contains("/tests/");
            let text = String::from_utf8(content).expect("a source");
            (!is_test && !module.ends_with("/fuzz")).then_some((module, text))
        })
        .collect()
}

/// Returns which modules of a crate with the `texts` each module uses.
fn uses(texts: &BTreeMap<String, String>) -> Uses {
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
    for (at, _) in code.match_indices("mod ") {
        let name = code[at + 4..].split(';').next().unwrap_or_default();
        let inner = format!("{module}/{name}");
        after_each(name, &code, |rest| add_paths(rest, &inner, &mut paths));
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
