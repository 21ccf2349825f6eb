//! The differences between two manifests.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Entry, FileKind, Manifest};

/// One difference between two trees. Displays as `path: what`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "difference")]
pub enum Difference {
    /// The second tree has no such path.
    OnlyInFirst {
        /// The path.
        path: String,
    },
    /// The first tree has no such path.
    OnlyInSecond {
        /// The path.
        path: String,
    },
    /// Both trees have the path.
    Changed {
        /// The path.
        path: String,
        /// What differs.
        field: Field,
        /// The value in the first tree; "nothing" if it has none.
        first: String,
        /// The value in the second tree.
        second: String,
    },
}

/// The part of an entry that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// Type of the file. If it differs, nothing else is compared.
    Kind,
    /// Permissions.
    Mode,
    /// Owner or group.
    Owner,
    /// Length.
    Size,
    /// Content of a file, of the same or another length.
    Content,
    /// Target of a symbolic link.
    Target,
    /// Device number.
    Device,
    /// Which paths are hard links of one inode.
    Links,
    /// The extended attribute of this name.
    Xattr(String),
    /// Time of the last change.
    Mtime,
    /// A part that could not be read in one of the trees.
    Readable,
}

impl Difference {
    /// Returns the path in which the trees differ.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::OnlyInFirst { path }
            | Self::OnlyInSecond { path }
            | Self::Changed { path, .. } => path,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnlyInFirst { path } => write!(f, "{path}: only in the first"),
            Self::OnlyInSecond { path } => write!(f, "{path}: only in the second"),
            Self::Changed { path, field, first, second } => {
                write!(f, "{path}: {field} {first} against {second}")
            }
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "kind",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Size => "size",
            Self::Content => "content",
            Self::Target => "link target",
            Self::Device => "device number",
            Self::Links => "hard link of",
            Self::Xattr(name) => return write!(f, "attribute {name}"),
            Self::Mtime => "time of change",
            Self::Readable => "read error",
        })
    }
}

/// Returns the differences between two trees, sorted by path; empty if the trees are
/// identical. Times are compared if both manifests contain them.
#[must_use]
pub fn diff(first: &Manifest, second: &Manifest) -> Vec<Difference> {
    let mut pairs: BTreeMap<&str, (Option<&Entry>, Option<&Entry>)> = BTreeMap::new();
    for (path, entry) in &first.entries {
        pairs.entry(path).or_default().0 = Some(entry);
    }
    for (path, entry) in &second.entries {
        pairs.entry(path).or_default().1 = Some(entry);
    }
    let mut differences = Vec::new();
    for (path, pair) in pairs {
        match pair {
            (Some(_), None) => differences.push(Difference::OnlyInFirst { path: path.to_owned() }),
            (None, Some(_)) => differences.push(Difference::OnlyInSecond { path: path.to_owned() }),
            (Some(first), Some(second)) if first != second => {
                ManifestComparison { path, differences: &mut differences }.entries(first, second);
            }
            _ => {}
        }
    }
    differences
}

struct ManifestComparison<'a> {
    path: &'a str,
    differences: &'a mut Vec<Difference>,
}

impl ManifestComparison<'_> {
    fn entries(&mut self, first: &Entry, second: &Entry) {
        if first.kind != second.kind {
            return self.field(Field::Kind, name(first.kind), name(second.kind));
        }
        self.field(Field::Mode, format!("{:04o}", first.mode), format!("{:04o}", second.mode));
        self.field(Field::Owner, owner(first), owner(second));
        self.option(Field::Size, first.size.as_ref(), second.size.as_ref());
        self.option(Field::Content, short(first).as_ref(), short(second).as_ref());
        self.option(Field::Target, first.target.as_ref(), second.target.as_ref());
        self.field(Field::Device, device(first), device(second));
        self.option(Field::Links, first.links.as_ref(), second.links.as_ref());
        let names = first
            .xattrs
            .keys()
            .chain(second.xattrs.keys().filter(|name| !first.xattrs.contains_key(*name)));
        for name in names {
            self.option(
                Field::Xattr(name.clone()),
                first.xattrs.get(name),
                second.xattrs.get(name),
            );
        }
        if first.mtime.is_some() && second.mtime.is_some() {
            self.field(Field::Mtime, time(first), time(second));
        }
        self.option(Field::Readable, first.unreadable.as_ref(), second.unreadable.as_ref());
    }

    fn option<T: ToString>(&mut self, field: Field, first: Option<&T>, second: Option<&T>) {
        let text =
            |value: Option<&T>| value.map_or_else(|| "nothing".to_owned(), ToString::to_string);
        self.field(field, text(first), text(second));
    }

    fn field(&mut self, field: Field, first: String, second: String) {
        if first != second {
            self.differences.push(Difference::Changed {
                path: self.path.to_owned(),
                field,
                first,
                second,
            });
        }
    }
}

/// Returns the start of the hash for display; 64 bits distinguish any two files that occur by
/// accident.
fn short(entry: &Entry) -> Option<String> {
    entry.sha256.as_ref().map(|hash| hash.chars().take(16).collect())
}

fn owner(entry: &Entry) -> String {
    format!("{}:{}", entry.uid, entry.gid)
}

fn device(entry: &Entry) -> String {
    entry.rdev.map_or_else(String::new, |(major, minor)| format!("{major}:{minor}"))
}

fn time(entry: &Entry) -> String {
    entry.mtime.map_or_else(String::new, |(seconds, nanos)| format!("{seconds}.{nanos:09}"))
}

fn name(kind: FileKind) -> String {
    let name = match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
        FileKind::Fifo => "named pipe",
        FileKind::Socket => "socket",
        FileKind::Mount => "mount point",
        FileKind::Unknown => "unreadable",
    };
    name.to_owned()
}
