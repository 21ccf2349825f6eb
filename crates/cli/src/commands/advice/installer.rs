//! Whether a command installs packages, and where: in its own system or in another root.
//!
//! Only programs that the command starts count, not its other words: `cp -r /etc/apt X` installs
//! nothing. What a script or an unknown program starts is not looked for: dpkg's files show it.

use crate::commands::wrappers::{Valued, Wrapper, file_name, options, parts, script_of};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_durable::record::{RunRecord, seconds};

/// Programs that call dpkg for the system on which they run.
const INSTALLERS: [&str; 9] = [
    "apt",
    "apt-get",
    "aptitude",
    "dpkg",
    "nala",
    "pkcon",
    "tasksel",
    "unattended-upgrade",
    "unattended-upgrades",
];

/// Actions of apt, aptitude and nala that change no package.
const READING: [&str; 14] = [
    "autoclean",
    "changelog",
    "check",
    "clean",
    "depends",
    "download",
    "indextargets",
    "list",
    "policy",
    "rdepends",
    "search",
    "show",
    "source",
    "update",
];

/// Options of all installers with which an action changes no package.
const TRYING: [&str; 8] = [
    "--download-only",
    "--dry-run",
    "--help",
    "--just-print",
    "--no-act",
    "--recon",
    "--simulate",
    "--version",
];

/// The actions of dpkg that change packages.
const DPKG: [&str; 6] =
    ["--configure", "--install", "--purge", "--remove", "--triggers-only", "--unpack"];

/// Options of apt, aptitude and nala that take the next word.
const VALUED: Valued = Valued {
    letters: "acot",
    words: &["--config-file", "--default-release", "--option", "--target-release"],
};

/// Programs that make a new root, or install packages in a root that they throw away.
const BOOTSTRAPPERS: [&str; 11] = [
    "cdebootstrap",
    "cowbuilder",
    "debootstrap",
    "lb",
    "mmdebstrap",
    "multistrap",
    "pbuilder",
    "pdebuild",
    "piuparts",
    "qemu-debootstrap",
    "sbuild",
];

/// Programs that start a command in another root.
const ENTERERS: [&str; 5] = ["arch-chroot", "chroot", "in-target", "schroot", "systemd-nspawn"];

/// Words of a shell before a command.
const RESERVED: [&str; 10] =
    ["!", "do", "elif", "else", "if", "then", "time", "until", "while", "{"];

/// Where a command installs packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Installs {
    /// In the system on which it runs.
    pub here: bool,
    /// In a root that exists, by chroot or by an option of apt or dpkg.
    pub in_root: bool,
    /// In a new root.
    pub in_new_root: bool,
    /// The command fetches the lists of packages of the system on which it runs.
    pub lists: bool,
}

impl Installs {
    /// Returns where `command` installs packages.
    pub fn from_command(command: &[String]) -> Self {
        let mut found = Self::default();
        let words: Vec<_> = command.iter().map(String::as_str).collect();
        found.add(&words, 0);
        found
    }

    /// `depth` is the number of shells and wrappers around `words`.
    fn add(&mut self, words: &[&str], depth: u32) {
        const DEEPEST: u32 = 16;
        let is_assignment = |word: &str| word.contains('=') && !word.starts_with(['-', '/', '.']);
        let start = words.iter().position(|word| !is_assignment(word) && !RESERVED.contains(word));
        let Some((program, arguments)) = words[start.unwrap_or(words.len())..].split_first() else {
            return;
        };
        let name = file_name(program);
        if BOOTSTRAPPERS.contains(&name) {
            self.in_new_root = true;
        } else if ENTERERS.contains(&name) {
            self.in_root |= names_installer(arguments);
        } else if INSTALLERS.contains(&name) {
            let is_elsewhere = arguments.iter().any(|word| names_root(word));
            let action = arguments.get(options(arguments, VALUED).len());
            let is_reading = arguments.iter().any(|word| is_trying(name, word))
                || match name {
                    "dpkg" => !arguments.iter().any(|word| is_dpkg_action(word)),
                    _ => action.is_some_and(|action| READING.contains(action)),
                };
            self.in_root |= is_elsewhere && !is_reading;
            self.here |= !is_elsewhere && !is_reading;
            self.lists |= !is_elsewhere && name != "dpkg" && action == Some(&"update");
        } else if let Some(script) = script_of(name, arguments).filter(|_| depth < DEEPEST) {
            for part in parts(script) {
                let words: Vec<_> = part.iter().map(String::as_str).collect();
                self.add(&words, depth + 1);
            }
        } else if let Some(wrapper) = Wrapper::of(name, arguments).filter(|_| depth < DEEPEST) {
            let names_root = |it: &&str| it.starts_with("--root") || it.contains("chroot");
            if wrapper.has_flag('R') || wrapper.options.iter().any(names_root) {
                self.in_root |= names_installer(wrapper.inner);
            } else {
                self.add(wrapper.inner, depth + 1);
            }
        }
    }
}

