//! Interrupted runs of others: of every user for root, of root for a user.

use super::accounts::{self, Place};
use super::ask::{Answer, Order, ask};
use crate::text::{is_typable, say, shell};
use std::collections::BTreeMap;
use synconce_durable::places;
use synconce_durable::recovery::{self, Found, State};
use synconce_durable::replace;

/// Directories that are named in one message.
const NAMED: usize = 3;

/// Whether other state directories than the own one are looked at: not when that one
/// was named.
fn are_wanted() -> bool {
    !places::is_state_named()
}

/// Whether our own markers are root's.
fn is_root() -> bool {
    places::state().as_deref() == Some(&places::systems())
}

/// The interrupted runs of every user, for root. What cannot be looked at is said,
/// and hides nothing else.
pub fn of_every_user() -> Vec<Found> {
    each(Order::Show)
}

/// Clears the interrupted run `id` of whichever user has it; how many there were.
pub fn clear(id: &str) -> usize {
    each(Order::Clear(id)).len()
}

fn each(order: Order<'_>) -> Vec<Found> {
    if !are_wanted() || !is_root() {
        return Vec::new();
    }
    let (accounts, troubles) = accounts::all();
    troubles.iter().for_each(|trouble| say(trouble));
    let (mut found, mut failed) = (Vec::new(), BTreeMap::new());
    for (account, answers) in accounts.iter().zip(ask(&accounts, order)) {
        for (place, answer) in account.places.iter().zip(answers) {
            match answer {
                Answer::Runs(runs) => {
                    // The user's process has written whose they are.
                    let of_user = |run| Found { owner: account.user, ..run };
                    found.extend(runs.into_iter().map(of_user));
                }
                Answer::Failed(why) => failed.entry(why).or_insert_with(Vec::new).push(place),
                Answer::Gone => gone(place),
            }
        }
    }
    for (why, places) in failed {
        let names = places.iter().take(NAMED).map(|place| place.directory.display().to_string());
        let names = names.collect::<Vec<_>>().join(", ");
        let more = places.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        say(&format!("cannot look at {names}{more}: {why}"));
    }
    found
}

/// Removes the pointer to a directory that was removed, or says why it is kept.
fn gone(place: &Place) {
    let Some(registered) = &place.pointer else { return };
    if registered.is_mounted() {
        // Root looks again if this fails.
        let _ = replace::remove(&registered.path);
        return;
    }
    let (directory, system) = (place.directory.display(), &registered.pointer.file_system);
    say(&format!(
        "cannot look at {directory}: {} ({}) is not mounted at {}",
        system.source,
        system.type_name,
        system.mount_point.display()
    ));
    let pointer = registered.path.to_string_lossy().into_owned();
    if is_typable(&pointer) {
        say(&format!("hint: if it never comes back: rm {}", shell(&[pointer])));
    }
}

/// The public parts of root's interrupted runs, for a user; none when root has closed
/// the directory.
pub fn of_root() -> Vec<Found> {
    if !are_wanted() || is_root() {
        return Vec::new();
    }
    let mut found = recovery::markers(&places::systems()).unwrap_or_default();
    found.retain(|found| found.state == State::Interrupted);
    found
}
