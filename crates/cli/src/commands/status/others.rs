//! Interrupted runs of other users: of every user for root, of root for a user.

use super::accounts::{self, MOST, MarkerDirectory};
use super::as_user::{DirectoryAnswer, MOST_FILES, Order, act_as_users};
use crate::text::{is_typable, say, shell};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Mutex, PoisonError};
use synconce_durable::recovery::{self, FoundMarker, MarkerState};
use synconce_durable::replace;
use synconce_durable::standard_paths;

/// How many directories a message lists.
const NAMED: usize = 3;
/// How many users a message lists.
const NAMED_USERS: usize = 16;

/// Whether to read other state directories than the user's own. They are not read if the
/// user's own was set by the environment.
fn are_wanted() -> bool {
    !standard_paths::is_state_named()
}

/// Whether the user's own markers are root's.
fn is_root() -> bool {
    standard_paths::state().as_deref() == Some(&standard_paths::systems())
}

/// Returns the interrupted runs of every user, for root. A notice is printed for what cannot
/// be read; the rest is still returned.
pub fn of_every_user() -> Vec<FoundMarker> {
    each(Order::Show, |_| true)
}

/// Clears the interrupted run `id` of one of `users`, or of any user if `users` is empty.
/// Returns the cleared runs.
///
/// # Errors
/// Fails if several users have a run with this id: `status` printed the same command for each of
/// these runs. A user may have copied the id of another user's run, so that root clears that run.
pub fn clear(id: &str, users: &HashSet<u32>) -> Result<Vec<FoundMarker>, String> {
    let is_wanted = |user: u32| users.is_empty() || users.contains(&user);
    let mut found = each(Order::Show, is_wanted);
    found.retain(|found| found.id == id);
    let mut owners = BTreeSet::from_iter(found.iter().map(|found| found.owner));
    if users.is_empty() && owners.len() > 1 && !owners.contains(&0) {
        return Err(ambiguous(id, owners, "clear"));
    }
    // Root's own run can always be cleared, even if another user has chosen the same id.
    if owners.contains(&0) {
        owners = BTreeSet::from([0]);
    }
    if found.is_empty() {
        return Ok(found);
    }
    Ok(each(Order::Clear(id), |user| owners.contains(&user)))
}

/// The user of a run, by its marker.
#[derive(Default)]
pub struct RunOwner {
    /// `None` if no marker is found, as of a run that has held nothing.
    pub user: Option<u32>,
    /// Why the search may have missed a marker. `None` if a marker was found, or all directories
    /// were read.
    pub unchecked: Option<&'static str>,
}

/// Returns the user of the run `id`, for root.
///
/// # Errors
/// As for [`clear`].
pub fn owner_of(id: &str) -> Result<RunOwner, String> {
    if !are_wanted() && rustix::process::geteuid().is_root() {
        let why = "SYNCONCE_STATE_DIR is set, so that no other directory is read";
        return Ok(RunOwner { user: None, unchecked: Some(why) });
    }
    let (found, is_whole) = look(Order::Find(id), |_| true);
    let owners = BTreeSet::from_iter(found.iter().map(|it| it.owner));
    // Root's own run is meant, even if another user has chosen the same id.
    if owners.len() > 1 && !owners.contains(&0) {
        return Err(ambiguous(id, owners, "commit"));
    }
    let user = owners.first().copied();
    let is_unsure = user.is_none() && !is_whole;
    let unchecked = is_unsure.then_some("not all state directories were read");
    Ok(RunOwner { user, unchecked })
}

/// Returns why `verb` does nothing: each of `owners` has a run of this id.
fn ambiguous(id: &str, owners: BTreeSet<u32>, verb: &str) -> String {
    let names: Vec<_> = owners.into_iter().map(accounts::name_of).collect();
    format!("runs of {} are named {id}: {verb} each as its user", names.join(", "))
}

/// Prints `line`, unless this process has printed it: `--clear` looks several times, and for each
/// ID.
fn say_once(line: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(line.to_owned()) {
        say(line);
    }
}