/// Whether dpkg's files in the system at `root` changed between the start of the run and the last
/// `boot`, if one ended it. dpkg writes the files of each package that it installs to one
/// directory.
pub(super) fn has_changed_packages(
    record: &RunRecord,
    boot: Option<u64>,
    root: Option<&Path>,
) -> bool {
    let Some(started) = seconds(&record.started) else { return false };
    let end = boot.and_then(|boot| boot.try_into().ok()).unwrap_or(i64::MAX);
    let directory = root.unwrap_or(Path::new("/")).join("var/lib/dpkg");
    let has_changed = |path: PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|file| (started..=end).contains(&file.ctime()))
    };
    let of_packages = fs::read_dir(directory.join("info")).into_iter().flatten().flatten();
    let mut of_packages = of_packages.map(|entry| entry.path());
    ["info", "status", "updates"].iter().any(|name| has_changed(directory.join(name)))
        || of_packages.any(has_changed)
}

/// Whether a part of `words`, also inside a script, is the name of an installer.
fn names_installer(words: &[&str]) -> bool {
    let mut parts = words.iter().flat_map(|word| word.split_whitespace());
    parts.any(|word| INSTALLERS.contains(&file_name(word)))
}

/// Whether `word`, an argument of dpkg, is an action that changes packages. Short options can be
/// joined with it, as in `-Ei`.
fn is_dpkg_action(word: &str) -> bool {
    const OPTIONS: [char; 6] = ['B', 'E', 'G', 'O', 'R', 'a'];
    let short = word.strip_prefix('-').map(|word| word.trim_start_matches(OPTIONS));
    short.is_some_and(|word| word.starts_with(['i', 'r', 'P'])) || DPKG.contains(&word)
}

/// Whether `word` is an option with which `installer` changes no package. Short options of apt can
/// be joined, as in `-qs`.
fn is_trying(installer: &str, word: &str) -> bool {
    let is_short = matches!(installer, "apt" | "apt-get" | "aptitude" | "nala")
        && word.strip_prefix('-').is_some_and(|letters| {
            letters.chars().all(|letter| "bdfhmqsuvVy".contains(letter))
                && letters.contains(['d', 'h', 's'])
        });
    is_short || TRYING.contains(&word)
}

