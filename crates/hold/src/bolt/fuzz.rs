//! Fuzzing of the reader: a database may have any bytes after a crash.

use super::*;
use crate::bolt::meta::sums;
use std::io::{Seek, SeekFrom, Write};

/// The page size of the kept inputs, which are at most 4096 bytes long.
const PAGE: usize = 512;

#[test]
fn any_file_is_whole_or_damaged() {
    let mut file = tempfile::tempfile().expect("a file");
    let mut whole = 0;
    synconce_fuzz::target("bolt", 3_000, |bytes| {
        let mut bytes = bytes.to_vec();
        // A shorter file is damaged without being read.
        bytes.resize(bytes.len().max(4096), 0);
        judge(&mut file, &bytes);
        // Almost no change of a meta page has the right checksum.
        sums::mend(&mut bytes);
        sums::mend(&mut bytes[PAGE..]);
        whole += u32::from(judge(&mut file, &bytes));
    });
    // The kept inputs that bbolt wrote, at least.
    assert!(whole >= 4, "{whole} whole databases");
}

/// Checks the file with the content `bytes`; in a whole one each top-level bucket is found.
/// Returns whether the file is whole.
fn judge(file: &mut File, bytes: &[u8]) -> bool {
    file.set_len(0).expect("a file that can be truncated");
    file.seek(SeekFrom::Start(0)).expect("a file with an offset");
    file.write_all(bytes).expect("a file that can be written");
    let summary = match settle(check_file(file)).expect("a readable file") {
        Ok(summary) => summary,
        Err(damage) => {
            assert!(!damage.to_string().is_empty());
            return false;
        }
    };
    assert!(summary.pages as usize * PAGE <= bytes.len(), "{summary:?}");
    let meta = Meta::choose(file).unwrap_or_else(|_| panic!("a whole database has a meta page"));
    let mut names = Vec::new();
    let mut walk = Walk::new(file, &meta, PageSet::default());
    let walked = walk.run(Place::Page(meta.root), &mut |name, place| {
        names.extend(place.map(|_| name.to_vec()));
        false
    });
    assert!(walked.is_ok() && names.len() as u64 <= summary.buckets);
    for name in names {
        let keys = settle(keys_of(file, &name, 100)).expect("a readable file");
        assert!(
            matches!(keys, Ok(Some(keys)) if keys.len() as u64 <= summary.keys + summary.buckets)
        );
    }
    true
}
