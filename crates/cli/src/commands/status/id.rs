//! IDs of runs, which may be abbreviated.

use super::others;
use std::collections::BTreeSet;

/// Returns the ID that `typed` is or begins. `known` are the IDs of the user's own state directory
/// and of `--root`; the IDs of other users are looked up if `known` has no match.
///
/// # Errors
/// `typed` begins several IDs. An ID that does not exist is returned as it is.
pub fn complete(typed: &str, known: BTreeSet<String>) -> Result<String, String> {
    if known.contains(typed) {
        return Ok(typed.to_owned());
    }
    let elsewhere = others::of_every_user().into_iter().chain(others::of_root());
    let all = elsewhere.map(|found| found.id).chain(known).collect();
    only(typed, &all)
}

/// Returns the one ID of `all` that `typed` is or begins; `typed` if there is none.
///
/// # Errors
/// `typed` begins several IDs.
pub fn only(typed: &str, all: &BTreeSet<String>) -> Result<String, String> {
    let fitting: Vec<_> = all.iter().filter(|id| id.starts_with(typed)).cloned().collect();
    match &fitting[..] {
        _ if all.contains(typed) || typed.is_empty() => Ok(typed.to_owned()),
        [] => Ok(typed.to_owned()),
        [one] => Ok(one.clone()),
        several => Err(format!("the ID {typed} is ambiguous: {}", several.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_by_a_beginning_that_no_other_has() {
        let all = ["20261122T1-aa", "20261122T1-ab", "20261123T1-aa", "2026"];
        let all = all.map(str::to_owned).into();
        assert_eq!(only("20261123", &all).as_deref(), Ok("20261123T1-aa"));
        assert_eq!(only("2026", &all).as_deref(), Ok("2026"), "an exact ID is meant itself");
        assert_eq!(only("2027", &all).as_deref(), Ok("2027"));
        assert_eq!(only("", &all).as_deref(), Ok(""));
        let why = "the ID 20261122 is ambiguous: 20261122T1-aa, 20261122T1-ab";
        assert_eq!(only("20261122", &all), Err(why.to_owned()));
    }
}
