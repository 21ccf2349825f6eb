//! Programs that start the command in their arguments.

use std::ffi::OsStr;
use std::path::Path;

/// Programs that start the command in their arguments.
const WRAPPERS: [WrapperProgram; 21] = [
    wrapper("builtin", "", &[], 0),
    wrapper("command", "", &[], 0),
    wrapper("doas", "uC", &[], 0),
    wrapper("eatmydata", "", &[], 0),
    wrapper("env", "uC", &["--unset", "--chdir"], 0),
    wrapper("exec", "a", &[], 0),
    wrapper("fakechroot", "", &[], 0),
    wrapper("fakeroot", "", &[], 0),
    wrapper("flock", "wE", &["--wait", "--timeout", "--conflict-exit-code"], 1),
    wrapper("ionice", "cn", &["--class", "--classdata"], 0),
    wrapper("nice", "n", &["--adjustment"], 0),
    wrapper("nohup", "", &[], 0),
    wrapper("runuser", "ugGsw", &RUNUSER, 0),
    wrapper("setsid", "", &[], 0),
    wrapper("stdbuf", "ioe", &["--input", "--output", "--error"], 0),
    wrapper("sudo", "CDghpRrTtUu", &SUDO, 0),
    wrapper("taskset", "", &[], 1),
    wrapper("time", "fo", &["--format", "--output"], 0),
    wrapper("timeout", "sk", &["--signal", "--kill-after"], 1),
    wrapper("unshare", "RSGw", &UNSHARE, 0),
    wrapper("xargs", "adEILnPs", &XARGS, 0),
];

const RUNUSER: [&str; 5] =
    ["--user", "--group", "--supp-group", "--shell", "--whitelist-environment"];
const SUDO: [&str; 11] = [
    "--close-from",
    "--chdir",
    "--group",
    "--host",
    "--prompt",
    "--chroot",
    "--role",
    "--command-timeout",
    "--type",
    "--other-user",
    "--user",
];
const UNSHARE: [&str; 12] = [
    "--root",
    "--setuid",
    "--setgid",
    "--wd",
    "--map-user",
    "--map-group",
    "--map-users",
    "--map-groups",
    "--propagation",
    "--setgroups",
    "--monotonic",
    "--boottime",
];
const XARGS: [&str; 6] =
    ["--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-chars", "--process-slot-var"];

/// Options with which sudo starts no command: it edits files, lists rights or forgets a password.
const WITHOUT_COMMAND: (&str, [&str; 5]) =
    ("elvKV", ["--edit", "--list", "--validate", "--remove-timestamp", "--version"]);

/// A program that starts the command in its arguments.
struct WrapperProgram {
    name: &'static str,
    /// The options that take the next word.
    valued: Valued,
    /// The number of words before the command.
    before: usize,
}

/// The options of a program that take the next word.
#[derive(Clone, Copy)]
pub(super) struct Valued {
    pub(super) letters: &'static str,
    pub(super) words: &'static [&'static str],
}

const fn wrapper(
    name: &'static str,
    letters: &'static str,
    words: &'static [&'static str],
    before: usize,
) -> WrapperProgram {
    WrapperProgram { name, valued: Valued { letters, words }, before }
}

impl Valued {
    /// Returns the short options in `word`, such as those of `-Eu`.
    fn flags(self, word: &str) -> &str {
        let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        let letters = letters.unwrap_or_default();
        // What follows such a letter is its value.
        letters.find(|it| self.letters.contains(it)).map_or(letters, |at| &letters[..=at])
    }

    /// Whether the option at the end of `word` takes the next word.
    fn takes_next(self, word: &str) -> bool {
        let flags = self.flags(word);
        let is_whole = flags.len() + 1 == word.len();
        self.words.contains(&word)
            || is_whole && flags.ends_with(|flag| self.letters.contains(flag))
    }
}

/// Programs whose option `-c` has a script.
const SHELLS: [&str; 8] = ["ash", "bash", "dash", "runuser", "script", "sh", "su", "zsh"];

/// A program that starts the command in its arguments.
pub(super) struct Wrapper<'a> {
    /// The options and assignments before the command.
    pub(super) options: &'a [&'a str],
    /// The command. Empty where the options start none.
    pub(super) inner: &'a [&'a str],
    valued: Valued,
}

impl<'a> Wrapper<'a> {
    /// Returns the parts of the `arguments` of `program`, if it is such a program.
    pub(super) fn of(program: &str, arguments: &'a [&'a str]) -> Option<Self> {
        let found = WRAPPERS.iter().find(|it| it.name == program)?;
        let WrapperProgram { valued, before, .. } = *found;
        let options = options(arguments, valued);
        let inner = arguments.get(options.len() + before..).unwrap_or_default();
        let wrapper = Self { options, inner, valued };
        let (letters, words) = WITHOUT_COMMAND;
        let starts_none = program == "sudo"
            && (letters.chars().any(|letter| wrapper.has_flag(letter))
                || options.iter().any(|word| words.contains(word)));
        Some(if starts_none { Self { inner: &[], ..wrapper } } else { wrapper })
    }

    /// Whether the short option `letter` is among the options, alone or with others in one word.
    pub(super) fn has_flag(&self, letter: char) -> bool {
        self.flags().any(|flags| flags.contains(letter))
    }

    /// Returns the short options of each word. A word that is the value of an option has none.
    fn flags(&self) -> impl Iterator<Item = &'a str> {
        let valued = self.valued;
        let mut is_value = false;
        self.options
            .iter()
            .filter(move |word| {
                let is_option = !is_value;
                is_value = is_option && valued.takes_next(word);
                is_option
            })
            .map(move |word| valued.flags(word))
    }
}

