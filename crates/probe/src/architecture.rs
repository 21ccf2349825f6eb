//! The architecture of this machine.

/// Returns the architecture of this machine, as images of containers name it.
pub fn architecture_of_images() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
