//! Programs in Go.

use std::path::Path;
use std::process::Command;

/// Returns a command that builds `program` from `main.go` in `directory`, with the packages that
/// Debian installs, without a network. `cache` keeps the compiled standard library.
pub fn build(directory: &Path, program: &str, cache: &Path) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(directory)
        .args(["build", "-o", program, "main.go"])
        .env("GO111MODULE", "off")
        .env("GOFLAGS", "")
        .env("GOTOOLCHAIN", "local")
        .env("GOPATH", "/usr/share/gocode")
        .env("GOCACHE", cache);
    command
}
