//! Asks a system's program for its version.

use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the output of `PATH --version` in the system whose root is `root`, or `None` when
/// the program cannot be executed there or fails.
pub fn ask(root: &Path, path: &Path) -> Option<String> {
    let mut command = if root == Path::new("/") {
        Command::new(path)
    } else {
        let mut command = Command::new("chroot");
        command.arg(root).arg(path);
        command
    };
    let output =
        command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
