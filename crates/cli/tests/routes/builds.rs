//! The programs under test, built once for all tests.

use crate::support::limit;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use synconce_testkit::process;

/// How the C program is built.
#[derive(Clone, Copy, Debug)]
pub enum Build {
    /// glibc, shared.
    Dynamic,
    /// glibc, static.
    Static,
    /// For the 32-bit calls of the kernel: i386, or 32-bit Arm.
    Compat,
    /// musl, static.
    Musl,
}

impl Build {
    fn compiler(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Dynamic => ("gcc", &[]),
            Self::Static => ("gcc", &["-static"]),
            Self::Compat if cfg!(target_arch = "aarch64") => {
                ("arm-linux-gnueabihf-gcc", &["-static"])
            }
            Self::Compat => ("gcc", &["-m32"]),
            Self::Musl => ("musl-gcc", &["-static"]),
        }
    }
}

const FLAGS: [&str; 6] = [
    "-std=gnu11",
    "-O2",
    "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=2",
    "-D_FILE_OFFSET_BITS=64",
    "-pthread",
];

/// What to do where a program cannot be built. The test fails, because a test without its
/// program would test nothing.
const ADVICE: &str = "run `scripts/setup test`, which installs what the tests need";

/// Returns the program with all ways.
pub fn ways(build: Build) -> PathBuf {
    let sources = sources("ways", "c");
    built(&format!("ways-{build:?}"), &sources, |output| {
        let (compiler, options) = build.compiler();
        if let Err(why) = can_compile(compiler, options) {
            panic!("{compiler} cannot build a {build:?} program: {why}; {ADVICE}");
        }
        let mut command = Command::new(compiler);
        command.args(FLAGS).args(options);
        let code = sources.iter().filter(|path| path.extension().is_some_and(|e| e == "c"));
        command.arg("-o").arg(output).args(code);
        command
    })
}

/// Returns the shared program with all ways, as text.
pub fn dynamic() -> String {
    let program = ways(Build::Dynamic);
    program.into_os_string().into_string().expect("a path of ours is UTF-8")
}

/// Returns the Go program.
pub fn go() -> PathBuf {
    let sources = sources("go", "go");
    built("go-syncs", &sources, |output| {
        if let Err(why) = Command::new("go").arg("version").output() {
            panic!("there is no go: {why}; {ADVICE}");
        }
        let mut command = Command::new("go");
        command.args(["build", "-o"]).arg(output).args(&sources);
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache");
        let settings = [("GO111MODULE", "off"), ("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local")];
        command.envs(settings).env("GOCACHE", cache).env_remove("GOFLAGS");
        command
    })
}

/// `scripts/kernels` builds the programs by this test, for guests without a compiler. Takes long:
/// the other tests of this program wait for these builds, and Go compiles its standard library.
#[test]
fn every_program_can_be_built_here() {
    for build in [Build::Dynamic, Build::Static, Build::Compat, Build::Musl] {
        assert!(ways(build).exists(), "{build:?}");
    }
    assert!(go().exists());
}

fn sources(directory: &str, extension: &str) -> Vec<PathBuf> {
    // Read at run time, because several checkouts may share a build directory.
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let directory = Path::new(&package).join("tests/routes").join(directory);
    let entries = fs::read_dir(directory).expect("our sources").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == extension || e == "h"));
    paths.sort();
    paths
}

fn can_compile(compiler: &str, options: &[&str]) -> Result<(), String> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("probe-{}", nonce()));
    let mut command = Command::new("sh");
    let script = format!(
        "printf '#include <stdio.h>\\nint main(void) {{ return puts(\"\") < 0; }}' | \
         {compiler} {} -x c -o '{}' -",
        options.join(" "),
        program.display()
    );
    let compiled =
        process::run(command.args(["-c", &script]), limit()).map_err(|e| e.to_string())?;
    let _ = fs::remove_file(program);
    if compiled.status.success() {
        Ok(())
    } else {
        Err(compiled.stderr.lines().next().unwrap_or("it does not compile").to_owned())
    }
}

/// Returns the program `name`, rebuilt by `command` if the program is older than its sources.
/// A lock is held meanwhile, because each test is a process of its own.
fn built(name: &str, sources: &[PathBuf], command: impl FnOnce(&Path) -> Command) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = directory.join(name);
    let lock = File::create(directory.join(format!("{name}.lock"))).expect("a lock file");
    flock(&lock, FlockOperation::LockExclusive).expect("the lock");
    let newest = sources.iter().filter_map(|path| changed(path)).max();
    if changed(&program).is_some_and(|built| Some(built) > newest) {
        return program;
    }
    let fresh = directory.join(format!("{name}.new"));
    let compiled = process::run(&mut command(&fresh), limit()).unwrap();
    assert!(compiled.status.success(), "{name}: {}{}", compiled.stdout, compiled.stderr);
    fs::rename(fresh, &program).expect("the program in its place");
    program
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|meta| meta.modified()).ok()
}

fn nonce() -> u128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos())
}
