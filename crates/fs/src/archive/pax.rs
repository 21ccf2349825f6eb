//! Reads and writes records of PAX headers: `LENGTH KEY=VALUE\n`, where LENGTH counts the
//! whole record.

/// A key and its value.
type PaxRecord<'a> = (&'a [u8], &'a [u8]);

/// Splits `text` after its first record; `None` if that record is damaged. Only the length shows
/// where a value ends: the value may contain any byte, also newlines and NULs.
fn split(text: &[u8]) -> Option<(PaxRecord<'_>, &[u8])> {
    let space = text.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&text[..space]).ok()?.parse().ok()?;
    let (record, rest) = (text.get(space + 1..length)?, &text[length..]);
    let record = record.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some(((&record[..equals], &record[equals + 1..]), rest))
}

/// Returns the records of a header's content, or `None` when it is damaged.
pub(super) fn records(mut text: &[u8]) -> Option<Vec<PaxRecord<'_>>> {
    let mut records = Vec::new();
    // Some writers fill the content with NULs up to its size.
    while text.first().is_some_and(|byte| *byte != 0) {
        let (record, rest) = split(text)?;
        records.push(record);
        text = rest;
    }
    text.iter().all(|byte| *byte == 0).then_some(records)
}

/// Adds a record to a header's content.
pub(super) fn append(text: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    // The length includes its own digits, which may make it one digit longer.
    let mut length = rest + digits(rest);
    length = rest + digits(length);
    text.extend_from_slice(length.to_string().as_bytes());
    text.push(b' ');
    text.extend_from_slice(key);
    text.push(b'=');
    text.extend_from_slice(value);
    text.push(b'\n');
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Parses a decimal time into seconds and nanoseconds, rounded down: `-1.5` gives -2 s and
/// 500,000,000 ns.
pub(super) fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || whole.is_empty() {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let kept = &fraction[..fraction.len().min(9)];
    let nanoseconds: u32 = format!("{kept:0<9}").parse().ok()?;
    let beyond = fraction[kept.len()..].bytes().any(|digit| digit != b'0');
    if !negative {
        return Some((seconds, nanoseconds));
    }
    match nanoseconds + u32::from(beyond) {
        0 => Some((-seconds, 0)),
        later => Some((-seconds - 1, 1_000_000_000 - later)),
    }
}

/// Returns the decimal text of a time, the inverse of [`time`].
pub(super) fn time_text(seconds: i64, nanoseconds: u32) -> String {
    let (sign, seconds, nanoseconds) = match (seconds, nanoseconds) {
        (..0, 0) => ("-", seconds.unsigned_abs(), 0),
        (..0, _) => ("-", (seconds + 1).unsigned_abs(), 1_000_000_000 - nanoseconds),
        _ => ("", seconds.unsigned_abs(), nanoseconds),
    };
    if nanoseconds == 0 {
        return format!("{sign}{seconds}");
    }
    let text = format!("{sign}{seconds}.{nanoseconds:09}");
    text.trim_end_matches('0').to_owned()
}

/// Returns the name of an extended attribute as it stands in a key: `%` and `=` are escaped, as GNU
/// tar does it.
pub(super) fn escaped(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'%' => escaped.extend_from_slice(b"%25"),
            b'=' => escaped.extend_from_slice(b"%3D"),
            _ => escaped.push(*byte),
        }
    }
    escaped
}

/// Reverses [`escaped`].
pub(super) fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        (rest, _) = match rest {
            [b'%', b'2', b'5', after @ ..] => (after, name.push(b'%')),
            [b'%', b'3', b'D', after @ ..] => (after, name.push(b'=')),
            _ => (after, name.push(*first)),
        };
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_every_length_are_read_as_they_were_written() {
        for length in 0..1100 {
            let value = vec![b'\n'; length];
            let mut text = Vec::new();
            append(&mut text, b"key", &value);
            append(&mut text, b"b", b"1=2");
            let expected: Vec<(&[u8], &[u8])> = vec![(b"key", &value), (b"b", b"1=2")];
            assert_eq!(records(&text), Some(expected), "{length}");
        }
    }

    #[test]
    fn damaged_records_are_none() {
        for text in ["5 a=b\n", "7 a=b\n", "6 a=b ", "6 abc\n", "x a=b\n", "6a=b\n", "6 a=b\n6"] {
            assert_eq!(records(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(records(b"18446744073709551615 a=b\n"), None);
        assert_eq!(records(b"1 a=b\n"), None);
    }

    #[test]
    fn times_are_read_as_they_were_written() {
        for time_of in [(0, 0), (1, 5), (-1, 0), (-2, 500_000_000), (-1, 999_999_999), (9, 10)] {
            let text = time_text(time_of.0, time_of.1);
            assert_eq!(time(text.as_bytes()), Some(time_of), "{text}");
        }
        assert_eq!(time(b"-0.25"), Some((-1, 750_000_000)));
        assert_eq!(time(b"1.12345678999"), Some((1, 123_456_789)));
        for wrong in ["", ".", "-", "1e3", "+1", "1.-1", "99999999999999999999"] {
            assert_eq!(time(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn names_of_attributes_are_escaped_and_back() {
        assert_eq!(escaped(b"user.a=b%c"), b"user.a%3Db%25c");
        assert_eq!(unescaped(b"user.a%3Db%25c%41%"), b"user.a=b%c%41%");
    }
}
