//! The file that describes a hold: `/etc/synconce/hold.d/NAME.toml`.
//!
//! ```toml
//! unit = "containerd.service"
//! after_crash = "wipe"
//! set_aside = ["/var/lib/containerd/io.containerd.*"]
//!
//! [[hold]]
//! path = "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"
//! kind = "bolt"
//! ```

use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use synconce_sys::reason;

/// The directory of the files.
pub const DIRECTORY: &str = "/etc/synconce/hold.d";

/// What happens to held files after a crash of the machine, before the daemon starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterCrash {
    /// Set the files aside: the daemon can make their content again.
    Wipe,
    /// Refuse to start, and print the commands that decide.
    #[default]
    Refuse,
}

/// Makes [`HeldKind`] of a table: each kind, its word in a hold's file, and its name in messages. A
/// kind cannot be missing in [`HeldKind::ALL`].
macro_rules! held_kinds {
    ($($(#[$doc:meta])* $kind:ident, $word:literal, $name:literal;)*) => {
        /// What a held path is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum HeldKind {
            $($(#[$doc])* #[serde(rename = $word)] $kind,)*
        }

        impl HeldKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Returns the word for the kind in a hold's file.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$kind => $word,)*
                }
            }
        }

        impl fmt::Display for HeldKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$kind => $name,)*
                })
            }
        }
    };
}

held_kinds! {
    /// One file of bbolt.
    Bolt, "bolt", "bbolt";
    /// A directory with SQLite databases and their journals.
    Sqlite, "sqlite", "SQLite";
    /// A directory with an LMDB environment. LMDB keeps one O_DSYNC write for each commit.
    Lmdb, "lmdb", "LMDB";
    /// The data directory of an etcd with a single member.
    Etcd, "etcd", "etcd";
    /// The data directory of PostgreSQL, which may be thrown away only.
    Postgresql, "postgresql", "PostgreSQL";
    /// A directory with files of another program.
    Other, "other", "an unknown program";
}

impl HeldKind {
    /// Whether the held path is one file, and not a directory.
    pub fn is_file(self) -> bool {
        self == Self::Bolt
    }
}

/// One held file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The absolute path, without `..` and wildcards.
    pub path: PathBuf,
    /// What is there.
    pub kind: HeldKind,
    /// The data may be thrown away: PostgreSQL is held then, and refused otherwise.
    #[serde(default)]
    pub throw_away: bool,
}

/// A hold, as its file describes it. An unknown field is an error: it may be a misspelled one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The stem of the file's name.
    #[serde(skip)]
    pub name: String,
    /// The daemon's systemd unit.
    pub unit: Option<String>,
    /// What happens after a crash of the machine.
    #[serde(default)]
    pub after_crash: AfterCrash,
    /// What is set aside together: absolute paths, with `*` and `?` in the last component.
    /// Empty: the held paths.
    #[serde(default)]
    pub set_aside: Vec<PathBuf>,
    /// What a crash costs, in words for the operator.
    pub cost: Option<String>,
    /// The data directory of dockerd, whose unreferenced layers are removed after a wipe.
    pub docker_root: Option<PathBuf>,
    /// The held files and directories.
    pub hold: Vec<Held>,
}

/// Why a hold's file cannot be used.
#[derive(Debug)]
pub enum Unusable {
    /// The name is empty, or has characters other than letters, digits, `-` and `_`.
    Name(String),
    /// The file cannot be read. If it is missing, the list has the names of the existing holds.
    Read(PathBuf, io::Error, Vec<String>),
    /// The file is not TOML, or has an unknown field; with the line.
    Parse(PathBuf, toml::de::Error),
    /// A `kind` is none of [`HeldKind`].
    Kind(PathBuf, String),
    /// A value makes no sense.
    Value(PathBuf, String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                write!(f, "cannot use the name {name:?}: it may have letters, digits, - and _ only")
            }
            Self::Read(path, error, names) => {
                write!(f, "cannot read {}: {}", path.display(), reason(error))?;
                if names.is_empty() {
                    Ok(())
                } else {
                    write!(f, "; the holds are {}", names.join(", "))
                }
            }
            Self::Parse(path, error) => {
                write!(f, "cannot understand {}: {}", path.display(), error.to_string().trim_end())
            }
            Self::Kind(path, kind) => {
                let path = path.display();
                let kinds = HeldKind::ALL.iter().map(|kind| kind.word()).collect::<Vec<_>>();
                let kinds = kinds.join(", ");
                write!(
                    f,
                    "cannot understand {path}: there is no kind {kind:?}; the kinds are {kinds}"
                )
            }
            Self::Value(path, problem) => {
                write!(f, "cannot understand {}: {problem}", path.display())
            }
        }
    }
}

impl std::error::Error for Unusable {}

impl Config {
    /// Reads the hold `name`: a file in [`DIRECTORY`], or a path if `name` has a slash.
    ///
    /// # Errors
    /// Names the file, and the line or value that is wrong.
    pub fn read(name: &OsStr) -> Result<Self, Unusable> {
        let (path, stem) = (path_of(name), name_of(name)?);
        let text = std::fs::read_to_string(&path);
        let unreadable = |error: io::Error| {
            let is_missing = error.kind() == ErrorKind::NotFound;
            let names = if is_missing { Self::names().unwrap_or_default() } else { Vec::new() };
            Unusable::Read(path.clone(), error, names)
        };
        let text = text.map_err(unreadable)?;
        let config: Self = toml::from_str(&text).map_err(|error| match unknown_kind(&text) {
            Some(kind) => Unusable::Kind(path.clone(), kind),
            None => Unusable::Parse(path.clone(), error),
        })?;
        match config.problem() {
            Some(problem) => Err(Unusable::Value(path, problem)),
            None => Ok(Self { name: stem, ..config }),
        }
    }

