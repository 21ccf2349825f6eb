//! openat2 with the flags of newer tars and container tools.

use crate::twin::{Side, Twin, compile};
use synconce_testkit::harness::Place;

pub fn opens_that_sync_agree_under_every_restriction(place: &Place) {
    let program = compile(place, include_str!("openat2.c"), "");
    let twin = Twin::run(place, |_| (), &[&program]).succeeds();
    twin.same("answers", Side::out);
    twin.same_tree("", &["tmp"]);
    twin.holds("openat2", 12);
}
