//! `synconce tree remove`, `gc`, and emptying the trash.

use super::bar::Bar;
use super::failure::Failure;
use super::store;
use crate::arguments::tree::{Gc, Remove};
use crate::text::say;
use synconce_sys::process::{self, Side};
use synconce_tree::{Emptied, Store};

/// How many failed removals are listed.
const NAMED: usize = 5;

pub fn remove(store: &Store, arguments: &Remove) -> Result<(), Failure> {
    let mut failed = None;
    for name in &arguments.names {
        // The other trees are removed all the same, as with rm(1).
        if let Err(error) = synconce_tree::remove(store, name)
            && let Some(earlier) = failed.replace(error)
        {
            Failure::from(earlier).report();
        }
    }
    if arguments.wait {
        empty(store, true)?;
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

pub fn gc(store: &Store, arguments: &Gc) -> Result<(), Failure> {
    let (recovered, _) = synconce_tree::gc(store)?;
    store::report(&recovered);
    empty(store, arguments.wait)
}

fn empty(store: &Store, wait: bool) -> Result<(), Failure> {
    let bar = Bar::new("removed");
    let emptied = synconce_tree::empty_trash(store, wait, synconce_fs::threads(), &bar)?;
    drop(bar);
    report(&emptied)
}

fn report(emptied: &Emptied) -> Result<(), Failure> {
    if emptied.busy {
        say("another process empties the trash; --wait waits for it");
    }
    emptied.left.iter().take(NAMED).for_each(|error| say(&error.to_string()));
    match emptied.left.len() {
        0 => Ok(()),
        left => Err(Failure::from(format!("{left} paths stay in the trash"))
            .hint("what is mounted there has to be unmounted; then `synconce tree gc`")),
    }
}

/// Empties the trash, if there is any, in a child process of the lowest priority. The calling
/// process must be single-threaded, because it forks.
pub fn empty_in_background(store: &Store) {
    if !synconce_tree::has_trash(store).unwrap_or(false) {
        return;
    }
    match process::fork() {
        Ok(Side::Parent(_)) => {}
        Ok(Side::Child) => {
            process::leave_session();
            process::give_way();
            let code =
                synconce_tree::empty_trash(store, false, synconce_fs::threads(), &()).is_err();
            process::exit_now(i32::from(code))
        }
        Err(error) => {
            say(&format!("cannot make a process that empties the trash: {error}"));
            say("hint: `synconce tree gc` empties it");
        }
    }
}
