//! Programs that start the command in their arguments.

use std::ffi::OsStr;
use std::path::Path;

/// Programs that start the command in their arguments: the options that take the next word, and the
/// number of words before the command.
const WRAPPERS: [(&str, &[&str], usize); 21] = [
    ("builtin", &[], 0),
    ("command", &[], 0),
    ("doas", &["-u", "-C"], 0),
    ("eatmydata", &[], 0),
    ("env", &["-u", "-C", "--unset", "--chdir"], 0),
    ("exec", &["-a"], 0),
    ("fakechroot", &[], 0),
    ("fakeroot", &[], 0),
    ("flock", &["-w", "--timeout", "-E", "--conflict-exit-code"], 1),
    ("ionice", &["-c", "-n", "--class", "--classdata"], 0),
    ("nice", &["-n", "--adjustment"], 0),
    ("nohup", &[], 0),
    ("runuser", &["-u", "-g", "-G", "--user", "--group", "--supp-group"], 0),
    ("setsid", &[], 0),
    ("stdbuf", &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
    ("sudo", &["-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-D", "--user", "--group"], 0),
    ("taskset", &[], 1),
    ("time", &["-f", "-o", "--format", "--output"], 0),
    ("timeout", &["-s", "-k", "--signal", "--kill-after"], 1),
    ("unshare", &["-S", "-G", "-w", "--setuid", "--setgid", "--wd"], 0),
    ("xargs", &["-a", "-d", "-E", "-I", "-L", "-n", "-P", "-s", "--arg-file", "--delimiter"], 0),
];

/// Programs whose option `-c` has a script.
const SHELLS: [&str; 8] = ["ash", "bash", "dash", "runuser", "script", "sh", "su", "zsh"];

/// A program that starts the command in its arguments.
pub(super) struct Wrapper<'a> {
    /// The options and assignments before the command.
    pub(super) options: &'a [&'a str],
    /// The command.
    pub(super) inner: &'a [&'a str],
}

impl<'a> Wrapper<'a> {
    /// Returns the parts of the `arguments` of `program`, if it is such a program.
    pub(super) fn of(program: &str, arguments: &'a [&'a str]) -> Option<Self> {
        let (_, valued, before) = WRAPPERS.iter().find(|it| it.0 == program)?;
        let options = options(arguments, valued);
        let inner = arguments.get(options.len() + before..).unwrap_or_default();
        Some(Self { options, inner })
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

/// Returns the options and assignments before the command of a wrapper. The options `valued` take
/// the next word.
pub(super) fn options<'a>(arguments: &'a [&'a str], valued: &[&str]) -> &'a [&'a str] {
    let mut count = 0;
    while let Some(word) = arguments.get(count) {
        match *word {
            "--" => return &arguments[..=count],
            word if valued.contains(&word) => count += 2,
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
