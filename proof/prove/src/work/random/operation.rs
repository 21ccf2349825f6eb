//! The operations of random programs.

use std::fmt;

/// What an operation does. Each is one system call that changes a tree, or one that syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OperationVerb {
    /// Creates a file or empties it, and writes to it.
    Put,
    /// Like `Put`, with `O_DSYNC`.
    PutSynced,
    /// Writes at the end.
    Append,
    /// Writes across two blocks in the middle.
    Overwrite,
    /// Writes beyond the end, which leaves a hole.
    WriteBeyond,
    Shrink,
    Grow,
    Allocate,
    Punch,
    Chmod,
    SetAttribute,
    Symlink,
    Unlink,
    Fsync,
    Fdatasync,
    Link,
    Rename,
    Exchange,
    Mkdir,
    Rmdir,
    FsyncDirectory,
    Sync,
    Syncfs,
}

/// A verb and its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Operation {
    pub verb: OperationVerb,
    pub path: &'static str,
    /// The second path of a verb with two paths; otherwise empty.
    pub other: &'static str,
}

/// The files; only the first exists before a program.
pub(crate) const FILES: [&str; 3] = ["f", "a/f", "b/f"];
/// The directories; only the first exists before a program.
pub(crate) const DIRECTORIES: [&str; 2] = ["a", "b"];
/// The target of symbolic links: a name in the link's directory that no operation uses.
pub(crate) const TARGET: &str = "g";

const ON_A_FILE: [OperationVerb; 15] = [
    OperationVerb::Put,
    OperationVerb::PutSynced,
    OperationVerb::Append,
    OperationVerb::Overwrite,
    OperationVerb::WriteBeyond,
    OperationVerb::Shrink,
    OperationVerb::Grow,
    OperationVerb::Allocate,
    OperationVerb::Punch,
    OperationVerb::Chmod,
    OperationVerb::SetAttribute,
    OperationVerb::Symlink,
    OperationVerb::Unlink,
    OperationVerb::Fsync,
    OperationVerb::Fdatasync,
];
const ON_A_DIRECTORY: [OperationVerb; 3] =
    [OperationVerb::Mkdir, OperationVerb::Rmdir, OperationVerb::FsyncDirectory];
const ON_TWO: [OperationVerb; 2] = [OperationVerb::Link, OperationVerb::Rename];

/// Returns every operation.
pub(crate) fn vocabulary() -> Vec<Operation> {
    let one = |verb: OperationVerb, path| Operation { verb, path, other: "" };
    let two = |verb: OperationVerb, (path, other)| Operation { verb, path, other };
    let mut all = vec![
        one(OperationVerb::Sync, ""),
        one(OperationVerb::Syncfs, ""),
        one(OperationVerb::FsyncDirectory, "."),
    ];
    all.extend(ON_A_FILE.iter().flat_map(|verb| FILES.map(|path| one(*verb, path))));
    all.extend(ON_A_DIRECTORY.iter().flat_map(|verb| DIRECTORIES.map(|path| one(*verb, path))));
    let ordered = || FILES.iter().flat_map(|path| FILES.map(|other| (*path, other)));
    for verb in ON_TWO {
        all.extend(ordered().filter(|(path, other)| path != other).map(|pair| two(verb, pair)));
    }
    // An exchange is symmetric.
    let pairs = [("f", "a/f"), ("f", "b/f"), ("a/f", "b/f"), ("a", "b")];
    all.extend(pairs.map(|pair| two(OperationVerb::Exchange, pair)));
    all.extend([("a", "b"), ("b", "a")].map(|pair| two(OperationVerb::Rename, pair)));
    all
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, path, other } = self;
        write!(f, "{verb:?} {path} {other}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_operation_is_in_the_vocabulary_twice() {
        let all = vocabulary();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }
}
