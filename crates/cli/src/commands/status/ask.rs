//! Looking at other users' directories, as those users.
//!
//! What is there is theirs: links to anywhere, pipes, file systems that do not
//! answer. So a process with the user's own rights looks (see [`apart`]), and root
//! believes no more of it than that user may say.

use super::accounts::{Account, Place};
use super::apart;
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use synconce_durable::recovery::{self, Found, State};

/// Most files that are looked at in all directories of one user.
pub const MOST_FILES: usize = 4096;

/// What is found at one place.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The directory is not there.
    Gone,
    /// Its user's interrupted runs.
    Runs(Vec<Found>),
    /// The same, among the files that were looked at before [`MOST_FILES`] was reached.
    Some(Vec<Found>),
    /// Why it cannot be looked at.
    Failed(String),
}

/// What is to be done with the interrupted runs.
#[derive(Clone, Copy)]
pub enum Order<'a> {
    Show,
    /// Clear the run with this id; it is the only one that is answered.
    Clear(&'a str),
}

/// One answer for each place of each of `accounts`, in their order, or why its user was
/// not looked at.
pub fn ask(accounts: &[Account], order: Order<'_>) -> Vec<Result<Vec<Answer>, String>> {
    let looks = accounts.iter().map(|account| move || look(account, order)).collect();
    let complete = |(answers, account): (Result<Result<_, String>, String>, &Account)| {
        let answers: Vec<_> = answers??;
        let is_complete = answers.len() == account.places.len();
        is_complete.then_some(answers).ok_or_else(|| "the answer makes no sense".to_owned())
    };
    apart::each(looks).into_iter().zip(accounts).map(complete).collect()
}

/// In the process that looks: becomes the user and looks.
fn look(account: &Account, order: Order<'_>) -> Result<Vec<Answer>, String> {
    become_user(account).map_err(|error| error.to_string())?;
    let mut left = MOST_FILES;
    let look = |place| look_at(place, account.user, order, &mut left);
    Ok(account.places.iter().map(look).collect())
}

/// Gives up every right but those of the user of `account`, which for root are all.
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

fn look_at(place: &Place, user: u32, order: Order<'_>, left: &mut usize) -> Answer {
    use ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match fs::metadata(&place.directory) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Answer::Gone,
        // A home that its user cannot enter holds no run of that user.
        Err(error) if error.kind() == PermissionDenied && place.pointer.is_none() => {
            return Answer::Gone;
        }
        Err(error) => return Answer::Failed(error.to_string()),
    }
    let (mut found, all) = match recovery::markers_among(&place.directory, left) {
        Ok(found) => found,
        Err(error) => return Answer::Failed(error.io().to_string()),
    };
    // What belongs to others is theirs to have looked at.
    found.retain(|found| found.state == State::Interrupted && found.owner == user);
    if let Order::Clear(id) = order {
        found.retain(|found| found.id == id);
        if let Some(error) = found.iter().find_map(|found| recovery::clear(found).err()) {
            return Answer::Failed(error.io().to_string());
        }
    }
    if all { Answer::Runs(found) } else { Answer::Some(found) }
}
