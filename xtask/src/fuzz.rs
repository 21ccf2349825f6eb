//! `cargo xtask fuzz`: runs one target for a while under libFuzzer, on stable Rust.
//!
//! New inputs stay in the build directory until `--keep` adds the smallest set with the same
//! coverage to `proof/fuzz/corpora`.

use serde_json::Value;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

type Outcome = Result<String, Box<dyn Error>>;

/// A target: its name, its test, and the arguments that build the test.
struct Target(&'static str, &'static str, &'static [&'static str]);

const DURABLE: &[&str] = &["--package", "synconce-durable", "--test", "fuzz"];
const FILTER: &[&str] = &["--package", "synconce-filter", "--test", "fuzz"];
const HOLD: &[&str] = &["--package", "synconce-hold", "--lib"];
const PROBE: &[&str] = &["--package", "synconce-probe", "--lib"];
const SETUP: &[&str] = &["--package", "synconce-setup", "--test", "trees"];
const TESTKIT: &[&str] = &["--package", "synconce-testkit", "--lib"];

#[rustfmt::skip]
const TARGETS: [Target; 21] = [
    Target("requests", "answers::fuzz::no_arguments_and_no_memory_of_a_caller_lead_to_a_wrong_decision", HOLD),
    Target("verdicts", "every_verdict_on_a_random_call_is_the_kernels_own_and_what_the_policy_says", FILTER),
    Target("programs", "a_random_program_that_the_kernel_takes_means_the_same_to_the_interpreter", FILTER),
    Target("record", "any_bytes_are_a_record_that_can_be_written_again_or_none", DURABLE),
    Target("pointer", "any_bytes_in_the_registry_are_a_pointer_to_an_absolute_path_or_counted_as_none", DURABLE),
    Target("runs", "every_name_of_a_marker_is_reported_whatever_has_it", DURABLE),
    Target("markers", "a_marker_is_read_as_it_was_written_whatever_its_paths_are", DURABLE),
    Target("runfile", "runfile::fuzz::a_file_that_no_run_wrote_is_passed_over_and_stays", HOLD),
    Target("runfiles", "runfile::fuzz::a_run_file_is_read_as_it_was_written", HOLD),
    Target("message", "protocol::fuzz::any_bytes_that_arrive_are_a_message_or_an_error", HOLD),
    Target("messages", "protocol::fuzz::every_message_arrives_as_it_was_sent", HOLD),
    Target("maps", "mapping::fuzz::any_bytes_of_a_maps_file_are_taken_or_left_out", HOLD),
    Target("mappings", "mapping::fuzz::every_maps_that_the_kernel_can_show_is_read_as_it_is", HOLD),
    Target("stat", "families::fuzz::any_bytes_of_a_stat_file_are_a_process_or_none", HOLD),
    Target("mountinfo", "mounts::fuzz::any_bytes_of_a_mountinfo_are_taken_or_left_out", PROBE),
    Target("mounts", "mounts::fuzz::every_mount_that_the_kernel_can_show_is_read_as_it_is", PROBE),
    Target("setup-bytes", "random::any_bytes_are_edited_and_undone_or_refused_and_left", SETUP),
    Target("setup-toml", "random::any_toml_is_edited_and_undone_or_refused_and_left", SETUP),
    Target("setup-json", "random::any_json_is_edited_and_undone_or_refused_and_left", SETUP),
    Target("log", "rig::log::fuzz::any_bytes_are_a_log_that_can_be_cut_anywhere_or_none", TESTKIT),
    Target("logs", "rig::log::fuzz::every_log_reads_as_it_was_recorded", TESTKIT),
];

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
    places.run(&program, target, MERGE)?;
    Ok(format!("{name}: nothing found; {} inputs are kept", fs::read_dir(&places.corpus)?.count()))
}

fn usage() -> String {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.0).collect();
    format!("usage: cargo xtask fuzz TARGET [SECONDS] [--keep]\ntargets: {}", names.join(" "))
}

/// Builds the test of `target` and returns the program.
fn build(Target(_, test, place): &Target) -> Result<PathBuf, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--no-run", "--profile=fuzz", "--message-format=json"])
        .arg("--quiet")
        .args(*place)
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
    let list = Command::new(&program).args(["--exact", test, "--list"]).output()?;
    // With a missing test the program would run nothing and report success.
    match String::from_utf8(list.stdout)?.contains(test) {
        true => Ok(program),
        false => Err(format!("{} has no test {test}", program.display()).into()),
    }
}

fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("")
}

/// The directories of one target's inputs.
struct Places {
    /// The inputs in the repository.
    corpus: PathBuf,
    found: PathBuf,
    /// The inputs that the run adds.
    work: PathBuf,
}

impl Places {
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
    fn run(&self, program: &Path, target: &Target, options: &[&str]) -> Result<(), Box<dyn Error>> {
        let Self { corpus, found, work } = self;
        let (to, from) = if options == MERGE { (corpus, work) } else { (work, corpus) };
        let mut words = vec![to.display().to_string(), from.display().to_string()];
        words.extend(found.exists().then(|| found.display().to_string()));
        words.push(format!("-artifact_prefix={}/new-", work.with_file_name("").display()));
        words.extend(options.iter().map(|&option| option.to_owned()));
        let status = Command::new(program)
            .args(["--exact", target.1, "--nocapture", "--test-threads=1"])
            .env("BOLERO_LIBFUZZER_ARGS", words.join(" "))
            // For the processes that a merge starts.
            .envs([("BOLERO_LIBTEST_HARNESS", "1"), ("BOLERO_TEST_NAME", target.1)])
            .status()?;
        if status.success() {
            return Ok(());
        }
        let hint = "keep the input it wrote in";
        Err(format!("{}: {status}; {hint} {}", target.0, found.display()).into())
    }
}
