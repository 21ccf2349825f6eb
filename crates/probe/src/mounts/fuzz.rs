//! Fuzzing of mountinfo, which contains names that any user may choose.

use super::*;
use std::os::unix::ffi::OsStrExt;
use synconce_fuzz::arbitrary::{self, Arbitrary};

#[test]
fn any_bytes_of_a_mountinfo_are_taken_or_left_out() {
    synconce_fuzz::target("mountinfo", 3_000, |bytes| {
        let lines = bytes.split(|byte| *byte == b'\n').count();
        let mounts = parse(&text(bytes));
        assert!(mounts.len() <= lines);
        for mount in mounts {
            mount.kind();
            mount.option("upperdir");
            mount.has_option("volatile");
        }
    });
}

/// A mount as the kernel has it.
#[derive(Debug, Arbitrary)]
struct Kernels {
    id: u32,
    device: (u32, u32),
    point: Vec<u8>,
    read_only: (bool, bool),
    optional: Vec<u8>,
    upper: Vec<u8>,
}

/// Returns `name` as escaped by `seq_escape()` of `show_mountinfo()` and `show_options()`
/// (fs/proc_namespace.c, fs/overlayfs/super.c).
fn escaped(name: &[u8], special: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| {
        if special.contains(byte) { format!("\\{byte:03o}").into_bytes() } else { vec![*byte] }
    };
    name.iter().flat_map(escape).collect()
}

fn line(mount: &Kernels) -> Vec<u8> {
    let mode = |read_only: bool| if read_only { "ro" } else { "rw" };
    let (major, minor) = mount.device;
    let mut line = format!("{} 1 {major}:{minor} / ", mount.id).into_bytes();
    line.extend(escaped(&mount.point, b" \t\n\\#"));
    line.extend(format!(" {},noatime", mode(mount.read_only.0)).into_bytes());
    mount.optional.iter().for_each(|peer| line.extend(format!(" shared:{peer}").into_bytes()));
    line.extend(format!(" - overlay over {},upperdir=", mode(mount.read_only.1)).into_bytes());
    line.extend(escaped(&mount.upper, b",= \t\n\\"));
    line.push(b'\n');
    line
}

#[test]
fn every_mount_that_the_kernel_can_show_is_read_as_it_is() {
    synconce_fuzz::values("mounts", 2_000, |mut mounts: Vec<Kernels>| {
        // The kernel's names contain no NUL.
        for mount in &mut mounts {
            mount.point.retain(|byte| *byte != 0);
            mount.upper.retain(|byte| *byte != 0);
        }
        let bytes: Vec<u8> = mounts.iter().flat_map(line).collect();
        let found = parse(&text(&bytes));
        assert_eq!(found.len(), mounts.len());
        for (found, mount) in found.iter().zip(&mounts) {
            assert_eq!(found.id, u64::from(mount.id));
            assert_eq!((found.device.major, found.device.minor), mount.device);
            assert_eq!(found.point.as_os_str().as_bytes(), mount.point);
            assert_eq!(found.writable, !mount.read_only.0 && !mount.read_only.1);
            let upper = found.option("upperdir").expect("an upper directory");
            assert_eq!(upper.as_os_str().as_bytes(), mount.upper);
        }
    });
}
