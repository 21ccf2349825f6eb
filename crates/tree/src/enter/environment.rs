//! The environment of a command in a tree.

use super::user::User;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const PATHS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const DIRECTORIES: [&str; 5] = ["TMPDIR", "TMP", "TEMP", "TEMPDIR", "XDG_RUNTIME_DIR"];

/// Makes the environment from `ours`: all variables, as chroot(8) keeps them, except those that
/// name a directory for temporary files that is missing in the tree. HOME, USER, LOGNAME and
/// SHELL are those of the user in the tree. PATH contains the directories of Debian's programs:
/// without `/usr/sbin` and `/sbin`, which ordinary users' PATH lacks, dpkg refuses to work.
/// `is_directory` checks for directories in the tree.
pub(super) fn made(
    ours: impl Iterator<Item = (OsString, OsString)>,
    user: &User,
    directory: &OsStr,
    is_directory: impl Fn(&Path) -> bool,
) -> Vec<(OsString, OsString)> {
    let is_kept = |name: &OsStr, value: &OsStr| {
        DIRECTORIES.iter().all(|known| name != *known) || is_directory(Path::new(value))
    };
    let mut kept: Vec<_> = ours.filter(|(name, value)| is_kept(name, value)).collect();
    let path = kept.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let name = user.name.clone().unwrap_or_else(|| user.uid.to_string());
    let set = [
        ("HOME", user.home.clone().into()),
        ("USER", name.clone().into()),
        ("LOGNAME", name.into()),
        ("SHELL", user.shell.clone().into()),
        ("PWD", directory.to_owned()),
        ("PATH", with_all_paths(path.unwrap_or_default())),
    ];
    kept.retain(|(name, _)| name != "OLDPWD" && set.iter().all(|(known, _)| name != known));
    kept.extend(set.map(|(name, value)| (name.into(), value)));
    kept
}

/// Appends the directories of [`PATHS`] that `path` lacks.
fn with_all_paths(path: OsString) -> OsString {
    let has = |wanted: &str| {
        path.as_bytes().split(|byte| *byte == b':').any(|one| one == wanted.as_bytes())
    };
    let missing: Vec<_> = PATHS.into_iter().filter(|wanted| !has(wanted)).collect();
    let parts = [Some(path.as_os_str()).filter(|path| !path.is_empty())];
    let parts = parts.into_iter().flatten().chain(missing.iter().map(OsStr::new));
    parts.collect::<Vec<_>>().join(OsStr::new(":"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn environment(ours: &[(&str, &str)]) -> BTreeMap<String, String> {
        let user = super::super::user::find(Some("5"), "b:x:5:5::/home/b:/bin/dash\n", "").unwrap();
        let ours = ours.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let inside = |path: &Path| path == Path::new("/tmp");
        let made = made(ours, &user, OsStr::new("/w"), inside);
        let text = |text: OsString| text.into_string().unwrap();
        made.into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn the_user_is_the_one_inside_and_everything_else_is_kept() {
        let made = environment(&[
            ("HOME", "/home/me"),
            ("LANG", "de_DE"),
            ("USER", "me"),
            ("OLDPWD", "/x"),
        ]);
        for (name, value) in [
            ("HOME", "/home/b"),
            ("USER", "b"),
            ("LOGNAME", "b"),
            ("SHELL", "/bin/dash"),
            ("LANG", "de_DE"),
            ("PWD", "/w"),
        ] {
            assert_eq!(made.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!made.contains_key("OLDPWD"));
    }

    #[test]
    fn directories_for_temporary_files_are_kept_if_they_are_inside() {
        let made = environment(&[("TMPDIR", "/tmp"), ("TMP", "/home/me/tmp")]);
        assert!(made.contains_key("TMPDIR") && !made.contains_key("TMP"), "{made:?}");
    }

    #[test]
    fn a_path_has_the_directories_of_administration_too() {
        let path = |ours| environment(ours)["PATH"].clone();
        assert_eq!(path(&[]), PATHS.join(":"));
        assert_eq!(
            path(&[("PATH", "/opt/bin:/usr/bin:/bin")]),
            "/opt/bin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin"
        );
    }
}
