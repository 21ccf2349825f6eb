//! Runs the commands of a document.

use crate::expected::{self, ExpectedOutput};
use crate::markdown::Document;
use crate::{LIMIT, is_run};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::Debian;
use synconce_testkit::{patiently, process};

/// Runs commands in one shell, as a reader types them, and ends at the first that fails.
const SCRIPT: &str = r#"
step() {
    echo "== $1 at $SECONDS s: $2"
    eval "$2" || { echo "FAILED: $1: exit code $?"; exit 1; }
}
shown() {
    echo "== $1 at $SECONDS s: $2"
    eval "$2" >"/.documents/$1" 2>&1
    cat "/.documents/$1"
}
"#;

/// Runs the blocks of `document` in order, and compares the output of `console` blocks. Takes
/// long where a document installs packages: its reader does so, too.
pub fn run(document: &Document) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("documents");
    let directory = directory.join(document.name.replace('/', "-"));
    let root = Debian::new(&directory.join("root"));
    fs::create_dir(root.path(".documents")).unwrap();

    let mut script = SCRIPT.to_owned();
    let mut wanted = Vec::new();
    for block in document.blocks.iter().filter(|block| is_run(block)) {
        for (line, lines) in &block.given {
            add(&mut script, "step", &commands(*line, lines));
        }
        match &*block.language {
            "sh" => add(&mut script, "step", &commands(block.line, &block.lines)),
            "console" => {
                let shown = expected::transcript(block.line, &block.lines);
                let typed: Vec<_> = shown.iter().map(ExpectedOutput::typed).collect();
                add(&mut script, "shown", &typed);
                wanted.extend(shown);
            }
            _ => panic!("{}:{}: the block is neither sh nor console", document.name, block.line),
        }
    }
    fs::write(root.path(".documents/script"), script).unwrap();
    let mut shell = root.command(&["bash", "/.documents/script"]);
    let finished = process::run(&mut shell, patiently(LIMIT)).unwrap();
    println!("{}{}", finished.stdout, finished.stderr);
    fs::write(directory.join("log"), finished.stdout + &finished.stderr).unwrap();
    assert!(finished.status.success(), "{}: a command failed", document.name);

    let differs = |shown: &&ExpectedOutput| {
        let printed = root.path(".documents").join(shown.line.to_string());
        let printed = fs::read_to_string(printed).expect("the output of a command");
        let same = expected::fits(&shown.output, &printed);
        if !same {
            println!("{}:{}: {printed}", document.name, shown.line);
        }
        !same
    };
    let other: Vec<_> = wanted.iter().filter(differs).map(|shown| shown.line).collect();
    assert!(other.is_empty(), "{}: other output after lines {other:?}", document.name);
    root.down();
}

fn add(script: &mut String, how: &str, commands: &[(usize, String)]) {
    for (line, command) in commands {
        let quoted = command.replace('\'', r"'\''");
        writeln!(script, "{how} {line} '{quoted}'").expect("a string takes all");
    }
}

/// Returns the commands in `lines`, of which the first has the number `first`. A command ends
/// at the first line with which bash takes it as complete.
fn commands(first: usize, lines: &[String]) -> Vec<(usize, String)> {
    let mut commands = Vec::new();
    let (mut start, mut text) = (first, String::new());
    for (number, line) in (first..).zip(lines) {
        if text.is_empty() {
            start = number;
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
        } else {
            text.push('\n');
        }
        text.push_str(line);
        if is_complete(&text) {
            commands.push((start, std::mem::take(&mut text)));
        }
    }
    assert!(text.is_empty(), "line {start}: bash does not understand: {text}");
    commands
}

fn is_complete(text: &str) -> bool {
    let mut bash = Command::new("bash");
    let parsed = bash.args(["-n", "-c", text]).env("LC_ALL", "C").output().expect("bash");
    // bash only warns of a here-document without its last line.
    let is_open = String::from_utf8_lossy(&parsed.stderr).contains("here-document");
    !text.ends_with('\\') && parsed.status.success() && !is_open
}
