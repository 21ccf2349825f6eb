//! Test programs and the tests in them.

use crate::command;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Which tests are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// Tests that need neither root nor a disk.
    Quick,
}

/// The test programs, beside the unit tests, whose tests need neither root nor a disk.
const QUICK: [&str; 5] = [
    "synconce-bench::report",
    "synconce-bench::runner",
    "synconce-bench::statistics",
    "synconce-filter::program",
    "synconce-setup::trees",
];

/// The tests among them and among the unit tests that need root: they make device nodes, mounts,
/// or files of other owners.
const NEEDS_ROOT: [&str; 7] = [
    "synconce-durable replace::tests::the_mode_is_what_was_said_or_what_it_was",
    "synconce-prove::prove daemons::unflushed::tests::cuts_are_at_all_places_where_the_file_has_unflushed_writes_and_at_no_other",
    "synconce-prove::prove hold::cuts::tests::a_broken_promise_that_keeps_its_disk_in_use_is_a_finding_and_the_next_cut_is_made",
    "synconce-prove::prove tree::fixture::tests::edits_differ_from_each_other_and_can_follow_each_other",
    "synconce-prove::prove tree::walk::alter::tests::equal_seeds_give_equal_trees_and_other_seeds_other_trees",
    "synconce-tree layer::tests::a_verify_on_a_disk_that_hangs_gives_up",
    "synconce-sys overlay::tests::layers_in_one_value_are_mounted_and_too_many_are_refused",
];

/// The tests that take longest start first, so that none of them runs alone at the end.
const LONGEST: [&str; 16] = [
    "synconce::documents commands::docs/trees.md",
    "synconce::documents commands::README.md",
    "synconce::documents commands::docs/build-tools.md",
    "synconce::tree base_unchanged::by_large_changes_on_btrfs",
    "synconce::setup mended::an_install_that_lost_its_files_is_mended_by_the_command_that_status_prints",
    "synconce::programs benchmark::all_engines_put_and_those_that_are_held_hardly_flush",
    "synconce::tree base_unchanged::by_large_changes_on_xfs",
    "synconce::tree programs::apt::on_btrfs",
    "synconce::tree base_unchanged::by_no_way_to_write_on_btrfs",
    "synconce::setup apt::a_kill_at_any_call_leaves_programs_that_work_and_the_next_set_up_or_undo_goes_on",
    "synconce::tree base_unchanged::by_large_changes_on_ext4",
    "synconce::tree programs::apt::on_xfs",
    "synconce::tree programs::apt::on_ext4",
    "synconce::tree base_unchanged::by_no_way_to_write_on_xfs",
    "synconce::doctor writes::writes_have_the_size_place_and_depth_of_those_of_fio",
    "synconce-fs::trees shapes::a_directory_of_two_hundred_thousand_entries_is_copied_compared_and_removed",
];

/// A test program that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestProgram {
    /// Whether these are the unit tests of a crate. They are short, and run last.
    pub is_unit: bool,
    /// `synconce-fs::trees`; the name of the crate alone for its unit tests.
    pub name: String,
    pub path: PathBuf,
    /// The directory of the crate, in which cargo runs its tests.
    pub directory: PathBuf,
}

/// A test.
#[derive(Clone, Debug)]
pub(crate) struct Test<'a> {
    pub program: &'a TestProgram,
    pub name: String,
}

impl Test<'_> {
    /// Whether the test, of a quick program, needs root or a disk all the same.
    pub(crate) fn needs_root(&self) -> bool {
        NEEDS_ROOT.contains(&self.id().as_str())
    }

    /// Returns the place of the test among those that start first; nothing if it is not there.
    pub(crate) fn place_among_longest(&self) -> Option<usize> {
        let id = self.id();
        LONGEST.iter().position(|name| *name == id)
    }

    /// Returns the names of the program and of the test.
    pub(crate) fn id(&self) -> String {
        format!("{} {}", self.program.name, self.name)
    }
}

/// Builds all programs and tests. Returns the test programs that could be built, and what cargo
/// says if one could not.
pub(crate) fn build() -> (Vec<TestProgram>, Option<String>) {
    eprintln!("== build");
    let mut cargo = command::new("cargo");
    cargo.args([
        "build",
        "--locked",
        "--workspace",
        "--bins",
        "--tests",
        "--examples",
        "--keep-going",
    ]);
    cargo.args(["--message-format", "json-render-diagnostics"]).env("CARGO_TERM_COLOR", "never");
    let output = match cargo.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return (Vec::new(), Some(format!("cannot run cargo: {error}"))),
    };
    let diagnostics = String::from_utf8_lossy(&output.stderr).into_owned();
    eprint!("{diagnostics}");
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut programs: Vec<_> = messages.lines().filter_map(program).collect();
    programs.sort();
    let failure = || match diagnostics.find("error") {
        Some(start) => diagnostics[start..].to_owned(),
        None => diagnostics,
    };
    (programs, (!output.status.success()).then(failure))
}

/// Returns the names above that no program and no test has, for instance after a rename.
pub(crate) fn unknown_names(programs: &[TestProgram]) -> Option<String> {
    unknown(programs, &QUICK, &[("NEEDS_ROOT", &NEEDS_ROOT), ("LONGEST", &LONGEST)])
}

