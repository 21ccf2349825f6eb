//! Subordinate ids: `/etc/subuid` and `/etc/subgid` (subuid(5)).

use super::Refusal;
use std::fs;
use std::io;

/// Ids that a user may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The first.
    pub(super) start: u64,
    /// How many.
    pub(super) count: u64,
}

/// Fewer are not worth a namespace: Debian's `nobody` is 65534.
const USUAL: u64 = 65536;

/// The ranges that `file` gives the user `uid`, by name or number.
///
/// # Errors
/// The file cannot be read, or has none.
pub(super) fn of_user(file: &'static str, uid: u32) -> Result<Vec<Range>, Refusal> {
    let name =
        fs::read("/etc/passwd").ok().and_then(|text| name_of(&String::from_utf8_lossy(&text), uid));
    let (number, first) = (uid.to_string(), 100_000);
    let who = name.as_deref().unwrap_or(&number);
    let remedy = || {
        format!(
            "give {who} ids, as root: usermod --add-subuids {first}-{last} --add-subgids {first}-{last} {who}",
            last = first + USUAL - 1
        )
    };
    let text = fs::read_to_string(file)
        .map_err(|error| Refusal::new("cannot read", file, error, &remedy()))?;
    let ranges = parse(&text, &[who, &number]);
    if ranges.is_empty() {
        let cause = io::Error::other(format!("it has no ids for {who}"));
        return Err(Refusal::new("cannot make a user namespace by", file, cause, &remedy()));
    }
    Ok(ranges)
}

fn parse(text: &str, owners: &[&str]) -> Vec<Range> {
    let line = |line: &str| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let (start, count) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        (owners.contains(&owner) && count > 0).then_some(Range { start, count })
    };
    text.lines().filter_map(line).collect()
}

fn name_of(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_all_ranges_by_name_and_by_number_and_nobody_elses() {
        let text = "alice:100000:65536\nbob:165536:65536\n# alice:1:1\n1000:300000:10\nalice:x:y\nalice:5:0\n";
        let ranges = parse(text, &["alice", "1000"]);
        let expected =
            [(100_000, 65_536), (300_000, 10)].map(|(start, count)| Range { start, count });
        assert_eq!(ranges, expected);
    }

    #[test]
    fn a_name_is_the_first_with_the_number() {
        let passwd =
            "root:x:0:0::/root:/bin/sh\nbroken\nalice:x:1000:1000::/:\nalias:x:1000:1:::\n";
        assert_eq!(name_of(passwd, 1000).as_deref(), Some("alice"));
        assert_eq!(name_of(passwd, 1), None);
    }
}
