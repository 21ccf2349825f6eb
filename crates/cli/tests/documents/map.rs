//! The files and modules that ARCHITECTURE.md names.

use crate::PROJECT;
use crate::markdown::Document;
use std::path::Path;

/// Where the paths of the map begin.
const BASES: [&str; 3] = ["", "crates", "proof"];

/// Returns the files and modules that the tables of the map name, and that do not exist; and the
/// changes without a first file.
pub fn gone() -> Vec<String> {
    let map = Document::read("ARCHITECTURE.md");
    let mut gone = Vec::new();
    // The crate of a table of modules, by the heading above the table.
    let mut heading = "";
    let (mut below_changes, mut of_changes) = (false, false);
    let mut is_modules = false;
    for (line, text) in &map.prose {
        if text.starts_with('#') {
            let title = text.trim_start_matches('#').trim_start();
            (heading, is_modules) = (title, false);
            let is_section = text.starts_with("###");
            below_changes = title == "Where a change goes" || below_changes && is_section;
            // The tables before the first section are rules.
            of_changes = below_changes && is_section;
        }
        is_modules |= text.starts_with("| module ");
        let Some(row) = text.strip_prefix("| ") else { continue };
        let first = row.split(" | ").nth(1).unwrap_or_default();
        if of_changes && first != "first" && !first.starts_with('`') {
            gone.push(format!("ARCHITECTURE.md:{line}: the row does not name its first file"));
        }
        let column = if is_modules { row.split(" | ").next().unwrap_or(row) } else { row };
        for name in column.split('`').skip(1).step_by(2).flat_map(expand) {
            let exists = if is_modules { is_module(heading, &name) } else { is_file(&name) };
            if !exists {
                gone.push(format!("ARCHITECTURE.md:{line}: {name}: no such file or module"));
            }
        }
    }
    gone
}

/// Returns the names that `name` stands for: `a/{b,c}` is `a/b` and `a/c`.
fn expand(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let (inside, after) = rest.split_once('}').expect("a brace that is closed");
    inside.split(',').map(|part| format!("{before}{}{after}", part.trim())).collect()
}

/// Whether `name` is a path of the project, a pattern with a part in capitals, or no path of the
/// project. A path that begins with `/` is of the machine, which need not have it.
fn is_file(name: &str) -> bool {
    let is_path = !name.starts_with('/')
        && (name.ends_with(".rs") || name.contains('/') && !name.contains(' '));
    let is_pattern =
        name.split(['/', '.']).any(|part| part.len() > 1 && part == part.to_uppercase());
    !is_path || is_pattern || exists(name)
}

/// Whether `module` is in the crate of the heading, or in the crate that its first part names.
fn is_module(heading: &str, module: &str) -> bool {
    let path = module.replace("::", "/");
    let (first, rest) = path.split_once('/').unwrap_or((&path, ""));
    let places = [format!("{heading}/src/{path}"), format!("{first}/src/{rest}")];
    places.iter().any(|place| exists(place) || exists(&format!("{place}.rs")))
}

fn exists(path: &str) -> bool {
    BASES.iter().any(|base| Path::new(PROJECT).join(base).join(path).exists())
}
