//! Runs the scenarios without the command line tool:
//! `bench install DIR SYNCONCE ROUNDS [PACKAGE...]`,
//! `bench compile SOURCE DIR SYNCONCE ROUNDS`, `bench cost DIR SYNCONCE ROUNDS`,
//! `bench loop KIND N [FILE]`.
//! Environment variables: JSON prints JSON, KEEP keeps the work directory, VARIANTS selects
//! variants, CACHE is the directory of the base.

use std::io::stdout;
use std::path::{Path, PathBuf};
use synconce_bench::{LoopKind, compile, cost, install, measure_loop};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&words) {
        eprintln!("bench: {error}");
        std::process::exit(1);
    }
}

fn run(words: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let json = std::env::var_os("JSON").is_some();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["install", dir, synconce, rounds, ref packages @ ..] => {
            let mut options = install::Options::new(dir);
            options.rounds = rounds.parse()?;
            if !packages.is_empty() {
                options.base.packages = packages.iter().map(|p| (*p).to_owned()).collect();
            }
            if let Ok(variants) = std::env::var("VARIANTS") {
                options.variants = variants.split(' ').map(str::to_owned).collect();
            }
            options.keep = std::env::var_os("KEEP").is_some();
            if let Some(cache) = std::env::var_os("CACHE") {
                options.base.cache = PathBuf::from(cache);
            }
            install(&options, Path::new(synconce), &mut stdout(), json)?;
        }
        ["compile", source, dir, synconce, rounds] => {
            let mut options = compile::Options::new(source, dir);
            options.rounds = rounds.parse()?;
            compile(&options, Path::new(synconce), &mut stdout(), json)?;
        }
        ["cost", dir, synconce, rounds] => {
            let mut options = cost::Options::new(dir);
            options.rounds = rounds.parse()?;
            cost(&options, Path::new(synconce), &mut stdout(), json)?;
        }
        ["loop", kind, count, ref file @ ..] => {
            let kind: LoopKind = kind.parse()?;
            let file = file.first().map(Path::new);
            println!("{:.2}", measure_loop(kind, count.parse()?, file)?);
        }
        _ => return Err("install DIR SYNCONCE ROUNDS [PACKAGE...] | compile SOURCE DIR SYNCONCE ROUNDS | cost DIR SYNCONCE ROUNDS | loop KIND N [FILE]".into()),
    }
    Ok(())
}
