//! Libraries that ld.so(8) loads into each program before all others.

use std::path::Path;
use synconce_durable::text::quote;

/// The file that names them for all programs, whatever their environment.
pub const PRELOAD_FILE: &str = "/etc/ld.so.preload";

/// Returns the libraries that `text` names: the text of [`PRELOAD_FILE`], which may have comments,
/// or that of `LD_PRELOAD`.
pub fn preloads(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let names = lines.flat_map(|line| line.split([' ', '\t', ':']));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns the name by which a library is known that drops the syncs of its program.
pub fn dropper(library: &str) -> Option<&'static str> {
    ["eatmydata", "nosync"].into_iter().find(|name| library.contains(name))
}

/// Returns the command that takes `library` out of [`PRELOAD_FILE`], whatever its directory and
/// version.
pub fn preload_removal(library: &str) -> String {
    let name = library.rsplit('/').next().unwrap_or(library);
    let name = name.split(".so").next().unwrap_or(name);
    let script = format!("s,[^:[:space:]]*{name}[^:[:space:]]*,,g");
    format!("sed -i {} {PRELOAD_FILE}", quote(Path::new(&script)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_drop_syncs_are_known_in_any_directory() {
        for (library, name) in [
            ("libeatmydata.so", Some("eatmydata")),
            ("/usr/$LIB/nosync/nosync.so", Some("nosync")),
            ("libfakeroot-sysv.so", None),
        ] {
            assert_eq!(dropper(library), name, "{library}");
        }
    }
}
