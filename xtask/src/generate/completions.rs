//! Completion scripts: they ask synconce for its own words, and leave the words of the command
//! of a run to the shell.

use clap_complete::env::{Bash, EnvCompleter, Zsh};
use std::io;
use synconce::completion::VARIABLE;

/// The name of each script, and its text.
pub fn scripts() -> io::Result<[(&'static str, String); 3]> {
    Ok([
        ("synconce.bash", registration(&Bash)? + &named(include_str!("synconce.bash"))),
        ("_synconce", zsh()?),
        ("synconce.fish", named(include_str!("synconce.fish"))),
    ])
}

/// Returns the functions of clap's engine; the registration at their end is superseded.
fn registration(shell: &dyn EnvCompleter) -> io::Result<String> {
    let mut text = Vec::new();
    shell.write_registration(VARIABLE, "synconce", "synconce", "synconce", &mut text)?;
    Ok(String::from_utf8_lossy(&text).trim_start().to_owned())
}

/// zsh takes the file as the body of `_synconce`.
fn zsh() -> io::Result<String> {
    Ok(registration(&Zsh)? + &named(include_str!("synconce.zsh")))
}

fn named(script: &str) -> String {
    script.replace("VARIABLE", VARIABLE)
}
