//! Checks of a directory with SQLite databases, by the program sqlite3.

use super::Verdict;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use synconce_sys::reason;

/// The first bytes of a database ("Database File Format", section 1.3).
const HEADER: &[u8; 16] = b"SQLite format 3\0";
/// Extensions that are usual for databases. Such a file without the header is damaged.
const EXTENSIONS: [&str; 5] = ["db", "db3", "sqlite", "sqlite3", "sqlitedb"];
/// The suffixes of the files beside a database ("Temporary Files Used By SQLite").
const BESIDE: [&[u8]; 3] = [b"-wal", b"-journal", b"-shm"];
/// SQLITE_CORRUPT and SQLITE_NOTADB, with which sqlite3 exits.
const DAMAGED: [i32; 2] = [11, 26];

/// The directory beside the held one in which copies are checked.
const COPIES: &str = ".synconce-check";

/// Checks every database below `directory`, each in a copy: SQLite rolls unfinished transactions
/// back when it opens a database, and what is set aside is to be as the crash left it.
pub(super) fn check(directory: &Path) -> Verdict {
    let databases = match find(directory) {
        Ok(databases) => databases,
        Err(error) => return Verdict::Unknown(format!("cannot read it: {}", reason(&error))),
    };
    if databases.is_empty() {
        return Verdict::Unknown("no SQLite database is in it".to_owned());
    }
    for database in databases {
        let verdict = match starts_as_database(&database) {
            Ok(true) => in_copy(directory, &database),
            Ok(false) => Verdict::Damaged("it does not begin as an SQLite database".to_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Verdict::Damaged("it is missing".to_owned())
            }
            Err(error) => Verdict::Unknown(reason(&error)),
        };
        let shown = database.display();
        match verdict {
            Verdict::Whole => {}
            Verdict::Damaged(why) => return Verdict::Damaged(format!("{shown}: {why}")),
            Verdict::Unknown(why) => return Verdict::Unknown(format!("{shown}: {why}")),
        }
    }
    Verdict::Whole
}

/// Returns the files below `directory` that are, or should be, databases. Follows no link.
fn find(directory: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let (mut found, mut open) = (BTreeSet::new(), vec![directory.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                let name = entry.file_name();
                let beside = BESIDE.iter().find_map(|suffix| name.as_bytes().strip_suffix(*suffix));
                if let Some(database) = beside {
                    found.insert(path.with_file_name(OsStr::from_bytes(database)));
                } else if is_named_so(&path) || starts_as_database(&path)? {
                    found.insert(path);
                }
            }
        }
    }
    Ok(found)
}

fn is_named_so(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
}

fn starts_as_database(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(HEADER.len() as u64).read_to_end(&mut start)?;
    Ok(start == HEADER)
}

/// Checks a copy of `database` and of the files beside it.
fn in_copy(directory: &Path, database: &Path) -> Verdict {
    let copies = directory.with_file_name(COPIES);
    let verdict = match copy(database, &copies) {
        Ok(copied) => by_program(&copied),
        Err(error) => {
            Verdict::Unknown(format!("cannot copy it to {}: {}", copies.display(), reason(&error)))
        }
    };
    // What stays is removed by the next check.
    let _ = remove_copies(&copies);
    verdict
}

/// Copies `database` into the new directory `copies`; returns the copy.
fn copy(database: &Path, copies: &Path) -> io::Result<PathBuf> {
    remove_copies(copies)?;
    DirBuilder::new().mode(0o700).create(copies)?;
    let copied = copies.join(database.file_name().unwrap_or_default());
    std::fs::copy(database, &copied)?;
    // A new -shm is made from the -wal ("WAL-mode File Format").
    for suffix in &BESIDE[..2] {
        match std::fs::copy(beside(database, suffix), beside(&copied, suffix)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => drop(other?),
        }
    }
    Ok(copied)
}

fn beside(database: &Path, suffix: &[u8]) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(OsStr::from_bytes(suffix));
    name.into()
}

fn remove_copies(copies: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(copies) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn by_program(database: &Path) -> Verdict {
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-init", "/dev/null"]).arg(database).arg("PRAGMA integrity_check");
    match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Verdict::Unknown("the program sqlite3 is not installed".to_owned())
        }
        Err(error) => Verdict::Unknown(format!("cannot run sqlite3: {}", reason(&error))),
        Ok(output) => verdict(&output),
    }
}

fn verdict(output: &Output) -> Verdict {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (found, said) = (text(&output.stdout), text(&output.stderr));
    match output.status.code() {
        Some(0) if found == "ok" => Verdict::Whole,
        Some(0) => Verdict::Damaged(found.lines().next().unwrap_or_default().to_owned()),
        Some(code) if DAMAGED.contains(&code) => Verdict::Damaged(said),
        _ => Verdict::Unknown(format!("sqlite3: {}: {said}", output.status)),
    }
}
