//! Fuzzing of `/proc/PID/maps`, in which file names are arbitrary.

use super::*;
use synconce_fuzz::arbitrary::{self, Arbitrary};

#[test]
fn any_bytes_of_a_maps_file_are_taken_or_left_out() {
    synconce_fuzz::target("maps", 2_000, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        for range in [0..u64::MAX, 0x1000..0x5000, u64::MAX..u64::MAX] {
            let mapping = parse(&text, range);
            assert!(mapping.devices.len() <= text.lines().count());
        }
    });
}

/// An area of memory, after a hole.
#[derive(Debug, Arbitrary)]
struct Area {
    hole: u8,
    pages: u8,
    shared: bool,
    device: (u8, u16),
    inode: Option<u8>,
    name: Vec<u8>,
}

#[derive(Debug, Arbitrary)]
struct MappingQuestion {
    areas: Vec<Area>,
    from: u16,
    length: u32,
}

const PAGE: u64 = 4096;

#[test]
fn every_maps_that_the_kernel_can_show_is_read_as_it_is() {
    synconce_fuzz::values("mappings", 3_000, |question: MappingQuestion| {
        let (mut text, mut end) = (Vec::new(), 0);
        let range = u64::from(question.from) * 64;
        let range = range..range + 1 + u64::from(question.length);
        let (mut mapped, mut devices, mut files) = (0, Vec::new(), Vec::new());
        for area in &question.areas {
            let start = end + u64::from(area.hole % 4) * PAGE;
            end = start + (1 + u64::from(area.pages)) * PAGE;
            let sharing = if area.shared { 's' } else { 'p' };
            let ((major, minor), inode) = (area.device, area.inode.map_or(0, u64::from));
            let line = format!("{start:x}-{end:x} rw-{sharing} 0 {major:02x}:{minor:02x} {inode} ");
            text.extend(line.into_bytes());
            let name = area.name.iter().copied().filter(|byte| !matches!(byte, 0 | b'\n'));
            let name = name.collect::<Vec<u8>>();
            text.extend(&name);
            text.push(b'\n');
            let common = end.min(range.end).saturating_sub(start.max(range.start));
            mapped += common;
            let device = DeviceId { major: major.into(), minor: minor.into() };
            if common > 0 && area.shared && inode != 0 {
                devices.extend((!devices.contains(&device)).then_some(device));
                let name = String::from_utf8_lossy(&name);
                let path = PathBuf::from(name.trim_start_matches(' '));
                files.push(MappedFile { area: start..end, device, inode, path });
            }
        }
        let wanted = Mapping { complete: mapped == range.end - range.start, devices, files };
        assert_eq!(parse(&String::from_utf8_lossy(&text), range), wanted);
    });
}
