//! `cargo xtask fuzz`: one target for a while under libFuzzer, on stable Rust.
//!
//! Inputs that reach something new are kept in the build directory until
//! `--keep` adds the fewest that reach as much to `crates/fuzz/corpora`.

use serde_json::Value;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

type Outcome = Result<String, Box<dyn Error>>;

/// A target: its name, where its test is built, and the test.
struct Target(&'static str, [&'static str; 4], &'static str);

const PROBE: [&str; 4] = ["--package", "synconce-probe", "--lib", "--quiet"];

const TARGETS: [Target; 2] = [
    Target("mountinfo", PROBE, "mounts::fuzz::any_bytes_of_a_mountinfo_are_taken_or_left_out"),
    Target("mounts", PROBE, "mounts::fuzz::every_mount_that_the_kernel_can_show_is_read_as_it_is"),
];

/// What libFuzzer needs of the compiler: its cfg and the counters it reads.
/// Without a sanitizer none of it asks for a nightly one.
const FLAGS: [&str; 8] = [
    "--cfg=fuzzing",
    "--cfg=fuzzing_libfuzzer",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // At low addresses, which fit a 32-bit caller's registers. Not static: libFuzzer
    // finds the functions that it stands before by dlsym(3).
    "-Crelocation-model=static",
];

/// Fuzzes the target that `words` name, for the seconds they name.
pub fn fuzz(words: &[&str]) -> Outcome {
    let (keep, words): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| **word == "--keep");
    let (name, seconds) = match words[..] {
        [name] => (name, "60"),
        [name, seconds] => (name, seconds),
        _ => return Err(usage().into()),
    };
    let seconds: u32 = seconds.parse().map_err(|_| usage())?;
    let target = TARGETS.iter().find(|target| target.0 == name).ok_or_else(usage)?;
    let program = build(target)?;
    let places = Places::new(name)?;
    let limits = ["-timeout=20", "-rss_limit_mb=1024", "-verbosity=0", "-print_final_stats=1"];
    let time = format!("-max_total_time={seconds}");
    places.run(&program, target, &[&limits[..], &[&time]].concat())?;
    if keep.is_empty() {
        return Ok(format!("{name}: nothing found; --keep would add to its corpus"));
    }
    places.run(&program, target, &["-merge=1"])?;
    Ok(format!("{name}: nothing found; {} inputs are kept", fs::read_dir(&places.corpus)?.count()))
}

fn usage() -> String {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.0).collect();
    format!("usage: cargo xtask fuzz TARGET [SECONDS] [--keep]\ntargets: {}", names.join(" "))
}

/// Builds the test of `target`; its program.
fn build(Target(_, package, _): &Target) -> Result<PathBuf, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--no-run", "--profile=fuzz", "--message-format=json"])
        .args(package)
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
    programs.next_back().ok_or_else(|| "cargo built no test".into())
}

fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("")
}

/// Where the inputs of one target are.
struct Places {
    /// What is in the repository.
    corpus: PathBuf,
    found: PathBuf,
    /// What the run adds.
    work: PathBuf,
}

impl Places {
    fn new(name: &str) -> std::io::Result<Self> {
        let kept = |kind: &str| root().join("crates/fuzz").join(kind).join(name);
        let work = target_directory().join("fuzz/inputs").join(name);
        let places = Self { corpus: kept("corpora"), found: kept("found"), work };
        fs::create_dir_all(&places.corpus)?;
        fs::create_dir_all(&places.work)?;
        Ok(places)
    }

    /// Runs libFuzzer with `options`; merges into the corpus, or else adds to the work.
    fn run(&self, program: &Path, target: &Target, options: &[&str]) -> Result<(), Box<dyn Error>> {
        let Self { corpus, found, work } = self;
        let (to, from) =
            if options.contains(&"-merge=1") { (corpus, work) } else { (work, corpus) };
        let mut words = vec![to.display().to_string(), from.display().to_string()];
        words.extend(found.exists().then(|| found.display().to_string()));
        words.push(format!("-artifact_prefix={}/new-", work.with_file_name("").display()));
        words.extend(options.iter().map(|&option| option.to_owned()));
        let status = Command::new(program)
            .args(["--exact", target.2, "--nocapture", "--test-threads=1"])
            .env("BOLERO_LIBFUZZER_ARGS", words.join(" "))
            .status()?;
        if status.success() {
            return Ok(());
        }
        let hint = "keep the input it wrote in";
        Err(format!("{}: {status}; {hint} {}", target.0, found.display()).into())
    }
}
