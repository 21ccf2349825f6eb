//! `cargo xtask fuzz`: runs one target for a while under libFuzzer, on stable Rust.
//!
//! New inputs stay in the build directory until `--keep` adds the smallest set with the same
//! coverage to `proof/fuzz/corpora`.

use serde_json::Value;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

type FuzzOutcome = Result<String, Box<dyn Error>>;

/// A fuzzing target: a call of `synconce_fuzz::target` or `values` in a test.
struct FuzzTarget {
    name: String,
    /// The test's name, without its modules.
    test: String,
    /// The arguments of cargo that select the test's program.
    place: Vec<String>,
}

/// Returns the targets, found by their calls in the sources.
fn targets() -> Result<Vec<FuzzTarget>, Box<dyn Error>> {
    let words = ["grep", "--line-number", "--extended-regexp", CALL, "--", "crates", "proof"];
    let found = Command::new("git").args(words).current_dir(root()).output()?;
    let text = String::from_utf8(found.stdout)?;
    let targets: Option<_> = text.lines().map(FuzzTarget::at).collect();
    targets.ok_or_else(|| format!("cannot read the targets in: {text}").into())
}

const CALL: &str = r#"synconce_fuzz::(target|values)\(""#;

impl FuzzTarget {
    /// Returns the target at a place `FILE:LINE:CALL`, where FILE is `crates/NAME/src/...`,
    /// `crates/NAME/tests/TEST.rs` or `crates/NAME/tests/TEST/...`.
    fn at(place: &str) -> Option<Self> {
        let [file, line, call] = place.splitn(3, ':').collect::<Vec<_>>().try_into().ok()?;
        let source = fs::read_to_string(root().join(file)).ok()?;
        let before = source.lines().take(line.parse().ok()?);
        let function = before.filter_map(|line| line.trim_start().strip_prefix("fn ")).last()?;
        let parts: Vec<&str> = file.split('/').collect();
        let mut place = vec![format!("--package=synconce-{}", parts.get(1)?)];
        place.push(match *parts.get(2)? {
            "src" => "--lib".to_owned(),
            _ => format!("--test={}", parts.get(3)?.trim_end_matches(".rs")),
        });
        let name = call.split('"').nth(1)?.to_owned();
        Some(Self { name, test: function.split('(').next()?.to_owned(), place })
    }
}

/// The compiler flags that libFuzzer needs: its cfg and the coverage counters. Without a
/// sanitizer none of them requires a nightly compiler.
const FLAGS: [&str; 8] = [
    "--cfg=fuzzing",
    "--cfg=fuzzing_libfuzzer",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // At low addresses, which fit a 32-bit caller's registers. Not static: libFuzzer finds the
    // functions that it intercepts by dlsym(3).
    "-Crelocation-model=static",
];

/// Keeps the smallest set of inputs that reaches all code; with hit counts the set would have
/// hundreds.
const MERGE: &[&str] = &["-set_cover_merge=1", "-use_counters=0", "-verbosity=0"];

/// Fuzzes the target that `words` name, for the seconds that `words` state.
pub fn fuzz(words: &[&str]) -> FuzzOutcome {
    let (keep, words): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| **word == "--keep");
    let (name, seconds) = match words[..] {
        [name] => (name, "60"),
        [name, seconds] => (name, seconds),
        _ => return Err(usage().into()),
    };
    let seconds: u32 = seconds.parse().map_err(|_| usage())?;
    let targets = targets()?;
    let target = targets.iter().find(|target| target.name == name).ok_or_else(usage)?;
    let (program, test) = build(target)?;
    let places = InputDirectories::new(name)?;
    let limits = ["-timeout=20", "-rss_limit_mb=1024", "-verbosity=0", "-print_final_stats=1"];
    let time = format!("-max_total_time={seconds}");
    places.run(&program, &test, &[&limits[..], &[&time]].concat())?;
    if keep.is_empty() {
        return Ok(format!("{name}: nothing found; --keep would add to its corpus"));
    }
    places.run(&program, &test, MERGE)?;
    Ok(format!("{name}: nothing found; {} inputs are kept", fs::read_dir(&places.corpus)?.count()))
}

fn usage() -> String {
    let names = targets().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(|target| target.name.as_str()).collect();
    format!("usage: cargo xtask fuzz TARGET [SECONDS] [--keep]\ntargets: {}", names.join(" "))
}

/// Builds the test of `target`; returns the program, and the test's name with its modules.
fn build(FuzzTarget { test, place, .. }: &FuzzTarget) -> Result<(PathBuf, String), Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--no-run", "--profile=fuzz", "--message-format=json"])
        .arg("--quiet")
        .args(place)
        .env("RUSTFLAGS", FLAGS.join(" "))
        .env("CARGO_TARGET_DIR", target_directory().join("fuzz"))
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err("the test does not build; libFuzzer needs g++".into());
    }
    let messages = String::from_utf8(output.stdout)?;
    let mut programs = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["profile"]["test"].as_bool() == Some(true);
        message["executable"].as_str().filter(|_| is_test).map(PathBuf::from)
    });
    let program = programs.next_back().ok_or("cargo built no test")?;
    // With a missing test the program would run nothing and report success.
    let list = Command::new(&program).args([test, "--list"]).output()?;
    let list = String::from_utf8(list.stdout)?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let mut exact = names.filter(|name| name.rsplit("::").next() == Some(test));
    match exact.next() {
        Some(name) => Ok((program, name.to_owned())),
        None => Err(format!("{} has no test {test}", program.display()).into()),
    }
}

fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("")
}

/// The directories of one target's inputs.
struct InputDirectories {
    /// The inputs in the repository.
    corpus: PathBuf,
    found: PathBuf,
    /// The inputs that the run adds.
    work: PathBuf,
}

impl InputDirectories {
    fn new(name: &str) -> std::io::Result<Self> {
        let kept = |kind: &str| root().join("proof/fuzz").join(kind).join(name);
        let work = target_directory().join("fuzz/inputs").join(name);
        let places = Self { corpus: kept("corpora"), found: kept("found"), work };
        fs::create_dir_all(&places.corpus)?;
        fs::create_dir_all(&places.work)?;
        Ok(places)
    }

    /// Runs libFuzzer with `options`: merges into the corpus for `MERGE`, otherwise adds to
    /// the work directory.
    fn run(&self, program: &Path, test: &str, options: &[&str]) -> Result<(), Box<dyn Error>> {
        let Self { corpus, found, work } = self;
        let (to, from) = if options == MERGE { (corpus, work) } else { (work, corpus) };
        let mut words = vec![to.display().to_string(), from.display().to_string()];
        words.extend(found.exists().then(|| found.display().to_string()));
        words.push(format!("-artifact_prefix={}/new-", work.with_file_name("").display()));
        words.extend(options.iter().map(|&option| option.to_owned()));
        let status = Command::new(program)
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env("BOLERO_LIBFUZZER_ARGS", words.join(" "))
            // For the processes that a merge starts.
            .envs([("BOLERO_LIBTEST_HARNESS", "1"), ("BOLERO_TEST_NAME", test)])
            .status()?;
        if status.success() {
            return Ok(());
        }
        let hint = "keep the input it wrote in";
        Err(format!("{test}: {status}; {hint} {}", found.display()).into())
    }
}
