//! The `/etc/hosts` of a command: the host's, with the names that it lacks.

use std::fs;

pub(super) const HOSTS: &str = "/etc/hosts";

/// Returns what `/etc/hosts` contains for a command whose host name is `name`.
pub(super) fn content(name: &str) -> Vec<u8> {
    completed(fs::read(HOSTS).unwrap_or_default(), name)
}

/// Adds localhost and `name` to `hosts` (hosts(5)) where they are missing. The address
/// 127.0.1.1 is that of the host name on Debian.
fn completed(mut hosts: Vec<u8>, name: &str) -> Vec<u8> {
    let has = |wanted: &str| {
        let text = String::from_utf8_lossy(&hosts);
        text.lines().any(|line| {
            let names = line.split('#').next().unwrap_or_default();
            names.split_whitespace().skip(1).any(|name| name.eq_ignore_ascii_case(wanted))
        })
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let can_be_listed = !name.is_empty() && name.bytes().all(is_plain);
    let mut missing = String::new();
    if !has("localhost") {
        missing += "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
    }
    if can_be_listed && name != "localhost" && !has(name) {
        missing += &format!("127.0.1.1 {name}\n");
    }
    if !missing.is_empty() && hosts.last().is_some_and(|last| *last != b'\n') {
        hosts.push(b'\n');
    }
    hosts.extend(missing.bytes());
    hosts
}

#[cfg(test)]
mod tests {
    fn completed(hosts: &str, name: &str) -> String {
        String::from_utf8(super::completed(hosts.into(), name)).unwrap()
    }

    #[test]
    fn what_is_missing_is_added() {
        let both = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 box\n";
        assert_eq!(completed("", "box"), both);
        assert_eq!(
            completed("192.0.2.1 mirror # box", "box"),
            format!("192.0.2.1 mirror # box\n{both}")
        );
        assert_eq!(completed("127.0.0.1 localhost", "box"), "127.0.0.1 localhost\n127.0.1.1 box\n");
    }

    #[test]
    fn what_has_all_names_stays_as_it_is() {
        for hosts in ["127.0.0.1 localhost LocalHost\n::1\tBOX  other", "::1 localhost box\n"] {
            assert_eq!(completed(hosts, "box"), hosts);
        }
        assert_eq!(completed("::1 localhost\n", "a b\n"), "::1 localhost\n");
    }
}
