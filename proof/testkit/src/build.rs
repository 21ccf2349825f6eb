//! Finds programs of the build that made this test.

use std::path::PathBuf;

/// Returns `target/[TRIPLE/]debug` for a test in `target/[TRIPLE/]debug/deps`.
fn profile() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let directory = program.parent()?;
    let is_inner = directory.ends_with("deps") || directory.ends_with("examples");
    Some(if is_inner { directory.parent()? } else { directory }.to_owned())
}

/// Returns where cargo puts the program `name`; it may not be built.
pub(crate) fn path_of(name: &str) -> Option<PathBuf> {
    Some(profile()?.join(name))
}

/// Returns the program `name` if it is built. cargo builds the programs of a crate before its
/// tests, but tells their paths to no other crate.
pub fn program(name: &str) -> Option<PathBuf> {
    path_of(name).filter(|path| path.is_file())
}

/// Returns `target/[TRIPLE/]tmp`, which cargo reserves for tests.
pub(crate) fn temporary() -> Option<PathBuf> {
    Some(profile()?.parent()?.join("tmp"))
}
