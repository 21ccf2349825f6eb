//! `.dockerignore`, with the semantics of Docker's builders (moby/patternmatcher): the last
//! pattern that matches a path, or a directory above the path, decides. The crates `ignore` and
//! `globset` have other semantics, those of .gitignore.

/// The patterns of a `.dockerignore`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ignore {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    /// The pattern without the leading `!` and `/`.
    text: Vec<char>,
    /// Whether it began with `!`: paths that match are sent.
    is_exception: bool,
}

/// Which patterns match a path or a directory above the path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matched(Vec<bool>);

impl Ignore {
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().filter(|line| !line.starts_with('#')).map(str::trim);
        Self { patterns: lines.filter_map(Pattern::parse).collect() }
    }

    /// Returns the number and the text of the first line that makes a builder refuse the file, if
    /// there is one.
    pub(crate) fn refused(text: &str) -> Option<(usize, &str)> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#'));
        let is_bad = |line: &str| {
            Pattern::parse(line.trim()).is_some_and(|pattern| !is_complete(&pattern.text))
        };
        lines.into_iter().find(|(_, line)| is_bad(line))
    }

    /// Returns the matches of `path`, relative to the context and with `/` between names;
    /// `parent` has those of its directory.
    pub(crate) fn matches(&self, path: &str, parent: &Matched) -> Matched {
        let path: Vec<char> = path.chars().collect();
        let inherits = |at: usize| parent.0.get(at).copied().unwrap_or(false);
        let patterns = self.patterns.iter().enumerate();
        let matched = patterns.map(|(at, pattern)| inherits(at) || fits(&pattern.text, &path));
        Matched(matched.collect())
    }

    /// Whether the builder leaves the path of `matched` out.
    pub(crate) fn ignores(&self, matched: &Matched) -> bool {
        let last = matched.0.iter().rposition(|matched| *matched);
        last.is_some_and(|at| !self.patterns[at].is_exception)
    }
}

impl Pattern {
    /// Returns `None` for an empty line.
    fn parse(line: &str) -> Option<Self> {
        let (is_exception, line) = match line.strip_prefix('!') {
            Some(rest) => (true, rest.trim()),
            None => (false, line),
        };
        if line.is_empty() {
            return None;
        }
        let text = clean(line).chars().collect();
        Some(Self { text, is_exception })
    }
}

/// Resolves `.`, `..` and doubled slashes, and removes slashes at both ends, as Go's
/// `filepath.Clean` and the reader of the file do.
fn clean(path: &str) -> String {
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." if names.last().is_some_and(|last| *last != "..") => drop(names.pop()),
            // Nothing is above the root.
            ".." if path.starts_with('/') => {}
            name => names.push(name),
        }
    }
    if names.is_empty() { ".".to_owned() } else { names.join("/") }
}

/// Whether Go's `filepath.Match` takes `pattern`: each class has a member and an end, and something
/// follows each backslash.
fn is_complete(pattern: &[char]) -> bool {
    match pattern {
        [] => true,
        ['\\'] => false,
        ['\\', _, rest @ ..] => is_complete(rest),
        ['[', '^', rest @ ..] | ['[', rest @ ..] => after_class(rest).is_some_and(is_complete),
        [_, rest @ ..] => is_complete(rest),
    }
}

/// Returns what follows the class that begins with `members`.
fn after_class(members: &[char]) -> Option<&[char]> {
    let mut rest = after_member(members)?;
    loop {
        rest = match rest {
            [']', rest @ ..] => return Some(rest),
            ['-', rest @ ..] => after_member(rest)?,
            rest => after_member(rest)?,
        };
    }
}

/// Returns what follows one end of a range.
fn after_member(members: &[char]) -> Option<&[char]> {
    match members {
        [] | ['-' | ']', ..] | ['\\'] => None,
        ['\\', _, rest @ ..] | [_, rest @ ..] => Some(rest),
    }
}