    /// Returns the held paths that do not exist.
    pub(crate) fn missing(&self) -> Vec<PathBuf> {
        let paths = self.hold.iter().map(|held| &held.path);
        paths.filter(|path| path.symlink_metadata().is_err()).cloned().collect()
    }

    /// Returns the names of the holds in [`DIRECTORY`], sorted.
    ///
    /// # Errors
    /// Those of reading the directory. A missing directory has no holds.
    pub fn names() -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(DIRECTORY) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension() == Some(OsStr::new("toml")) {
                names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns what a wipe sets aside.
    pub fn to_set_aside(&self) -> Vec<PathBuf> {
        if self.set_aside.is_empty() {
            self.hold.iter().map(|held| held.path.clone()).collect()
        } else {
            self.set_aside.clone()
        }
    }

    /// Returns the first value in the file that makes no sense, and why.
    fn problem(&self) -> Option<String> {
        if self.hold.is_empty() {
            return Some("no [[hold]] with a path: nothing would be held".to_owned());
        }
        if let Some(unit) = self.unit.as_ref().filter(|unit| !is_unit(unit)) {
            return Some(format!(
                "unit: {unit:?} is no name of a systemd unit, as \"redis.service\" is"
            ));
        }
        self.problem_of_paths()
    }

    fn problem_of_paths(&self) -> Option<String> {
        let held = || self.hold.iter().map(|held| &held.path);
        let paths = held().map(|path| ("path", path));
        let paths = paths.chain(self.set_aside.iter().map(|path| ("set_aside", path)));
        let paths = paths.chain(self.docker_root.iter().map(|path| ("docker_root", path)));
        for (field, path) in paths {
            if let Some(fault) = fault(path, field == "set_aside") {
                return Some(format!("{field}: {path:?} {fault}"));
            }
        }
        for (at, path) in held().enumerate() {
            for other in held().skip(at + 1) {
                let (inner, outer) =
                    if path.starts_with(other) { (path, other) } else { (other, path) };
                if inner == outer {
                    return Some(format!("path: {path:?} is given twice"));
                }
                if inner.starts_with(outer) {
                    let rest = "which is held as a whole: leave one of the two out";
                    return Some(format!("path: {inner:?} is in {outer:?}, {rest}"));
                }
            }
        }
        None
    }
}

/// Returns the first kind in the hold's file `text` that is none of [`HeldKind`].
fn unknown_kind(text: &str) -> Option<String> {
    let table = text.parse::<toml::Table>().ok()?;
    let holds = table.get("hold")?.as_array()?;
    let mut kinds = holds.iter().filter_map(|hold| hold.get("kind")?.as_str());
    kinds.find(|kind| HeldKind::ALL.iter().all(|it| it.word() != *kind)).map(str::to_owned)
}

/// Returns the name of the hold that `word` names: `word` itself, or the stem of the file if
/// `word` is a path.
///
/// # Errors
/// [`Unusable::Name`].
pub fn name_of(word: &OsStr) -> Result<String, Unusable> {
    let path = path_of(word);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    if !stem.is_empty() && stem.bytes().all(is_plain) {
        Ok(stem.to_owned())
    } else {
        Err(Unusable::Name(word.to_string_lossy().into_owned()))
    }
}

/// Returns the path of the file that describes the hold `name`.
pub fn path_of(name: &OsStr) -> PathBuf {
    if name.as_encoded_bytes().contains(&b'/') {
        PathBuf::from(name)
    } else {
        let mut file = name.to_owned();
        file.push(".toml");
        Path::new(DIRECTORY).join(file)
    }
}

/// Whether `name` can be the name of a daemon's systemd unit: at most 255 letters, digits and
/// `:-_.\@` (systemd.unit(5)). A name without a type is valid: systemctl(1) adds `.service`. A name
/// that begins with `-` is not: systemctl(1) would read an option.
fn is_unit(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || br":-_.\@".contains(&byte);
    let begins_well = name.starts_with(|first: char| !".@-".contains(first));
    begins_well && name.len() <= 255 && name.bytes().all(is_plain)
}

/// Returns what is wrong with `path`, whose last name may be a pattern if `may_match`.
fn fault(path: &Path, may_match: bool) -> Option<&'static str> {
    let has_wildcard =
        |path: &Path| path.as_os_str().as_encoded_bytes().iter().any(|byte| b"*?".contains(byte));
    if !path.is_absolute() {
        Some("is not absolute: it must begin with \"/\"")
    } else if path.components().any(|part| part == Component::ParentDir) {
        Some("has \"..\" in it: write it without")
    } else if path.file_name().is_none() {
        Some("is the root of the system: name a file or directory below it")
    } else if !may_match && has_wildcard(path) {
        Some("has a wildcard, which only set_aside may have")
    } else if path.parent().is_some_and(has_wildcard) {
        Some("has a wildcard before its last name: name each directory")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
