//! Mappings of a range of a caller's memory (`/proc/PID/maps`, proc(5)).

use std::ops::Range;
use synconce_probe::mounts::DeviceId;

/// The mappings of a range.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Whether every byte of the range is mapped.
    pub complete: bool,
    /// The file systems of the shared file mappings in the range.
    pub devices: Vec<DeviceId>,
}

/// Returns the mappings of `range` in `thread`, or `None` if they cannot be read.
pub(crate) fn of(thread: u32, range: Range<u64>) -> Option<Mapping> {
    // The names of mapped files are not used. They may contain any byte.
    let bytes = std::fs::read(format!("/proc/{thread}/maps")).ok()?;
    Some(parse(&String::from_utf8_lossy(&bytes), range))
}

fn parse(text: &str, range: Range<u64>) -> Mapping {
    let mut mapping = Mapping::default();
    let mut next = range.start;
    for (area, shared, device) in text.lines().filter_map(parse_line) {
        if area.end <= range.start {
            continue;
        }
        if area.start >= range.end {
            break;
        }
        if area.start <= next {
            next = area.end;
        }
        let device = device.filter(|device| shared && !mapping.devices.contains(device));
        mapping.devices.extend(device);
    }
    mapping.complete = next >= range.end;
    mapping
}

fn parse_line(line: &str) -> Option<(Range<u64>, bool, Option<DeviceId>)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let shared = fields.next()?.as_bytes().get(3) == Some(&b's');
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let inode = fields.next()?;
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let device = DeviceId { major: hex(major)? as u32, minor: hex(minor)? as u32 };
    Some((hex(start)?..hex(end)?, shared, (inode != "0").then_some(device)))
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
        assert_eq!(mapping.devices, [DeviceId { major: 0xfe, minor: 1 }]);
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
