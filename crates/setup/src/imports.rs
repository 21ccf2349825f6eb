//! Reads the files that containerd's configuration imports (`imports` in
//! containerd-config.toml(5)).

use crate::error::{Error, NotEdited};
use crate::host::Host;
use crate::toml::TomlFile;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use synconce_durable::wildcards;

/// Returns the file `main` and all files that it imports, and their imports, in containerd's
/// order: later files win. `except` is left out.
pub(crate) fn read(
    host: &Host,
    main: TomlFile,
    except: Option<&Path>,
) -> Result<Vec<TomlFile>, Error> {
    let mut pending: VecDeque<PathBuf> = matching(host, &main)?.into();
    let mut parts = vec![main];
    while let Some(path) = pending.pop_front() {
        if parts.iter().any(|part| part.path == path) || Some(path.as_path()) == except {
            continue;
        }
        let part = TomlFile::read(host, &path)?;
        pending.extend(matching(host, &part)?);
        parts.push(part);
    }
    Ok(parts)
}

/// Returns the first directory from which `main` imports every TOML file, so that a drop-in
/// file needs no edit of `main`.
pub(crate) fn drop_in_directory(main: &Path, imports: &[String]) -> Option<PathBuf> {
    imports.iter().map(|import| absolute(main, import)).find_map(|import| {
        let above = import.parent()?;
        let is_all = matches!(import.file_name()?.to_str()?, "*.toml" | "*");
        (is_all && !has_pattern(above)).then(|| above.to_owned())
    })
}

/// Returns the files that `part` itself imports.
fn matching(host: &Host, part: &TomlFile) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for import in part.texts(&["imports"])?.unwrap_or_default() {
        let path = absolute(&part.path, &import);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let above = path.parent().unwrap_or(Path::new("/"));
        if has_pattern(above) || name.contains(['?', '[', '\\']) {
            let remedy = "import by names, or by an asterisk in the last part alone";
            let reason = format!("imports {import}, which is not understood");
            return Err(part.refuse(NotEdited::new(reason, remedy)));
        }
        if !name.contains('*') {
            found.push(path);
            continue;
        }
        let listed = host.list(above, "")?.into_iter();
        let pattern = wildcards::parse(name.as_bytes());
        let is_match = |name: &OsStr| wildcards::is_match(&pattern, name.as_bytes());
        found.extend(listed.filter(|path| path.file_name().is_some_and(is_match)));
    }
    Ok(found)
}

fn absolute(main: &Path, import: &str) -> PathBuf {
    main.parent().unwrap_or(Path::new("/")).join(import)
}

fn has_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_drop_in_files_is_one_whose_every_toml_file_is_imported() {
        let main = Path::new("/etc/containerd/config.toml");
        let directory = |import: &str| drop_in_directory(main, &[import.to_owned()]);
        let wanted = Some(PathBuf::from("/etc/containerd/conf.d"));
        assert_eq!(directory("/etc/containerd/conf.d/*.toml"), wanted);
        assert_eq!(directory("conf.d/*"), wanted);
        assert_eq!(directory("/etc/containerd/*/x.toml"), None);
        assert_eq!(directory("/etc/containerd/extra.toml"), None);
    }
}
