//! Reads other users' state directories with those users' rights.
//!
//! A user controls what is in them: links to any path, pipes, file systems that do not answer.
//! A process with the user's own rights reads them (see [`apart`]), and root accepts from its
//! answer only what that user may claim.

use super::accounts::{Account, MarkerDirectory};
use super::apart;
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use synconce_durable::recovery::{self, FoundMarker, MarkerState};
use synconce_sys::reason;

/// The most files that are read in all directories of one user.
pub const MOST_FILES: usize = 4096;

/// The result for one directory.
#[derive(Debug, Serialize, Deserialize)]
pub enum DirectoryAnswer {
    /// The directory does not exist.
    Gone,
    /// The user's runs that [`Order`] asks for.
    Runs(Vec<FoundMarker>),
    /// Those runs among the first [`MOST_FILES`] files; there are more files.
    Some(Vec<FoundMarker>),
    /// Why the directory cannot be read.
    Failed(String),
}

/// Which runs to return, and what to do with them.
#[derive(Clone, Copy)]
pub enum Order<'a> {
    /// Show the interrupted runs.
    Show,
    /// Find the run with this id, interrupted or in flight.
    Find(&'a str),
    /// Clear the interrupted run with this id; the answer has only this run.
    Clear(&'a str),
}

/// Returns one answer for each place of each of `accounts`, in order, or why the places of the
/// user were not read.
pub fn act_as_users(
    accounts: &[Account],
    order: Order<'_>,
) -> Vec<Result<Vec<DirectoryAnswer>, String>> {
    let jobs = accounts.iter().map(|account| move || read_all(account, order)).collect();
    let complete = |(answers, account): (Result<Result<_, String>, String>, &Account)| {
        let answers: Vec<_> = answers??;
        let is_complete = answers.len() == account.places.len();
        is_complete.then_some(answers).ok_or_else(|| "the answer makes no sense".to_owned())
    };
    apart::each(jobs).into_iter().zip(accounts).map(complete).collect()
}

/// Runs in the child: becomes the user and reads the user's directories.
fn read_all(account: &Account, order: Order<'_>) -> Result<Vec<DirectoryAnswer>, String> {
    become_user(account).map_err(|error| reason(&error.into()))?;
    let mut left = MOST_FILES;
    let answer = |place| read_place(place, account.user, order, &mut left);
    Ok(account.places.iter().map(answer).collect())
}

/// Gives up every right but those of the user of `account`; for root, gives up none.
fn become_user(account: &Account) -> rustix::io::Result<()> {
    if account.user == 0 {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(account.user), Gid::from_raw(account.group));
    let groups: Vec<_> = account.groups.iter().copied().map(Gid::from_raw).collect();
    set_thread_groups(&groups)?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)
}

fn read_place(
    place: &MarkerDirectory,
    user: u32,
    order: Order<'_>,
    left: &mut usize,
) -> DirectoryAnswer {
    use ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match fs::metadata(&place.directory) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => {
            return DirectoryAnswer::Gone;
        }
        // A home that its user cannot enter holds no run of that user.
        Err(error) if error.kind() == PermissionDenied && place.pointer.is_none() => {
            return DirectoryAnswer::Gone;
        }
        Err(error) => return DirectoryAnswer::Failed(reason(&error)),
    }
    let (mut found, all) = match recovery::markers_among(&place.directory, left) {
        Ok(found) => found,
        Err(error) => return DirectoryAnswer::Failed(reason(error.io())),
    };
    // Markers of other users are read in those users' own directories.
    found.retain(|found| found.owner == user);
    match order {
        Order::Find(id) => found.retain(|found| found.id == id),
        Order::Show | Order::Clear(_) => {
            found.retain(|found| found.state == MarkerState::Interrupted);
        }
    }
    if let Order::Clear(id) = order {
        found.retain(|found| found.id == id);
        if let Some(error) = found.iter().find_map(|found| recovery::clear(found).err()) {
            return DirectoryAnswer::Failed(reason(error.io()));
        }
    }
    if all { DirectoryAnswer::Runs(found) } else { DirectoryAnswer::Some(found) }
}
