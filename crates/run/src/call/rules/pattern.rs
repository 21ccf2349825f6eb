//! Paths with wildcards, name by name: `*` and `?` match within one name, and a backslash makes
//! the next character an ordinary one (glob(7)). `*` also matches a leading dot. A name `**`
//! matches any number of directories, as in gitignore(5).

use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use synconce_durable::wildcards::{self, NamePart};

/// One name of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PatternPart {
    /// Exactly this name.
    Name(OsString),
    /// A name with wildcards.
    Glob(Vec<NamePart>),
    /// Any number of directories, also none: `**`.
    Directories,
}

impl PatternPart {
    /// Returns the part that is typed as `word`.
    fn typed(word: &OsStr) -> Self {
        let bytes = word.as_bytes();
        if bytes == b"**" {
            return Self::Directories;
        }
        let (mut glob, mut rest) = (Vec::new(), bytes.iter());
        while let Some(byte) = rest.next() {
            match byte {
                b'\\' => glob.push(NamePart::Byte(*rest.next().unwrap_or(byte))),
                _ => glob.extend(wildcards::parse(&[*byte])),
            }
        }
        let byte = |part: &NamePart| match part {
            NamePart::Byte(byte) => Some(*byte),
            NamePart::Any | NamePart::One => None,
        };
        let name: Option<Vec<u8>> = glob.iter().map(byte).collect();
        name.map_or(Self::Glob(glob), |name| Self::Name(OsString::from_vec(name)))
    }

    fn matches(&self, name: &OsStr) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Glob(glob) => wildcards::is_match(glob, name.as_bytes()),
            Self::Directories => true,
        }
    }

    /// Whether this part matches every name that `other` matches. `false` if undecided.
    fn covers(&self, other: &Self) -> bool {
        match other {
            Self::Name(name) => self.matches(name),
            Self::Glob(_) => self == other || *self == Self::Glob(vec![NamePart::Any]),
            Self::Directories => false,
        }
    }

    /// Whether a name may match both. `true` if undecided.
    fn may_meet(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(name), part) | (part, Self::Name(name)) => part.matches(name),
            (Self::Glob(_) | Self::Directories, Self::Glob(_) | Self::Directories) => true,
        }
    }
}

/// A path below which everything matches. An empty pattern matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<PatternPart>);

impl Pattern {
    /// Returns the pattern of exactly `path`, then `rest`.
    pub(super) fn new(path: &Path, rest: &[PatternPart]) -> Self {
        let names =
            path.components().filter_map(name).map(|name| PatternPart::Name(name.to_owned()));
        Self(names.chain(rest.iter().cloned()).collect())
    }

    /// Returns the pattern of what this pattern matches, in the directory `root`.
    pub(super) fn within(&self, root: &Path) -> Self {
        Self::new(root, &self.0)
    }

    /// Whether the pattern matches a path or a directory above it. Takes time in proportion to
    /// the product of their lengths: at a mismatch only the last `**` is extended.
    pub(super) fn matches<'a>(&self, path: impl Iterator<Item = Component<'a>> + Clone) -> bool {
        let (mut parts, mut names, mut retry) = (&self.0[..], path.filter_map(name), None);
        loop {
            match parts {
                [] => return true,
                [PatternPart::Directories, rest @ ..] => {
                    retry = Some((rest, names.clone()));
                    parts = rest;
                }
                [part, rest @ ..] => match (names.next(), &mut retry) {
                    (Some(name), _) if part.matches(name) => parts = rest,
                    (Some(_), Some((after, from))) => {
                        from.next();
                        (parts, names) = (*after, from.clone());
                    }
                    _ => return false,
                },
            }
        }
    }

    /// Whether the pattern matches everything below the root.
    pub(super) fn is_everything(&self) -> bool {
        self.covers(&Self(vec![PatternPart::Glob(vec![NamePart::Any])]))
    }

    /// Returns the patterns of which one has to match what is below the directory `path`. The
    /// names before the first wildcard are a place that is known: none of them is left over.
    pub(super) fn below<'a>(&self, path: impl Iterator<Item = Component<'a>>) -> Vec<Self> {
        let is_plain = |part: &&PatternPart| matches!(part, PatternPart::Name(_));
        let longest = self.0.iter().skip_while(is_plain).count();
        let rests = path.filter_map(name).fold(vec![&self.0[..]], |rests, name| {
            let mut rests: Vec<_> = rests.into_iter().flat_map(|rest| after(rest, name)).collect();
            rests.sort_unstable_by_key(|rest| Reverse(rest.len()));
            rests.dedup();
            rests
        });
        let rests = rests.into_iter().filter(|rest| rest.len() <= longest);
        rests.map(|rest| Self(rest.to_vec())).collect()
    }

    /// Whether this pattern matches everything that `other` matches. `false` if undecided.
    pub(super) fn covers(&self, other: &Self) -> bool {
        covers(&self.0, &other.0)
    }

    /// Whether a path may match both. `true` if undecided.
    pub(super) fn may_meet(&self, other: &Self) -> bool {
        // From its `**` on, a pattern matches some path below each path of the other pattern.
        let is_fixed = |(one, two): &(&PatternPart, &PatternPart)| {
            **one != PatternPart::Directories && **two != PatternPart::Directories
        };
        let pairs = self.0.iter().zip(&other.0).take_while(is_fixed);
        pairs.into_iter().all(|(one, two)| one.may_meet(two))
    }
}

