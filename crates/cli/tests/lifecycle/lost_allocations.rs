//! ext4 throws data away for which it finds no place. fsync(2) of the file fails then, and
//! syncfs(2) does not.

use super::sealed_scope::text;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use synconce_sys::overlay::kernel_is_at_least;
use synconce_testkit::harness::{Place, binary, finish, isolated, without_stalls};
use synconce_testkit::rig::Rig;

/// Returns the options of a mount whose map of used blocks the kernel reads when it first needs a
/// block. Before Linux 5.13 it always waits until then, and does not know the option.
fn late_map() -> &'static str {
    if kernel_is_at_least(5, 13) { "no_prefetch_block_bitmaps" } else { "errors=continue" }
}

/// Returns a disk with an ext4 of one group, whose map of used blocks is damaged.
fn damaged(place: &Place) -> Rig {
    let image = place.path("image");
    let file = File::create(&image).unwrap();
    file.set_len(7 << 20).unwrap();
    assert!(finish(Command::new("mkfs.ext4").arg("-qF").arg(&image)).status.success());
    let listed = finish(Command::new("dumpe2fs").arg(&image)).stdout;
    let number = |before: &str| {
        let (_, after) = listed.split_once(before).expect(before);
        let digits = after.trim_start().split(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap().parse::<u64>().unwrap()
    };
    let (size, map) = (number("Block size:"), number("Block bitmap at"));
    file.write_all_at(&vec![0xAA; size as usize], map * size).unwrap();
    Rig::builder().image(image).mount_options(late_map()).up().unwrap()
}

#[test]
fn data_that_a_damaged_ext4_throws_away_fail_the_commit() {
    isolated(|place| {
        let _lock = without_stalls();
        let write = ["dd", "if=/dev/zero", "bs=64k", "count=1", "conv=fsync"];
        for (words, code) in [(&["env"][..], 1), (&[binary(), "run", "--"], 125)] {
            let rig = damaged(place);
            let mut command = place.command(words[0]);
            command.args(&words[1..]).args(write);
            let ended = finish(command.arg(format!("of={}", text(&rig.path().join("file")))));
            assert_eq!(ended.status.code(), Some(code), "{ended:?}");
            let named = if code == 1 { "fsync failed" } else { "Structure needs cleaning" };
            assert!(ended.stderr.contains(named), "{ended:?}");
        }
    });
}

#[test]
fn data_that_an_ext4_throws_away_fail_the_run_that_mounted_it() {
    isolated(|place| {
        let _lock = without_stalls();
        let rig = damaged(place);
        rig.unmount().unwrap();
        let (disk, point) = (text(rig.device()), text(rig.path()));
        // A write-back throws the data away before the commit.
        let script = format!(
            "mount -o {} {disk} {point} && \
             dd if=/dev/zero bs=64k count=1 conv=fsync status=none of={point}/file && \
             {} real -- sync --file-system {point}",
            late_map(),
            binary()
        );
        let run = place.run(&[], &["sh", "-c", &script]);
        let unmounted = finish(Command::new("umount").arg(point));
        assert_eq!(run.status.code(), Some(125), "{run:?}");
        assert!(run.stderr.contains("Structure needs cleaning"), "{run:?}");
        assert!(unmounted.status.success(), "{unmounted:?}");
    });
}

/// Returns an image of an ext4 that has counted `errors`.
fn counted(place: &Place, name: &str, errors: u32) -> String {
    let image = place.path(name);
    File::create(&image).unwrap().set_len(24 << 20).unwrap();
    assert!(finish(Command::new("mkfs.ext4").arg("-qF").arg(&image)).status.success());
    let request = format!("set_super_value error_count {errors}");
    assert!(finish(Command::new("debugfs").args(["-wR", &request]).arg(&image)).status.success());
    text(&image).to_owned()
}

#[test]
fn earlier_errors_of_another_file_system_on_the_same_device_do_not_fail_the_run() {
    isolated(|place| {
        let _lock = without_stalls();
        let (first, second) = (counted(place, "first", 0), counted(place, "second", 5));
        let point = place.path("point");
        std::fs::create_dir(&point).unwrap();
        let point = text(&point);
        // The first file system ends unseen, with its mount namespace.
        let script = format!(
            "device=$(losetup --find --show {first}); trap \"losetup -d $device\" EXIT
             unshare -m sh -c \"mount $device {point} && echo 1 >{point}/f && sync {point}/f\"
             dd if={second} of=$device bs=1M status=none
             mount $device {point}; echo 1 >{point}/f; sync {point}/f; umount {point}"
        );
        let run = place.run(&[], &["sh", "-ec", &script]);
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(0), ""), "{run:?}");
    });
}
