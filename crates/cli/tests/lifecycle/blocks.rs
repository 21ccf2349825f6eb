//! A program that reads a disk below its file system misses held data there.

use synconce_testkit::harness::{isolated, perl};
use synconce_testkit::rig::Rig;

#[test]
fn a_program_that_reads_the_disk_finds_there_what_it_synced() {
    isolated(|place| {
        let rig = Rig::builder().size(64 << 20).mount_options("commit=300").up().unwrap();
        let (data, device) = (rig.path().join("data"), rig.device().display());
        // `grub-install` does this for block lists: it flushes the device, asks for the place of a
        // file, changes the file, syncs the file, and reads it on the device. A program that it
        // starts is held.
        let script = format!(
            "open(my $disk, '<', '{device}') or die; ioctl($disk, 0x1261, 0) or die; \
             open(my $file, '>', '{0}') or die; print $file 'early'; $file->flush; \
             $file->sync or die; \
             system('cp {0} {0}.other && sync {0}.other') == 0 or die; \
             `filefrag -b512 -v {0}` =~ /^ +0: +0\\.\\. +\\d+: +(\\d+)\\.\\./m or die 'no place'; \
             seek($file, 0, 0); print $file 'later'; $file->flush; $file->sync or die; \
             seek($disk, 512 * $1, 0); read($disk, my $read, 5); $read eq 'later' or die \"read $read\";",
            data.display()
        );
        let run = place.run(&["--stats"], &perl(&script));
        assert!(run.status.success(), "{run:?}");
        let passed = "passed 2 fsync: the caller reads the disk itself\n";
        assert!(run.stderr.contains(passed), "{run:?}");
        rig.down().unwrap();
    });
}
