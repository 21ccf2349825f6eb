//! `--root DIR` of `run` and `status`.

use crate::text::shell;
use std::io::ErrorKind;
use std::path::Path;

/// Why `root` cannot be used, in lines for people; `None` for a directory. For a `root`
/// that does not exist with the hint that `hint` makes of its name, quoted for a shell.
pub fn trouble(root: &Path, hint: impl FnOnce(String) -> String) -> Option<Vec<String>> {
    let error = match root.metadata() {
        Ok(metadata) if metadata.is_dir() => return None,
        Ok(_) => ErrorKind::NotADirectory.into(),
        Err(error) => error,
    };
    let reason = match error.kind() {
        ErrorKind::NotFound => "no such directory".to_owned(),
        ErrorKind::NotADirectory => "not a directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    let mut lines = vec![format!("cannot use --root {}: {reason}", root.display())];
    if error.kind() == ErrorKind::NotFound {
        lines.push(format!("hint: {}", hint(shell(&[root.to_string_lossy().into_owned()]))));
    }
    Some(lines)
}