/// Whether `word`, an argument of apt or dpkg, names another root.
fn names_root(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let word = word.strip_prefix("-o").unwrap_or(&word);
    let settings = ["dir=", "rootdir=", "dir::state::status=", "dpkg::chroot-directory="];
    let word = word.strip_prefix("dpkg::options::=").unwrap_or(word);
    let options = ["--root", "--instdir", "--admindir"];
    let option = word.split_once('=').map_or(word, |(option, _)| option);
    options.contains(&option) || settings.iter().any(|it| word.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(text: &str) -> Installs {
        Installs::from_command(&text.split('|').map(str::to_owned).collect::<Vec<_>>())
    }

    const NOTHING: Installs =
        Installs { here: false, in_root: false, in_new_root: false, lists: false };
    const HERE: Installs = Installs { here: true, ..NOTHING };
    const IN_ROOT: Installs = Installs { in_root: true, ..NOTHING };
    const IN_NEW_ROOT: Installs = Installs { in_new_root: true, ..NOTHING };

    #[test]
    fn the_program_that_a_command_starts_decides_and_not_its_other_words() {
        for other in [
            "cp|-r|/etc/apt|X",
            "make|apt-get",
            "ssh|host|apt-get|install|x",
            "docker|run|debian|apt-get|install|x",
            "sh|-c|echo 'x; apt-get install x' >apt",
            "sh|apt-get",
            "sudo|-u|apt|make",
            "make|apt-docs/x",
            "apt-get|-o|A=b|download|x",
            "sh|-c|A=$(dpkg --print-architecture); make",
            "dpkg|-l",
            "dpkg|-s|x",
            "dpkg|--compare-versions|1|lt|2",
            "dpkg|--simulate|-i|x.deb",
            "dpkg|--root=/t|-l",
            "dpkg|--root-owner-group|-b|x",
            "apt-get|-s|install|x",
            "apt-get|-qqs|install|x",
            "apt-get|--version",
            "apt-get|install|-yd|x",
            "apt|install|--dry-run|x",
            "nala|list|--installed",
            "chroot|/t|make",
        ] {
            assert_eq!(from_text(other), NOTHING, "{other}");
        }
    }

    #[test]
    fn an_installer_is_found_behind_wrappers_and_in_the_script_of_a_shell() {
        for own in [
            "/usr/bin/apt-get|install|x",
            "apt-get|install|-yqq|-o|Dpkg::Options::=--force-confold|x",
            "unattended-upgrade|-d",
            "dpkg|-i|x.deb",
            "dpkg|-Ei|x.deb",
            "dpkg|-D10|-P|x",
            "dpkg|--root-owner-group|--install|x.deb",
            "dpkg|--force-all|--triggers-only|-a",
            "dpkg|--configure|-a",
            "/usr/lib/synconce/diverted/apt-get|install|hello",
            "sudo|-E|-u|root|A=b|apt|install|x",
            "sudo|-Eu|root|apt|-yt|stable|install|x",
            "env|-u|HOME|DEBIAN_FRONTEND=noninteractive|nice|-n|5|aptitude|install|x",
            "timeout|-k|5|60|nala|install|x",
            "bash|-euxo|pipefail|-c|cd /; if A=b apt-get check && apt-get install x; then y; fi",
            "sudo|sh|-c|cat \\\nlist & xargs -n 5 apt-get install",
            "su|-|-c|'dpkg' -i x.deb",
            "sh|-c|apt-get install \"$(cat list)\"",
            "sh|-c|(sh -c \"unattended-upgrade\")",
        ] {
            assert_eq!(from_text(own), HERE, "{own}");
        }
    }

    #[test]
    fn packages_in_another_root_are_not_taken_for_those_of_the_host() {
        for entered in [
            "chroot|/t|/usr/bin/apt-get|install|x",
            "sudo|chroot|/t|sh|-c|apt install x",
            "systemd-nspawn|-D|/t|apt-get|install|x",
            "sudo|--chroot=/t|apt-get|install|x",
            "sudo|-nR|/t|apt-get|install|x",
            "unshare|-rR|/t|apt-get|install|x",
            "unshare|--root=/t|apt-get|install|x",
            "dpkg|--root=/t|-i|x.deb",
            "apt-get|-o|Dir=/t|install|x",
            "apt-get|-o|Dpkg::Options::=--root=/t|install|x",
            "apt-get|-oRootDir=/t|install|x",
        ] {
            assert_eq!(from_text(entered), IN_ROOT, "{entered}");
        }
        for new in [
            "mmdebstrap|bookworm|/t",
            "sudo|/usr/sbin/debootstrap|bookworm|/t",
            "sudo|pbuilder|build|x.dsc",
            "sbuild|-d|bookworm|x.dsc",
        ] {
            assert_eq!(from_text(new), IN_NEW_ROOT, "{new}");
        }
        let all = from_text(
            "sh|-c|apt-get install -y debootstrap &&\ndebootstrap x /t; chroot /t apt update",
        );
        assert_eq!(all, Installs { here: true, in_root: true, in_new_root: true, lists: false });
    }

    #[test]
    fn lists_of_packages_are_fetched_without_an_install() {
        let lists = Installs { lists: true, ..NOTHING };
        for update in ["apt-get|-q|-o|A::b=c|update", "sudo|apt|-t|x|update", "sh|-c|apt update"] {
            assert_eq!(from_text(update), lists, "{update}");
        }
        let both = from_text("sh|-c|apt-get update && apt-get install -y update");
        assert_eq!(both, Installs { here: true, ..lists });
        assert_eq!(from_text("dpkg|-i|update"), HERE);
    }
}
