//! The command line that works where the run of an ordinary user cannot gain privileges.

use crate::text::shell;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use synconce_run::Gain;
use synconce_sys::accounts;
use synconce_sys::search::is_found_by_sudo;
use synconce_tree::namespace::first_of_user;

/// The program that becomes root first and then starts the run.
const SUDO: &str = "sudo";
/// For a user without ids in /etc/subuid or /etc/subgid, whom an administrator has to give
/// some.
const ALL_IDS: [&str; 4] = ["unshare", "--map-auto", "--map-root-user", "--mount"];

/// Ids that a user may map: the first one, and how many.
type Range = (u64, u64);

/// The command line of a run, as it was typed.
#[derive(Debug)]
pub struct Typed {
    /// `synconce run`, with its options.
    run: Vec<String>,
    command: Vec<String>,
}

impl Typed {
    /// Takes the words of a command line: those that start the run, and `command`.
    pub fn new(own: &[OsString], command: &[OsString]) -> Self {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let mut run: Vec<_> = own.iter().map(text).collect();
        if let (Some(name), Ok(program)) = (run.first_mut(), env::current_exe())
            && !name.contains('/')
            && !is_found_by_sudo(&program)
        {
            *name = program.to_string_lossy().into_owned();
        }
        Self { run, command: command.iter().map(text).collect() }
    }

    /// Returns the options of the run, without `--`.
    pub fn options(&self) -> &[String] {
        let (_, options) = self.run.split_at(self.run.len().min(2));
        options.strip_suffix(&["--".to_owned()]).unwrap_or(options)
    }

    /// Returns the command line of the same run, with `option`.
    pub fn with(&self, option: &str) -> String {
        let (run, options) = self.run.split_at(self.run.len().min(2));
        shell(&[run, &[option.to_owned()], options, &self.command].concat())
    }

    /// Returns the command line of the same run whose command lacks `word`, if the command has it.
    pub fn without(&self, word: &str) -> Option<String> {
        let (mut command, count) = (self.command.clone(), self.command.len());
        command.retain(|other| other != word);
        (command.len() < count).then(|| shell(&[&self.run[..], &command].concat()))
    }

    /// Returns what to do so that programs gain privileges of the kind `gain`: a command line.
    /// Root without CAP_SYS_ADMIN can get it only from outside.
    pub fn with_privileges(&self, gain: Gain) -> String {
        let user = rustix::process::geteuid();
        if user.is_root() {
            return "start the run with CAP_SYS_ADMIN; in a container: \
                    docker run --cap-add SYS_ADMIN"
                .to_owned();
        }
        self.of_user(gain, &name_of_user(user.as_raw()), first_of_user(user.as_raw()))
    }

    /// Returns the command line for the user `name` with these user ids and group ids.
    fn of_user(&self, gain: Gain, name: &str, ranges: Option<[Range; 2]>) -> String {
        let as_user = [SUDO, "-u", name].map(str::to_owned);
        let (first, command) = match gain {
            Gain::Ids => {
                (own_unshare(&self.command).unwrap_or_else(|| unshare(ranges)), &self.command[..])
            }
            Gain::Mount => (vec![SUDO.to_owned()], &[&as_user, &self.command[..]].concat()[..]),
            Gain::Other => match rising(&self.command) {
                0 => (vec![SUDO.to_owned()], &self.command[..]),
                count => (self.command[..count].to_vec(), &self.command[count..]),
            },
        };
        shell(&[&first, &self.run[..], command].concat())
    }
}

/// Returns what names a user in a command line of sudo: the number, if `/etc/passwd` has no name.
fn name_of_user(uid: u32) -> String {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let known = accounts::passwd(&accounts).find(|line| line.user == uid);
    known.map_or_else(|| format!("#{uid}"), |line| line.name.to_owned())
}

/// Returns the words that start the run in the user namespace that the program of `command` makes
/// for its user, if the program has a command for that. Podman and Buildah need a namespace in which
/// the user is root.
fn own_unshare(command: &[String]) -> Option<Vec<String>> {
    let program = command.first()?;
    let name = Path::new(program).file_name()?;
    (name == "podman" || name == "buildah").then(|| vec![program.clone(), "unshare".to_owned()])
}

