//! Checksums as a list of sha256sum(1), whose `--check` reads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The characters that the list has in names by `\` and a letter. Its line begins with `\` then.
const ESCAPES: [(u8, u8); 3] = [(b'\\', b'\\'), (b'\n', b'n'), (b'\r', b'r')];

/// Returns the list of `sums`.
#[must_use]
pub fn to_list<'a>(sums: impl IntoIterator<Item = (&'a [u8], [u8; 32])>) -> Vec<u8> {
    let mut list = Vec::new();
    for (path, sum) in sums {
        let escape = |byte: &u8| ESCAPES.iter().find(|(plain, _)| plain == byte);
        if path.iter().any(|byte| escape(byte).is_some()) {
            list.push(b'\\');
        }
        let digits = sum.iter().fold(String::new(), |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}");
            digits
        });
        list.extend_from_slice(digits.as_bytes());
        list.extend_from_slice(b"  ");
        for byte in path {
            match escape(byte) {
                Some((_, letter)) => list.extend([b'\\', *letter]),
                None => list.push(*byte),
            }
        }
        list.push(b'\n');
    }
    list
}

/// Returns the checksums by path in `list`; `None` if a line has none.
#[must_use]
pub fn from_list(list: &[u8]) -> Option<BTreeMap<Vec<u8>, [u8; 32]>> {
    let Some(lines) = list.strip_suffix(b"\n") else {
        return list.is_empty().then(BTreeMap::new);
    };
    lines.split(|byte| *byte == b'\n').map(from_line).collect()
}

fn from_line(line: &[u8]) -> Option<(Vec<u8>, [u8; 32])> {
    let (line, is_escaped) = line.strip_prefix(b"\\").map_or((line, false), |line| (line, true));
    let (digits, name) = line.split_at_checked(64)?;
    let name = name.strip_prefix(b"  ")?;
    let digits = str::from_utf8(digits).ok()?;
    let mut sum = [0; 32];
    for (place, byte) in sum.iter_mut().enumerate() {
        let two = &digits.get(2 * place..2 * place + 2)?;
        *byte = u8::from_str_radix(two, 16).ok()?;
    }
    if !is_escaped {
        return Some((name.to_vec(), sum));
    }
    let mut path = Vec::new();
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'\\' => {
                let letter = bytes.next()?;
                ESCAPES.iter().find(|(_, known)| known == letter)?.0
            }
            byte => *byte,
        });
    }
    Some((path, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let names = [&b"etc/passwd"[..], b"a\\b", b"a\nb\rc", b"\\", b"  two", b"\xff\xfe"];
        let sums: BTreeMap<Vec<u8>, [u8; 32]> =
            (0..).zip(names).map(|(number, name)| (name.to_vec(), [number; 32])).collect();
        let list = to_list(sums.iter().map(|(path, sum)| (&path[..], *sum)));
        assert_eq!(from_list(&list), Some(sums));
        assert_eq!(from_list(b""), Some(BTreeMap::new()));
        for cut in 1..list.len() {
            let whole_lines = list[..cut].ends_with(b"\n");
            assert_eq!(from_list(&list[..cut]).is_some(), whole_lines, "{cut}");
        }
    }
}
