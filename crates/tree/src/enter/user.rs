//! Finds the command's user in the tree's own `/etc/passwd` and `/etc/group`.

use synconce_sys::accounts;

/// A user of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    /// None for a number without a name.
    pub(super) name: Option<String>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Supplementary groups.
    pub(super) groups: Vec<u32>,
    pub(super) home: String,
    pub(super) shell: String,
}

/// The number that no user and no group can have. setresuid(2) and chown(2) leave the id unchanged
/// for this number.
const UNCHANGED: u32 = u32::MAX;

/// Returns the user for `words`: `NAME` or `UID`, either with `:GROUP`; root when there are
/// none.
///
/// # Errors
/// The tree has no such name; the number is no id.
pub(super) fn find(words: Option<&str>, passwd: &str, group: &str) -> Result<User, String> {
    let words = words.unwrap_or("0");
    let (user, of_group) = match words.split_once(':') {
        Some((user, of_group)) => (user, Some(of_group)),
        None => (words, None),
    };
    let entries = || accounts::passwd(passwd);
    let number = user.parse::<u32>().ok();
    // A name may look like a number: names are tried first, as in chown(1).
    let found = entries()
        .find(|entry| entry.name == user)
        .or_else(|| entries().find(|entry| Some(entry.user) == number));
    let uid = found.as_ref().map(|entry| entry.user).or(number);
    let uid = uid.ok_or_else(|| format!("the tree has no user {user}"))?;
    let gid = match of_group {
        Some(name) => group_number(name, group)?,
        None => found.as_ref().map_or(uid, |entry| entry.group),
    };
    if [uid, gid].contains(&UNCHANGED) {
        return Err(format!("{UNCHANGED} is no id of a user or a group"));
    }
    let name = found.as_ref().map(|entry| entry.name.to_owned());
    let groups = name.as_deref().map_or_else(Vec::new, |name| groups_of(name, group));
    let text = |field: Option<&str>, otherwise: &str| {
        field.filter(|field| !field.is_empty()).unwrap_or(otherwise).to_owned()
    };
    let home = text(found.as_ref().map(|entry| entry.home), if uid == 0 { "/root" } else { "/" });
    let shell = text(found.as_ref().map(|entry| entry.shell), "/bin/sh");
    Ok(User { name, uid, gid, groups, home, shell })
}

fn group_number(name: &str, group: &str) -> Result<u32, String> {
    let found = accounts::groups(group).find(|line| line.name == name).map(|line| line.group);
    found.or_else(|| name.parse().ok()).ok_or_else(|| format!("the tree has no group {name}"))
}

fn groups_of(user: &str, group: &str) -> Vec<u32> {
    let of_user = accounts::groups(group).filter(|line| line.members().any(|name| name == user));
    of_user.map(|line| line.group).filter(|group| *group != UNCHANGED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbroken:x\n\
        builder:x:1000:1001:,,,:/home/b:/bin/dash\n7:x:70:70::/seven:\nbare:x:8:8:::\n";
    const GROUP: &str = "root:x:0:\nsrc:x:40:builder,other\nsudo:x:27:other\nadm:x:4:builder\n";

    fn found(words: &str) -> (Option<String>, u32, u32, Vec<u32>) {
        let user = find(Some(words), PASSWD, GROUP).unwrap();
        (user.name, user.uid, user.gid, user.groups)
    }

    #[test]
    fn a_user_is_found_by_name_and_number_with_its_groups() {
        let builder = (Some("builder".to_owned()), 1000, 1001, vec![40, 4]);
        assert_eq!(found("builder"), builder);
        assert_eq!(found("1000"), builder);
        assert_eq!(found("1000:sudo"), (Some("builder".to_owned()), 1000, 27, vec![40, 4]));
        assert_eq!(found("7"), (Some("7".to_owned()), 70, 70, vec![]));
    }

    #[test]
    fn a_number_without_a_name_is_taken_as_it_is() {
        assert_eq!(found("12345"), (None, 12345, 12345, vec![]));
        assert_eq!(found("12345:6"), (None, 12345, 6, vec![]));
        assert_eq!(find(Some("12345"), PASSWD, GROUP).unwrap().home, "/");
    }

    #[test]
    fn without_words_it_is_root_even_where_nobody_is_known() {
        assert_eq!(find(None, PASSWD, GROUP).unwrap().shell, "/bin/bash");
        let root = find(None, "", "").unwrap();
        assert_eq!((root.name, root.uid, &*root.home, &*root.shell), (None, 0, "/root", "/bin/sh"));
    }

    #[test]
    fn empty_fields_have_their_usual_meaning() {
        let bare = find(Some("bare"), PASSWD, GROUP).unwrap();
        assert_eq!((&*bare.home, &*bare.shell), ("/", "/bin/sh"));
    }

    #[test]
    fn the_number_that_means_no_change_is_refused() {
        let passwd = "none:x:4294967295:0:::\nnogroup:x:5:4294967295:::\n";
        let group = "none:x:4294967295:root\n";
        let refused = "4294967295 is no id of a user or a group";
        for words in ["4294967295", "0:4294967295", "none", "nogroup", "0:none"] {
            assert_eq!(find(Some(words), passwd, group).unwrap_err(), refused, "{words}");
        }
        assert!(find(Some("root"), PASSWD, group).unwrap().groups.is_empty());
    }

    #[test]
    fn who_is_unknown_is_named() {
        assert_eq!(find(Some("alice"), PASSWD, GROUP).unwrap_err(), "the tree has no user alice");
        assert_eq!(find(Some("root:x"), PASSWD, GROUP).unwrap_err(), "the tree has no group x");
    }
}
