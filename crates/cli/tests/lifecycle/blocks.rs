//! A program that synced a file may ask where the file is on the disk (FS_IOC_FIEMAP), as scripts do for
//! `resume_offset` of a swap file. Data that was not written has no place there.

use synconce_testkit::harness::{isolated, perl};
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

#[test]
fn a_program_that_reads_the_disk_finds_there_what_it_synced() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
        let (data, device) = (rig.path().join("data"), rig.device().display());
        // As `grub-install` does for block lists: it flushes the device, asks for the place of a file,
        // changes the file, syncs it, and reads it on the device. A program that it starts is held.
        let script = format!(
            "open(my $disk, '<', '{device}') or die; ioctl($disk, 0x1261, 0) or die; \
             open(my $file, '>', '{0}') or die; print $file 'early'; $file->flush; \
             system('sync', '{0}') == 0 or die; \
             `filefrag -b512 -v {0}` =~ /^ +0: +0\\.\\. +\\d+: +(\\d+)\\.\\./m or die 'no place'; \
             seek($file, 0, 0); print $file 'later'; $file->flush; $file->sync or die; \
             seek($disk, 512 * $1, 0); read($disk, my $read, 5); $read eq 'later' or die \"read $read\";",
            data.display()
        );
        let run = place.run(&["--stats"], &perl(&script));
        assert!(run.status.success(), "{run:?}");
        let passed = "passed 1 fsync: the caller reads the disk itself\n";
        assert!(run.stderr.contains(passed), "{run:?}");
        rig.down().unwrap();
    });
}
