//! The lines of `/etc/passwd` and `/etc/group`. The C library's look-up (getpwent(3)) knows only
//! this system's files, and a tree has its own.

/// A line of passwd(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswdLine<'a> {
    /// The login name.
    pub name: &'a str,
    /// The id of the user.
    pub user: u32,
    /// The id of the user's own group.
    pub group: u32,
    /// The home directory; it may be empty.
    pub home: &'a str,
    /// The login shell; it may be empty.
    pub shell: &'a str,
}

/// A line of group(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLine<'a> {
    /// The name of the group.
    pub name: &'a str,
    /// The id of the group.
    pub group: u32,
    members: &'a str,
}

impl<'a> GroupLine<'a> {
    /// The names of the users that have this group beside their own.
    pub fn members(&self) -> impl Iterator<Item = &'a str> {
        self.members.split(',').filter(|name| !name.is_empty())
    }
}

/// Returns the lines of `text`, a passwd(5). Lines that are none are left out, as getpwent(3) does.
pub fn passwd(text: &str) -> impl Iterator<Item = PasswdLine<'_>> {
    text.lines().filter_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let [name, _, user, group, _, home, shell] = fields[..] else { return None };
        Some(PasswdLine { name, user: user.parse().ok()?, group: group.parse().ok()?, home, shell })
    })
}

/// Returns the lines of `text`, a group(5). The list of members may be missing.
pub fn groups(text: &str) -> impl Iterator<Item = GroupLine<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let group = fields.nth(1)?.parse().ok()?;
        Some(GroupLine { name, group, members: fields.next().unwrap_or_default() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_none_are_left_out() {
        let users: Vec<_> =
            passwd("root:x:0:0:root:/root:/bin/sh\nbroken:x\nhigh:x:x:1::/:\n").collect();
        assert_eq!(users.iter().map(|user| user.name).collect::<Vec<_>>(), ["root"]);
        let found: Vec<_> = groups("disk:x:6:one,two\nalone:x:7\nbroken:x\n").collect();
        assert_eq!(found.iter().map(|group| group.group).collect::<Vec<_>>(), [6, 7]);
        assert_eq!(found[0].members().collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(found[1].members().next(), None);
    }
}
