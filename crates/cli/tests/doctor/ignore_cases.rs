//! Patterns of `.dockerignore`, and files that they leave out: for the tests of each builder.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The unit of sizes; the sum of the sizes of files says which files were counted.
pub const UNIT: u64 = 128;

const FILES: [&str; 14] = [
    "a",
    "a.md",
    "ab",
    "-b",
    "d/a",
    "d/a.md",
    "d/README.md",
    "d/e/a",
    "d/e/f/a.md",
    "e/d/a",
    "e/.git/config",
    "node_modules/x/index.js",
    "with space/a",
    "[x]",
];

pub const PATTERNS: [&str; 16] = [
    "*",
    "*\n!d/e",
    "*.md",
    "**/*.md",
    "**/*.md\n!d/README.md",
    "!d/README.md\n**/*.md",
    "/d",
    "d/../e\n",
    "d/**",
    "d/**/a",
    "**/a",
    "**/.git\n**/node_modules",
    "[a-b]",
    "[^a]",
    "with space\n  ab  ",
    "d\n!d/e\nd/e/f",
];

/// Makes the files, below `context`. The size of each is a bit of the sum of all.
pub fn make_files(context: &Path) {
    for (at, name) in FILES.iter().enumerate() {
        let path = context.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap().set_len(UNIT << at).unwrap();
    }
}

/// Returns the sum of the lengths of the files below `directory`.
pub fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let of = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        meta if meta.is_dir() => bytes_below(&entry.path()),
        meta => meta.size(),
    };
    entries.map(of).sum()
}
