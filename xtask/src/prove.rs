//! `cargo xtask prove`: builds the tool, its mutants and the rig, and runs `prove`.

use crate::metadata;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
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

/// The packages to build: all, as for the tests. Cargo unites the features of the packages that it
/// builds, so another selection would compile dependencies a second time.
const WORKSPACE: [&str; 4] = ["build", "--quiet", "--locked", "--workspace"];

/// Builds the mutants. The program goes to `mutated`, and its intermediate files go to `target`.
fn build_mutants(cargo: &OsStr, target: &Path, mutated: &Path) -> Result<(), String> {
    let mut mutants = Command::new(cargo);
    mutants.args(WORKSPACE).args(["--bin", "synconce", "--features", "synconce/mutants"]);
    // Cargo before 1.91 ignores the build directory, and compiles everything anew in `mutated`.
    mutants.arg("--target-dir").arg(mutated).env("CARGO_BUILD_BUILD_DIR", target);
    run(&mut mutants)
}

/// Runs `prove` with the arguments `words`; `--quick` stands for the arguments of CI. With
/// `--build` alone it only builds the mutants, and changes no program that a test executes.
pub fn prove(words: &[&str]) -> Result<String, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let mutated = target.join("mutants");
    if words == ["--build"] {
        return build_mutants(&cargo, &target, &mutated).map(|()| String::new());
    }
    run(Command::new(&cargo).args(WORKSPACE).arg("--bins"))?;
    build_mutants(&cargo, &target, &mutated)?;
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
