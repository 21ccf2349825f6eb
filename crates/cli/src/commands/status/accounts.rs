//! The users of the machine, and the directories in which their markers may be.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use synconce_durable::registry::{self, Registered};
use synconce_durable::standard_paths;
use synconce_sys::accounts as lines;

/// The most state directories of one user that root reads: a limit for a hostile user.
pub const MOST: usize = 64;

/// A user, and the directories that may be the user's state directories.
#[derive(Debug, PartialEq, Eq)]
pub struct Account {
    pub user: u32,
    /// The name of the user, or its number.
    pub name: String,
    pub group: u32,
    /// All groups of the user in `/etc/group`: a home may be open to one of these groups
    /// alone.
    pub groups: Vec<u32>,
    pub places: Vec<MarkerDirectory>,
    /// Whether there are more places, which are not read.
    pub has_more: bool,
}

impl Account {
    fn new(user: u32, name: String, group: u32) -> Self {
        Self { user, name, group, groups: vec![group], places: Vec::new(), has_more: false }
    }
}

/// A directory in which markers may be.
#[derive(Debug, PartialEq, Eq)]
pub struct MarkerDirectory {
    pub directory: PathBuf,
    /// The pointer that names it; `None` for the default directory in a home.
    pub pointer: Option<Registered>,
}

/// Returns every user that may have markers, by the registry and by `/etc/passwd`, and
/// messages about what could not be read.
pub fn all() -> (Vec<Account>, Vec<String>) {
    let mut errors = Vec::new();
    let registry = standard_paths::registry();
    let (pointers, others) = registry::pointers(&registry).unwrap_or_else(|error| {
        errors.push(error.to_string());
        (Vec::new(), 0)
    });
    if others > 0 {
        errors.push(format!("cannot read {others} files in {}", registry.display()));
    }
    (merge(&text("/etc/passwd"), &text("/etc/group"), pointers), errors)
}

/// Returns the name of `user`, or its number.
pub fn name_of(user: u32) -> String {
    let passwd = text("/etc/passwd");
    let entry = lines::passwd(&passwd).find(|entry| entry.user == user);
    entry.map_or_else(|| number(user), |entry| entry.name.to_owned())
}

fn number(user: u32) -> String {
    format!("user {user}")
}

fn text(path: &str) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Returns the groups of each member in `group`, the text of group(5).
fn groups(group: &str) -> HashMap<&str, Vec<u32>> {
    let mut groups: HashMap<_, Vec<_>> = HashMap::new();
    for line in lines::groups(group) {
        for member in line.members() {
            groups.entry(member).or_default().push(line.group);
        }
    }
    groups
}

/// Returns the accounts in the texts of `/etc/passwd` and `/etc/group` and in `pointers`.
fn merge(passwd: &str, group: &str, pointers: Vec<Registered>) -> Vec<Account> {
    let mut accounts: BTreeMap<u32, Account> = BTreeMap::new();
    let groups = groups(group);
    for entry in lines::passwd(passwd).filter(|entry| entry.user != 0) {
        let new = || Account::new(entry.user, entry.name.to_owned(), entry.group);
        let account = accounts.entry(entry.user).or_insert_with(new);
        account.groups.extend(groups.get(entry.name).into_iter().flatten());
        let directory = standard_paths::state_in_home(Path::new(entry.home));
        if directory.is_absolute() && !account.places.iter().any(|it| it.directory == directory) {
            account.places.push(MarkerDirectory { directory, pointer: None });
        }
    }
    for registered in pointers {
        let (user, group) = registered.owner;
        let new = || match user {
            0 => Account::new(0, "root".to_owned(), group),
            _ => Account::new(user, number(user), group),
        };
        let account = accounts.entry(user).or_insert_with(new);
        let directory = registered.pointer.directory.clone();
        if let Some(same) = account.places.iter_mut().find(|it| it.directory == directory) {
            same.pointer = Some(registered);
        } else if account.places.len() < MOST {
            account.places.push(MarkerDirectory { directory, pointer: Some(registered) });
        } else {
            account.has_more = true;
        }
    }
    accounts.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_but_root_has_the_usual_place_in_their_home_once_and_their_groups() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n\
                      a:x:1000:100:,,,:/home/a:/bin/sh\n\
                      again:x:1000:100:,,,:/home/a:/bin/sh\n\
                      other:x:1000:100:,,,:/srv/a:/bin/sh\n\
                      damaged:x:1001\n\
                      homeless:x:1002:1002:::/bin/sh\n";
        let group = "b:x:7:b,a\ndamaged:x:a\nc:x:8:again\nd:x:9:\n";
        let accounts = merge(passwd, group, Vec::new());
        let of = |account: &Account| {
            account.places.iter().map(|place| place.directory.clone()).collect::<Vec<_>>()
        };
        assert_eq!(accounts.len(), 2);
        assert_eq!((accounts[0].user, accounts[0].name.as_str()), (1000, "a"));
        assert_eq!((accounts[0].group, &accounts[0].groups[..]), (100, &[100, 7, 8][..]));
        let wanted = ["/home/a", "/srv/a"].map(|home| format!("{home}/.local/state/synconce"));
        assert_eq!(of(&accounts[0]), wanted.map(PathBuf::from));
        assert_eq!((of(&accounts[1]), accounts[1].has_more), (Vec::new(), false));
    }
}
