//! A run makes a disk image with partitions, and with a boot loader before the partitions. A copy
//! of the image is the same as without a run. In a sealed run only the files are the same: the
//! syncs of the block device, and so of the boot loader, are dropped (docs/guide.md).

use crate::support::{Place, Run, SYNCONCE, isolated};
use std::path::Path;
use synconce_testkit::process::Finished;

/// Makes the disk image `image`, and copies the image to `copy`. A kernel may be built without
/// support for partition tables, so addpart(8) adds the partitions.
const BUILD: &str = include_str!("images.sh");

/// Prints the checksum of the first MiB, where the boot loader is, and the checksums of all files.
const SHOW: &str = "head --bytes=1M copy | sha256sum && mkdir shown && \
    mount -o loop,ro,offset=$((40 << 20)) copy shown && \
    mount -o loop,ro,offset=$((1 << 20)),sizelimit=$((39 << 20)) copy shown/boot && \
    (cd shown && find . -printf '%p %m %s\\n' | sort && find . -type f | sort | xargs sha256sum) && \
    umount -R shown; losetup --associated image; rm -r image copy";

/// Builds in the directory `here`: `run` has the words before the command.
fn build(place: &Place, here: &Path, run: &[&str]) -> (Finished, String) {
    let built = place.bare(here, &[run, &["sh", "-c", BUILD]].concat());
    let shown = place.bare(here, &["sh", "-c", SHOW]);
    (built, format!("{}{}", shown.stdout, shown.stderr))
}

#[test]
fn an_image_with_partitions_and_a_boot_loader_is_as_without_a_run() {
    isolated(|place| {
        let (bare, expected) = build(place, &place.directory("bare"), &[]);
        assert!(bare.status.success(), "{bare:?}");
        assert!(
            expected.contains("./boot/grub/core.img") && expected.contains("./file"),
            "{bare:?}"
        );
        for options in [&["--stats", "--json"][..], &["--sealed"]] {
            let directory = place.directory(&options.join(" "));
            let run = [&[SYNCONCE, "run"], options, &["--"]].concat();
            let (held, shown) = build(place, &directory, &run);
            assert_eq!(held.status, bare.status, "{options:?} {held:?}");
            let (loader, files) = shown.split_once('\n').expect("lines");
            let (whole_loader, all_files) = expected.split_once('\n').expect("lines");
            assert_eq!(files, all_files, "{options:?}");
            // In a sealed run, data written to the device itself may reach the image too late.
            if !options.contains(&"--sealed") {
                assert_eq!(loader, whole_loader, "{options:?}");
            }
            if options.contains(&"--json") {
                let run = Run::from_finished(held);
                // The sync of `root/file`. The syncs of the block device by mkfs and dd pass.
                assert_eq!(run.counts("fsync")[0], 1, "{}", run.notices());
            }
        }
    });
}
