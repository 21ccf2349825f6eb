//! `--root DIR` of `run` and `status`.

use crate::text::{say, shell};
use std::io::ErrorKind;
use std::path::Path;

/// Whether `root` is a directory. If not, says why; for a `root` that does not exist
/// with the hint that `hint` makes of its name, quoted for a shell.
pub fn is_usable(root: &Path, hint: impl FnOnce(String) -> String) -> bool {
    let error = match root.metadata() {
        Ok(metadata) if metadata.is_dir() => return true,
        Ok(_) => ErrorKind::NotADirectory.into(),
        Err(error) => error,
    };
    let reason = match error.kind() {
        ErrorKind::NotFound => "no such directory".to_owned(),
        ErrorKind::NotADirectory => "not a directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    say(&format!("cannot use --root {}: {reason}", root.display()));
    if error.kind() == ErrorKind::NotFound {
        say(&format!("hint: {}", hint(shell(&[root.to_string_lossy().into_owned()]))));
    }
    false
}
