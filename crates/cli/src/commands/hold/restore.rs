//! `synconce hold restore`

use super::{CommandError, known, say_waiting};
use crate::arguments::hold::NamedHold;
use crate::text::notice;
use std::collections::BTreeSet;
use synconce_durable::text::quote;
use synconce_hold::aside::{self, RestoreError, Restored};

/// How many paths are listed.
const LISTED: usize = 20;

impl From<RestoreError> for CommandError {
    fn from(error: RestoreError) -> Self {
        Self::in_lines(&error.to_string()).with_remedy(error.remedy())
    }
}

/// Puts back what is set aside.
pub(super) fn restore(named: &NamedHold) -> Result<(), CommandError> {
    let name = known(&named.name)?;
    let restored = aside::restore(&name, &say_waiting)?;
    if restored.paths.is_empty() && restored.kept.is_empty() {
        notice(&format!("hold {name}: nothing more is to be put back"));
    } else {
        say_restored(&name, &restored);
    }
    Ok(())
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
        notice(&format!("{path} as it was until now is kept as {to}"));
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
