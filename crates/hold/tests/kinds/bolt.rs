//! The check of bbolt databases that bbolt wrote.

use crate::go::Bbolt;
use std::fs;
use synconce_hold::bolt::{Summary, check, is_bolt, keys};
use synconce_testkit::harness::Place;

pub fn every_database_of_bbolt_is_whole(place: &Place) {
    let bbolt = Bbolt::new(place);
    for path in bbolt.databases() {
        assert!(bbolt.accepts(&path), "{path:?}");
        let summary = check(&path).expect("a readable file");
        let summary = summary.unwrap_or_else(|damage| panic!("{path:?}: {damage}"));
        assert!(is_bolt(&path).expect("a readable file"));
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        assert_eq!(summary.free.is_none(), name.starts_with("unlisted"), "{name}: {summary:?}");
        match name {
            "new.db" => assert_eq!((summary.buckets, summary.keys), (0, 0)),
            "one.db" => assert_eq!((summary.buckets, summary.keys), (1, 1)),
            "deep.db.old" => assert_eq!((summary.buckets, summary.keys), (1, 5000)),
            "nested.db" => assert_eq!(summary.buckets, 6 + 36 + 216 + 1296),
            "free.db" => assert!(summary.free > Some(0xFFFF), "{summary:?}"),
            _ => {}
        }
    }
    let empty = place.write("empty", "");
    assert_eq!(check(&empty).expect("a readable file"), Ok(Summary::default()));
}

pub fn bytes_that_bbolt_does_not_use_are_not_damage(place: &Place) {
    let bbolt = Bbolt::new(place);
    let mut random = fastrand::Rng::with_seed(15);
    let mut changed = 0;
    for path in bbolt.databases() {
        let whole = check(&path).expect("a readable file");
        let mut bytes = fs::read(&path).expect("a database");
        for (from, to) in bbolt.unused(&path) {
            bytes[from..to].fill_with(|| random.u8(..));
            changed += to - from;
        }
        fs::write(&path, bytes).expect("a database");
        assert!(bbolt.accepts(&path), "{path:?}");
        assert_eq!(check(&path).expect("a readable file"), whole, "{path:?}");
    }
    assert!(changed > 1 << 20, "{changed} bytes");
}

pub fn the_keys_of_a_bucket_are_found(place: &Place) {
    let bbolt = Bbolt::new(place);
    let of = |name: &str, bucket: &[u8], at_most| {
        let found = keys(&bbolt.directory.join(name), bucket, at_most).expect("a readable file");
        found.unwrap_or_else(|damage| panic!("{name}: {damage}"))
    };
    for count in [1, 3, 500] {
        let found = of(&format!("members-{count}.db"), b"members", 1000).expect("a bucket");
        let mut sorted = found.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), count);
        assert_eq!(sorted[0], b"0000000000000000");
    }
    assert_eq!(of("members-500.db", b"members", 2).expect("a bucket").len(), 2);
    // The bucket is a page of its own, and its trees are as deep as any.
    assert_eq!(of("deep.db.old", b"b", 9999).expect("a bucket").len(), 5000);
    assert_eq!(of("one.db", b"members", 2), None);
    assert_eq!(of("new.db", b"", 2), None);
}
