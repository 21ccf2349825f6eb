//! A program that synced a file may ask where the file is on the disk (FS_IOC_FIEMAP), as scripts do for
//! `resume_offset` of a swap file. Data that was not written has no place there.

use synconce_testkit::harness::isolated;
use synconce_testkit::rig::{FsKind, Rig};

#[test]
fn a_file_that_was_synced_has_a_place_on_the_disk() {
    isolated(|place| {
        for kind in FsKind::ALL {
            let rig = Rig::builder().fs(kind).size(384 << 20).up().unwrap();
            let data = rig.path().join("data").display().to_string();
            // A new file: ext4 gives one that is truncated its place at close(2). The second has no data.
            let script = format!(
                "rm -f {data}*; head -c 300000 /bin/sh >{data}; : >{data}.none; sync {data}; \
                 filefrag -v {data} {data}.none"
            );
            let words = ["sh", "-ec", &script];
            let [bare, held] = [place.bare(&words), place.run(&[], &words)];
            for done in [&bare, &held] {
                assert!(done.status.success(), "{kind}: {done:?}");
                assert!(done.stdout.contains("extent"), "{kind}: {done:?}");
                assert!(!done.stdout.contains("delalloc"), "{kind}: {done:?}");
            }
            assert_eq!(held.stderr, "", "{kind}");
            rig.down().unwrap();
        }
    });
}
