//! The Linux Test Project: its tests of syncs, opens, reads, writes, aio and maps, from the
//! lists in `runtest`, if `scripts/suites` has installed it.

use crate::case::Case;
use crate::results::Results;
use std::fs;
use std::path::Path;
use std::time::Duration;
use synconce_testkit::process::Finished;

/// The lists that are read.
const LISTS: [&str; 9] = [
    "syscalls",
    "fs",
    "mm",
    "dio",
    "ltp-aio-stress",
    "ltp-aiodio.part1",
    "ltp-aiodio.part2",
    "ltp-aiodio.part3",
    "ltp-aiodio.part4",
];

/// Programs, with an option for seconds, processes or operations and its largest value here.
const LESS: [(&str, &str, u32); 5] = [
    ("growfiles", "-L", 2),
    ("rwtest", "-i", 2),
    ("aiodio_sparse", "-n", 8),
    ("dio_sparse", "-n", 8),
    ("fsx-linux", "-N", 10_000),
];

/// A test on every kind of file system of the machine takes a minute or two.
const LIMIT: Duration = Duration::from_secs(300);

/// The verdicts that a test prints for its results.
const VERDICTS: [&str; 5] = ["TPASS", "TFAIL", "TBROK", "TWARN", "TCONF"];

/// Returns the tests of the LTP at `root`; none if the LTP is not installed there.
pub fn cases(root: &Path) -> Vec<Case> {
    let lists = LISTS.iter().flat_map(|list| {
        let text = fs::read_to_string(root.join("runtest").join(list)).unwrap_or_default();
        let lines: Vec<_> = text.lines().filter_map(|line| case(root, list, line)).collect();
        lines
    });
    lists.collect()
}

/// Parses a line of a list: the name of a test, then a command for the shell.
fn case(root: &Path, list: &str, line: &str) -> Option<Case> {
    let (name, command) = line.split_once(char::is_whitespace)?;
    let programs = root.join("testcases/bin");
    let known = |word: &str| !word.contains('/') && programs.join(word).is_file();
    if name.starts_with('#') || !command.split([' ', ';']).any(known) {
        return None;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let environment = vec![
        variable("PATH", &format!("{}:{path}", programs.display())),
        variable("LTPROOT", &root.display().to_string()),
        // Tests run for a fraction of their time, and print no colours.
        variable("LTP_RUNTIME_MUL", "0.05"),
        variable("LTP_TIMEOUT_MUL", "4"),
        variable("LTP_COLORIZE_OUTPUT", "n"),
    ];
    Some(Case {
        suite: "ltp",
        name: format!("{list}/{name}"),
        words: ["sh", "-c", &shortened(command)].map(str::to_owned).to_vec(),
        environment,
        device: true,
        limit: LIMIT,
        results,
    })
}

/// Returns the command with less work: two seconds where an option takes seconds, eight processes
/// instead of hundreds, 10,000 operations of fsx-linux, and files of 16 MiB for aio-stress (default
/// 1 GiB each).
fn shortened(command: &str) -> String {
    let mut words: Vec<_> = command.split(' ').map(str::to_owned).collect();
    if words[0] == "aio-stress" {
        words.extend(["-s", "16"].map(str::to_owned));
    }
    for (program, option, most) in LESS {
        let applies = words.iter().any(|word| word == program);
        for at in 1..words.len() {
            let asked = words[at].trim_end_matches('s').parse::<u32>();
            if applies && words[at - 1] == option && asked.is_ok_and(|asked| asked > most) {
                words[at] = most.to_string() + if words[at].ends_with('s') { "s" } else { "" };
            }
        }
    }
    words.join(" ")
}

fn results(_: &Path, finished: &Finished) -> Results {
    let mut results = Results::ending(finished.status);
    let lines = finished.stdout.lines().chain(finished.stderr.lines());
    // `file.c:12: TPASS: text`, or `name 1 TPASS : text` in an old test.
    let words = lines.flat_map(|line| {
        let word = |word: &str| word.trim_end_matches(':').to_owned();
        line.split_whitespace().take(4).map(word).collect::<Vec<_>>()
    });
    words.filter(|word| VERDICTS.contains(&word.as_str())).for_each(|word| results.count(&word));
    if finished.status.code() == Some(32) {
        results.add("skipped", "TCONF");
    }
    results
}
