//! Fuzzing of the reader: a database may have any bytes.

use super::*;
use synconce_probe::bolt::{SUMMED, checksum, look};

/// The page size of the kept inputs, which bbolt wrote.
const PAGE: usize = 512;

/// Writes the right checksum into the meta page that starts `page`: almost no change of a meta
/// page has it.
fn mend(page: &mut [u8]) {
    let meta = &mut page[HEADER as usize..][..SUMMED + 8];
    let sum = checksum(&meta[..SUMMED]);
    meta[SUMMED..].copy_from_slice(&sum.to_ne_bytes());
}

#[test]
fn any_file_has_a_number_of_keys_or_is_damaged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("test.db");
    let mut counted = 0;
    synconce_fuzz::target("bolt", 3_000, |bytes| {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().max(4096), 0);
        mend(&mut bytes);
        mend(&mut bytes[PAGE..]);
        std::fs::write(&path, &bytes).expect("a file");
        // doctor looks at databases that are in use.
        let _ = look(&File::open(&path).expect("the file"));
        for bucket in [b"b", b"a"] {
            counted += count_keys(&path, bucket).unwrap_or_default();
        }
    });
    // Those of the kept inputs, at least.
    assert!(counted > 0);
}