/// Returns what may follow `name` in a path that matches `parts`.
fn after<'a>(parts: &'a [PatternPart], name: &OsStr) -> Vec<&'a [PatternPart]> {
    match parts {
        [] => vec![parts],
        [PatternPart::Directories, rest @ ..] => [vec![parts], after(rest, name)].concat(),
        [part, rest @ ..] if part.matches(name) => vec![rest],
        _ => Vec::new(),
    }
}

fn covers(one: &[PatternPart], other: &[PatternPart]) -> bool {
    match (one, other) {
        ([], _) => true,
        ([PatternPart::Directories, rest @ ..], _) if covers(rest, other) => true,
        ([PatternPart::Directories, ..], [_, below @ ..]) => covers(one, below),
        ([part, rest @ ..], [first, below @ ..]) => part.covers(first) && covers(rest, below),
        (_, []) => false,
    }
}

/// Returns the name of a component, and `None` for a root.
fn name<'a>(component: Component<'a>) -> Option<&'a OsStr> {
    match component {
        Component::Normal(name) => Some(name),
        Component::ParentDir => Some(OsStr::new("..")),
        _ => None,
    }
}

/// Splits a typed path: what precedes the first wildcard, without backslashes, and the rest.
pub(super) fn split(typed: &Path) -> (PathBuf, Vec<PatternPart>) {
    let (mut before, mut rest) = (PathBuf::new(), Vec::new());
    for component in typed.components() {
        match (name(component), rest.is_empty()) {
            (None, _) => before.push(component),
            (Some(word), is_plain) => match PatternPart::typed(word) {
                PatternPart::Name(name) if is_plain => before.push(name),
                part => rest.push(part),
            },
        }
    }
    (before, rest)
}

/// Whether `parts` go up: a path of the kernel has no `..`.
pub(super) fn goes_up(parts: &[PatternPart]) -> bool {
    parts.iter().any(|part| matches!(part, PatternPart::Name(name) if name == ".."))
}

