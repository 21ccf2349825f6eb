//! `--root DIR`: the system whose root is DIR.

use crate::commands::error::CommandError;
use crate::text::shell;
use std::io::ErrorKind;
use std::path::Path;
use synconce_sys::reason;

/// Checks that `root` is a directory. If it does not exist, the hint is the result of `hint`,
/// called with `root` quoted for a shell.
///
/// # Errors
/// Why `root` cannot be used.
pub fn check(root: &Path, hint: impl FnOnce(String) -> String) -> Result<(), CommandError> {
    let error = match root.metadata() {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => ErrorKind::NotADirectory.into(),
        Err(error) => error,
    };
    let reason = match error.kind() {
        ErrorKind::NotFound => "no such directory".to_owned(),
        ErrorKind::NotADirectory => "not a directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => reason(&error),
    };
    let is_missing = error.kind() == ErrorKind::NotFound;
    let hint = is_missing.then(|| hint(shell(&[root.to_string_lossy().into_owned()])));
    let message = format!("cannot use --root {}: {reason}", root.display());
    Err(CommandError::from(message).with_remedy(hint))
}

/// Like [`check`], for a command that works in the system at `root`, if it is given.
///
/// # Errors
/// Why `root` cannot be used.
pub fn check_any(root: Option<&Path>) -> Result<(), CommandError> {
    let to_make = |root| format!("check the name; to make the directory: mkdir --parents {root}");
    root.map_or(Ok(()), |root| check(root, to_make))
}
