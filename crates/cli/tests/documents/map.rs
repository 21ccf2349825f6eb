//! The files and modules that ARCHITECTURE.md names.

use crate::PROJECT;
use crate::markdown::Document;
use crate::messages::sources;
use std::collections::HashSet;
use std::path::Path;

/// Where the paths of the map begin.
const BASES: [&str; 3] = ["", "crates", "proof"];

/// Modules and folders that need no line: roots of crates, tests and fuzzing.
const WITHOUT_LINE: [&str; 4] = ["lib", "main", "tests", "fuzz"];

/// A row of a table of the map.
struct Row<'a> {
    line: usize,
    /// The heading above the table: the crate of a table of modules.
    heading: &'a str,
    table: Table,
    cells: Vec<&'a str>,
}

#[derive(Clone, Copy, PartialEq)]
enum Table {
    Modules,
    Changes,
    Other,
}

impl Row<'_> {
    /// Returns the files or modules that the row names.
    fn names(&self) -> Vec<String> {
        let cells = if self.table == Table::Modules { &self.cells[..1] } else { &self.cells };
        cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2).flat_map(expand)).collect()
    }
}

fn rows(map: &Document) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let (mut heading, mut below_changes, mut table) = ("", false, Table::Other);
    for (line, text) in &map.prose {
        if text.starts_with('#') {
            heading = text.trim_start_matches('#').trim_start();
            let is_section = text.starts_with("###");
            below_changes = heading == "Where a change goes" || below_changes && is_section;
            // The tables before the first section are rules.
            table = if below_changes && is_section { Table::Changes } else { Table::Other };
        }
        if text.starts_with("| module ") {
            table = Table::Modules;
        } else if let Some(row) = text.strip_prefix("| ") {
            rows.push(Row { line: *line, heading, table, cells: row.split(" | ").collect() });
        }
    }
    rows
}

/// Returns the files and modules that the tables of the map name, and that do not exist; and the
/// changes without a first file.
pub fn gone() -> Vec<String> {
    let map = Document::read("ARCHITECTURE.md");
    let mut gone = Vec::new();
    for row in rows(&map) {
        let line = row.line;
        let first = row.cells.get(1).copied().unwrap_or_default();
        if row.table == Table::Changes && first != "first" && !first.starts_with('`') {
            gone.push(format!("ARCHITECTURE.md:{line}: the row does not name its first file"));
        }
        let of_modules = row.table == Table::Modules;
        for name in row.names() {
            let exists = if of_modules { is_module(row.heading, &name) } else { is_file(&name) };
            if !exists {
                gone.push(format!("ARCHITECTURE.md:{line}: {name}: no such file or module"));
            }
        }
    }
    gone
}

/// Returns the modules that no table of modules names.
pub fn unnamed() -> Vec<String> {
    let map = Document::read("ARCHITECTURE.md");
    let rows = rows(&map);
    let of_modules = rows.iter().filter(|row| row.table == Table::Modules);
    let named: HashSet<_> = of_modules
        .flat_map(|row| row.names().into_iter().map(|name| path_of(row.heading, &name)))
        .collect();
    let is_named = |path: &str| {
        let mut parts: Vec<_> = path.split('/').collect();
        if let [.., folder, _] = &mut parts[..] {
            *folder = "X";
        }
        let pattern = parts.join("/");
        // A folder whose modules are named needs no line.
        let below = format!("{path}/");
        named.contains(path)
            || named.contains(&pattern)
            || named.iter().any(|name| name.starts_with(&below))
    };
    let needs_line = |path: &str| !path.split('/').any(|part| WITHOUT_LINE.contains(&part));
    let mut unnamed = Vec::new();
    for base in BASES.map(|base| Path::new(PROJECT).join(base)) {
        let modules = sources(&base).into_iter().filter_map(|path| {
            Some(path.strip_prefix(&base).ok()?.to_str()?.strip_suffix(".rs")?.to_owned())
        });
        unnamed.extend(modules.filter(|path| needs_line(path) && !is_named(path)));
    }
    let said = |path| format!("{path}.rs: no table of modules in ARCHITECTURE.md names it");
    unnamed.into_iter().map(said).collect()
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

/// Whether `module` is in the crate of the heading, or in the crate that its first part names; or
/// is a pattern, whose `X` stands for several modules.
fn is_module(heading: &str, module: &str) -> bool {
    let path = path_of(heading, module);
    module.starts_with("X::") || exists(&path) || exists(&format!("{path}.rs"))
}

/// Returns the path of `module` in the crate of the heading, or else in the crate that its first
/// part names, below one of [`BASES`] and without the ending.
fn path_of(heading: &str, module: &str) -> String {
    let path = module.replace("::", "/");
    let (first, rest) = path.split_once('/').unwrap_or((&path, ""));
    if exists(&format!("{heading}/src")) {
        format!("{heading}/src/{path}")
    } else {
        format!("{first}/src/{rest}")
    }
}

fn exists(path: &str) -> bool {
    BASES.iter().any(|base| Path::new(PROJECT).join(base).join(path).exists())
}
