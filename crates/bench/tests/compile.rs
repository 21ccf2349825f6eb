//! The compile scenario with trivial builds, under a program that takes the arguments of
//! `synconce run` and executes the command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use synconce_bench::compile::{CompileOptions, measure};
use synconce_bench::report::BenchReport;
use synconce_bench::runner::WarmUp;
use synconce_bench::{Common, Error};

const STAND_IN: &str = "#!/bin/sh\nwhile [ $# -gt 0 ] && [ \"$1\" != -- ]; do shift; done\nshift\n\
                        export UNDER=synconce\nexec \"$@\"\n";

/// A source tree, a work directory, and the stand-in for synconce.
struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        // The scenario rejects a directory in memory, which /tmp is on some machines.
        let dir =
            tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory can be made");
        let fixture = Self { dir };
        for name in ["source", "work"] {
            fs::create_dir(fixture.path(name)).expect("a directory can be made");
        }
        fs::write(fixture.path("source/input"), "text").expect("a file can be written");
        fs::write(fixture.path("synconce"), STAND_IN).expect("a file can be written");
        fs::set_permissions(fixture.path("synconce"), fs::Permissions::from_mode(0o755))
            .expect("the mode can be changed");
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn options(&self, command: &str) -> CompileOptions {
        CompileOptions {
            common: Common::new(self.path("work"), 1, WarmUp::Baselines),
            source: self.path("source"),
            jobs: 2,
            command: command.to_owned(),
            prepare: None,
        }
    }

    fn measure(&self, options: &CompileOptions) -> Result<BenchReport, Error> {
        let result = measure(options, &self.path("synconce"));
        assert_eq!(entries(&self.path("work")), [""; 0], "something was left behind");
        result
    }

    fn refuse(&self, options: &CompileOptions) -> String {
        let error = self.measure(options).expect_err("it is refused");
        if let Error::Variant { failure, .. } | Error::Helper { failure, .. } = &error {
            let logs = failure.log.parent().expect("logs are in a directory");
            fs::remove_dir_all(logs).expect("the logs were kept");
        }
        error.to_string()
    }
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("the directory is there");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(|entry| name(entry.expect("it can be listed"))).collect()
}

#[test]
fn every_variant_builds_a_fresh_copy_and_the_source_stays_as_it_was() {
    let fixture = Fixture::new();
    let seen = fixture.path("seen");
    let line = format!("ls | xargs echo $UNDER >> {}; cp input output", seen.display());
    let report = fixture.measure(&fixture.options(&line)).expect("it is built");
    let names: Vec<&str> =
        report.results.iter().map(|result| result.measured.variant.name.as_str()).collect();
    assert_eq!(names, ["bare", "supervised-no-commit", "supervised", "sealed-no-commit"]);
    let mut seen: Vec<String> =
        fs::read_to_string(seen).expect("the builds wrote it").lines().map(str::to_owned).collect();
    seen.sort();
    let held = "synconce input";
    assert_eq!(seen, ["input", "input", held, held, held], "bare is warmed up once");
    assert_eq!(entries(&fixture.path("source")), ["input"]);
    let compared = report.findings.iter().filter_map(|finding| finding.variant.as_deref());
    assert_eq!(compared.collect::<Vec<_>>(), names[1..]);
}

#[test]
fn a_tree_is_prepared_once_at_the_path_at_which_it_is_built() {
    let fixture = Fixture::new();
    let count = fixture.path("count");
    let options = CompileOptions {
        prepare: Some(format!("pwd > where; echo {{jobs}} >> {}", count.display())),
        jobs: 7,
        ..fixture.options("test \"$(cat where)\" = \"$(pwd)\" && test {jobs} = 7 && touch built")
    };
    let report = fixture.measure(&options).expect("it is built where it was prepared");
    assert!(report.about.contains("test 7 = 7"), "{}", report.about);
    assert_eq!(fs::read_to_string(count).expect("it was prepared"), "7\n");
}

#[test]
fn a_source_that_is_absent_or_no_tree_or_around_the_copies_is_refused() {
    let fixture = Fixture::new();
    let mut options = fixture.options("true");
    options.source = fixture.path("absent");
    let expected = format!("cannot open the source tree {}: No such", options.source.display());
    let text = fixture.refuse(&options);
    assert!(text.starts_with(&expected), "{text}");
    options.source = fixture.path("source/input");
    assert!(fixture.refuse(&options).ends_with("source/input: it is not a directory"));
    options.source = fixture.dir.path().to_path_buf();
    let text = fixture.refuse(&options);
    assert!(text.ends_with("work/synconce-bench, are inside each other"), "{text}");
}

#[test]
fn a_program_that_is_not_installed_is_named_before_anything_is_copied() {
    let fixture = Fixture::new();
    let text = fixture.refuse(&fixture.options("no-such-make -j{jobs}"));
    assert_eq!(text, "cannot use the command `no-such-make -j2`: no-such-make is not installed");
}

#[test]
fn a_build_that_fails_is_named_with_its_command_and_the_end_of_its_output() {
    let fixture = Fixture::new();
    let text = fixture.refuse(&fixture.options("echo main.c:1: no such thing >&2; exit 2"));
    let start = "variant bare failed in warm-up: sh -c \"echo main.c:1";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains("(exit status: 2); its output is in "), "{text}");
    assert!(text.ends_with("\n  main.c:1: no such thing"), "{text}");
}

#[test]
fn a_failed_preparation_is_not_reported_as_a_failed_build() {
    let fixture = Fixture::new();
    let options = CompileOptions {
        prepare: Some("echo no compiler; false".to_owned()),
        ..fixture.options("true")
    };
    let text = fixture.refuse(&options);
    assert!(text.starts_with("cannot prepare the tree: sh -c \"echo no compiler"), "{text}");
    assert!(text.ends_with("\n  no compiler"), "{text}");
}

#[test]
fn a_tree_that_is_built_already_is_not_measured() {
    let fixture = Fixture::new();
    let text = fixture.refuse(&fixture.options("cat input"));
    assert!(text.contains("yet nothing in the tree has changed"), "{text}");
}

#[test]
fn a_server_that_a_build_started_is_ended_with_its_iteration() {
    let fixture = Fixture::new();
    let pids = fixture.path("pids");
    let line = format!("touch built; setsid sleep 1000 & echo $! >> {}", pids.display());
    fixture.measure(&fixture.options(&line)).expect("it is built");
    let pids = fs::read_to_string(pids).expect("the builds wrote it");
    assert_eq!(pids.lines().count(), 5);
    for pid in pids.lines() {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "alive: {stat}");
    }
}
