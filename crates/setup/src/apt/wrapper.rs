//! The shell script in the place of a program.

use sha2::{Digest, Sha256};
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

/// The line that distinguishes an edited wrapper from one of another version begins so.
const DIGEST: &str = "# SHA-256 of the other lines: ";

/// Returns the wrapper of the program that is now at `real`.
pub(super) fn text(real: &Path, synconce: &str) -> String {
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    // apt starts dpkg by its path, and keeps in its history how apt itself was called, which is
    // mostly by name.
    let (words, argv0) = if name == "dpkg" { (DPKG, "$0") } else { (FRONTENDS, "${0##*/}") };
    let body = TEMPLATE
        .replace("@NAME@", &name)
        .replace("@REAL@", &real.display().to_string())
        .replace("@SYNCONCE@", synconce)
        .replace("@ARGV0@", argv0)
        .replace("@WORDS@", words);
    with_digest(&body)
}

/// Returns `body` with the line of its digest after its first two lines.
fn with_digest(body: &str) -> String {
    let rest = body.strip_prefix(&mark()).unwrap_or_default();
    format!("{}{DIGEST}{:x}\n{rest}", mark(), Sha256::digest(body))
}

/// Returns the first two lines of a wrapper of any version.
fn mark() -> String {
    TEMPLATE.split_inclusive('\n').take(2).collect()
}

/// Returns whether `content` is a wrapper, of whatever version of synconce.
pub(super) fn is_wrapper(content: &[u8]) -> bool {
    content.starts_with(mark().as_bytes())
}

/// Returns whether `content` is a wrapper of whatever version of synconce, without edits.
pub(super) fn is_unedited(content: &[u8]) -> bool {
    let Ok(found) = std::str::from_utf8(content) else { return false };
    let lines = found.split_inclusive('\n').filter(|line| !line.starts_with(DIGEST));
    found == with_digest(&lines.collect::<String>())
}

/// Returns the synconce that `content` calls, if it is the wrapper of this version without edits.
pub(super) fn synconce_of<'a>(content: &'a [u8], real: &Path) -> Option<&'a Path> {
    let found = std::str::from_utf8(content).ok()?;
    let named = found.lines().find_map(|line| line.strip_prefix(SYNCONCE))?;
    (found == text(real, named)).then_some(Path::new(named))
}
