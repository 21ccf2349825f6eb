//! Finds free subordinate ids, as useradd(8) does.

/// The ids that a user namespace needs: Debian's `nobody` is 65534.
const USUAL: u64 = 65_536;
/// The largest id; 2^32 - 1 means "no id" to chown(2).
const LARGEST: u64 = u32::MAX as u64 - 1;

/// Ids that a user may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The first id.
    pub(super) start: u64,
    /// The number of ids.
    pub(super) count: u64,
}

/// The range of subordinate ids that login.defs(5) allows for both user ids and group ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoginDefs {
    min: u64,
    max: u64,
    count: u64,
}

impl LoginDefs {
    /// Reads login.defs(5). Missing values have their defaults.
    pub(super) fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let mut found = None;
            for line in text.lines() {
                let mut words = line.split_whitespace();
                if words.next() == Some(key) {
                    found = words.next().and_then(number).or(found);
                }
            }
            found
        };
        let both = |uid: &str, gid: &str, default: u64| {
            [uid, gid].map(|key| value(key).unwrap_or(default))
        };
        let [uid_min, gid_min] = both("SUB_UID_MIN", "SUB_GID_MIN", 100_000);
        let [uid_max, gid_max] = both("SUB_UID_MAX", "SUB_GID_MAX", 600_100_000);
        let [uid_count, gid_count] = both("SUB_UID_COUNT", "SUB_GID_COUNT", USUAL);
        Self {
            min: uid_min.max(gid_min),
            max: uid_max.min(gid_max).min(LARGEST),
            // A site may assign fewer ids to its users, but a tree needs this many.
            count: uid_count.max(gid_count).max(USUAL),
        }
    }
}

/// Reads a number like strtoul(3): decimal, octal after 0, hexadecimal after 0x.
fn number(word: &str) -> Option<u64> {
    if let Some(digits) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16).ok();
    }
    let radix = if word.len() > 1 && word.starts_with('0') { 8 } else { 10 };
    u64::from_str_radix(word, radix).ok()
}

/// Returns the lowest range of the length in `defs`, within its limits, that overlaps none of
/// `taken`. Returns `None` if there is no room.
pub(super) fn free_range(taken: &[Range], defs: LoginDefs) -> Option<Range> {
    let mut taken = taken.to_vec();
    taken.sort_unstable_by_key(|range| range.start);
    let mut start = defs.min;
    for range in taken {
        if range.start >= start.checked_add(defs.count)? {
            break;
        }
        start = start.max(range.start.saturating_add(range.count));
    }
    let last = start.checked_add(defs.count - 1)?;
    (last <= defs.max).then_some(Range { start, count: defs.count })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(taken: &[(u64, u64)], text: &str) -> Option<u64> {
        let taken: Vec<Range> =
            taken.iter().map(|&(start, count)| Range { start, count }).collect();
        free_range(&taken, LoginDefs::parse(text)).map(|range| range.start)
    }

    #[test]
    fn the_first_user_gets_what_useradd_gives_first() {
        let range = free_range(&[], LoginDefs::parse("")).expect("there is room");
        assert_eq!(range, Range { start: 100_000, count: 65_536 });
    }

    #[test]
    fn another_users_range_is_never_offered() {
        assert_eq!(free(&[(100_000, 65_536)], ""), Some(165_536));
        assert_eq!(free(&[(165_536, 65_536), (100_000, 65_536)], ""), Some(231_072));
        assert_eq!(free(&[(100_000, 65_536), (231_072, 65_536)], ""), Some(165_536), "a gap");
        assert_eq!(free(&[(100_000, 65_536), (231_071, 65_536)], ""), Some(296_607), "too small");
        assert_eq!(free(&[(90_000, 10_001)], ""), Some(100_001), "it reaches into the first ids");
        assert_eq!(free(&[(100_000, 1_000_000), (150_000, 10)], ""), Some(1_100_000), "one in one");
        assert_eq!(free(&[(1000, 1), (120_000, 1)], ""), Some(120_001), "ids of users themselves");
    }

    #[test]
    fn a_range_stays_within_the_limits_of_login_defs() {
        let text = "# SUB_UID_MIN 5\nSUB_UID_MIN\t\t200000\nSUB_GID_MAX 400000\n";
        assert_eq!(free(&[], text), Some(200_000));
        assert_eq!(free(&[(200_000, 65_536 * 2)], text), Some(331_072));
        assert_eq!(free(&[(200_000, 65_536 * 3)], text), None, "there is no room");
        assert_eq!(free(&[(200_000, u64::MAX)], text), None, "a range beyond all ids");
        assert_eq!(free(&[], "SUB_UID_MIN 4294967295\nSUB_UID_MAX 99999999999"), None);
        assert_eq!(free(&[], "SUB_UID_MIN 0x30000\n"), Some(0x30000));
    }

    #[test]
    fn fewer_ids_than_a_tree_needs_are_not_offered() {
        let count = |text: &str| free_range(&[], LoginDefs::parse(text)).map(|range| range.count);
        assert_eq!(count("SUB_UID_COUNT 1000"), Some(65_536));
        assert_eq!(count("SUB_UID_COUNT 100000"), Some(100_000));
        assert_eq!(count("SUB_UID_COUNT none"), Some(65_536));
    }
}
