//! Manual pages and completions, generated from the definition of the arguments.

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};
use synconce::arguments::Arguments;

/// Writes the generated files below `docs/`.
pub fn write() -> Result<String, Box<dyn Error>> {
    let files = make_below(&docs())?;
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
    for file in files {
        let committed = docs().join(file.strip_prefix(fresh)?);
        if fs::read(file)? != fs::read(&committed).unwrap_or_default() {
            let name = committed.display();
            return Err(
                format!("{name} is not what the arguments say: cargo xtask generate").into()
            );
        }
    }
    Ok(format!("{} generated files are up to date", files.len()))
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs")
}

fn make_below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let pages = root.join("man");
    fs::create_dir_all(&pages)?;
    let mut command = Arguments::command();
    command.build();
    manual(&command, "synconce", &pages, &mut files)?;
    let completions = root.join("completions");
    fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        files.push(generate_to(shell, &mut Arguments::command(), "synconce", &completions)?);
    }
    Ok(files)
}

fn manual(command: &Command, name: &str, root: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let path = root.join(format!("{name}.1"));
    // clap_mangen takes the page's name from the command.
    let page = command.clone().display_name(name.to_owned());
    let mut text = Vec::new();
    clap_mangen::Man::new(page).date("").render(&mut text)?;
    fs::write(&path, text)?;
    files.push(path);
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        manual(inner, &format!("{name}-{}", inner.get_name()), root, files)?;
    }
    Ok(())
}
