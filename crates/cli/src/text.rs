//! Words and numbers for people.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes one line to standard error, prefixed with our name. A closed standard
/// error is not a failure of the run.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "synconce: {line}");
}

/// Bytes in the largest unit of which there is at least one.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Microseconds in a unit that suits them.
pub fn micros(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} us"),
        1_000..1_000_000 => format!("{:.1} ms", count as f64 / 1e3),
        _ => format!("{:.2} s", count as f64 / 1e6),
    }
}

/// How long ago a time in seconds since 1970 was.
pub fn ago(then: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match now.saturating_sub(then) {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7_200 => format!("{} min ago", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

/// `words` as a shell would take them.
pub fn shell(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_the_size() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(micros(1_500), "1.5 ms");
    }

    #[test]
    fn words_are_quoted_only_where_a_shell_would_split_them() {
        let words = ["sh", "-c", "echo 'a b'", ""].map(str::to_owned);
        assert_eq!(shell(&words), "sh -c 'echo '\\''a b'\\''' ''");
    }
}
