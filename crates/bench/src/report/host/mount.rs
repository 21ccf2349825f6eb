//! Which mount a directory is on.

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A line of /proc/thread-self/mountinfo, as far as a report needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// File system type: "ext4".
    pub kind: String,
    /// Its source: "/dev/vda".
    pub device: String,
    /// Mount options followed by those of the file system, commas between.
    pub options: String,
}

impl Mount {
    /// The mount of a path, by its id (statx, Linux 5.8+).
    pub fn of(path: &Path) -> Option<Self> {
        let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        let text = std::fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
        parse(&text, found.stx_mnt_id)
    }
}

/// Finds a mount by its id in the text of proc_pid_mountinfo(5).
fn parse(text: &str, id: u64) -> Option<Mount> {
    let line = text
        .lines()
        .find(|line| line.split(' ').next().and_then(|n| n.parse().ok()) == Some(id))?;
    let (ours, theirs) = line.split_once(" - ")?;
    let mut theirs = theirs.split(' ');
    let (kind, device) = (theirs.next()?, theirs.next()?);
    let mut options: Vec<&str> = ours.split(' ').nth(5)?.split(',').collect();
    for option in theirs.next().unwrap_or("").split(',') {
        if !option.is_empty() && !options.contains(&option) {
            options.push(option);
        }
    }
    Some(Mount { kind: kind.to_owned(), device: device.to_owned(), options: options.join(",") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
";

    #[test]
    fn a_mount_is_found_by_its_id_whatever_optional_fields_it_has() {
        let mount = parse(TEXT, 27).expect("the mount is there");
        assert_eq!(mount.kind, "ext4");
        assert_eq!(mount.device, "/dev/vda");
        assert_eq!(mount.options, "rw,relatime,discard");
    }

    #[test]
    fn an_unknown_mount_is_nothing() {
        assert_eq!(parse(TEXT, 2), None);
    }

    #[test]
    fn the_root_directory_is_on_some_mount() {
        assert!(Mount::of(Path::new("/")).is_some());
    }
}
