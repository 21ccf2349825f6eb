//! Manual pages and completions, generated from the definition of the arguments; and the chart of
//! README.md.

mod chart;
mod completions;
mod manual;

use clap::Command;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};
use synconce::arguments::definition;

/// Writes the generated files below `docs/`.
pub fn write() -> Result<String, Box<dyn Error>> {
    let files = make_below(&docs())?;
    for page in pages_without_command(&docs(), &files)? {
        fs::remove_file(page)?;
    }
    Ok(format!("{} files written", files.len()))
}

/// Compares the committed files with newly generated ones.
pub fn check() -> Result<String, Box<dyn Error>> {
    let fresh = env::temp_dir().join(format!("synconce-generate-{}", std::process::id()));
    let files = make_below(&fresh);
    let result = files.map_err(Into::into).and_then(|files| compare(&fresh, &files));
    fs::remove_dir_all(&fresh)?;
    result
}

fn compare(fresh: &Path, files: &[PathBuf]) -> Result<String, Box<dyn Error>> {
    let mut expected = Vec::new();
    for file in files {
        let committed = docs().join(file.strip_prefix(fresh)?);
        if fs::read(file)? != fs::read(&committed).unwrap_or_default() {
            let name = committed.display();
            return Err(format!("{name} is not up to date: cargo xtask generate").into());
        }
        expected.push(committed);
    }
    if let Some(page) = pages_without_command(&docs(), &expected)?.first() {
        return Err(
            format!("no command has the page {}: cargo xtask generate", page.display()).into()
        );
    }
    Ok(format!("{} generated files are up to date", files.len()))
}

/// Returns the manual pages below `root` that are not among `files`.
fn pages_without_command(root: &Path, files: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let pages = fs::read_dir(root.join("man"))?.map(|entry| entry.map(|entry| entry.path()));
    let pages = pages.collect::<io::Result<Vec<_>>>()?;
    Ok(pages.into_iter().filter(|page| !files.contains(page)).collect())
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs")
}

fn make_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let pages = root.join("man");
    fs::create_dir_all(&pages)?;
    let command = definition();
    pages_below(&command, "synconce", &pages, &mut files)?;
    let completions = root.join("completions");
    fs::create_dir_all(&completions)?;
    for (name, text) in completions::scripts()? {
        files.push(completions.join(name));
        fs::write(completions.join(name), text)?;
    }
    let figures = root.join("figures");
    fs::create_dir_all(&figures)?;
    for (name, text) in chart::themes(&fs::read(docs().join("figures/install.json"))?)? {
        files.push(figures.join(name));
        fs::write(figures.join(name), text)?;
    }
    Ok(files)
}

fn pages_below(
    command: &Command,
    name: &str,
    root: &Path,
    files: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let path = root.join(format!("{name}.1"));
    fs::write(&path, manual::page(command, name)?)?;
    files.push(path);
    for inner in pages_of(command) {
        pages_below(inner, &format!("{name}-{}", inner.get_name()), root, files)?;
    }
    Ok(())
}

/// Returns the subcommands that have pages. `help` and `version` need none.
fn pages_of(command: &Command) -> impl Iterator<Item = &Command> {
    let has_page =
        |inner: &&Command| !inner.is_hide_set() && !matches!(inner.get_name(), "help" | "version");
    command.get_subcommands().filter(has_page)
}