/// Whether `pattern` matches all of `path`.
fn fits(pattern: &[char], path: &[char]) -> bool {
    match pattern {
        [] => path.is_empty(),
        ['*', '*', '/', rest @ ..] | ['*', '*', rest @ ..] if !rest.is_empty() => {
            // Any number of whole directories.
            let starts = path.iter().enumerate().filter(|(_, c)| **c == '/').map(|(at, _)| at + 1);
            std::iter::once(0).chain(starts).any(|start| fits(rest, &path[start..]))
        }
        ['*', '*', ..] => true,
        ['*', rest @ ..] => {
            let end = path.iter().position(|c| *c == '/').unwrap_or(path.len());
            (0..=end).any(|at| fits(rest, &path[at..]))
        }
        ['?', rest @ ..] => {
            path.split_first().is_some_and(|(c, path)| *c != '/' && fits(rest, path))
        }
        ['\\', literal, rest @ ..] => starts(*literal, rest, path),
        ['[', rest @ ..] => class(rest, path),
        [literal, rest @ ..] => starts(*literal, rest, path),
    }
}

fn starts(literal: char, rest: &[char], path: &[char]) -> bool {
    path.split_first().is_some_and(|(c, path)| *c == literal && fits(rest, path))
}

/// Matches `pattern`, which follows a `[`. A class without an end matches nothing.
fn class(pattern: &[char], path: &[char]) -> bool {
    let (is_negated, body) = match pattern {
        ['^', body @ ..] => (true, body),
        body => (false, body),
    };
    let Some(end) = body.iter().position(|c| *c == ']') else { return false };
    let (members, rest) = (&body[..end], &body[end + 1..]);
    let Some((c, path)) = path.split_first() else { return false };
    let mut is_member = false;
    let mut members = members;
    while let [first, after @ ..] = members {
        members = match after {
            ['-', last, after @ ..] => {
                is_member |= (first..=last).contains(&c);
                after
            }
            after => {
                is_member |= first == c;
                after
            }
        };
    }
    is_member != is_negated && fits(rest, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `text` ignores the file `path`.
    fn ignores(text: &str, path: &str) -> bool {
        let ignore = Ignore::parse(text);
        let mut matched = Matched::default();
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            matched = ignore.matches(&path[..end], &matched);
        }
        ignore.ignores(&matched)
    }

    /// Buildah 1.28 refuses and takes these patterns.
    #[test]
    fn patterns_that_a_builder_refuses_are_named_with_their_line() {
        for bad in ["[", "a[", "[]a]", "a\\", "[a-", "[a-]", "[-a]", "[^]", "!["] {
            let text = format!("# a comment [\n\n*.log\n{bad}\n");
            assert_eq!(Ignore::refused(&text), Some((4, bad)), "{bad}");
        }
        for good in ["[a]", "[^a]", "[a-c]x", "\\[", "[\\]]", "]", "a-b", "**/x", ""] {
            assert_eq!(Ignore::refused(good), None, "{good}");
        }
    }

    #[test]
    fn patterns_match_as_in_dockers_builders() {
        for (text, path, expected) in [
            ("**", "a/b", true),
            ("*", "a/b", true),
            ("*.log", "a.log", true),
            ("*.log", "d/a.log", false),
            ("**/*.log", "a.log", true),
            ("**/*.log", "d/e/a.log", true),
            ("d/**", "d/e/f", true),
            ("d/**/f", "d/f", true),
            ("d/**/f", "d/e/g/f", true),
            ("d/*/f", "d/f", false),
            ("/d", "d/f", true),
            ("./d/", "d/f", true),
            ("d/../e", "e/f", true),
            ("d", "dd", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("\\*x", "*x", true),
            ("\\*x", "ax", false),
            ("# d\nf", "d/x", false),
            (" f ", "f", true),
            ("", "f", false),
            ("*\n!d/keep", "d/keep", false),
            ("*\n!d/keep", "d/other", true),
            ("!d\nd", "d/x", true),
            ("d\n!d", "d/x", false),
            ("d\n!**/*.md\nd/README.md", "d/README.md", true),
            ("d\n!**/*.md\nd/README.md", "d/x.md", false),
        ] {
            assert_eq!(ignores(text, path), expected, "{text:?} {path}");
        }
    }
}
