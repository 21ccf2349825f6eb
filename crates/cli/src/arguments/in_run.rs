//! What is said to a run in flight.

use super::Json;
use crate::completion::values;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use std::ffi::OsString;
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct Commit {
    /// Where the result for each file system is printed as JSON.
    #[command(flatten)]
    pub json: Json,
    /// The run, as `synconce status` names it; the beginning of the ID is enough
    #[arg(value_name = "ID", add = ArgValueCompleter::new(values::runs_in_flight))]
    pub id: Option<String>,
}

#[derive(Debug, Args)]
pub struct Real {
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Parses a whole number with a unit: s, m, h or d.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
    let parse = |(unit, seconds): (&str, u64)| {
        let number = text.strip_suffix(unit).filter(|number| !number.starts_with('+'))?;
        number.parse::<u64>().ok()?.checked_mul(seconds)
    };
    match units.into_iter().find_map(parse) {
        Some(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
        _ => Err("it is a number above 0 with a unit, such as 90s, 5m, 1h or 1d".to_owned()),
    }
}

/// Parses a whole number above 0.
pub(crate) fn positive<T: FromStr + Default + PartialEq>(text: &str) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number != T::default());
    number.ok_or_else(|| "it is a whole number above 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit_and_is_above_0() {
        for (text, seconds) in [("1s", 1), ("90s", 90), ("5m", 300), ("1h", 3_600), ("2d", 172_800)]
        {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in
            ["", "5", "s", "0s", "-1s", "+1s", "1.5h", "1h30m", "5 m", "99999999999999999999d"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
