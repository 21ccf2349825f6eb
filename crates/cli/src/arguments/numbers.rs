//! Parses numbers and times of options.

use std::str::FromStr;
use std::time::Duration;

/// Parses a time, as timeout(1) does: seconds, or a number with the unit s, m, h or d.
pub(super) fn duration(text: &str) -> Result<Duration, &'static str> {
    const WRONG: &str = "it is a number above 0, such as 90, 5m, 1.5h or 2d";
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3_600),
        Some((at, 'd')) => (&text[..at], 86_400),
        _ => (text, 1),
    };
    let seconds = number.parse::<f64>().map_err(|_| WRONG)? * f64::from(unit);
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| WRONG)?;
    if duration.as_micros() == 0 { Err(WRONG) } else { Ok(duration) }
}

/// Parses a whole number above 0.
pub(super) fn positive<T: FromStr + Default + PartialEq>(text: &str) -> Result<T, &'static str> {
    let number = text.parse().ok().filter(|number| *number != T::default());
    number.ok_or("it is a whole number above 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_seconds_or_has_a_unit_and_is_above_0() {
        let parsed =
            [("90", 90.0), ("1s", 1.0), ("5m", 300.0), ("1.5h", 5_400.0), ("2d", 172_800.0)];
        for (text, seconds) in parsed {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "s", "0s", "-1s", "1h30m", "5 m", "inf", "nan", "99999999999999999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
