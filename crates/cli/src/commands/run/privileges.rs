//! The command line that works where the run of an ordinary user cannot gain privileges.

use crate::text::shell;
use std::env;
use std::ffi::OsString;
use std::path::Path;
use synconce_hold::Gain;

/// The program that becomes root first and then starts the run.
const SUDO: &str = "sudo";
/// The program that starts the run in a user namespace with all ids of the user (util-linux
/// 2.38).
const UNSHARE: [&str; 4] = ["unshare", "--map-auto", "--map-root-user", "--mount"];

/// Where sudo looks for programs (`secure_path` in sudoers(5)).
const SECURE_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The command line of a run, as it was typed.
#[derive(Debug)]
pub struct Typed {
    /// `synconce run`, with its options.
    run: Vec<String>,
    command: Vec<String>,
}

impl Typed {
    /// Takes the command line of this process, which ends with `command`.
    pub fn new(command: &[OsString]) -> Self {
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let words: Vec<_> = env::args_os().collect();
        let own = words.len().saturating_sub(command.len());
        let mut run: Vec<_> = words[..own].iter().map(text).collect();
        if let (Some(name), Ok(program)) = (run.first_mut(), env::current_exe()) {
            let found = program.parent().and_then(Path::to_str);
            if !name.contains('/') && !found.is_some_and(|found| SECURE_PATH.contains(&found)) {
                *name = program.to_string_lossy().into_owned();
            }
        }
        Self { run, command: command.iter().map(text).collect() }
    }

    /// Returns the command line with which programs gain privileges of the kind `gain`.
    pub fn with_privileges(&self, gain: Gain) -> String {
        let (first, command) = match gain {
            Gain::Ids => (UNSHARE.map(str::to_owned).to_vec(), &self.command[..]),
            Gain::Other => match rising(&self.command) {
                0 => (vec![SUDO.to_owned()], &self.command[..]),
                count => (self.command[..count].to_vec(), &self.command[count..]),
            },
        };
        shell(&[&first, &self.run[..], command].concat())
    }
}

/// Returns how many leading words of `command` are sudo or doas and those of their options
/// that work before `synconce` as well. Other options, such as another user or a shell, must
/// stay with the command. doas has no assignments.
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
            .with_privileges(gain)
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
    fn ids_are_mapped_before_the_run() {
        let wanted = "unshare --map-auto --map-root-user --mount \
                      synconce run --stats -- mmdebstrap --mode=unshare trixie root";
        assert_eq!(line(Gain::Ids, "mmdebstrap --mode=unshare trixie root"), wanted);
    }
}
