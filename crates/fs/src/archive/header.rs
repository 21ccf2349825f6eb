//! Parses and writes the fields of a header.

use tar::{Header, UstarHeader};

/// Parses the number in a field: octal, or two's complement behind a first byte of 0x80 or
/// 0xff (GNU). An empty field is 0.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    match field.first()? {
        0x80 | 0xff => base_256(field),
        _ => octal(field),
    }
}

fn base_256(field: &[u8]) -> Option<i64> {
    let negative = field[0] == 0xff;
    let (high, low) = field[1..].split_at((field.len() - 1).saturating_sub(8));
    let fill = if negative { 0xff } else { 0 };
    let value = low
        .iter()
        .fold(if negative { -1 } else { 0 }, |value: i64, byte| (value << 8) | i64::from(*byte));
    (high.iter().all(|byte| *byte == fill) && (value < 0) == negative).then_some(value)
}

fn octal(field: &[u8]) -> Option<i64> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    let digits = field[..end].trim_ascii();
    digits.iter().try_fold(0_i64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    })
}

/// Writes `value` in octal. Returns whether the value fits.
pub(super) fn set_octal(field: &mut [u8], value: u64) -> bool {
    let width = field.len() - 1;
    let text = format!("{value:0width$o}");
    let fits = text.len() == width;
    if fits {
        field[..width].copy_from_slice(text.as_bytes());
        field[width] = 0;
    }
    fits
}

/// Returns whether the checksum is right, for unsigned bytes or for signed bytes, which some
/// old programs used.
pub(super) fn is_sound(header: &Header) -> bool {
    let bytes = header.as_bytes();
    let others = || bytes[..148].iter().chain(&bytes[156..]);
    let unsigned = others().map(|byte| i64::from(*byte)).sum::<i64>() + 8 * 32;
    let signed = others().map(|byte| i64::from(*byte as i8)).sum::<i64>() + 8 * 32;
    number(&header.as_old().cksum).is_some_and(|sum| sum == unsigned || sum == signed)
}

/// Writes `path`, with leading directories in the prefix field if needed. Returns whether the
/// path fits.
pub(super) fn set_path(header: &mut UstarHeader, path: &[u8]) -> bool {
    let (prefix, name) = if path.len() <= header.name.len() {
        (&path[..0], path)
    } else {
        let earliest = path.len() - header.name.len() - 1;
        let split = path[earliest..path.len() - 1].iter().position(|byte| *byte == b'/');
        match split.map(|at| earliest + at) {
            Some(at) if at > 0 && at <= header.prefix.len() => (&path[..at], &path[at + 1..]),
            _ => return false,
        }
    };
    header.prefix[..prefix.len()].copy_from_slice(prefix);
    header.name[..name.len()].copy_from_slice(name);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_of_base_256() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(number(b"77777777"), Some(0o77777777));
        assert_eq!(number(b"0000648\0"), None);
        assert_eq!(number(b"\x80\0\0\0\0\0\0\x05"), Some(5));
        assert_eq!(number(b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"), Some(i64::MAX));
        assert_eq!(number(b"\x80\0\0\0\x80\0\0\0\0\0\0\0"), None);
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe"), Some(-2));
        assert_eq!(number(b"\x80\0\0\x01\0\0\0\0\0\0\0\0"), None);
    }

    #[test]
    fn a_number_too_large_for_its_field_is_not_cut() {
        let mut field = *b"........";
        assert!(set_octal(&mut field, 0o7_777_777));
        assert_eq!(&field, b"7777777\0");
        assert!(!set_octal(&mut field, 0o10_000_000));
    }

    #[test]
    fn a_path_is_split_at_a_slash_or_not_written() {
        let written = |path: &[u8]| {
            let mut header = Header::new_ustar();
            let ustar = header.as_ustar_mut().unwrap();
            set_path(ustar, path).then(|| header.path_bytes().into_owned())
        };
        let directories = |length: usize| [vec![b'd'; length], vec![b'n'; 99]].join(&b'/');
        for fits in [b"./a".to_vec(), vec![b'a'; 100], directories(155), directories(1)] {
            assert_eq!(written(&fits).as_deref(), Some(&*fits));
        }
        for long in [vec![b'a'; 101], directories(156), [&[b'/'][..], &[b'a'; 100]].concat()] {
            assert_eq!(written(&long), None);
        }
        let directory = [vec![b'd'; 50], vec![b'n'; 98], vec![]].join(&b'/');
        assert_eq!(written(&directory).as_deref(), Some(&*directory));
    }
}
