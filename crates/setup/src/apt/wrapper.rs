//! The shell script in the place of a program.

use std::path::Path;

const TEMPLATE: &str = include_str!("wrapper.sh");
/// The line of the script that names synconce begins so.
const SYNCONCE: &str = "synconce_program=";

/// The words of dpkg that change packages, as patterns of a shell. Its short options can be
/// joined in one word.
const DPKG: &str = "\
		--install | --unpack | --configure | --remove | --purge | --triggers-only) return 0 ;;
		--*) ;;
		-*[irP]*) return 0 ;;";
/// The words of apt, apt-get, aptitude and tasksel that change packages.
const FRONTENDS: &str = "\
		install | reinstall | remove | purge | autoremove | auto-remove | autopurge) return 0 ;;
		upgrade | dist-upgrade | full-upgrade | safe-upgrade | dselect-upgrade) return 0 ;;
		build-dep | build-depends | satisfy | --new-install) return 0 ;;";

/// Returns the wrapper of the program that is now at `real`.
pub(super) fn text(real: &Path, synconce: &str) -> String {
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    // apt starts dpkg by its path, and keeps in its history how apt itself was called, which is
    // mostly by name.
    let (words, argv0) = if name == "dpkg" { (DPKG, "$0") } else { (FRONTENDS, "${0##*/}") };
    TEMPLATE
        .replace("@NAME@", &name)
        .replace("@REAL@", &real.display().to_string())
        .replace("@SYNCONCE@", synconce)
        .replace("@ARGV0@", argv0)
        .replace("@WORDS@", words)
}

/// Returns whether `content` is a wrapper, of whatever version of synconce.
pub(super) fn is_wrapper(content: &[u8]) -> bool {
    let mark = TEMPLATE.split_inclusive('\n').take(2).collect::<String>();
    content.starts_with(mark.as_bytes())
}

/// Returns the synconce that `content` calls, if it is the wrapper of this version without edits.
pub(super) fn unedited<'a>(content: &'a [u8], real: &Path) -> Option<&'a Path> {
    let found = std::str::from_utf8(content).ok()?;
    let named = found.lines().find_map(|line| line.strip_prefix(SYNCONCE))?;
    (found == text(real, named)).then_some(Path::new(named))
}
