//! Writes the file that describes a hold, for the variants that run by `synconce hold run FILE`.
//! `bench` does not depend on the crate `hold`, so the text is made here.

use crate::command::show;
use crate::{Error, files, work_dir};
use std::path::{Path, PathBuf};

/// Writes the file that describes a hold of the paths `held`, each with its kind, into the
/// directory `work`, and returns the file's path. The hold's name is made from the device and
/// inode number of `work`, so no other benchmark uses the name. After a crash, a recovery sets the
/// held files aside.
pub(crate) fn write_file(work: &Path, held: &[(PathBuf, &str)]) -> Result<PathBuf, Error> {
    let file = work.join(format!("{}.toml", work_dir::unique_name(work)?));
    files::write(&file, text(held))?;
    Ok(file)
}

/// Returns the words of a command line that runs a daemon under the hold of `file`, up to the
/// daemon's own words.
///
/// `synconce hold run` gets SIGTERM if the benchmark exits, passes the signal on to the daemon, and
/// stops the hold after the daemon has ended.
pub(crate) fn daemon_words(synconce: &Path, file: &Path) -> Vec<String> {
    let own = ["setpriv", "--pdeathsig", "TERM", &show(synconce), "hold", "run", &show(file), "--"];
    own.map(str::to_owned).to_vec()
}

fn text(held: &[(PathBuf, &str)]) -> String {
    let mut text = "after_crash = \"wipe\"\n".to_owned();
    for (path, kind) in held {
        // Every escape in a JSON string is valid in a TOML string.
        let path = serde_json::Value::String(path.display().to_string());
        text.push_str(&format!("\n[[hold]]\npath = {path}\nkind = \"{kind}\"\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_a_table_and_quotes_are_escaped() {
        let held = [(PathBuf::from("/a \"b\""), "bolt"), (PathBuf::from("/c"), "other")];
        let expected = "after_crash = \"wipe\"\n\n\
            [[hold]]\npath = \"/a \\\"b\\\"\"\nkind = \"bolt\"\n\n\
            [[hold]]\npath = \"/c\"\nkind = \"other\"\n";
        assert_eq!(text(&held), expected);
    }
}
