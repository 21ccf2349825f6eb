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
    /// Check whether each database is whole; set the files aside if one is not.
    Check,
    /// Refuse to start, and print the commands that decide.
    #[default]
    Refuse,
}

/// What a held path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One file of bbolt.
    Bolt,
    /// A directory with SQLite databases and their journals.
    Sqlite,
    /// A directory with an LMDB environment. LMDB keeps one O_DSYNC write for each commit.
    Lmdb,
    /// The data directory of an etcd with a single member.
    Etcd,
    /// The data directory of PostgreSQL, which may be thrown away only.
    Postgresql,
    /// A directory with files of another program.
    Other,
}

impl Kind {
    /// Whether the held path is one file, and not a directory.
    pub fn is_file(self) -> bool {
        self == Self::Bolt
    }

    /// Returns the word for the kind in a hold's file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bolt => "bolt",
            Self::Sqlite => "sqlite",
            Self::Lmdb => "lmdb",
            Self::Etcd => "etcd",
            Self::Postgresql => "postgresql",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bolt => "bbolt",
            Self::Sqlite => "SQLite",
            Self::Lmdb => "LMDB",
            Self::Etcd => "etcd",
            Self::Postgresql => "PostgreSQL",
            Self::Other => "an unknown program",
        })
    }
}

/// One held file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The absolute path, without `.` and `..`.
    pub path: PathBuf,
    /// What is there.
    pub kind: Kind,
    /// Hold even a database that is refused otherwise, because its data may be thrown away.
    #[serde(default)]
    pub throw_away: bool,
}

/// A hold, as its file describes it. An unknown field is an error: it may be a misspelled one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The command that decides for [`AfterCrash::Check`] whether a database is whole: exit
    /// code 0 if so. The word `{}` is replaced by the path.
    pub check: Option<Vec<String>>,
    /// What is set aside together: absolute paths, with `*` and `?` in the last component.
    /// Empty: the held paths.
    #[serde(default)]
    pub set_aside: Vec<PathBuf>,
    /// What a crash costs, in words for the operator.
    pub cost: Option<String>,
    /// The data directory of dockerd, whose unreferenced layers are removed after a wipe.
    pub docker_root: Option<PathBuf>,
    /// Whether the daemon itself leaves out its syncs: the hold then mounts nothing, and only
    /// keeps the marker.
    #[serde(default)]
    pub own_option: bool,
    /// The held files and directories.
    pub hold: Vec<Held>,
}

/// Why a hold's file cannot be used.
#[derive(Debug)]
pub enum Unusable {
    /// The name is empty, or has characters other than letters, digits, `-` and `_`.
    Name(String),
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// The file is not TOML, or has an unknown field; with the line.
    Parse(PathBuf, toml::de::Error),
    /// A value has no sense.
    Value(PathBuf, String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                write!(f, "cannot use the name {name:?}: it may have letters, digits, - and _ only")
            }
            Self::Read(path, error) => {
                write!(f, "cannot read {}: {}", path.display(), reason(error))
            }
            Self::Parse(path, error) => {
                write!(f, "cannot understand {}: {}", path.display(), error.to_string().trim_end())
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
        let path = path_of(name);
        let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if stem.is_empty() || !stem.bytes().all(is_plain) {
            return Err(Unusable::Name(name.to_string_lossy().into_owned()));
        }
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| Unusable::Read(path.clone(), error))?;
        let config: Self =
            toml::from_str(&text).map_err(|error| Unusable::Parse(path.clone(), error))?;
        match config.problem() {
            Some(problem) => Err(Unusable::Value(path, problem)),
            None => Ok(Self { name: stem, ..config }),
        }
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
        match self.set_aside.is_empty() {
            true => self.hold.iter().map(|held| held.path.clone()).collect(),
            false => self.set_aside.clone(),
        }
    }

    /// Returns what has no sense in the file.
    fn problem(&self) -> Option<String> {
        if self.hold.is_empty() {
            return Some("no [[hold]] with a path: nothing would be held".to_owned());
        }
        let held = || self.hold.iter().map(|held| &held.path);
        let paths = held().chain(&self.set_aside).chain(&self.docker_root);
        if let Some(path) = paths.into_iter().find(|path| !is_clean(path)) {
            let path = path.display();
            return Some(format!("{path} is not an absolute path without \".\" and \"..\""));
        }
        for (at, path) in held().enumerate() {
            if let Some(other) = held().skip(at + 1).find(|other| overlap(path, other)) {
                let (path, other) = (path.display(), other.display());
                return Some(format!("{path} and {other} are not apart"));
            }
        }
        match &self.check {
            Some(words) if words.is_empty() => Some("the check has no command".to_owned()),
            Some(_) if self.after_crash != AfterCrash::Check => {
                Some("a check is given, but after_crash is not \"check\"".to_owned())
            }
            _ => None,
        }
    }
}

/// Returns the path of the file that describes the hold `name`.
pub fn path_of(name: &OsStr) -> PathBuf {
    match name.as_encoded_bytes().contains(&b'/') {
        true => PathBuf::from(name),
        false => {
            let mut file = name.to_owned();
            file.push(".toml");
            Path::new(DIRECTORY).join(file)
        }
    }
}

/// Whether `path` is absolute, has a last component, and means the same file without a look
/// at the file system.
fn is_clean(path: &Path) -> bool {
    let mut components = path.components();
    components.next() == Some(Component::RootDir)
        && path.file_name().is_some()
        && components.all(|component| matches!(component, Component::Normal(_)))
}

fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, Unusable> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.toml");
        std::fs::write(&path, text).unwrap();
        Config::read(path.as_os_str())
    }

    #[test]
    fn the_least_file_has_one_path_and_refuses_after_a_crash() {
        let config = read("[[hold]]\npath = \"/a/b\"\nkind = \"bolt\"\n").unwrap();
        assert_eq!((config.name.as_str(), config.after_crash), ("test", AfterCrash::Refuse));
        assert_eq!(config.to_set_aside(), [PathBuf::from("/a/b")]);
    }

    #[test]
    fn what_has_no_sense_is_named() {
        let hold = "[[hold]]\npath = \"/a/b\"\nkind = \"bolt\"\n";
        for (text, said) in [
            ("hold = []", "nothing would be held"),
            (&format!("afer_crash = \"wipe\"\n{hold}"), "line 1"),
            ("[[hold]]\npath = \"a\"\nkind = \"bolt\"\n", "absolute"),
            ("[[hold]]\npath = \"/a/../b\"\nkind = \"bolt\"\n", "absolute"),
            ("[[hold]]\npath = \"/\"\nkind = \"other\"\n", "absolute"),
            (&format!("{hold}[[hold]]\npath = \"/a\"\nkind = \"other\"\n"), "not apart"),
            (&format!("check = [\"true\"]\n{hold}"), "after_crash"),
            (&format!("after_crash = \"check\"\ncheck = []\n{hold}"), "no command"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("test.toml"), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_that_is_no_file_name_is_refused() {
        for name in ["", ".", "a b", "a.b", "/x/.toml"] {
            assert!(matches!(Config::read(OsStr::new(name)), Err(Unusable::Name(_))), "{name}");
        }
    }
}