/// Returns the words that start the run in a user namespace in which the user's ids are mapped
/// to themselves (util-linux 2.38): newuidmap, and sbuild, find the user in /etc/subuid there.
fn unshare(ranges: Option<[Range; 2]>) -> Vec<String> {
    let Some(ranges) = ranges else { return ALL_IDS.map(str::to_owned).to_vec() };
    let [users, groups] = ranges.map(|(first, count)| format!("{first},{first},{count}"));
    let (users, groups) = (format!("--map-users={users}"), format!("--map-groups={groups}"));
    let words = ["unshare", "--map-current-user", &users, &groups, "--keep-caps"];
    words.map(str::to_owned).to_vec()
}

/// Returns how many leading words of `command` can stand before `synconce`: sudo or doas, with
/// options that mean the same there. Other options, such as another user or a shell, must stay with
/// the command. doas has no assignments.
fn rising(command: &[String]) -> usize {
    let program = command.first().and_then(|word| Path::new(word).file_name()?.to_str());
    let may_rise: fn(&str) -> bool = match program {
        Some("sudo") => |word| {
            let long = ["--non-interactive", "--preserve-env", "--set-home"];
            is_flags(word, "nEH")
                || long.contains(&word)
                || word.starts_with("--preserve-env=")
                || (!word.starts_with('-') && word.contains('='))
        },
        Some("doas") => |word| is_flags(word, "n"),
        _ => return 0,
    };
    let count = 1 + command[1..].iter().take_while(|word| may_rise(word)).count();
    let is_command = command.get(count).is_some_and(|word| !word.starts_with('-'));
    if is_command { count } else { 0 }
}

/// Whether `word` is a dash and some of `letters`.
fn is_flags(word: &str, letters: &str) -> bool {
    let flags = word.strip_prefix('-').filter(|flags| !flags.is_empty());
    flags.is_some_and(|flags| flags.chars().all(|flag| letters.contains(flag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(gain: Gain, command: &str) -> String {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        Typed { run: words("synconce run --stats --"), command: words(command) }
            .of_user(gain, "bob", None)
    }

    #[test]
    fn sudo_and_its_options_go_before_the_run() {
        for (command, wanted) in [
            ("sudo apt-get update", "sudo synconce run --stats -- apt-get update"),
            ("sudo -nE A=1 id -u", "sudo -nE A=1 synconce run --stats -- id -u"),
            ("/usr/bin/sudo id", "/usr/bin/sudo synconce run --stats -- id"),
            ("doas -n id", "doas -n synconce run --stats -- id"),
        ] {
            assert_eq!(line(Gain::Other, command), wanted);
        }
    }

    #[test]
    fn what_cannot_go_before_the_run_stays_in_it() {
        for command in [
            "sudo",
            "sudo -n",
            "sudo -i",
            "sudo -u bin id",
            "sudo -- id",
            "su -c id",
            "pkexec id",
            "make install",
        ] {
            let wanted = format!("sudo synconce run --stats -- {command}");
            assert_eq!(line(Gain::Other, command), wanted);
        }
    }

    #[test]
    fn a_mount_for_a_user_is_made_as_that_user_in_a_run_of_root() {
        for (command, wanted) in [
            ("sbuild -d bookworm", "sudo synconce run --stats -- sudo -u bob sbuild -d bookworm"),
            (
                "schroot -c sid -- id",
                "sudo synconce run --stats -- sudo -u bob schroot -c sid -- id",
            ),
        ] {
            assert_eq!(line(Gain::Mount, command), wanted);
        }
        assert_eq!(name_of_user(u32::MAX - 1), format!("#{}", u32::MAX - 1));
    }

    #[test]
    fn ids_are_mapped_before_the_run() {
        let run = "synconce run --stats -- mmdebstrap --mode=unshare trixie root";
        let without = format!("unshare --map-auto --map-root-user --mount {run}");
        assert_eq!(line(Gain::Ids, "mmdebstrap --mode=unshare trixie root"), without);
        let own = unshare(Some([(100_000, 65_536), (200_000, 10)])).join(" ");
        let wanted = "unshare --map-current-user --map-users=100000,100000,65536 \
                      --map-groups=200000,200000,10 --keep-caps";
        assert_eq!(own, wanted);
        for (command, wanted) in [
            ("podman build .", "podman unshare synconce run --stats -- podman build ."),
            (
                "/usr/bin/buildah bud .",
                "/usr/bin/buildah unshare synconce run --stats -- /usr/bin/buildah bud .",
            ),
        ] {
            assert_eq!(line(Gain::Ids, command), wanted);
        }
    }
}
