//! `cargo xtask prove`: builds the tool, its mutants and the rig, and runs `prove`.

use crate::metadata;
use std::path::PathBuf;
use std::process::Command;

/// Arguments for CI, which limits the time.
const QUICK: [&str; 18] = [
    "--cuts",
    "24",
    "--mutant-cuts",
    "80",
    "--pairs",
    "300",
    "--triples",
    "300",
    "--programs",
    "40",
    "--tree-cuts",
    "6",
    "--hold-cuts",
    "6",
    "--kills",
    "10",
    "--seconds",
    "4",
];
/// Arguments before a release: more than 5,000 cuts of the promise.
const LONG: [&str; 14] = [
    "--cuts",
    "500",
    "--mutant-cuts",
    "400",
    "--programs",
    "400",
    "--tree-cuts",
    "200",
    "--hold-cuts",
    "100",
    "--kills",
    "200",
    "--seconds",
    "300",
];

/// The directories of what `prove` uses.
struct Built {
    target: PathBuf,
    mutated: PathBuf,
}

/// Builds what `prove` uses.
fn build() -> Result<Built, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let mutated = target.join("mutants");
    let workspace = ["build", "--quiet", "--locked", "--workspace"];
    // The selection of packages decides their features: all of them, as for the tests, so that
    // nothing is compiled twice.
    run(Command::new(&cargo).args(workspace).arg("--bins"))?;
    let mut mutants = Command::new(&cargo);
    mutants.args(workspace).args(["--bin", "synconce", "--features", "synconce/mutants"]);
    // Another place for the program alone; cargo before 1.91 compiles everything for it.
    mutants.arg("--target-dir").arg(&mutated).env("CARGO_BUILD_BUILD_DIR", &target);
    run(&mut mutants)?;
    Ok(Built { target, mutated })
}

/// Runs `prove` with the arguments `words`; `--quick` stands for the arguments of CI. `--build` alone
/// builds what `prove` uses.
pub fn prove(words: &[&str]) -> Result<String, String> {
    let Built { target, mutated } = build()?;
    if words == ["--build"] {
        return Ok(String::new());
    }
    let here = |target: &PathBuf, program: &str| {
        let path = target.join(metadata::platform()).join("debug").join(program);
        path.canonicalize().map_err(|error| format!("cannot find {}: {error}", path.display()))
    };
    let mut command = Command::new(here(&target, "prove")?);
    command.env("SYNCONCE_RIG_BIN", here(&target, "rig")?);
    command.arg("--synconce").arg(here(&target, "synconce")?);
    command.arg("--mutants").arg(here(&mutated, "synconce")?);
    let quick = words.contains(&"--quick");
    let has = |flag: &str| words.contains(&flag);
    let defaults: &[&str] = if quick { &QUICK } else { &LONG };
    if quick {
        command.arg("--decisive");
    }
    for pair in defaults.chunks_exact(2).filter(|pair| !has(pair[0])) {
        command.args(pair);
    }
    run(command.args(words.iter().filter(|word| **word != "--quick")))?;
    // `prove` has printed its own result.
    Ok(String::new())
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}
