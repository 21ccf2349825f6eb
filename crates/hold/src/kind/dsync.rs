//! Writes that are synced by a flag of open(2), which a volatile overlay does not change.

use super::content::{Contents, text};
use super::refusal::{Refusal, RefusalReason};
use crate::config::Held;
use std::fs;
use std::path::{Path, PathBuf};

/// The options of MySQL and MariaDB: files, and directories of files.
const MYSQL: [&str; 3] = ["/etc/my.cnf", "/etc/my.cnf.d", "/etc/mysql"];
/// How deep directories of options are.
const DEEPEST: usize = 3;

/// Refuses databases that write with O_SYNC or O_DSYNC, as their options say: InnoDB, and
/// PostgreSQL whose data may be thrown away. LMDB opens its file with O_DSYNC for one write a
/// commit, and is accepted.
pub(super) fn check(held: &Held, contents: &Contents) -> Result<(), Refusal> {
    let refuse =
        |program, file: PathBuf| Err(RefusalReason::Synchronous(program, file).on(&held.path));
    if let Some(data) = contents.named("ibdata1").next() {
        let own = ["my.cnf", "mysqld-auto.cnf"].map(|name| data.with_file_name(name));
        let mut files: Vec<PathBuf> = own.into();
        MYSQL.iter().for_each(|path| collect(Path::new(path), DEEPEST, &mut files));
        if let Some(file) = files.into_iter().find(|file| innodb_syncs(&text(file))) {
            return refuse("InnoDB", file);
        }
    }
    for version in contents.named("PG_VERSION") {
        let own = ["postgresql.conf", "postgresql.auto.conf"];
        let mut files: Vec<PathBuf> = own.map(|name| version.with_file_name(name)).into();
        files.extend(config_file(&text(&version.with_file_name("postmaster.opts"))));
        if let Some(file) = files.into_iter().find(|file| postgresql_syncs(&text(file))) {
            return refuse("PostgreSQL", file);
        }
    }
    Ok(())
}

fn collect(path: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    match fs::read_dir(path) {
        Ok(entries) if depth > 0 => {
            entries.flatten().for_each(|entry| collect(&entry.path(), depth - 1, files));
        }
        _ => files.push(path.to_owned()),
    }
}

/// Whether options of MySQL open InnoDB's files with O_DSYNC. In a name `-` is `_`.
fn innodb_syncs(text: &str) -> bool {
    let text = text.to_ascii_lowercase().replace('-', "_");
    // mysqld-auto.cnf is one line of JSON.
    let in_json = text.split("\"innodb_flush_method\"").nth(1);
    let in_json = in_json.and_then(|rest| rest.split('}').next());
    in_json.is_some_and(|value| value.contains("\"o_dsync\""))
        || settings(&text).any(|(name, value)| name == "innodb_flush_method" && value == "o_dsync")
}

/// Whether options of PostgreSQL open its log with O_SYNC or O_DSYNC.
fn postgresql_syncs(text: &str) -> bool {
    settings(&text.to_ascii_lowercase()).any(|(name, value)| {
        name == "wal_sync_method" && ["open_sync", "open_datasync"].contains(&value)
    })
}

/// Returns the names and values of the lines `NAME = VALUE`, without quotes and comments.
fn settings(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        // PostgreSQL needs no "=".
        let (name, value) = line.trim().split_once(|letter: char| " \t=".contains(letter))?;
        Some((name, value.trim_matches(|letter: char| " \t='\"".contains(letter))))
    })
}

/// Returns the configuration file in the command line that PostgreSQL keeps of its last start.
fn config_file(options: &str) -> Option<PathBuf> {
    let value = options.split("config_file=").nth(1)?;
    value.split(['"', '\n']).next().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_sync_at_open_are_found_and_comments_are_not() {
        for text in [
            "[mysqld]\ninnodb_flush_method=O_DSYNC\n",
            "innodb-flush-method = o_dsync # slow\n",
            r#"{"Version": 2, "mysql_static_variables": {"innodb_flush_method": {"Value": "O_DSYNC", "Metadata": {}}}}"#,
        ] {
            assert!(innodb_syncs(text), "{text}");
        }
        for text in ["", "#innodb_flush_method=O_DSYNC\n", "innodb_flush_method=O_DIRECT\n"] {
            assert!(!innodb_syncs(text), "{text}");
        }
        assert!(postgresql_syncs("fsync = on\nwal_sync_method = 'open_datasync'\n"));
        assert!(postgresql_syncs("wal_sync_method open_sync\n"));
        assert!(!postgresql_syncs("#wal_sync_method = open_sync\nwal_sync_method=fdatasync\n"));
        let options = "/usr/lib/postgresql \"-D\" \"/d\" \"-c\" \"config_file=/etc/p/p.conf\"\n";
        assert_eq!(config_file(options), Some("/etc/p/p.conf".into()));
    }
}
