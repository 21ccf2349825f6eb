//! What to do about an interrupted run that installed packages.

use crate::text::shell;
use std::path::Path;

/// The directory in which `synconce setup apt` keeps the real programs.
const DIVERTED: &str = "/usr/lib/synconce/diverted";

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

/// Whether a word of the command names a program that runs dpkg.
pub(super) fn are_installed(command: &[String]) -> bool {
    let words = command.iter().flat_map(|word| word.split_whitespace());
    let mut names = words.filter_map(|word| Path::new(word).file_name()?.to_str());
    names.any(|name| INSTALLERS.contains(&name))
}

/// Returns the command that the user typed if a wrapper of `synconce setup apt` has started the
/// run. A dpkg that another program has called cannot be called again.
pub(super) fn typed(command: &[String]) -> Option<Result<Vec<String>, CalledByProgram>> {
    let (program, arguments) = command.split_first()?;
    let name = Path::new(program).strip_prefix(DIVERTED).ok()?.to_str()?.to_owned();
    if arguments.iter().any(|word| word == "--status-fd") {
        return Some(Err(CalledByProgram));
    }
    Some(Ok([&[name], arguments].concat()))
}

/// A dpkg with a pipe to the program that called dpkg.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CalledByProgram;

/// Returns the commands that install the packages again. A line that is indented more continues
/// the command above. On some file systems dpkg's own checks find neither empty files nor an
/// empty database, so only a new installation is safe.
///
/// dpkg does not replace a damaged configuration file: to dpkg the file is edited. Those that are
/// empty or that the run wrote are removed, and `--force-confmiss` writes them again. The status
/// file lists them also if the list of the package is empty itself. If dpkg's lists were lost,
/// none names the configuration files: empty files below /etc that changed during the run are
/// removed, too.
///
/// What dpkg keeps of each package and alternative is removed if the run changed it: dpkg stops
/// at a list without its last line, and would execute half of a script. The new installation
/// writes all of it again. Only `format` belongs to no package.
///
/// What ended the run is not known if `has_rebooted` is unset; otherwise it ended before the
/// boot.
pub(super) fn mend(started: &str, has_rebooted: bool, root: Option<&Path>) -> Vec<String> {
    let enter =
        root.map(|root| format!("chroot {} ", shell(&[root.to_string_lossy().into_owned()])));
    let enter = enter.unwrap_or_default();
    let status = root.unwrap_or(Path::new("/")).join("var/lib/dpkg/status");
    let status = shell(&[status.to_string_lossy().into_owned()]);
    let started = shell(&[started.to_owned()]);
    let boot = if has_rebooted { " ! -newerct \"$(uptime -s)\"" } else { "" };
    let changed = format!("-newerct {started}{boot}");
    // Without a reboot, a changed file can be a user's and is whole.
    let torn = if has_rebooted { format!("\\( -empty -o {changed} \\)") } else { "-empty".into() };
    vec![
        "to keep the system, install every package again (dpkg's checks do not see all):".into(),
        format!("    test -s {status} || cp {status}-old {status}"),
        format!("    {enter}sh -c 'dpkg-query --show --showformat=\"\\${{Conffiles}}\\n\" |"),
        "        cat - /var/lib/dpkg/info/*.conffiles |".into(),
        "        while read -r file hash; do test ! -f \"$file\" ||".into(),
        format!("        find \"$file\" -type f {torn} -delete; done'"),
        format!("    {enter}find /var/lib/dpkg/info /var/lib/dpkg/alternatives -type f \\"),
        format!("        ! -name format \\( -empty -o {changed} \\) -delete"),
        format!("    {enter}find /etc -xdev -type f -empty {changed} -delete"),
        format!("    {enter}dpkg --configure --pending"),
        format!("    {enter}sh -c 'dpkg-query --show --showformat=\"\\${{binary:Package}}\\n\" |"),
        "        UCF_FORCE_CONFFMISS=1 xargs apt-get install --reinstall --yes \\".into(),
        "            -o DPkg::Options::=--force-confmiss'".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split('|').map(str::to_owned).collect()
    }

    #[test]
    fn a_program_that_drives_dpkg_is_found_inside_a_chroot_and_a_shell() {
        assert!(are_installed(&words("chroot|/t|/usr/bin/apt-get|install|x")));
        assert!(are_installed(&words("sh|-c|apt install x")));
        assert!(!are_installed(&words("make|apt-docs/x")));
    }

    #[test]
    fn the_command_that_a_wrapper_has_started_is_the_one_that_the_user_typed() {
        let wrapped = words("/usr/lib/synconce/diverted/apt-get|install|hello");
        assert!(are_installed(&wrapped));
        assert_eq!(typed(&wrapped), Some(Ok(words("apt-get|install|hello"))));
        let called = words("/usr/lib/synconce/diverted/dpkg|--status-fd|19|--unpack|/x.deb");
        assert_eq!(typed(&called), Some(Err(CalledByProgram)));
        assert_eq!(typed(&words("/usr/bin/apt-get|install|hello")), None);
    }

    #[test]
    fn advice_for_another_root_acts_on_that_root() {
        let lines = mend("2026-11-23T07:06:04Z", true, Some(Path::new("/target")));
        let find = "-empty -newerct 2026-11-23T07:06:04Z ! -newerct \"$(uptime -s)\" -delete";
        assert!(lines[8].ends_with(find), "{}", lines[8]);
        assert!(lines[1].contains("/target/var/lib/dpkg/status"));
        for at in [2, 6, 8, 9, 10] {
            assert!(lines[at].starts_with("    chroot /target "), "{}", lines[at]);
        }
        let lines = mend("2026-11-23T07:06:04Z", false, Some(Path::new("/a $(b)")));
        assert!(lines[1].contains("'/a $(b)/var/lib/dpkg/status'"), "{}", lines[1]);
    }
}
