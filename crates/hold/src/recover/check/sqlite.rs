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

/// The beginning of the name of the directory beside the held one in which copies are checked.
const COPIES: &str = ".synconce-check-";
/// Names and extensions of files that are empty by intent, in lower case.
const EMPTY: [&str; 4] = ["lock", "lockfile", "lck", "pid"];

/// What is in a held directory.
#[derive(Default)]
struct Found {
    /// Files that are, or should be, databases.
    databases: BTreeSet<PathBuf>,
    /// A file that is empty or begins with zeros. It may have been a database.
    blank: Option<PathBuf>,
}

/// Checks every database below `directory`, each in a copy: SQLite rolls unfinished transactions
/// back when it opens a database, and what is set aside is to be as the crash left it.
///
/// A file without an extension of databases may have lost its header. If it has no content, or
/// begins with zeros, it is not known whether it was a database.
pub(super) fn check(name: &str, directory: &Path) -> Verdict {
    let Found { databases, blank } = match find(directory) {
        Ok(found) => found,
        Err(error) => return Verdict::Unknown(format!("cannot read it: {}", reason(&error))),
    };
    if databases.is_empty() {
        return Verdict::Unknown("no SQLite database is in it".to_owned());
    }
    for database in databases {
        let verdict = match starts_as_database(&database) {
            Ok(true) => in_copy(name, directory, &database),
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
    match blank {
        None => Verdict::Whole,
        Some(blank) => {
            let shown = blank.display();
            Verdict::Unknown(format!("{shown} is empty or begins with zeros: was it a database?"))
        }
    }
}

/// Returns what is below `directory`. Follows no link.
fn find(directory: &Path) -> io::Result<Found> {
    let (mut found, mut open) = (Found::default(), vec![directory.to_owned()]);
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
                    found.databases.insert(path.with_file_name(OsStr::from_bytes(database)));
                } else if is_named_so(&path) || starts_as_database(&path)? {
                    found.databases.insert(path);
                } else if is_blank(&path)? {
                    found.blank = Some(path);
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
    Ok(start(path)? == HEADER)
}

/// Whether the file `path` has only zeros where a database has its header. An empty lock file is
/// not blank.
fn is_blank(path: &Path) -> io::Result<bool> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let is_empty_by_intent = EMPTY.contains(&name.rsplit('.').next().unwrap_or_default());
    let start = start(path)?;
    Ok(start.iter().all(|byte| *byte == 0) && !(start.is_empty() && is_empty_by_intent))
}

/// Returns the bytes of the file `path` where a database has its header.
fn start(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path)?.take(HEADER.len() as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// Checks a copy of `database`, which is in the held `directory`, and of the files beside it.
fn in_copy(name: &str, directory: &Path, database: &Path) -> Verdict {
    // Of this hold and process alone: other holds may have databases beside this one.
    let copies = directory.with_file_name(format!("{COPIES}{name}-{}", std::process::id()));
    let copied = remove_leftovers(name, directory).and_then(|()| copy(database, &copies));
    let verdict = match copied {
        Ok(copied) => by_program(&copied),
        Err(error) => {
            Verdict::Unknown(format!("cannot copy it to {}: {}", copies.display(), reason(&error)))
        }
    };
    // What stays is removed by the next check of this hold.
    let _ = remove_copies(&copies);
    verdict
}

/// Copies `database` into the new directory `copies`; returns the copy.
fn copy(database: &Path, copies: &Path) -> io::Result<PathBuf> {
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

/// Removes what killed checks of the hold `name` left beside `directory`.
fn remove_leftovers(name: &str, directory: &Path) -> io::Result<()> {
    let prefix = format!("{COPIES}{name}-");
    for entry in std::fs::read_dir(directory.parent().unwrap_or(directory))? {
        let entry = entry?;
        let pid = entry.file_name();
        // "a-b-1" is of the hold "a-b", and not of the hold "a".
        let pid = pid.to_str().and_then(|pid| pid.strip_prefix(&prefix));
        if pid.is_some_and(|pid| pid.bytes().all(|byte| byte.is_ascii_digit())) {
            remove_copies(&entry.path())?;
        }
    }
    Ok(())
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
