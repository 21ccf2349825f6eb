//! Parses durations and sizes such as `8ms` and `4G`.

use std::time::Duration;

/// Parses a duration: a number and `ns`, `us`, `ms` or `s`; a bare `0` needs no unit.
///
/// # Errors
/// The text is invalid; the error is the reason.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let nanos = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if number == 0.0 => 1.0,
        "" => return Err(format!("{text}: a unit is missing (ns, us, ms or s)")),
        _ => return Err(format!("{text}: unknown unit {unit} (ns, us, ms or s)")),
    };
    Duration::try_from_secs_f64(number * nanos / 1e9).map_err(|error| format!("{text}: {error}"))
}

/// Parses a size in bytes, or with `K`, `M`, `G` or `T` for powers of 1024.
///
/// # Errors
/// The text is invalid; the error is the reason.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        unit => return Err(format!("{text}: unknown unit {unit} (K, M, G or T)")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text}: not a whole number"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text}: too large"))
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..end].parse().map_err(|_| format!("{text}: not a number"))?;
    Ok((number, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        assert_eq!(duration("8ms"), Ok(Duration::from_millis(8)));
        assert_eq!(duration("0.5ms"), Ok(Duration::from_micros(500)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert!(duration("8").is_err());
        assert!(duration("fast").is_err());
        assert!(duration("8min").is_err());
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("8G"), Ok(8 << 30));
        assert!(size("G").is_err());
        assert!(size("8X").is_err());
        assert!(size("99999999999T").is_err());
    }
}