/// Returns the script among the `arguments` of `program`, if it is a shell or starts one.
pub(super) fn script_of<'a>(program: &str, arguments: &[&'a str]) -> Option<&'a str> {
    // With a user, runuser starts the command in its arguments.
    let names_user = |it: &&str| matches!(*it, "-u" | "--user") || it.starts_with("--user=");
    let is_wrapper = program == "runuser" && arguments.iter().any(names_user);
    (SHELLS.contains(&program) && !is_wrapper).then(|| script(arguments))?
}

/// Returns the name of the program in the path `word`.
pub(super) fn file_name(word: &str) -> &str {
    Path::new(word).file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// Returns the options and assignments before the command of a wrapper.
pub(super) fn options<'a>(arguments: &'a [&'a str], valued: Valued) -> &'a [&'a str] {
    let mut count = 0;
    while let Some(word) = arguments.get(count) {
        match *word {
            "--" => return &arguments[..=count],
            word if valued.takes_next(word) => count += 2,
            word if word.starts_with('-') || word.contains('=') => count += 1,
            _ => break,
        }
    }
    &arguments[..count.min(arguments.len())]
}

/// Returns the script behind `-c`, `-ec` and others.
fn script<'a>(arguments: &[&'a str]) -> Option<&'a str> {
    let is_option = |word: &str| {
        word == "--command"
            || word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
    };
    let at = arguments.iter().position(|word| is_option(word))?;
    arguments.get(at + 1).copied()
}

/// Splits a shell script into the words of its simple commands. Expansions stay as they are.
pub(super) fn parts(script: &str) -> Vec<Vec<String>> {
    let (mut parts, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let (mut quote, mut letters) = (None, script.chars());
    while let Some(letter) = letters.next() {
        match letter {
            _ if quote == Some(letter) => quote = None,
            '\'' | '"' if quote.is_none() => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            '\\' if quote != Some('\'') => {
                // A line that is continued.
                let next = letters.next().filter(|next| *next != '\n');
                word.get_or_insert_default().extend(next);
            }
            _ if quote.is_some() => word.get_or_insert_default().push(letter),
            ' ' | '\t' => words.extend(word.take().filter(|word| !word.is_empty())),
            ';' | '&' | '|' | '(' | ')' | '`' | '\n' => {
                words.extend(word.take());
                parts.push(std::mem::take(&mut words));
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    parts.push(words);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_behind_the_options_of_a_wrapper_is_found() {
        for (line, command) in [
            ("sudo make", "make"),
            ("sudo -u bob make", "make"),
            ("sudo -ubob make", "make"),
            ("sudo -Eu bob make", "make"),
            ("sudo -nEHu bob make", "make"),
            ("sudo -uE make", "make"),
            ("sudo -uu make", "make"),
            ("sudo -E -- make", "make"),
            ("sudo -R /srv make", "make"),
            ("sudo --chroot /srv make", "make"),
            ("sudo --chdir /srv make", "make"),
            ("sudo -D /srv make", "make"),
            ("sudo --host far make", "make"),
            ("sudo -h far make", "make"),
            ("sudo --prompt x: make", "make"),
            ("sudo --prompt=x: make", "make"),
            ("sudo -p x: make", "make"),
            ("sudo -g staff -C 9 -r role -t type -T 9 make", "make"),
            ("sudo --close-from 9 --role x --type y --command-timeout 9 make", "make"),
            ("sudo -lU bob make", ""),
            ("sudo -l make", ""),
            ("sudo -e make", ""),
            ("sudo -nu bob -e make", ""),
            ("sudo --edit make", ""),
            ("sudo -v", ""),
            ("sudo -ue make", "make"),
            ("sudo -k A=1 make", "make"),
            ("sudo -u", ""),
            ("doas -nu bob make", "make"),
            ("env -iC /srv make", "make"),
            ("env -u A B=1 make", "make"),
            ("timeout -vk 9 9 make", "make"),
            ("timeout -k9 9 make", "make"),
            ("flock -nE 9 file make", "make"),
            ("ionice -tc 3 make", "make"),
            ("nice -n5 make", "make"),
            ("nice -5 make", "make"),
            ("runuser -u bob -- make", "make"),
            ("runuser -ls /bin/sh -u bob make", "make"),
            ("stdbuf -oL -e 0 make", "make"),
            ("taskset -ac 0 make", "make"),
            ("time -vo file make", "make"),
            ("unshare -rR /srv make", "make"),
            ("unshare --root /srv --map-user 0 --propagation slave make", "make"),
            ("xargs -0n 1 make", "make"),
            ("xargs --max-procs 2 --max-args 1 make", "make"),
        ] {
            let words: Vec<_> = line.split(' ').collect();
            let inner = Wrapper::of(words[0], &words[1..]).map(|wrapper| wrapper.inner.join(" "));
            assert_eq!(inner.as_deref(), Some(command), "{line}");
        }
        assert!(Wrapper::of("sudoedit", &["make"]).is_none());
    }
}
