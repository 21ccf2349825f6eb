//! Numbers of system calls, for scripts that make calls by syscall(2). Each architecture has its
//! own.

use syscalls::Sysno;

/// Returns the name and the number of each system call of this architecture, separated by blanks.
/// Perl makes a hash of them by `split`.
pub fn numbers_of_calls() -> String {
    let words: Vec<_> =
        Sysno::iter().map(|call| format!("{} {}", call.name(), call.id())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn numbers_of_calls_are_those_of_this_architecture() {
        let numbers = format!(" {} ", numbers_of_calls());
        for (name, number) in [("prctl", libc::SYS_prctl), ("openat2", libc::SYS_openat2)] {
            assert!(numbers.contains(&format!(" {name} {number} ")), "{numbers}");
        }
    }

    /// A number in a script would be another call on the next architecture.
    #[test]
    fn no_script_of_a_test_calls_by_a_number() {
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/*/tests/**/*");
        let paths: Vec<_> = glob::glob(tests).unwrap().map(Result::unwrap).collect();
        let texts = paths.iter().filter_map(|path| Some((path, fs::read_to_string(path).ok()?)));
        let (mut calls, mut by_number) = (0, Vec::new());
        for (path, text) in texts {
            for after in text.split("syscall(").skip(1) {
                calls += 1;
                if after.starts_with(|first: char| first.is_ascii_digit()) {
                    let line = after.lines().next().unwrap_or_default();
                    by_number.push(format!("{}: syscall({line}", path.display()));
                }
            }
        }
        assert!(calls > 30, "only {calls} calls were found");
        assert!(by_number.is_empty(), "{}", by_number.join("\n"));
    }
}
