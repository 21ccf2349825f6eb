//! `synconce hold restore`

use super::{CommandError, known, say_waiting, with_commands};
use crate::commands::output::print;
use crate::table;
use crate::text::notice;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::process::ExitCode;
use synconce_durable::text::quote;
use synconce_hold::aside::{self, Journal, RestoreError, Restored};

/// How many paths are listed.
const LISTED: usize = 20;

impl From<RestoreError> for CommandError {
    fn from(error: RestoreError) -> Self {
        with_commands(error.to_string(), &error.commands(), error.remedy())
    }
}

/// Puts back what is set aside.
pub(super) fn restore(word: &OsStr) -> Result<(), CommandError> {
    let name = known(word)?;
    let restored = aside::restore(&name, &say_waiting)?;
    if restored.paths.is_empty() && restored.kept.is_empty() {
        notice(&format!("hold {name}: nothing more is to be put back"));
    } else {
        say_restored(&name, &restored);
    }
    Ok(())
}

/// Lists the holds whose files are set aside. A journal that cannot be read hides no other one.
pub(super) fn list() -> Result<ExitCode, CommandError> {
    let failed = |error: &dyn std::fmt::Display| CommandError::from(error.to_string());
    let (mut rows, mut code) = (Vec::new(), ExitCode::SUCCESS);
    for name in Journal::names().map_err(|error| failed(&error))? {
        match Journal::read(&name) {
            Ok(journal) => rows.extend(row(&journal)),
            Err(error) => code = failed(&error).report(),
        }
    }
    if rows.is_empty() {
        print("no files are set aside\n")?;
    } else {
        rows.insert(0, ["NAME", "SINCE", "FILES"].map(str::to_owned));
        print(table::render(&rows, table::width_of(io::stdout()), &[2, 1]))?;
    }
    Ok(code)
}

/// Returns the row of the hold of `journal`, if a restore would put anything back.
fn row(journal: &Journal) -> Option<[String; 3]> {
    let count = journal.to_put_back().len();
    let since = journal.sets.iter().find(|set| !set.restored)?.time.clone();
    (count > 0).then(|| [journal.name.clone(), since, count.to_string()])
}

/// Says what was put back, and what is kept beside it.
pub(super) fn say_restored(name: &str, restored: &Restored) {
    let Restored { paths, replaced, kept, is_interrupted } = restored;
    for path in paths.iter().take(LISTED) {
        notice(&format!("hold {name}: put back {}", path.display()));
    }
    if paths.len() > LISTED {
        notice(&format!("hold {name}: put back {} more", paths.len() - LISTED));
    }
    for (path, to) in replaced {
        let (path, to) = (path.display(), to.display());
        notice(&format!("the previous {path} is kept as {to}"));
    }
    if !kept.is_empty() {
        let kept: BTreeSet<_> = kept.iter().map(|path| quote(path)).collect();
        let kept = Vec::from_iter(kept).join(" ");
        notice(&format!(
            "after the daemon has started, this removes what is kept in {kept}: \
             synconce hold settle {name}"
        ));
    }
    if *is_interrupted {
        notice(&format!(
            "the hold is still interrupted; this uses the files as they are: \
             synconce hold recover {name} --keep"
        ));
    } else {
        notice("the crash may have damaged these files: check them before the daemon starts");
    }
}
