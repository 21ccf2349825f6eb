//! Formats numbers as text.

/// Formats a time in nanoseconds with a suitable unit and about three digits.
pub(crate) fn quantity(nanoseconds: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];
    let size = nanoseconds.abs();
    let (scale, unit) = UNITS.into_iter().find(|(scale, _)| size >= *scale).unwrap_or((1.0, "ns"));
    let value = nanoseconds / scale;
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0} {unit}"),
        v if v >= 9.995 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}

/// Formats a difference, with its sign.
pub(super) fn signed(nanoseconds: f64) -> String {
    let sign = if nanoseconds < 0.0 { '-' } else { '+' };
    format!("{sign}{}", quantity(nanoseconds.abs()))
}

/// Formats a p value: three decimals, or a bound below a thousandth.
pub(super) fn shown_p(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_the_unit_that_suits_it() {
        assert_eq!(quantity(94.3), "94.3 ns");
        assert_eq!(quantity(2_500.0), "2.50 us");
        assert_eq!(quantity(1.25e7), "12.5 ms");
        assert_eq!(quantity(6.5e10), "65.0 s");
        assert_eq!(quantity(0.0), "0.00 ns");
        assert_eq!(quantity(1.2345e11), "123 s");
    }

    #[test]
    fn a_difference_always_has_its_sign() {
        assert_eq!(signed(-3e6), "-3.00 ms");
        assert_eq!(signed(18.0), "+18.0 ns");
    }

    #[test]
    fn a_tiny_p_value_is_a_bound() {
        assert_eq!(shown_p(0.0004), "<0.001");
        assert_eq!(shown_p(0.00794), "0.008");
    }
}
