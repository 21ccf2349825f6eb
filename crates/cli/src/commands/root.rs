//! `--root DIR`: the system whose root is DIR.

use crate::text::shell;
use std::io::ErrorKind;
use std::path::Path;
use synconce_sys::reason;

/// Returns why `root` cannot be used, in lines for the terminal; `None` for a directory. If
/// `root` does not exist, the lines end with the result of `hint`, called with `root` quoted
/// for a shell.
pub fn unusable(root: &Path, hint: impl FnOnce(String) -> String) -> Option<Vec<String>> {
    let error = match root.metadata() {
        Ok(metadata) if metadata.is_dir() => return None,
        Ok(_) => ErrorKind::NotADirectory.into(),
        Err(error) => error,
    };
    let reason = match error.kind() {
        ErrorKind::NotFound => "no such directory".to_owned(),
        ErrorKind::NotADirectory => "not a directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => reason(&error),
    };
    let mut lines = vec![format!("cannot use --root {}: {reason}", root.display())];
    if error.kind() == ErrorKind::NotFound {
        lines.push(format!("hint: {}", hint(shell(&[root.to_string_lossy().into_owned()]))));
    }
    Some(lines)
}