/// What could not be read: the users or directories, by reason.
#[derive(Default)]
struct Missed(BTreeMap<String, Vec<String>>);

impl Missed {
    fn add(&mut self, why: String, name: &str) {
        let names = self.0.entry(why).or_default();
        // A user may have several directories.
        if names.last().is_none_or(|last| last != name) {
            names.push(name.to_owned());
        }
    }

    /// Prints, for each reason, that `act` of at most `most` of them cannot be done.
    fn say(&self, act: &str, most: usize) {
        for (why, names) in &self.0 {
            let more = names.len().saturating_sub(most);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            say_once(&format!("{act} {}{more}: {why}", names[..most.min(names.len())].join(", ")));
        }
    }
}

fn each(order: Order<'_>, is_wanted: impl Fn(u32) -> bool) -> Vec<FoundMarker> {
    look(order, is_wanted).0
}

/// Returns what is found, and whether all directories were read.
fn look(order: Order<'_>, is_wanted: impl Fn(u32) -> bool) -> (Vec<FoundMarker>, bool) {
    if !are_wanted() || !is_root() {
        return (Vec::new(), true);
    }
    let (mut accounts, errors) = accounts::all();
    accounts.retain(|account| is_wanted(account.user));
    let (mut found, mut users, mut directories) =
        (Vec::new(), Missed::default(), Missed::default());
    for (account, answers) in accounts.iter().zip(act_as_users(&accounts, order)) {
        // The owner in the answer is not trusted: a process with the user's rights wrote it.
        let of_user = |run| FoundMarker { owner: account.user, ..run };
        let mut missed = |why| users.add(why, &account.name);
        if account.has_more {
            missed(format!("they have more than {MOST}"));
        }
        let answers = answers.unwrap_or_else(|why| {
            missed(why);
            Vec::new()
        });
        for (place, answer) in account.places.iter().zip(answers) {
            match answer {
                DirectoryAnswer::Runs(runs) => found.extend(runs.into_iter().map(of_user)),
                DirectoryAnswer::Some(runs) => {
                    found.extend(runs.into_iter().map(of_user));
                    missed(format!("they have more than {MOST_FILES} files"));
                }
                DirectoryAnswer::Failed(why) => {
                    directories.add(why, &place.directory.to_string_lossy());
                }
                DirectoryAnswer::Gone => gone(place),
            }
        }
    }
    // Not when clearing, which follows a listing that has printed them.
    if !matches!(order, Order::Clear(_)) {
        errors.iter().for_each(|error| say(error));
    }
    users.say("cannot look at all state directories of", NAMED_USERS);
    directories.say("cannot look at", NAMED);
    let is_whole = errors.is_empty() && users.0.is_empty() && directories.0.is_empty();
    (found, is_whole)
}

/// Removes the pointer to a directory that was removed, or prints why the pointer is kept.
fn gone(place: &MarkerDirectory) {
    let Some(registered) = &place.pointer else { return };
    match registered.is_mounted() {
        // If the removal fails, the next `status` of root repeats it.
        Ok(true) => return drop(replace::remove(&registered.path)),
        Ok(false) => {}
        // The directory may be on a disk that is not mounted now.
        Err(why) => {
            say_once(&format!("cannot look at {}: {why}", place.directory.display()));
            return;
        }
    }
    let (directory, system) = (place.directory.display(), &registered.pointer.file_system);
    say_once(&format!(
        "cannot look at {directory}: {} ({}) is not mounted at {}",
        system.source,
        system.type_name,
        system.mount_point.display()
    ));
    let pointer = registered.path.to_string_lossy().into_owned();
    if is_typable(&pointer) {
        say_once(&format!("hint: if it never comes back: rm {}", shell(&[pointer])));
    }
}

/// Returns the public parts of root's interrupted runs, for a user; empty if root has closed
/// the directory.
pub fn of_root() -> Vec<FoundMarker> {
    if !are_wanted() || is_root() {
        return Vec::new();
    }
    let mut found = recovery::markers(&standard_paths::systems()).unwrap_or_default();
    found.retain(|found| found.state == MarkerState::Interrupted);
    found
}
