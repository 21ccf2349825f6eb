//! Subordinate ids: `/etc/subuid` and `/etc/subgid` (subuid(5)).

use super::NamespaceRefusal;
use super::free::{LoginDefs, Range, free_range};
use std::fs;
use std::io;
use std::path::Path;
use synconce_durable::error::Error;
use synconce_sys::accounts;

const SUBUID: &str = "/etc/subuid";
const SUBGID: &str = "/etc/subgid";

/// Returns the ranges of user ids and of group ids that belong to the user `uid`, by name or by
/// number.
///
/// # Errors
/// A file cannot be read, or has no range for the user. The remedy is a command that assigns free
/// ids to the user, if any are free.
pub(super) fn of_user(uid: u32) -> Result<[Vec<Range>; 2], NamespaceRefusal> {
    let text = |path: &str| fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
    let passwd = text("/etc/passwd").unwrap_or_default();
    let number = uid.to_string();
    let known = accounts::passwd(&passwd).find(|line| line.user == uid);
    let who = known.map_or_else(|| number.clone(), |line| line.name.to_owned());
    let files = [SUBUID, SUBGID].map(text);
    let owned = files.each_ref().map(|file| {
        file.as_ref().map(|text| parse(text, Some(&[&who, &number]))).unwrap_or_default()
    });
    let missing = owned.each_ref().map(Vec::is_empty);
    let Some(first) = missing.iter().position(|missing| *missing) else { return Ok(owned) };
    let every = |text: &String| parse(text, None);
    let mut taken: Vec<Range> = files.iter().flatten().flat_map(every).collect();
    for list in [&passwd, &text("/etc/group").unwrap_or_default()] {
        taken.extend(ids(list).map(|start| Range { start, count: 1 }));
    }
    let defs = LoginDefs::parse(&text("/etc/login.defs").unwrap_or_default());
    let remedy = Some(remedy(&who, missing, free_range(&taken, defs)));
    let path = Path::new([SUBUID, SUBGID][first]);
    let error = match files.into_iter().nth(first) {
        Some(Err(error)) => Error::new("cannot read", path, error),
        _ => {
            let cause = io::Error::other(format!("it has no ids for {who}"));
            Error::new("cannot make a user namespace by", path, cause)
        }
    };
    Err(NamespaceRefusal { error, remedy })
}

/// Returns the first range of user ids and the first range of group ids of the user `uid`: the
/// first id, and the number of ids. Returns `None` unless the user has ids of both kinds.
pub fn first_of_user(uid: u32) -> Option<[(u64, u64); 2]> {
    let [users, groups] = of_user(uid).ok()?;
    let first = |ranges: Vec<Range>| ranges.first().map(|range| (range.start, range.count));
    Some([first(users)?, first(groups)?])
}

/// Returns the command that assigns the missing user ids and group ids to `who`.
fn remedy(who: &str, [uids, gids]: [bool; 2], free: Option<Range>) -> String {
    let Some(Range { start, count }) = free else {
        return format!(
            "give {who} a range of ids in /etc/subuid and /etc/subgid; between SUB_UID_MIN and \
             SUB_UID_MAX (/etc/login.defs) none is free"
        );
    };
    let last = start + count - 1;
    let option = |is_missing: bool, name: &str| {
        if is_missing { format!(" --add-{name} {start}-{last}") } else { String::new() }
    };
    let (uids, gids) = (option(uids, "subuids"), option(gids, "subgids"));
    format!("give {who} ids, as root: usermod{uids}{gids} {who}")
}

/// Returns the third field of every line of passwd(5) or group(5).
fn ids(list: &str) -> impl Iterator<Item = u64> {
    list.lines().filter_map(|line| line.split(':').nth(2)?.parse().ok())
}

/// Returns the ranges in `text` that belong to `owners`, or all ranges without `owners`.
fn parse(text: &str, owners: Option<&[&str]>) -> Vec<Range> {
    let line = |line: &str| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let (start, count) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let is_wanted = owners.is_none_or(|owners| owners.contains(&owner));
        (is_wanted && count > 0).then_some(Range { start, count })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_all_ranges_by_name_and_by_number_and_nobody_elses() {
        let text = "alice:100000:65536\nbob:165536:65536\n# alice:1:1\n1000:300000:10\nalice:x:y\nalice:5:0\n";
        let ranges = parse(text, Some(&["alice", "1000"]));
        let expected =
            [(100_000, 65_536), (300_000, 10)].map(|(start, count)| Range { start, count });
        assert_eq!(ranges, expected);
    }

    #[test]
    fn the_remedy_gives_only_the_ids_that_are_missing() {
        let free = Some(Range { start: 165_536, count: 65_536 });
        let range = "165536-231071";
        let both = format!("usermod --add-subuids {range} --add-subgids {range} alice");
        assert!(remedy("alice", [true, true], free).ends_with(&both));
        let one = format!("usermod --add-subgids {range} alice");
        assert!(remedy("alice", [false, true], free).ends_with(&one));
        assert!(remedy("alice", [true, true], None).contains("SUB_UID_MAX"));
    }
}
