//! Fuzzing of `/proc/PID/stat`, in which a process chooses its name.

use super::*;
use synconce_fuzz::arbitrary::{self, Arbitrary};

#[test]
fn any_bytes_of_a_stat_file_are_a_process_or_none() {
    synconce_fuzz::target("stat", 5_000, |bytes| {
        if let Some((process, ..)) = of_stat(7, &Stat::from(bytes)) {
            assert_eq!(process.pid, 7);
        }
    });
}

#[derive(Debug, Arbitrary)]
struct Kernels {
    name: [u8; 15],
    length: u8,
    state: u8,
    parent: u32,
}

#[test]
fn every_process_that_the_kernel_can_show_is_read_as_it_is() {
    synconce_fuzz::values("stats", 5_000, |shown: Kernels| {
        let name = &shown.name[..usize::from(shown.length) % 16];
        let state = char::from(b"RSDTtZXIP"[usize::from(shown.state) % 9]);
        let mut text = b"7 (".to_vec();
        text.extend_from_slice(name);
        text.extend(format!(") {state} {} 7 7 0 -1 4194560", shown.parent).into_bytes());
        let found = of_stat(7, &Stat::from(&text[..])).expect("a process");
        let name = String::from_utf8_lossy(name).into_owned();
        assert_eq!(found, (Process { pid: 7, name }, shown.parent, state));
    });
}
