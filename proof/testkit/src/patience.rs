//! Time limits for machines of any speed.

use std::ffi::OsStr;
use std::sync::OnceLock;
use std::time::Duration;

/// The factor for every time limit of a test: a whole number, 1 if not set.
const VARIABLE: &str = "SYNCONCE_TEST_PATIENCE";

/// Returns the time limit of a test: `limit`, enough on a machine of today, times the value of
/// `SYNCONCE_TEST_PATIENCE`, which is set on slow machines, for instance emulated ones.
///
/// # Panics
/// The variable is not a whole number above 0.
#[must_use]
pub fn patiently(limit: Duration) -> Duration {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    limit
        * *FACTOR.get_or_init(|| match factor(std::env::var_os(VARIABLE).as_deref()) {
            Ok(factor) => factor,
            Err(reason) => panic!("{reason}"),
        })
}

fn factor(value: Option<&OsStr>) -> Result<u32, String> {
    let Some(value) = value else { return Ok(1) };
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.filter(|number| *number > 0).ok_or_else(|| {
        let value = value.to_string_lossy();
        format!("{VARIABLE}={value}: it must be a whole number above 0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_multiplies_limits_and_nothing_else_is_taken() {
        assert_eq!(factor(None), Ok(1));
        assert_eq!(factor(Some("5".as_ref())), Ok(5));
        for wrong in ["", "0", "-1", "1.5", "five"] {
            let reason = factor(Some(wrong.as_ref())).unwrap_err();
            assert!(reason.starts_with(&format!("SYNCONCE_TEST_PATIENCE={wrong}: ")), "{reason}");
        }
    }
}