fn unknown(programs: &[TestProgram], quick: &[&str], tests: &[(&str, &[&str])]) -> Option<String> {
    let find = |name: &str| programs.iter().find(|program| program.name == name);
    let is_test = |id: &str| {
        let (program, test) = id.split_once(' ')?;
        let (names, _) = find(program)?.list(&[]).ok()?;
        names.iter().any(|name| name == test).then_some(())
    };
    let in_lists = tests.iter().flat_map(|(list, ids)| ids.iter().map(move |id| (list, id)));
    let quick = quick.iter().filter(|name| find(name).is_none());
    let tests = in_lists.filter(|(_, id)| is_test(id).is_none());
    let lines: String = quick
        .map(|name| format!("QUICK: there is no test program {name}\n"))
        .chain(tests.map(|(list, id)| format!("{list}: there is no test {id}\n")))
        .collect();
    (!lines.is_empty()).then_some(lines)
}

/// Returns the test program that cargo's message names.
fn program(message: &str) -> Option<TestProgram> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let (target, kind) =
        (message["target"]["name"].as_str()?, message["target"]["kind"][0].as_str()?);
    // path+file:///project/crates/fs#synconce-fs@0.1.0, or without the name where the
    // directory has the same.
    let id = message["package_id"].as_str()?;
    let package = id.rsplit_once('#')?.1.split('@').next()?;
    let package = if package.starts_with(|first: char| first.is_ascii_digit()) {
        directory.file_name()?.to_str()?
    } else {
        package
    };
    let is_unit = kind != "test";
    let name = if kind == "lib" { package.to_owned() } else { format!("{package}::{target}") };
    Some(TestProgram { is_unit, name, path, directory })
}

impl TestProgram {
    /// Returns the test program `path` of the crate in `directory`.
    #[cfg(test)]
    pub(crate) fn new(name: &str, path: PathBuf, directory: PathBuf) -> Self {
        Self { is_unit: true, name: name.to_owned(), path, directory }
    }

    /// Whether its tests need neither root nor a disk, but for [`NEEDS_ROOT`].
    pub(crate) fn is_quick(&self) -> bool {
        self.is_unit || QUICK.contains(&self.name.as_str())
    }

    /// Returns a command for the program, as cargo runs it.
    pub(crate) fn command(&self) -> Command {
        // A Ctrl-C ends the gate, but not the process group of a test; setpriv(1) ends that.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&self.path).current_dir(&self.directory);
        command.env("CARGO_MANIFEST_DIR", &self.directory);
        // Otherwise each test lets cargo build the rig, with other features, beside all others.
        let gate = std::env::current_exe().expect("the name of this program");
        command.env("SYNCONCE_RIG_BIN", gate.with_file_name("rig"));
        command
    }

    /// Returns the names of its tests, and of those that cannot run here.
    ///
    /// # Errors
    /// The program fails, with what it printed.
    pub(crate) fn tests(&self) -> Result<(Vec<String>, Vec<String>), String> {
        let (all, _) = self.list(&[])?;
        let (skipped, reasons) = self.list(&["--ignored"])?;
        if !skipped.is_empty() {
            eprint!("{reasons}");
        }
        Ok((all.into_iter().filter(|name| !skipped.contains(name)).collect(), skipped))
    }

    fn list(&self, words: &[&str]) -> Result<(Vec<String>, String), String> {
        let mut command = self.command();
        command.args(["--list", "--format", "terse"]).args(words).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("cannot run it: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(said);
        }
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = lines.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok((names.map(str::to_owned).collect(), said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_by_their_crate_and_units_come_last() {
        let message = |id: &str, target: &str, kind: &str, is_test: bool| {
            let value = serde_json::json!({
                "reason": "compiler-artifact", "package_id": id,
                "manifest_path": "/project/crates/fs/Cargo.toml",
                "target": {"name": target, "kind": [kind]},
                "profile": {"test": is_test}, "executable": "/target/deps/program",
            });
            program(&value.to_string())
        };
        let named = "path+file:///project/crates/fs#synconce-fs@0.1.0";
        let unit = message(named, "synconce_fs", "lib", true).unwrap();
        let tests = message(named, "trees", "test", true).unwrap();
        assert_eq!((&*unit.name, &*tests.name), ("synconce-fs", "synconce-fs::trees"));
        assert!(tests < unit);
        assert_eq!(tests.directory, PathBuf::from("/project/crates/fs"));
        let unnamed = message("path+file:///project/xtask#0.1.0", "xtask", "bin", true).unwrap();
        assert_eq!(unnamed.name, "fs::xtask");
        assert_eq!(message(named, "synconce_fs", "lib", false), None);
        assert_eq!(program("not JSON"), None);
    }

    #[test]
    fn a_name_of_the_lists_that_nothing_has_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        std::fs::write(&path, "#!/bin/sh\necho 'a::test: test'\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, executable).unwrap();
        let programs = [TestProgram::new("made", path, directory.path().to_owned())];
        assert_eq!(unknown(&programs, &["made"], &[("LIST", &["made a::test"])]), None);
        let said =
            unknown(&programs, &["made", "other"], &[("LIST", &["made a::tes", "other a::test"])]);
        let lines = "QUICK: there is no test program other\n\
                     LIST: there is no test made a::tes\n\
                     LIST: there is no test other a::test\n";
        assert_eq!(said.as_deref(), Some(lines));
    }
}
