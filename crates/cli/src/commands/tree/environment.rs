//! The environment that `tree run` gives its command. The names are in docs/trees.md.

use crate::arguments::tree::RunIn;
use crate::commands::error::CommandError;
use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use synconce_durable::error::Context;
use synconce_tree::enter::PATH;

/// Variables of the caller that the command gets: what the terminal can show, the proxies (the
/// network is the host's; podman passes them, too), the date of reproducible builds, and the run
/// around this one.
const PASSED: [&str; 15] = [
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SOURCE_DATE_EPOCH",
    "SYNCONCE_RUN",
];
/// The beginnings of names of variables that choose how a Debian package is built or configured;
/// sbuild passes them.
const PASSED_PREFIXES: [&str; 2] = ["DEB_", "DEBIAN_"];
/// Every C library of Debian has this locale; the caller's may be missing in the tree.
const LANG: &str = "C.UTF-8";

/// The mark of UTF-8 at the start of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Variables of the user of the host. The command has those of its user in the tree.
const OF_USER: [&str; 6] = ["HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD"];
/// Variables that name directories for temporary files, which another root may lack.
pub(in crate::commands) const DIRECTORIES: [&str; 5] =
    ["TMPDIR", "TMP", "TEMP", "TEMPDIR", "XDG_RUNTIME_DIR"];

pub(super) type Variables = BTreeMap<OsString, OsString>;

/// Returns the variables of `--env-file` and `--setenv`. FILE may be relative to the working
/// directory of the caller.
pub(super) fn added(arguments: &RunIn) -> Result<Variables, CommandError> {
    let (mut made, ours) = (Variables::new(), ours());
    for path in &arguments.env_file {
        let text = std::fs::read(path).on("cannot read", path)?;
        set_lines(&mut made, &text, &ours).map_err(|number| {
            let place = format!("line {number} of {}", path.display());
            format!("cannot use {place}: it is not NAME=VALUE or NAME")
        })?;
    }
    for text in &arguments.setenv {
        if text.is_empty() || text.as_bytes().starts_with(b"=") {
            return Err("cannot use --setenv: it is NAME=VALUE or NAME".into());
        }
        set(&mut made, text, &ours);
    }
    Ok(made)
}

/// Returns the variables for the command, `added` among them. `is_directory` checks for directories
/// in the tree.
pub(super) fn for_command(
    arguments: &RunIn,
    added: Variables,
    is_directory: impl Fn(&Path) -> bool,
) -> Vec<(OsString, OsString)> {
    let ours = ours();
    let mut made = if arguments.keep_env { kept(&ours, is_directory) } else { passed(&ours) };
    // Debian's bash shows it in the prompt, which is otherwise that of the host.
    if let ([], Some(name)) =
        (&arguments.words[..], arguments.from.as_ref().or(arguments.name.as_ref()))
    {
        made.insert("debian_chroot".into(), name.as_str().into());
    }
    made.extend(added);
    made.into_iter().collect()
}

/// Returns the variables of the caller.
fn ours() -> Variables {
    env::vars_os().collect()
}

/// Sets the variables of a file. The error is the number of a line that sets none.
fn set_lines(made: &mut Variables, text: &[u8], ours: &Variables) -> Result<(), usize> {
    // Editors of Windows write this mark, and docker skips it.
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_start();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let name = line.split(|byte| *byte == b'=').next().unwrap_or_default();
        if name.is_empty() || name.iter().any(u8::is_ascii_whitespace) || line.contains(&0) {
            return Err(number);
        }
        set(made, OsStr::from_bytes(line), ours);
    }
    Ok(())
}

/// Sets `NAME=VALUE`, or `NAME` to the caller's value if the caller has it.
fn set(made: &mut Variables, text: &OsStr, ours: &Variables) {
    let text = text.as_bytes();
    let (name, value) = match text.iter().position(|byte| *byte == b'=') {
        Some(at) => (&text[..at], Some(OsString::from_vec(text[at + 1..].to_vec()))),
        None => (text, ours.get(OsStr::from_bytes(text)).cloned()),
    };
    if let Some(value) = value {
        made.insert(OsString::from_vec(name.to_vec()), value);
    }
}

fn passed(ours: &Variables) -> Variables {
    let is_passed = |name: &OsStr| {
        PASSED.iter().any(|passed| name == *passed)
            || PASSED_PREFIXES.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
    };
    let mut made: Variables = ours.clone();
    made.retain(|name, _| is_passed(name));
    made.insert("LANG".into(), LANG.into());
    made
}

