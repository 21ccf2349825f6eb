//! The output that a document shows, and what may differ in it.

/// A command behind a prompt, and the output that the document shows.
pub struct ExpectedOutput {
    pub line: usize,
    command: String,
    pub output: Vec<String>,
}

impl ExpectedOutput {
    /// Returns the command, with its line.
    pub fn typed(&self) -> (usize, String) {
        (self.line, self.command.clone())
    }
}

/// Returns the commands of a `console` block whose first line has the number `first`.
pub fn transcript(first: usize, lines: &[String]) -> Vec<ExpectedOutput> {
    let mut shown: Vec<ExpectedOutput> = Vec::new();
    for (line, text) in (first..).zip(lines) {
        let command = text.strip_prefix("$ ").or_else(|| text.strip_prefix("# "));
        match (command, shown.last_mut()) {
            (Some(command), _) => {
                shown.push(ExpectedOutput {
                    line,
                    command: command.to_owned(),
                    output: Vec::new(),
                });
            }
            (None, Some(last)) => last.output.push(text.clone()),
            (None, None) => panic!("line {line}: the block begins without a prompt"),
        }
    }
    shown
}

/// Whether `printed` is what the document shows as `wanted`. Ids, times, pids and the width of
/// columns may differ. A line `...` of the document stands for any lines.
pub fn fits(wanted: &[String], printed: &str) -> bool {
    let wanted: Vec<_> = wanted.iter().map(|line| pattern(line)).collect();
    let printed: Vec<_> = printed.lines().map(pattern).collect();
    lines_fit(&wanted, &printed)
}

fn lines_fit(wanted: &[Vec<String>], printed: &[Vec<String>]) -> bool {
    match wanted {
        [] => printed.is_empty(),
        [any, rest @ ..] if any[..] == ["..."] => {
            (0..=printed.len()).any(|skipped| lines_fit(rest, &printed[skipped..]))
        }
        [line, rest @ ..] => printed
            .split_first()
            .is_some_and(|(first, more)| line == first && lines_fit(rest, more)),
    }
}

/// Returns the words of `line`, with a name in place of each that differs from run to run.
fn pattern(line: &str) -> Vec<String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let is_killing = words.first() == Some(&"kill");
    let word = |(at, word): (usize, &&str)| {
        let open = if word.starts_with('(') { "(" } else { "" };
        let bare = word[open.len()..].trim_end_matches([',', ')', ':', ';']);
        let before = at.checked_sub(1).map(|before| words[before]);
        let kind = if is_id(bare) {
            "ID"
        } else if is_time(bare) {
            "TIME"
        } else if is_number(bare) && (is_killing || before == Some("(pid")) {
            "PID"
        } else if is_number(bare) && words.get(at + 1).is_some_and(|unit| is_unit(unit)) {
            "NUMBER"
        } else if is_unit(bare) && before.is_some_and(|it| is_number(it.trim_start_matches('('))) {
            "UNIT"
        } else {
            bare
        };
        format!("{open}{kind}{}", &word[open.len() + bare.len()..])
    };
    words.iter().enumerate().map(word).collect()
}

/// Whether `word` is the id of a run, such as `20261122T163946Z-a18988de`.
fn is_id(word: &str) -> bool {
    let shape = |c: char| match c {
        'T' | 'Z' | '-' => c,
        c if c.is_ascii_hexdigit() => '0',
        _ => '?',
    };
    word.chars().map(shape).eq("00000000T000000Z-00000000".chars())
}

/// Whether `word` is a time, such as `2026-11-22T16:39:46Z`.
fn is_time(word: &str) -> bool {
    let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
    word.chars().map(shape).eq("0000-00-00T00:00:00Z".chars())
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

fn is_unit(word: &str) -> bool {
    matches!(
        word.trim_end_matches([',', ')', ';']),
        "us" | "ms" | "s" | "KiB" | "MiB" | "GiB" | "MB"
    )
}
