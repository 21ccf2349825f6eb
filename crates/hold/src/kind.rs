//! The kinds of databases that can be held, and what must not be held.

mod bolt;
mod content;
mod dsync;
mod found;
mod layer;
mod open;
mod place;
mod refusal;
mod replicated;

pub use found::DatabaseFile;
pub use refusal::{IF_OTHER, Refusal, RefusalReason};

use crate::config::Held;

/// Checks whether `held` is of its kind and may be held. The check is for the time before the
/// hold starts: a path in force is a mount point, which is refused. A missing path may be held
/// if a file system that can be held will have it.
///
/// Databases are recognized by the names and first bytes of files at the path, and in
/// directories down to four levels below.
///
/// # Errors
/// Says why the path may not be held.
pub fn inspect(held: &Held) -> Result<(), Refusal> {
    let is_there = place::check(held)?;
    replicated::check_above(held)?;
    if !is_there {
        return content::check_empty(held);
    }
    let contents = content::Contents::read(held)?;
    replicated::check(held, &contents)?;
    dsync::check(held, &contents)?;
    content::check(held, &contents)
}