/// Returns all variables, but for those of the user and those that name a directory for temporary
/// files that is missing in the tree. PATH contains all directories of programs.
fn kept(ours: &Variables, is_directory: impl Fn(&Path) -> bool) -> Variables {
    let mut made = ours.clone();
    made.retain(|name, value| {
        let is_there = || is_directory(Path::new(value));
        OF_USER.iter().all(|known| name != *known)
            && (DIRECTORIES.iter().all(|known| name != *known) || is_there())
    });
    if let Some(path) = made.get_mut(OsStr::new("PATH")) {
        *path = with_all_paths(path);
    }
    made
}

/// Appends the directories of [`PATH`] that `path` lacks. An empty one would be the working
/// directory.
pub(in crate::commands) fn with_all_paths(path: &OsStr) -> OsString {
    let named = path.as_bytes().split(|byte| *byte == b':');
    let mut all: Vec<_> = named.filter(|directory| !directory.is_empty()).collect();
    for directory in PATH.split(':').map(str::as_bytes) {
        if !all.contains(&directory) {
            all.push(directory);
        }
    }
    OsString::from_vec(all.join(&b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn a_caller_passes_what_the_build_needs_and_no_secrets() {
        let wanted = [
            ("TERM", "xterm"),
            ("http_proxy", "p"),
            ("DEB_BUILD_OPTIONS", "nocheck"),
            ("DEBIAN_FRONTEND", "noninteractive"),
        ];
        let others = [
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("PATH", "/home/me/bin"),
            ("HOME", "/home/me"),
            ("LC_ALL", "de_DE.UTF-8"),
            ("DEBEMAIL", "me"),
            ("LD_PRELOAD", "x.so"),
        ];
        let made = passed(&variables(&[&wanted[..], &others].concat()));
        assert_eq!(made, variables(&[&wanted[..], &[("LANG", "C.UTF-8")]].concat()));
    }

    #[test]
    fn all_variables_are_kept_but_those_of_the_user_and_of_missing_directories() {
        let ours = variables(&[
            ("A", "b"),
            ("HOME", "/home/me"),
            ("TMPDIR", "/tmp"),
            ("TMP", "/home/me/tmp"),
            ("PATH", "/opt/bin:/usr/bin:/bin"),
        ]);
        let path = "/opt/bin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin";
        let wanted = variables(&[("A", "b"), ("TMPDIR", "/tmp"), ("PATH", path)]);
        assert_eq!(kept(&ours, |path| path == Path::new("/tmp")), wanted);
    }

    #[test]
    fn a_name_alone_takes_the_callers_value() {
        let ours = variables(&[("TOKEN", "secret")]);
        let mut made = variables(&[("LANG", "C")]);
        for text in ["TOKEN", "MISSING", "EMPTY=", "LANG=a=b"] {
            set(&mut made, OsStr::new(text), &ours);
        }
        assert_eq!(made, variables(&[("TOKEN", "secret"), ("EMPTY", ""), ("LANG", "a=b")]));
    }

    #[test]
    fn a_file_may_begin_with_a_byte_order_mark() {
        for (text, wanted) in [
            ("\u{feff}A=b\nC=\u{feff}d\n", &[("A", "b"), ("C", "\u{feff}d")][..]),
            ("\u{feff}# comment\nA=b\n", &[("A", "b")]),
            ("\u{feff}", &[]),
        ] {
            let mut made = Variables::new();
            assert_eq!(set_lines(&mut made, text.as_bytes(), &Variables::new()), Ok(()));
            assert_eq!(made, variables(wanted), "{text:?}");
        }
    }

    #[test]
    fn a_file_may_have_the_line_ends_of_dos_and_no_words_before_a_name() {
        let ours = variables(&[("TOKEN", "secret")]);
        let mut made = Variables::new();
        let text = b"# c\r\nA=b \r\n\r\n  C=d\r\r\nTOKEN\r\nLAST=x y\r";
        assert_eq!(set_lines(&mut made, text, &ours), Ok(()));
        let wanted = [("A", "b "), ("C", "d\r"), ("TOKEN", "secret"), ("LAST", "x y")];
        assert_eq!(made, variables(&wanted));
        for wrong in ["export A=b", "A =b", "set A", "A ", "=b", "A=\0"] {
            let text = format!("X=1\n\n{wrong}\nY=2\n");
            assert_eq!(set_lines(&mut made, text.as_bytes(), &ours), Err(3), "{wrong:?}");
        }
    }
}
