//! A process about whose calls decisions are made. It never makes the calls.

use crate::call::caller::Memory;
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Private memory, followed by unmapped memory. The address fits 32 bits.
pub(super) const AREA: u64 = 0x1000_0000;
/// Whole pages of each size: 4, 16 or 64 KiB.
pub(super) const AREA_LENGTH: u64 = 65_536;
/// Four pages of a shared file mapping, and two private pages.
pub(super) const SHARED: u64 = 0x2000_0000;

/// The descriptors whose syncs are held if the directory is on a disk.
pub(super) const ON_DISK: [i32; 4] = [3, 4, 5, 12];

/// Returns the size of a page of this kernel.
pub(super) fn page() -> u64 {
    rustix::param::page_size() as u64
}

pub(super) struct Caller {
    child: Child,
    /// The process exits when its standard input is closed, also if the test is killed.
    _alive: ChildStdin,
    memory: Memory,
}

impl Caller {
    /// Starts the process in the directory `place`.
    pub(super) fn start(place: &Path) -> Self {
        fs::create_dir(place.join("d")).expect("a directory");
        fs::write(place.join("data"), vec![7; 4 * page() as usize]).expect("a file");
        fs::write(place.join("gone"), "").expect("a file");
        for (name, target) in
            [("l", "/data"), ("up", "../d"), ("loop", "loop"), ("fd", "/proc/self/fd/3")]
        {
            symlink(target, place.join(name)).expect("a link");
        }
        let numbers = [libc::SYS_mmap as u64, AREA, AREA_LENGTH, SHARED, page()];
        let mut child = Command::new("perl")
            .args(["-e", include_str!("caller.pl")])
            .args(numbers.map(|number| number.to_string()))
            .current_dir(place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("perl");
        let mut ready = [0; 6];
        child
            .stdout
            .take()
            .expect("a pipe")
            .read_exact(&mut ready)
            .expect("a caller that is ready");
        let memory = Memory::open_writable(child.id()).expect("the memory of a child");
        Self { _alive: child.stdin.take().expect("a pipe"), child, memory }
    }

    pub(super) fn thread(&self) -> u32 {
        self.child.id()
    }

    /// Writes `content` at the start of the area, followed by zeroes.
    pub(super) fn fill(&self, content: &[u8]) {
        let mut whole = content.to_vec();
        whole.resize(AREA_LENGTH as usize, 0);
        self.memory.patch(AREA, &whole).expect("memory of a child");
    }

    pub(super) fn holds(&self, address: u64, bytes: &[u8]) -> bool {
        self.memory.holds(address, bytes)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