/// Returns `typed` with a backslash before each `[` that has none; `None` if all have one. glob(7)
/// has brackets, so a `[` without a backslash may be meant as a wildcard.
pub(super) fn escaped(typed: &Path) -> Option<PathBuf> {
    let (mut escaped, mut bytes) = (Vec::new(), typed.as_os_str().as_bytes().iter());
    while let Some(byte) = bytes.next() {
        escaped.extend((*byte == b'[').then_some(b'\\'));
        escaped.push(*byte);
        if *byte == b'\\' {
            escaped.extend(bytes.next());
        }
    }
    (escaped.len() > typed.as_os_str().len()).then(|| OsString::from_vec(escaped).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(typed: &str) -> Pattern {
        let (path, rest) = split(Path::new(typed));
        Pattern::new(&path, &rest)
    }

    fn matches(typed: &str, path: &str) -> bool {
        pattern(typed).matches(Path::new(path).components())
    }

    #[test]
    fn a_pattern_matches_what_it_names_and_what_is_below() {
        for (typed, path, expected) in [
            ("/db", "/db", true),
            ("/db", "/db/a/b", true),
            ("/db", "/dbx", false),
            ("/db", "/", false),
            ("/", "/anything", true),
            ("/db/*.sqlite", "/db/x.sqlite", true),
            ("/db/*.sqlite", "/db/x.sqlite-wal", false),
            ("/db/*.sqlite*", "/db/x.sqlite-wal", true),
            ("/db/*.sqlite", "/db/below/x.sqlite", false),
            ("/srv/*/db", "/srv/one/db/file", true),
            ("/srv/*/db", "/srv/one/other", false),
            ("/a/?7", "/a/x7", true),
            ("/a/?7", "/a/7", false),
            (r"/a/\*", "/a/*", true),
            (r"/a/\*", "/a/b", false),
            (r"/a/\[b", "/a/[b", true),
            ("/db/**/*.sqlite", "/db/x.sqlite", true),
            ("/db/**/*.sqlite", "/db/a/b/x.sqlite", true),
            ("/db/**/*.sqlite", "/db/a/b/x.sqlite-wal", false),
            ("/db/**/*.sqlite", "/other/x.sqlite", false),
            ("/**/a/b", "/a/a/a/b/c", true),
            ("/**/a/b", "/a/c/b", false),
            ("/**/a/**/b", "/x/a/y/z/b", true),
            ("/**/a/**/b", "/x/b/y/a", false),
            ("/db/**", "/db", true),
            ("/db/**", "/db/a/b", true),
            ("/db/x**y", "/db/x/y", false),
            ("/db/x**y", "/db/xzy", true),
            ("/a/*a*a*a*b", "/a/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("/a/*.x", "/a/.x", true),
        ] {
            assert_eq!(matches(typed, path), expected, "{typed} {path}");
        }
    }

    #[test]
    fn a_pattern_covers_another_one_only_when_it_is_certain() {
        for (one, two, expected) in [
            ("/a", "/a/b", true),
            ("/a", "/a", true),
            ("/a/b", "/a", false),
            ("/a", "/a/*.x", true),
            ("/a/*.x", "/a/b.x", true),
            ("/a/*.x", "/a/b.x/c", true),
            ("/a/*", "/a/*.x", true),
            ("/a/*.x", "/a/*.x", true),
            ("/a/*x", "/a/*.x", false),
            ("/a/**", "/a", true),
            ("/a/**", "/a/b/c", true),
            ("/a/**/x", "/a/b/*/x", true),
            ("/a/**/x", "/a/b/**/x", true),
            ("/a/**/*.x", "/a/b/c.x", true),
            ("/a/**/x", "/a/b", false),
            ("/a/*/x", "/a/**/x", false),
            ("/a/b", "/a/**", false),
        ] {
            assert_eq!(pattern(one).covers(&pattern(two)), expected, "{one} {two}");
        }
    }

    #[test]
    fn patterns_meet_unless_a_name_differs() {
        assert!(pattern("/a").may_meet(&pattern("/a/b")));
        assert!(pattern("/a/*/log").may_meet(&pattern("/a/b")));
        assert!(!pattern("/a/*.x").may_meet(&pattern("/a/b.y")));
        assert!(!pattern("/a").may_meet(&pattern("/b")));
        assert!(pattern("/a/**/x").may_meet(&pattern("/a/b")));
        assert!(!pattern("/a/**/x").may_meet(&pattern("/b")));
    }

    #[test]
    fn a_mount_point_leaves_the_rest_of_a_pattern_from_the_first_wildcard_on() {
        for (typed, point, rests) in [
            ("/srv/*/db", "/srv/one", &["/db"][..]),
            ("/srv/*/db", "/srv/one/db/sub", &["/"]),
            ("/srv/*/db", "/srv/one/other", &[]),
            ("/srv/*/db", "/", &[]),
            ("/srv/one/db", "/srv/one", &[]),
            ("/srv/one/db", "/srv/one/db", &["/"]),
            ("/srv/**/db", "/srv", &["/**/db"]),
            ("/srv/**/db", "/srv/a/b", &["/**/db"]),
            ("/srv/**/db", "/srv/a/db", &["/**/db", "/"]),
        ] {
            let rests: Vec<_> = rests.iter().map(|rest| pattern(rest)).collect();
            let found = pattern(typed).below(Path::new(point).components());
            assert_eq!(found, rests, "{typed} {point}");
        }
    }

    #[test]
    fn each_bracket_gets_a_backslash() {
        for (typed, with_backslashes) in [
            ("/a/[b", Some(r"/a/\[b")),
            (r"/a/\[b[c", Some(r"/a/\[b\[c")),
            (r"/a/\\[b", Some(r"/a/\\\[b")),
            (r"/a/\[b]*", None),
        ] {
            assert_eq!(escaped(Path::new(typed)), with_backslashes.map(PathBuf::from), "{typed}");
        }
    }

    #[test]
    fn everything_is_what_matches_each_name_below_the_root() {
        for (typed, expected) in
            [("/", true), ("/*", true), ("/**", true), ("/*.x", false), ("/a", false)]
        {
            assert_eq!(pattern(typed).is_everything(), expected, "{typed}");
        }
    }
}
