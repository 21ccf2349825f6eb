//! What to do about an interrupted run that installed packages.

use crate::text::shell;
use std::path::Path;

/// The directory in which `synconce setup apt` keeps the real programs.
const DIVERTED: &str = "/usr/lib/synconce/diverted";

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

/// Lists the packages in a variable. A dpkg-query that fails, or lists none, ends the shell.
const LIST: &str = "packages=$(dpkg-query --show \\
        --showformat=\"\\${db:Status-Abbrev} \\${binary:Package}\\n\")
    packages=$(echo \"$packages\" | sed -n \"s/^.[^cn]. *//p\")
    test -n \"$packages\"";

/// A dpkg with a pipe to the program that called dpkg.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CalledByProgram;

/// A command that mends a system.
#[derive(Debug)]
pub struct MendStep {
    /// What the command does, as the object of "cannot".
    pub act: &'static str,
    /// The command, as a user types it. A line that is indented continues the line above.
    pub command: String,
    /// What the user does after a failure that a repetition does not mend.
    pub remedy: Option<&'static str>,
}

/// Returns the commands that install the packages again, in order. On some file systems dpkg's own
/// checks find neither empty files nor an empty database, so only a new installation is safe.
///
/// dpkg writes its lists more than once in an install. On xfs a power cut can empty the backups of
/// the lists, too. Then the daily copies of Debian's dpkg-db-backup(8) are used. If there are no
/// copies, as in containers, the packages are listed from the files that dpkg keeps of each. Each
/// command enters the root: a link there may name a path of the host.
///
/// A changed file below /etc is removed if it is empty, or has only zeros, blanks and line ends.
/// This does not depend on dpkg's lists, which may be lost. apt fails if a file of its
/// configuration has zeros, so this comes before the lists are fetched. dpkg unpacks a
/// configuration file FILE as FILE.dpkg-new, which apt ignores. A FILE.dpkg-new is removed only if
/// FILE is listed: then the file is dpkg's.
///
/// apt trusts a list of packages, or a package, that it has fetched before. What it fetched while
/// the run went on is removed, and fetched again; the lists also if there are none. Files with a
/// content are removed only afterwards: without a network there is no other copy.
///
/// dpkg does not replace a damaged configuration file: to dpkg the file is edited. Those that
/// became empty since the run began are removed, those that changed are renamed, and
/// `--force-confmiss` writes them again. A file that its user emptied before stays. The status file
/// lists them also if the list of the package is empty itself. Without their checksums dpkg would
/// ask about each that its user edited: `--force-confold` keeps those.
///
/// What dpkg keeps of each package is removed if it changed: dpkg stops at a list without its last
/// line, and would execute half of a script. The new installation writes it again. The file
/// `format` stays, which belongs to no package. Files of checksums stay, because their names are
/// the names of the packages. An alternative is removed only if it cannot be read, as an operator
/// may have set it.
///
/// In a list that was made anew no package recommends another, so apt would install what each
/// recommends: `--no-install-recommends`.
///
/// apt ends with 0 if it cannot fetch a package again. dpkg writes the list of a package at each
/// installation, so the last command names packages whose list is older than `now`. `now` is in
/// seconds since 1970, and is not later than the first command.
///
/// `boot` is the time of the last boot, in seconds since 1970, if one ended the run. If no boot
/// ended the run, the kernel has written all data, and a user may have changed a file: then only
/// empty files are removed.
pub(super) fn steps(
    started: &str,
    boot: Option<u64>,
    now: u64,
    root: Option<&Path>,
) -> Vec<MendStep> {
    let enter =
        root.map(|root| format!("chroot {} ", shell(&[root.to_string_lossy().into_owned()])));
    let enter = enter.unwrap_or_default();
    let started = shell(&[started.to_owned()]);
    let until = boot.map_or(String::new(), |boot| format!(" ! -newerct @{boot}"));
    let changed = format!("-newerct {started}{until}");
    let (fetched, conffiles, torn) = if boot.is_some() {
        (
            changed.clone(),
            "\\( -empty -print -delete -o \\\n        \
             -exec mv --backup=numbered {} {}.dpkg-old \\; \\)",
            format!("\\( -empty -o {changed} \\)"),
        )
    } else {
        (format!("-empty {changed}"), "-empty -print -delete", "-empty".to_owned())
    };
    let mut steps = vec![
        restore_lists(&enter, &changed),
        step(
            "remove empty files in /etc",
            // Without a grep that works, each file would seem to be empty.
            &[
                &format!("{enter}sh -ec 'echo x | grep -qa \"[[:graph:]]\""),
                &format!("find /etc -xdev -type f {changed} ! -name \"*.dpkg-new\" \\"),
                "-exec sh -c \"grep -qa \\\"[[:graph:]]\\\" \\\"\\$1\\\"; test \\$? -eq 1\" sh {} \\; \\",
                "-print -delete'",
            ],
        ),
        fetch_lists(&enter, &fetched),
        list_packages(&enter),
        step(
            "remove damaged configuration files",
            &[
                &format!("{enter}sh -c 'dpkg-query --show --showformat=\"\\${{Conffiles}}\\n\" |"),
                "cat - /var/lib/dpkg/info/*.conffiles |",
                "while read -r file hash; do new=$file.dpkg-new",
                "test ! -f \"$new\" || { grep -qa \"[[:graph:]]\" \"$new\"; test $? -ne 1; } ||",
                &format!("find \"$new\" -type f {changed} -print -delete"),
                "test ! -f \"$file\" ||",
                &format!("find \"$file\" -type f {changed} {conffiles}; done'"),
            ],
        ),
        step(
            "remove damaged alternatives",
            &[
                &format!("{enter}sh -c 'for file in /var/lib/dpkg/alternatives/*; do"),
                "update-alternatives --query \"${file##*/}\" >/dev/null 2>&1",
                "test $? -ne 2 || rm -f \"$file\"; done'",
            ],
        ),
        step(
            "remove damaged lists of dpkg",
            &[
                &format!("{enter}find /var/lib/dpkg/info -type f ! -name format \\"),
                &format!("! -name \"*.md5sums\" {torn} -delete"),
            ],
        ),
    ];
    steps.extend(reinstall(&enter, now));
    steps
}

/// Returns the step that restores dpkg's own lists. `enter` is the start of each command for
/// another root. The list of diversions is empty if there are none, although its backup may have
/// some. So an empty list counts as lost only if it matches `changed`, an expression of find(1).
fn restore_lists(enter: &str, changed: &str) -> MendStep {
    step(
        "restore dpkg's lists",
        &[
            // Without this file apt-get cannot even fetch lists.
            &format!("{enter}sh -ec 'cd /var/lib/dpkg; : >>status"),
            // The list gets its name once it is complete. Otherwise the next call would use half a
            // list.
            "restore() { cp -v --preserve=mode $copy $list-new; mv $list-new $list; }",
            "for list in status diversions statoverride; do",
            "for copy in $list-old /var/backups/dpkg.$list.0; do test ! -s $copy ||",
            "if test $list = status -o ! -e $list; then test -s $list || restore",
            &format!("elif test -n \"$(find $list -empty {changed})\"; then restore; fi"),
            &format!("done; test ! -e $list || find $list -empty {changed} \\"),
            "-printf \"lost, without a copy: /var/lib/dpkg/%p\\n\"; done'",
        ],
    )
}

/// Returns the step that lists the installed packages if dpkg's list is lost. dpkg keeps checksums
/// of a package until it is removed, also if a removed package has configuration files left. The
/// versions are from dpkg's log, or else the newest ones that apt knows. With an older version, the
/// scripts of a package would repeat the changes of an upgrade long ago.
fn list_packages(enter: &str) -> MendStep {
    let listed = step(
        "list the installed packages",
        &[
            &format!("{enter}sh -ec 'cd /var/lib/dpkg; test ! -s status || exit 0"),
            "export LC_ALL=C; native=$(dpkg --print-architecture)",
            "names=$(ls info | sed -n \"s/[.]md5sums\\$//p\"); test -n \"$names\"",
            "newest=$(apt-cache policy $names |",
            "    sed -n \"s/^\\([^ ]*\\):\\$/\\1/p; s/^  Candidate: //p\" | paste -d \" \" - -)",
            "for name in $names; do",
            "package=${name%:*} of=${name#\"${name%:*}\"} same=; of=${of#:}",
            "known=$(cat /var/log/dpkg.log.1 /var/log/dpkg.log 2>/dev/null | sed -n \\",
            "    \"s/^.* status installed $package:\\(${of:-[^ ]*}\\) \\([^ ]*\\)\\$/\\1 \\2/p\" | tail -n 1)",
            "version=${known#* } of=${known% *}",
            "if test -z \"$known\"; then",
            "    of=$(sed -n \"/^Package: $package\\$/{n;s/^Architecture: //p;}\" \\",
            "        /var/lib/apt/extended_states 2>/dev/null | tail -n 1)",
            "    test \"$name\" = \"$package\" || of=${name#*:}; of=${of:-$native}",
            "    version=$(echo \"$newest\" |",
            "        sed -n \"s/^$package\\(:$of\\)\\? \\([0-9].*\\)/\\2/p\" | tail -n 1)",
            "    echo \"version not known: $name, taken as ${version:=0}\" >&2; fi",
            "test \"$name\" = \"$package\" || same=\"Multi-Arch: same\\n\"",
            "printf \"Package: $package\\nStatus: install ok installed\\nArchitecture: $of\\n$same\"",
            "printf \"Version: $version\\nMaintainer: unknown\\nDescription: unknown\\n\\n\"",
            "done >status-new; mv status-new status'",
        ],
    );
    let remedy = Some("restore /var/lib/dpkg/status from a backup");
    MendStep { remedy, ..listed }
}

/// Returns the step that removes what apt has `fetched`, an expression of find(1), and fetches the
/// lists. apt's locks stay: two processes could lock a removed file and a new one. Without
/// `Error-Mode`, apt ends with 0 if no server can be reached. At its end, apt gives the lists of
/// each source their names, also if other sources failed. So an apt that failed or was killed
/// leaves lists of some sources. The file `torn` is there until all lists are fetched. A whole
/// `apt-get update` of the user removes the file, too: apt removes what is none of its lists.
fn fetch_lists(enter: &str, fetched: &str) -> MendStep {
    step(
        "fetch the lists of packages",
        &[
            &format!("{enter}sh -ec 'mkdir -p /var/cache/apt /var/lib/apt/lists"),
            &format!("find /var/cache/apt -type f ! -name lock {fetched} -delete"),
            "cd /var/lib/apt/lists",
            &format!("lost=$(find . -type f ! -name lock {fetched}); set -- *_*"),
            "test -z \"$lost\" -a -e \"$1\" -a ! -e torn || { : >torn",
            "    find . ! -type d ! -name lock ! -name torn -delete",
            "    apt-get update -o APT::Update::Error-Mode=any; rm -f torn; }'",
        ],
    )
}

/// Returns the steps that install every package again, and check that. `enter` is the start of each
/// command for another root.
fn reinstall(enter: &str, now: u64) -> [MendStep; 3] {
    let [configure, install, check] = [
        step(
            "configure the packages",
            &[&format!(
                "{enter}env UCF_FORCE_CONFFOLD=1 dpkg --force-confold --configure --pending"
            )],
        ),
        step(
            "install every package again",
            &[
                &format!("{enter}sh -ec '{LIST}"),
                "echo \"$packages\" | UCF_FORCE_CONFFMISS=1 UCF_FORCE_CONFFOLD=1 xargs -r \\",
                "    apt-get install --reinstall --yes --no-install-recommends \\",
                "    -o DPkg::Options::=--force-confmiss -o DPkg::Options::=--force-confold'",
            ],
        ),
        step(
            "restore every package",
            &[
                &format!("{enter}sh -ec '{LIST}"),
                "left=$(dpkg --audit || echo \"dpkg --audit: exit code $?\"",
                "for package in $packages; do list=/var/lib/dpkg/info/$package.list",
                "test -e \"$list\" || list=/var/lib/dpkg/info/${package%:*}.list",
                &format!("test -n \"$(find \"$list\" -newermt @{now})\" ||"),
                "echo \"not installed again: $package\"; done)",
                "test -z \"$left\" || { echo \"$left\"; exit 1; }'",
            ],
        ),
    ];
    let remedy = Some("install what is named above from where you had it");
    [configure, install, MendStep { remedy, ..check }]
}

fn step(act: &'static str, lines: &[&str]) -> MendStep {
    MendStep { act, command: lines.join("\n    "), remedy: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split('|').map(str::to_owned).collect()
    }

    #[test]
    fn the_command_that_a_wrapper_has_started_is_the_one_that_the_user_typed() {
        let wrapped = words("/usr/lib/synconce/diverted/apt-get|install|hello");
        assert_eq!(typed(&wrapped), Some(Ok(words("apt-get|install|hello"))));
        let called = words("/usr/lib/synconce/diverted/dpkg|--status-fd|19|--unpack|/x.deb");
        assert_eq!(typed(&called), Some(Err(CalledByProgram)));
        assert_eq!(typed(&words("/usr/bin/apt-get|install|hello")), None);
    }

    #[test]
    fn the_commands_for_another_root_act_on_that_root() {
        let started = "2026-11-23T07:06:04Z";
        let commands =
            steps(started, Some(1_795_000_000), 1_795_000_001, Some(Path::new("/target")));
        let commands: Vec<_> = commands.into_iter().map(|step| step.command).collect();
        let text = commands.join("\n");
        let changed = "-newerct 2026-11-23T07:06:04Z ! -newerct @1795000000";
        for part in [
            "-newermt @1795000001)",
            &format!(
                "-type f {changed} \\( -empty -print -delete -o \\\n        -exec mv --backup"
            ),
            &format!("! -name \"*.md5sums\" \\( -empty -o {changed} \\) -delete"),
            &format!("find /etc -xdev -type f {changed} ! -name \"*.dpkg-new\" \\\n"),
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(commands.iter().all(|it| it.starts_with("chroot /target ")), "{text}");
        let commands = steps(started, None, 1, Some(Path::new("/a $(b)")));
        let commands: Vec<_> = commands.into_iter().map(|step| step.command).collect();
        assert!(commands.iter().all(|it| it.starts_with("chroot '/a $(b)' ")), "{commands:?}");
        let emptied = "-type f -newerct 2026-11-23T07:06:04Z -empty -print -delete; done'";
        assert!(commands.iter().any(|it| it.ends_with(emptied)), "{commands:?}");
        let has_boot = |it: &String| it.contains("mv --backup") || it.contains("! -newerct @");
        assert!(!commands.iter().any(has_boot), "{commands:?}");
    }
}
