//! Mappings of a range of a caller's memory (`/proc/PID/maps`, proc(5)).

use std::ops::Range;
use std::path::PathBuf;
use synconce_probe::mounts::DeviceId;

/// The mappings of a range.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Whether every byte of the range is mapped.
    pub complete: bool,
    /// The file systems of the shared file mappings in the range.
    pub devices: Vec<DeviceId>,
    /// The shared file mappings in the range.
    pub files: Vec<MappedFile>,
}

/// A file that is mapped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MappedFile {
    /// The mapped addresses.
    pub area: Range<u64>,
    pub device: DeviceId,
    pub inode: u64,
    /// The kernel's path of the file.
    pub path: PathBuf,
}

/// Returns the mappings of `range` in `thread`, or `None` if they cannot be read.
pub(crate) fn read(thread: u32, range: Range<u64>) -> Option<Mapping> {
    // The names of mapped files are not used. They may contain any byte.
    let bytes = std::fs::read(format!("/proc/{thread}/maps")).ok()?;
    Some(parse(&String::from_utf8_lossy(&bytes), range))
}

fn parse(text: &str, range: Range<u64>) -> Mapping {
    let mut mapping = Mapping::default();
    let mut next = range.start;
    // lines() would remove a carriage return at the end of a name.
    for (area, file) in text.split('\n').filter_map(parse_line) {
        if area.end <= range.start {
            continue;
        }
        if area.start >= range.end {
            break;
        }
        if area.start <= next {
            next = area.end;
        }
        let device = file.as_ref().map(|file| file.device);
        let device = device.filter(|device| !mapping.devices.contains(device));
        mapping.devices.extend(device);
        mapping.files.extend(file);
    }
    mapping.complete = next >= range.end;
    mapping
}

/// Returns the addresses of a mapping, and the file if the mapping is shared.
fn parse_line(line: &str) -> Option<(Range<u64>, Option<MappedFile>)> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let shared = fields.next()?.as_bytes().get(3) == Some(&b's');
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let inode = fields.next()?.parse().ok()?;
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let device = DeviceId { major: hex(major)? as u32, minor: hex(minor)? as u32 };
    let area = hex(start)?..hex(end)?;
    // The path is padded with spaces.
    let path = PathBuf::from(fields.next().unwrap_or_default().trim_start_matches(' '));
    let file = MappedFile { area: area.clone(), device, inode, path };
    Some((area, (shared && inode != 0).then_some(file)))
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-2000 r--p 00000000 fe:00 12 /bin/x\n\
2000-4000 rw-s 00000000 fe:01 13 /db (deleted)\n\
4000-5000 rw-p 00000000 00:00 0 \n\
8000-9000 rw-s 00000000 00:06 14 /dev/sda\n";

    #[test]
    fn a_range_over_adjacent_areas_is_complete() {
        let mapping = parse(MAPS, 0x1000..0x5000);
        assert!(mapping.complete);
        let device = DeviceId { major: 0xfe, minor: 1 };
        assert_eq!(mapping.devices, [device]);
        let path = PathBuf::from("/db (deleted)");
        assert_eq!(mapping.files, [MappedFile { area: 0x2000..0x4000, device, inode: 13, path }]);
    }

    #[test]
    fn a_hole_or_an_end_outside_is_not_complete() {
        assert!(!parse(MAPS, 0x4000..0x8800).complete);
        assert!(!parse(MAPS, 0x0..0x2000).complete);
        assert!(!parse(MAPS, 0x8000..0xa000).complete);
    }

    #[test]
    fn a_range_inside_one_area_is_complete() {
        assert!(parse(MAPS, 0x2800..0x3000).complete);
    }
}
