//! What to do about an interrupted run.

use crate::text::shell;
use std::path::Path;
use synconce_durable::record::Record;

/// Lines of advice for the interrupted run `record`; commands are indented.
pub fn advice(record: Option<&Record>, id: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(record) = record else {
        lines.push(
            "its marker is damaged; throw away what was being made, and make it again".into(),
        );
        lines.push(format!("then: synconce status --clear {id}"));
        return lines;
    };
    lines.push(
        "files that it wrote may be empty or old; throw the result away and run it again:".into(),
    );
    lines.push(format!("    {}", shell(&again(record))));
    if installs_packages(&record.command) {
        lines.extend(dpkg(record.root.as_deref()));
    }
    lines.push(format!("then: synconce status --clear {id}"));
    lines
}

fn again(record: &Record) -> Vec<String> {
    let mut words = vec!["synconce".to_owned(), "run".to_owned()];
    if record.sealed {
        words.push("--sealed".to_owned());
    }
    if let Some(root) = &record.root {
        words.extend(["--root".to_owned(), root.to_string_lossy().into_owned()]);
    }
    words.push("--".to_owned());
    words.extend(record.command.iter().cloned());
    words
}

const INSTALLERS: [&str; 9] = [
    "apt",
    "apt-get",
    "aptitude",
    "dpkg",
    "tasksel",
    "debootstrap",
    "mmdebstrap",
    "unattended-upgrade",
    "pkcon",
];

/// Whether a word of the command is a program that drives dpkg.
fn installs_packages(command: &[String]) -> bool {
    let words = command.iter().flat_map(|word| word.split_whitespace());
    let mut names = words.filter_map(|word| Path::new(word).file_name()?.to_str());
    names.any(|name| INSTALLERS.contains(&name))
}

/// dpkg's own checks see neither empty files nor an empty database on every
/// file system, so only installing again is safe.
fn dpkg(root: Option<&Path>) -> Vec<String> {
    let enter =
        root.map(|root| format!("chroot {} ", shell(&[root.to_string_lossy().into_owned()])));
    let enter = enter.unwrap_or_default();
    let at = |path: &str| root.unwrap_or(Path::new("/")).join(path).display().to_string();
    let (old, new) = (at("var/lib/dpkg/status-old"), at("var/lib/dpkg/status"));
    vec![
        "to keep the system instead, install every package again (dpkg's checks do not see all):"
            .into(),
        format!("    test -s {new} || cp {old} {new}"),
        format!("    {enter}dpkg --configure --pending"),
        format!(
            "    {enter}sh -c 'dpkg-query --show --showformat=\"\\${{binary:Package}}\\n\" | xargs apt-get install --reinstall --yes'"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_drives_dpkg_is_found_inside_a_chroot_and_a_shell() {
        let words = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
        assert!(installs_packages(&words("chroot|/t|/usr/bin/apt-get|install|x")));
        assert!(installs_packages(&words("sh|-c|apt install x")));
        assert!(!installs_packages(&words("make|apt-docs/x")));
    }

    #[test]
    fn advice_for_another_root_acts_on_that_root() {
        let lines = dpkg(Some(Path::new("/target")));
        assert!(lines[1].contains("/target/var/lib/dpkg/status"));
        assert!(lines[2].contains("chroot /target dpkg --configure"));
    }
}
