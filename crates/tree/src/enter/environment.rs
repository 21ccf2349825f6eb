//! The environment of a command in a tree.

use super::user::User;
use std::ffi::{OsStr, OsString};

/// The directories of programs on Debian. An ordinary user's PATH lacks `/usr/sbin` and `/sbin`,
/// without which dpkg refuses to work.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Makes the environment from `ours`: all of its variables, and those of the user in the tree and
/// [`PATH`] where `ours` lacks them. PWD is `directory`.
pub(super) fn made(
    ours: impl Iterator<Item = (OsString, OsString)>,
    user: &User,
    directory: &OsStr,
) -> Vec<(OsString, OsString)> {
    let mut made: Vec<_> = ours.filter(|(name, _)| name != "PWD" && name != "OLDPWD").collect();
    let name = user.name.clone().unwrap_or_else(|| user.uid.to_string());
    let of_user: [(&str, OsString); 6] = [
        ("HOME", user.home.clone().into()),
        ("USER", name.clone().into()),
        ("LOGNAME", name.into()),
        ("SHELL", user.shell.clone().into()),
        ("PATH", PATH.into()),
        ("PWD", directory.to_owned()),
    ];
    for (name, value) in of_user {
        if made.iter().all(|(known, _)| known != name) {
            made.push((name.into(), value));
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn environment(ours: &[(&str, &str)]) -> BTreeMap<String, String> {
        let user = super::super::user::find(Some("5"), "b:x:5:5::/home/b:/bin/dash\n", "").unwrap();
        let ours = ours.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let text = |text: OsString| text.into_string().unwrap();
        let made = made(ours, &user, OsStr::new("/w"));
        made.into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_user_is_the_one_inside() {
        let wanted = map(&[
            ("HOME", "/home/b"),
            ("USER", "b"),
            ("LOGNAME", "b"),
            ("SHELL", "/bin/dash"),
            ("PATH", PATH),
            ("PWD", "/w"),
        ]);
        assert_eq!(environment(&[("PWD", "/x"), ("OLDPWD", "/x")]), wanted);
    }

    #[test]
    fn what_is_given_wins() {
        let given = [
            ("HOME", "/build"),
            ("USER", "me"),
            ("LOGNAME", "me"),
            ("SHELL", ""),
            ("PATH", "/opt/bin"),
            ("A", "b"),
        ];
        assert_eq!(environment(&given), map(&[&given[..], &[("PWD", "/w")]].concat()));
    }
}
