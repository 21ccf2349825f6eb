//! Figures as they are shown: rounded, in their largest unit.

/// Rounds `value`, a lower bound, down to a multiple of `digit`. A value that floating point puts
/// just below a multiple, such as 0.3 below three times 0.1, counts as the multiple.
pub(crate) fn floor(value: f64, digit: f64) -> f64 {
    (value / digit + 1e-6).floor() * digit
}

/// Formats seconds as us, ms or s.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        ..0.001 => format!("{:.0} us", value * 1e6),
        0.001..1.0 => format!("{:.1} ms", value * 1e3),
        1.0..100.0 => format!("{value:.1} s"),
        _ => format!("{value:.0} s"),
    }
}

/// Formats seconds as [`seconds`] does, rounded down.
pub(crate) fn at_least(value: f64) -> String {
    let digit = match value {
        ..0.001 => 1e-6,
        0.001..1.0 => 1e-4,
        1.0..10.0 => 0.1,
        _ => return format!("{:.0} s", floor(value, 1.0)),
    };
    seconds(floor(value, digit))
}

/// Formats microseconds, as [`seconds`] does.
pub(crate) fn micros(count: f64) -> String {
    seconds(count / 1e6)
}

/// Formats bytes in decimal units.
pub(crate) fn bytes(count: f64) -> String {
    match count {
        ..1e3 => format!("{count:.0} B"),
        ..1e6 => format!("{:.1} kB", count / 1e3),
        ..1e9 => format!("{:.1} MB", count / 1e6),
        _ => format!("{:.1} GB", count / 1e9),
    }
}

/// Formats a whole number with separators of thousands.
pub(crate) fn whole(count: f64) -> String {
    let digits = format!("{count:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_in_their_largest_unit() {
        assert_eq!(
            [0.95, 2.99, 0.3, 41.9, 125.7].map(at_least),
            ["950.0 ms", "2.9 s", "300.0 ms", "41 s", "125 s"]
        );
        assert_eq!([0.000_012_9, 0.0126].map(at_least), ["12 us", "12.6 ms"]);
        assert_eq!([micros(999.4), micros(7_900.0), micros(2e6)], ["999 us", "7.9 ms", "2.0 s"]);
        assert_eq!([bytes(512.0), bytes(2.5e6), bytes(3e9)], ["512 B", "2.5 MB", "3.0 GB"]);
        assert_eq!([whole(17.0), whole(1_234.0), whole(1_234_567.0)], ["17", "1,234", "1,234,567"]);
    }
}
