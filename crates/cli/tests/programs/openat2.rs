//! openat2 with the flags of newer tars and container tools.

use crate::comparison::{Comparison, OneSide, compile};
use synconce_testkit::harness::Place;

pub fn opens_that_sync_agree_under_every_restriction(place: &Place) {
    let program = compile(place, include_str!("openat2.c"), "");
    let comparison = Comparison::run(place, |_| (), &[&program]).succeeds();
    comparison.same("answers", OneSide::out);
    comparison.same_tree("", &["tmp"]);
    comparison.holds("openat2", 12);
}
