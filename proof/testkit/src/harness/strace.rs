//! Reads the output of strace.

use super::place::{Place, finish};

/// The calls in the output of `strace -f`, in order.
pub struct Trace(Vec<String>);

impl Trace {
    /// Runs `words` in `place` under strace, and expects success.
    pub fn run(place: &Place, words: &[&str]) -> Self {
        let calls = "trace=fsync,fdatasync,sync,syncfs,linkat,unlinkat,rename,renameat,ioctl,\
                     execve,openat,mkdirat,rmdir";
        let mut strace = place.command("strace");
        strace.args(["-f", "-y", "-s", "200", "-o", "trace", "-e", calls]).args(words);
        let finished = finish(&mut strace);
        assert!(finished.status.success(), "{finished:?}");
        Self::parse(&place.read("trace"))
    }

    /// Parses the output of strace.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().map(str::to_owned).collect())
    }

    /// Returns the position of the first call at or after `from` that contains all of `words`.
    pub fn find(&self, from: usize, words: &[&str]) -> Option<usize> {
        let has_all = |line: &String| words.iter().all(|word| line.contains(word));
        self.0.iter().skip(from).position(has_all).map(|at| at + from)
    }

    /// Like [`Self::find`]; panics with all calls if there is none.
    pub fn expect(&self, from: usize, words: &[&str]) -> usize {
        self.find(from, words)
            .unwrap_or_else(|| panic!("no {words:?} from line {from} on:\n{}", self.0.join("\n")))
    }

    /// Returns how many calls contain all of `words`.
    pub fn count(&self, words: &[&str]) -> usize {
        self.0.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    /// Returns the position of the first call at or after `from` that contains all of `words` and
    /// ended with `result`. strace writes a call in two lines if another process has an event
    /// meanwhile.
    pub fn expect_result(&self, from: usize, words: &[&str], result: &str) -> usize {
        let next = |last: &usize| self.find(last + 1, words);
        let mut found = std::iter::successors(self.find(from, words), next);
        found.find(|at| self.end_of(*at).contains(result)).unwrap_or_else(|| {
            panic!("no {words:?} with {result} from line {from} on:\n{}", self.0.join("\n"))
        })
    }

    /// Returns the line that has the result of the call at position `at`.
    fn end_of(&self, at: usize) -> &str {
        let line = &self.0[at];
        if !line.ends_with("<unfinished ...>") {
            return line;
        }
        self.0[at + 1..].iter().find(|next| pid(next) == pid(line)).map_or("", String::as_str)
    }

    /// Returns the position of the first line after `at` that contains all of `words` and is of the
    /// process that made the call at `at`.
    pub fn expect_resumed(&self, at: usize, words: &[&str]) -> usize {
        let is_it = |next: &usize| pid(&self.0[*next]) == pid(&self.0[at]);
        let next = |last: &usize| self.find(last + 1, words);
        let mut found = std::iter::successors(self.find(at, words), next);
        found.find(is_it).unwrap_or_else(|| panic!("no {words:?} by the process of line {at}"))
    }

    /// Returns the call at position `at`.
    pub fn line(&self, at: usize) -> &str {
        &self.0[at]
    }
}

/// Returns the id with which a line begins.
fn pid(line: &str) -> Option<&str> {
    line.split(' ').next()
}
