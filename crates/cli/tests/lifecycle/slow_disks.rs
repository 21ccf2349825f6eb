//! A disk below the one that a commit waits for is slow, and works. The disk that the commit knows
//! completes nothing meanwhile.

use synconce_testkit::harness::{Place, isolated, without_stalls};
use synconce_testkit::rig::{Limits, Rig};

/// Bytes per second of the slow disk: a commit of 18 MiB takes twice its timeout, a request half a
/// second.
const RATE: u64 = 2 << 20;

/// Runs commands that write 18 MiB to `mounted`, which `make` mounts with `slow` below it.
fn assert_committed(place: &Place, slow: &Rig, make: &str, ways: &[&str]) {
    let made =
        place.bare(&["sh", "-ec", &format!("PATH=$PATH:/usr/sbin; mkdir -p mounted; {make}")]);
    assert!(made.status.success(), "{made:?}");
    slow.disk().set_limits(Limits { written_bytes: Some(RATE), ..Limits::NONE }).unwrap();
    for way in ways {
        let write = "dd if=/dev/urandom of=mounted/file bs=1M count=18 status=none
                     sync mounted/file; exit 3";
        let run = place.run(&[way, "--commit-timeout", "4"], &["sh", "-c", write]);
        assert_eq!(run.status.code(), Some(3), "{way}: {run:?}");
    }
    slow.disk().set_limits(Limits::NONE).unwrap();
    let ended = place.bare(&["umount", "mounted"]);
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn it_has_the_file_of_a_loop_device() {
    isolated(|place| {
        let _lock = without_stalls();
        let slow = Rig::builder()
            .size(256 << 20)
            .passthrough(false)
            .mount_options("commit=300")
            .up()
            .unwrap();
        let image = slow.path().join("image");
        let image = image.display();
        let make = format!(
            "truncate -s 128M {image}; mkfs.ext4 -q {image}; mount -o loop {image} mounted"
        );
        assert_committed(place, &slow, &make, &["--stats", "--commit-all"]);
    });
}

/// The file by which the kernel counts the requests of a disk. It counts again when this ends, also
/// when the test fails: a loop device keeps the setting for its next file.
struct Counts(String);

impl Drop for Counts {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.0, "1");
    }
}

#[test]
fn it_has_no_counts_of_its_requests() {
    isolated(|place| {
        let slow = Rig::builder().size(256 << 20).passthrough(false).up().unwrap();
        let device = slow.device();
        let name = device.file_name().unwrap().display();
        let counts = Counts(format!("/sys/block/{name}/queue/iostats"));
        let make = format!("echo 0 >{}; mount {} mounted", counts.0, device.display());
        assert_committed(place, &slow, &make, &["--stats"]);
    });
}

#[test]
fn it_is_one_of_the_devices_of_a_btrfs() {
    isolated(|place| {
        let (small, slow) =
            (Rig::builder().size(128 << 20), Rig::builder().size(512 << 20).passthrough(false));
        let (small, slow) = (small.up().unwrap(), slow.up().unwrap());
        let [one, two] = [&small, &slow].map(|rig| rig.device().display().to_string());
        let make = format!(
            "umount {} {}; mkfs.btrfs -q -f -m single -d single {one} {two}
             mount -o device={one},device={two} {one} mounted",
            small.path().display(),
            slow.path().display()
        );
        assert_committed(place, &slow, &make, &["--stats"]);
    });
}
