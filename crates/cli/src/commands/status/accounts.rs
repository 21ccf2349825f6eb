//! The users of the machine, and where their markers may be.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use synconce_durable::places;
use synconce_durable::registry::{self, Registered};

/// Most state directories of one user that root looks at: a limit for a hostile user.
const MOST: usize = 64;

/// A user, and the state directories that may be theirs.
#[derive(Debug, PartialEq, Eq)]
pub struct Account {
    pub user: u32,
    pub group: u32,
    pub places: Vec<Place>,
}

/// A directory in which markers may be.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    pub directory: PathBuf,
    /// The pointer that names it; `None` for the usual one in a home.
    pub pointer: Option<Registered>,
}

/// A line of passwd(5).
struct Entry<'a> {
    name: &'a str,
    user: u32,
    group: u32,
    home: &'a str,
}

/// Every user that may have markers, by the registry and by `/etc/passwd`; and what
/// keeps some from being found, for people to read.
pub fn all() -> (Vec<Account>, Vec<String>) {
    let mut troubles = Vec::new();
    let registry = places::registry();
    let (pointers, others) = registry::pointers(&registry).unwrap_or_else(|error| {
        troubles.push(error.to_string());
        (Vec::new(), 0)
    });
    if others > 0 {
        troubles.push(format!("cannot read {others} files in {}", registry.display()));
    }
    let passwd = passwd();
    let (accounts, full) = merge(&passwd, pointers);
    let names = full.into_iter().map(|user| name_in(&passwd, user));
    troubles.extend(
        names.map(|name| format!("cannot look at all state directories of {name}: too many")),
    );
    (accounts, troubles)
}

/// The name of `user`, or its number.
pub fn name_of(user: u32) -> String {
    name_in(&passwd(), user)
}

fn name_in(passwd: &str, user: u32) -> String {
    let entry = passwd.lines().filter_map(entry).find(|entry| entry.user == user);
    entry.map_or_else(|| format!("user {user}"), |entry| entry.name.to_owned())
}

fn passwd() -> String {
    let bytes = fs::read("/etc/passwd").unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn entry(line: &str) -> Option<Entry<'_>> {
    let fields: Vec<_> = line.split(':').collect();
    let [name, _, user, group, _, home, _] = fields[..] else { return None };
    Some(Entry { name, user: user.parse().ok()?, group: group.parse().ok()?, home })
}

/// The accounts of the text of `/etc/passwd` and of `pointers`; and the users that have
/// more directories than are looked at.
fn merge(passwd: &str, pointers: Vec<Registered>) -> (Vec<Account>, Vec<u32>) {
    let mut accounts: BTreeMap<u32, Account> = BTreeMap::new();
    let mut full = Vec::new();
    for entry in passwd.lines().filter_map(entry).filter(|entry| entry.user != 0) {
        let account = accounts.entry(entry.user);
        let (user, group, places) = (entry.user, entry.group, Vec::new());
        let account = account.or_insert(Account { user, group, places });
        let directory = places::state_in_home(Path::new(entry.home));
        if directory.is_absolute() && !account.places.iter().any(|it| it.directory == directory) {
            account.places.push(Place { directory, pointer: None });
        }
    }
    for registered in pointers {
        let (user, group) = registered.owner;
        let account = accounts.entry(user).or_insert(Account { user, group, places: Vec::new() });
        let directory = registered.pointer.directory.clone();
        if let Some(same) = account.places.iter_mut().find(|it| it.directory == directory) {
            same.pointer = Some(registered);
        } else if account.places.len() < MOST {
            account.places.push(Place { directory, pointer: Some(registered) });
        } else if full.last() != Some(&user) {
            full.push(user);
        }
    }
    full.sort_unstable();
    full.dedup();
    (accounts.into_values().collect(), full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_but_root_has_the_usual_place_in_their_home_once() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n\
                      a:x:1000:100:,,,:/home/a:/bin/sh\n\
                      again:x:1000:100:,,,:/home/a:/bin/sh\n\
                      other:x:1000:100:,,,:/srv/a:/bin/sh\n\
                      damaged:x:1001\n\
                      homeless:x:1002:1002:::/bin/sh\n";
        let (accounts, full) = merge(passwd, Vec::new());
        let of = |account: &Account| {
            account.places.iter().map(|place| place.directory.clone()).collect::<Vec<_>>()
        };
        assert_eq!(accounts.len(), 2);
        assert_eq!((accounts[0].user, accounts[0].group), (1000, 100));
        let wanted = ["/home/a", "/srv/a"].map(|home| format!("{home}/.local/state/synconce"));
        assert_eq!(of(&accounts[0]), wanted.map(PathBuf::from));
        assert_eq!((of(&accounts[1]), full), (Vec::new(), Vec::new()));
    }
}
