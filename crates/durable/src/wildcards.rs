//! Matches names against patterns with wildcards.

/// One element of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePart {
    /// `*`: any number of any bytes.
    Any,
    /// `?`: any one byte.
    One,
    /// This byte.
    Byte(u8),
}

/// Returns the elements of the pattern `typed`. There is no escape: `*` and `?` are always
/// wildcards.
pub fn parse(typed: &[u8]) -> Vec<NamePart> {
    let part = |byte: &u8| match byte {
        b'*' => NamePart::Any,
        b'?' => NamePart::One,
        byte => NamePart::Byte(*byte),
    };
    typed.iter().map(part).collect()
}

/// Whether `pattern` matches the whole `name`. The time is at most proportional to the product of
/// the two lengths: at a mismatch, only the last `*` takes one more byte.
pub fn is_match(pattern: &[NamePart], name: &[u8]) -> bool {
    let (mut at, mut next, mut retry) = (0, 0, None);
    while next < name.len() {
        match (pattern.get(at), retry) {
            (Some(NamePart::Any), _) => {
                retry = Some((at + 1, next));
                at += 1;
            }
            (Some(part), _)
                if matches!(part, NamePart::One) || *part == NamePart::Byte(name[next]) =>
            {
                (at, next) = (at + 1, next + 1);
            }
            (_, Some((after, from))) => {
                (at, next, retry) = (after, from + 1, Some((after, from + 1)));
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|part| *part == NamePart::Any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_whole_names() {
        let name = b"io.containerd.metadata";
        let matches = |pattern: &[u8]| is_match(&parse(pattern), name);
        for pattern in [&b"*"[..], b"io.*", b"*metadata", b"i?.*.meta*a", b"**", b"*a*a*"] {
            assert!(matches(pattern), "{}", String::from_utf8_lossy(pattern));
        }
        for pattern in [&b""[..], b"?", b"io.", b"*x*", b"io.*b", b"?*o.containerd.metadatax"] {
            assert!(!matches(pattern), "{}", String::from_utf8_lossy(pattern));
        }
        assert!(is_match(&parse(b""), b"") && is_match(&parse(b"*"), b""));
        let (pattern, name) = (parse(b"*a*a*a*b"), [b'a'; 4096]);
        assert!(!is_match(&pattern, &name), "and takes no exponential time");
    }
}
