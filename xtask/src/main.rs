//! Tasks of the project: `cargo xtask generate`, `licences`, `sbom`, `provenance`, `prove` and
//! `fuzz`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

mod fuzz;
mod generate;
mod licences;
mod metadata;
mod prove;
mod provenance;
mod sbom;

const USAGE: &str = "\
usage: cargo xtask generate [--check]
       cargo xtask licences
       cargo xtask sbom [TARGET]
       cargo xtask provenance VERSION COMMIT SHA256SUMS PROGRAM...
       cargo xtask prove --build | [--quick] [OPTIONS OF prove]
       cargo xtask fuzz TARGET [SECONDS] [--keep]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["generate"] => generate::write(),
        ["generate", "--check"] => generate::check(),
        ["licences"] => licences::check(),
        ["sbom"] => sbom::make(&metadata::platform()),
        ["sbom", target] => sbom::make(target),
        ["provenance", version, commit, sums, programs @ ..] => {
            provenance::make(version, commit, sums, programs)
        }
        ["prove", words @ ..] => prove::prove(words).map_err(Into::into),
        ["fuzz", words @ ..] => fuzz::fuzz(words),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(said) => {
            if !said.is_empty() {
                println!("{said}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
