//! The databases, each with a known sequence of transactions.

use crate::Result;
use crate::work::is_installed;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use synconce_testkit::go;
use synconce_testkit::patiently;
use synconce_testkit::process::{Finished, run};

/// A held database.
#[derive(Clone, Debug)]
pub(super) enum Database {
    /// The file of a bbolt database.
    Bolt(PathBuf),
    /// The directory of an SQLite database in WAL mode.
    Sqlite(PathBuf),
}

/// What is in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DatabaseState {
    /// Exactly these transactions.
    Whole(usize),
    /// The database passes its own check, and its content is that of no number of
    /// transactions.
    OtherContent(String),
    /// The database fails its own check.
    Damaged(String),
}

/// The exit code of the program for [`DatabaseState::OtherContent`].
const OTHER_CONTENT: i32 = 3;
/// A check that takes longer runs round a loop of pages.
const LIMIT: Duration = Duration::from_secs(30);
/// Compiling takes long on a loaded machine.
const COMPILING: Duration = Duration::from_secs(240);
/// The package of Debian that has bbolt's source.
const SOURCE: &str = "/usr/share/gocode/src/go.etcd.io/bbolt/db.go";
const SHORT: &str = "printf('%.*c', n * 37 % 3000 + 1, char(97 + n % 26))";
const LONG: &str = "printf('%.*c', n * 977 % 20000 + 1, char(97 + n % 26))";

impl Database {
    /// Returns the held path.
    pub(super) fn held(&self) -> &Path {
        match self {
            Self::Bolt(path) | Self::Sqlite(path) => path,
        }
    }

    /// Returns the kind in the file of a hold.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Bolt(_) => "bolt",
            Self::Sqlite(_) => "sqlite",
        }
    }

    /// Returns the command that makes transactions `from` to `to` in a database of bbolt.
    pub(super) fn write_words(&self, from: usize, to: usize) -> Result<Vec<OsString>> {
        let words = [bbolt()?.into(), "write".into(), self.held().into()];
        let numbers = [from, to].map(|number| number.to_string().into());
        Ok(words.into_iter().chain(numbers).collect())
    }

    /// Makes transactions `from` to `to`, each with its own sync.
    pub(super) fn write(&self, from: usize, to: usize) -> Result<()> {
        let finished = match self {
            Self::Bolt(_) => {
                let words = self.write_words(from, to)?;
                run(Command::new(&words[0]).args(&words[1..]), patiently(LIMIT))?
            }
            Self::Sqlite(directory) => sqlite(directory, &transactions(from, to))?,
        };
        if finished.status.success() {
            Ok(())
        } else {
            Err(format!("{self}: {}: {}", finished.status, finished.stderr).into())
        }
    }

    /// Returns what is in the database. A missing database has no transaction.
    pub(super) fn state(&self) -> Result<DatabaseState> {
        match self {
            Self::Bolt(path) if !path.exists() => Ok(DatabaseState::Whole(0)),
            Self::Sqlite(path) if !path.join("queue.db").exists() => Ok(DatabaseState::Whole(0)),
            Self::Bolt(path) => {
                let mut command = Command::new(bbolt()?);
                // A check without an end is no verdict that the database is whole.
                let checked = match run(command.arg("check").arg(path), patiently(LIMIT)) {
                    Ok(checked) => checked,
                    Err(error) => return Ok(DatabaseState::Damaged(error.to_string())),
                };
                let said = checked.stderr.lines().next().unwrap_or_default().to_owned();
                Ok(match checked.status.code() {
                    Some(0) => DatabaseState::Whole(checked.stdout.trim().parse()?),
                    Some(OTHER_CONTENT) => DatabaseState::OtherContent(checked.stdout),
                    _ => DatabaseState::Damaged(said),
                })
            }
            Self::Sqlite(path) => Ok(of_sqlite(&sqlite(path, &check())?)),
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.held().file_name().unwrap_or_default();
        f.write_str(&name.to_string_lossy())
    }
}

fn sqlite(directory: &Path, script: &str) -> Result<Finished> {
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail", "-init", "/dev/null"]).arg(directory.join("queue.db"));
    Ok(run(command.arg(script), patiently(LIMIT))?)
}

fn transactions(from: usize, to: usize) -> String {
    let mut script = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
         PRAGMA wal_autocheckpoint = 8; \
         CREATE TABLE IF NOT EXISTS every (n INTEGER PRIMARY KEY, v); \
         CREATE TABLE IF NOT EXISTS last (k INTEGER PRIMARY KEY, n, v);"
        .to_owned();
    for n in from..=to {
        script += &format!(
            "BEGIN; INSERT INTO every SELECT n, {SHORT} FROM (SELECT {n} AS n); \
             INSERT OR REPLACE INTO last SELECT n % 7, n, {LONG} FROM (SELECT {n} AS n); COMMIT;"
        );
    }
    script
}

/// Returns the check: "ok", the number of transactions, and the number of wrong rows.
fn check() -> String {
    format!(
        "PRAGMA integrity_check; SELECT count(*), \
         (max(n) IS NOT count(*)) + (SELECT count(*) FROM every WHERE v IS NOT {SHORT}) \
         + (SELECT count(*) FROM last WHERE v IS NOT {LONG} OR k IS NOT n % 7) \
         + ((SELECT min(n) FROM last) <= count(*) - 7) \
         + ((SELECT max(n) FROM last) IS NOT count(*)) FROM every;"
    )
}

fn of_sqlite(checked: &Finished) -> DatabaseState {
    let lines: Vec<&str> = checked.stdout.lines().collect();
    match (checked.status.success(), &lines[..]) {
        (true, ["ok", counts]) => match counts.split_once('|') {
            Some((count, "0")) => count
                .parse()
                .map_or_else(|_| DatabaseState::Damaged(counts.to_string()), DatabaseState::Whole),
            _ => DatabaseState::OtherContent(counts.to_string()),
        },
        // A database without the tables is whole for SQLite.
        (false, ["ok", ..]) => DatabaseState::OtherContent(checked.stderr.trim().to_owned()),
        _ => DatabaseState::Damaged(format!("{} {}", checked.stdout.trim(), checked.stderr.trim())),
    }
}

/// Returns what is not installed.
pub(super) fn missing() -> Option<String> {
    let programs = ["go", "sqlite3"].into_iter().find(|program| !is_installed(program));
    let missing = programs.or((!Path::new(SOURCE).exists()).then_some(SOURCE));
    missing.map(|missing| format!("{missing} is not installed"))
}

/// Returns the program that writes and checks databases of bbolt, compiled once.
fn bbolt() -> Result<&'static Path> {
    static PROGRAM: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| compile().map_err(|error| error.to_string()));
    program.as_deref().map_err(|error| error.clone().into())
}

/// Compiles with the packages that Debian installs, without a network.
fn compile() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    // The directory that Cargo gives to tests, too: the compiled standard library is there.
    let place = own.parent().ok_or("no directory of programs")?.with_file_name("tmp");
    let source = place.join("hold-bbolt/main.go");
    fs::create_dir_all(place.join("hold-bbolt"))?;
    fs::write(&source, include_str!("bolt.go"))?;
    let mut build = go::build(&place.join("hold-bbolt"), "bbolt", &place.join("go-cache"));
    crate::recording::finish("go build", patiently(COMPILING), &mut build)?;
    Ok(place.join("hold-bbolt/bbolt"))
}
