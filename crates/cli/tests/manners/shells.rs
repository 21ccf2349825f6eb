//! Completion in bash, zsh and fish by the scripts in `docs/completions`.

use crate::ids::interrupt;
use libtest_mimic::Trial;
use std::fs;
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{Need, Place, Terminal, binary, finish, trial};

const BASH: [Need; 2] = [
    Need::Program("bash", "bash"),
    Need::File("/usr/share/bash-completion/bash_completion", "bash-completion"),
];
const ZSH: [Need; 1] = [Need::Program("zsh", "zsh")];
const FISH: [Need; 1] = [Need::Program("fish", "fish")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(bash_completes_commands_trees_runs_and_the_command_of_a_run, &BASH),
        trial(bash_completes_the_command_of_a_run_without_the_library, &BASH[..1]),
        trial(zsh_completes_commands_trees_runs_and_the_command_of_a_run, &ZSH),
        trial(fish_completes_commands_trees_runs_and_the_command_of_a_run, &FISH),
        trial(hidden_verbs_are_not_offered, &BASH),
    ]
}

/// A line up to the cursor, and what its last word becomes.
type CompletionCase = (String, String);

/// Makes two trees and an interrupted run; returns what every shell has to complete. The
/// program `manners-program` is in PATH, and `manners-argument` a file.
fn cases(place: &Place) -> Vec<CompletionCase> {
    fs::create_dir(place.path("source")).unwrap();
    for words in [&["import", "work", "source"][..], &["clone", "work", "other"]] {
        let made = finish(tree(place.synconce(&["tree", "-q"]).args(words), place));
        assert!(made.status.success(), "{made:?}");
    }
    let id = interrupt(place);
    place.write("manners-program", "#!/bin/sh\n");
    place.bare(&["chmod", "+x", "manners-program"]);
    place.write("manners-argument", "");
    let cases = [
        ("synconce stat", "status"),
        ("synconce tree umo", "umount"),
        ("synconce tree run wo", "work"),
        ("synconce tree run --from ot", "other"),
        ("synconce tree diff work ot", "other"),
        ("synconce run --commit-o", "--commit-only"),
        ("synconce run -- manners-p", "manners-program"),
        ("synconce run manners-p", "manners-program"),
        ("synconce real -- manners-p", "manners-program"),
        ("synconce run -- manners-program manners-a", "manners-argument"),
        ("synconce help sta", "status"),
    ];
    let mut cases: Vec<CompletionCase> =
        cases.map(|(line, word)| (line.into(), word.into())).into();
    cases.push((format!("synconce status --clear {}", &id[..10]), id));
    cases
}

/// Gives `command` the store and the PATH of the test.
fn tree<'a>(command: &'a mut Command, place: &Place) -> &'a mut Command {
    let own = Path::new(binary()).parent().unwrap().display();
    let path = format!("{own}:{}:/usr/bin:/bin:/usr/sbin:/sbin", place.text(""));
    command.env("PATH", path).env("SYNCONCE_TREES", place.path("trees"))
}

fn script(name: &str) -> String {
    format!("{}/../../docs/completions/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the words that bash offers for `line`.
fn in_bash(place: &Place, line: &str, library: &str) -> Vec<String> {
    let ask = "[ -z \"$3\" ] || . \"$3\"; . \"$1\"
        COMP_LINE=$2 COMP_POINT=${#2} COMP_TYPE=9 COMP_KEY=9
        read -ra COMP_WORDS <<<\"$2\"; [[ $2 != *' ' ]] || COMP_WORDS+=('')
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _synconce synconce \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\" 2>/dev/null
        printf '%s\\n' \"${COMPREPLY[@]}\" | sort -u";
    let mut bash = place.command("bash");
    bash.args(["--norc", "-c", ask, "bash", &script("synconce.bash"), line, library]);
    let ended = finish(tree(&mut bash, place));
    ended.stdout.lines().map(|word| word.trim_end().to_owned()).collect()
}

const LIBRARY: &str = "/usr/share/bash-completion/bash_completion";

fn bash_completes_commands_trees_runs_and_the_command_of_a_run(place: &Place) {
    for (line, word) in cases(place) {
        assert_eq!(in_bash(place, &line, LIBRARY), [word], "{line}");
    }
}

fn bash_completes_the_command_of_a_run_without_the_library(place: &Place) {
    for (line, word) in cases(place) {
        assert_eq!(in_bash(place, &line, ""), [word], "{line}");
    }
}

fn zsh_completes_commands_trees_runs_and_the_command_of_a_run(place: &Place) {
    let cases = cases(place);
    let own = Path::new(binary()).parent().unwrap().display();
    let here = place.text("");
    place.write(
        ".zshrc",
        &format!(
            "path=({own} {here} $path); export SYNCONCE_TREES={here}/trees; PROMPT='> '\n\
             fpath=({} $fpath); autoload -U compinit; compinit -u -D\n\
             bindkey '^I' complete-word; unsetopt beep; setopt no_list_ambiguous\n\
             echo read''y\n",
            script("")
        ),
    );
    let zdotdir = format!("ZDOTDIR={here}");
    let mut terminal = Terminal::start(place, &["env", &zdotdir, "zsh", "-d", "-i"]);
    terminal.expect("ready\r\n");
    for (line, word) in cases {
        let (start, _) = line.rsplit_once(' ').unwrap();
        // Ctrl-A and Ctrl-E go to the beginning and the end of the line.
        terminal.write(&format!("{line}\t\u{1}echo \"<\u{5}>\"\n"));
        terminal.expect(&format!("\n<{start} {word}"));
        terminal.expect("\r\n");
    }
    terminal.write("exit\n");
    terminal.end();
}

fn fish_completes_commands_trees_runs_and_the_command_of_a_run(place: &Place) {
    for (line, word) in cases(place) {
        let mut fish = place.command("fish");
        let ask = format!("source {}; complete --do-complete '{line}'", script("synconce.fish"));
        fish.args(["--no-config", "--command", &ask]).env("HOME", place.path(""));
        let ended = finish(tree(&mut fish, place));
        let words: Vec<_> = ended.stdout.lines().filter_map(|it| it.split('\t').next()).collect();
        assert_eq!(words, [word], "{line}: {ended:?}");
    }
}

fn hidden_verbs_are_not_offered(place: &Place) {
    for (line, shown, hidden) in
        [("synconce tree ", "export", "enter"), ("synconce bench ", "cost", "loop")]
    {
        let words = in_bash(place, line, LIBRARY);
        assert!(words.iter().any(|word| word == shown), "{words:?}");
        assert!(!words.iter().any(|word| word == hidden), "{words:?}");
    }
}
