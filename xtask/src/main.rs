//! Tasks of the project: `cargo xtask generate`, `cargo xtask licences`, `cargo xtask prove`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

mod generate;
mod licences;
mod prove;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["generate"] => generate::write(),
        ["generate", "--check"] => generate::check(),
        ["licences"] => licences::check(),
        ["prove", words @ ..] => prove::prove(words).map_err(Into::into),
        _ => Err(
            "usage: cargo xtask generate [--check] | licences | prove [--quick] [OPTIONS OF prove]"
                .into(),
        ),
    };
    match result {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
