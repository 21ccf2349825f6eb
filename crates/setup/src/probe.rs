//! Probe containers: a build step and an ordinary container of a running engine, which show whether
//! their syncs are held.
//!
//! The image has one static program, which calls fdatasync(2) with a descriptor that does not exist.
//! A hold answers the call with 0; the kernel answers with EBADF. The program exits with the error.

pub(crate) mod client;
pub(crate) mod directory;

use crate::engine::Engine;
use crate::host::Host;
use crate::{buildkit, containerd, docker, podman, running};
use std::cell::RefCell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use synconce_sys::child::interrupted;
use tar::{Builder, Header};

/// The path of the program in the image.
pub(crate) const PROGRAM: &str = "probe";
/// The exit code of the program if its sync is real: EBADF.
pub(crate) const REAL: i64 = 9;

/// What the probe containers of an engine have shown.
#[derive(Debug)]
pub struct Probed {
    /// The builders whose step was not held; the client whose container asked for a hold in vain.
    pub real: Vec<&'static str>,
    /// Whether the ordinary container was held; `None` if the engine runs none.
    pub is_ordinary_held: Option<bool>,
}

/// The result of an attempt to run probe containers.
#[derive(Debug)]
pub struct Tried {
    /// What they have shown, or why not all of them ran, for the user.
    pub probed: Result<Probed, String>,
    /// A command that shows whether the engine works.
    pub by_hand: String,
    /// What their removal has shown.
    pub removed: Removed,
}

/// The result of the removal of what a probe has made.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// What could not be removed, each with the command that removes it.
    pub left: Vec<String>,
    /// What is no fault.
    pub notes: Vec<String>,
}

/// The time for one answer: a step on a slow disk takes seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// The time for the removal after a cancellation.
const GRACE: Duration = Duration::from_secs(10);
/// The time in which an engine ends what it does for a request that was cut.
pub(crate) const SETTLE: Duration = Duration::from_secs(3);

/// Runs probe containers in the running `engine`, and removes them. `is_cancelled` ends the wait for
/// the engine, and then what was made is removed. Returns `None` for an engine or a user that can
/// have none.
///
/// # Errors
/// Why none can be run, which is no fault of the set-up.
pub fn probe(
    engine: Engine,
    host: &Host,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<Tried>, String> {
    if !host.is_running() || !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let probe = match engine {
        Engine::Podman => return Ok(podman::probe::probe(host, is_cancelled)),
        Engine::Held(_) => return Ok(None),
        Engine::Docker => docker::probe::probe,
        Engine::Buildkit => buildkit::probe::probe,
        Engine::Containerd => containerd::probe::probe,
    };
    let process = engine.daemon().map(|daemon| running::find(host, daemon));
    match process {
        Some(Ok(Some((process, None)))) => probe(host, &process, is_cancelled).map(Some),
        _ => Ok(None),
    }
}

/// The requests of a probe to its engine.
pub(crate) struct Requests<'a> {
    pub is_cancelled: &'a dyn Fn() -> bool,
    /// The name of what the engine may make later: the request was sent, and has no answer.
    pub cut: RefCell<Option<String>>,
}

impl<'a> Requests<'a> {
    pub(crate) fn new(is_cancelled: &'a dyn Fn() -> bool) -> Self {
        Self { is_cancelled, cut: RefCell::default() }
    }

    /// Calls `send` with `is_cancelled` for a request that makes the thing `made`, if it makes one. After a
    /// cancellation nothing is sent.
    pub(crate) fn send<T>(
        &self,
        made: Option<&str>,
        send: impl FnOnce(&dyn Fn() -> bool) -> Result<T, String>,
    ) -> Result<T, String> {
        if (self.is_cancelled)() {
            return Err(interrupted().to_string());
        }
        send(self.is_cancelled).inspect_err(|_| *self.cut.borrow_mut() = made.map(str::to_owned))
    }
}

/// Returns whether `is_cancelled` ends a removal that begins now: [`GRACE`] later.
pub(crate) fn after_grace<'a>(is_cancelled: &'a dyn Fn() -> bool) -> impl Fn() -> bool + 'a {
    let begin = Instant::now();
    move || begin.elapsed() > GRACE && is_cancelled()
}

/// Calls `remove`, which returns what is left, until nothing is left, at most for [`SETTLE`]. Returns what
/// is left. If a request `is_cut`, its result can appear later: then the calls go on for all of that time.
pub(crate) fn until_gone<T>(
    is_cut: bool,
    mut remove: impl FnMut() -> Result<Vec<T>, String>,
) -> Result<Vec<T>, String> {
    let end = Instant::now() + SETTLE;
    loop {
        let left = remove()?;
        if Instant::now() >= end || left.is_empty() && !is_cut {
            return Ok(left);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns a name that no other probe has. Its length is always the same.
pub(crate) fn unique() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:016x}", now.as_nanos() as u64)
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "x86_64")]
const CODE: [u8; 21] = [
    0xb8, 75, 0, 0, 0, // mov eax, fdatasync
    0x83, 0xcf, 0xff, // or edi, -1
    0x0f, 0x05, // syscall
    0xf7, 0xd8, // neg eax
    0x89, 0xc7, // mov edi, eax
    0xb8, 231, 0, 0, 0, // mov eax, exit_group
    0x0f, 0x05, // syscall
];
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;
#[cfg(target_arch = "aarch64")]
const CODE: [u8; 24] = [
    0x00, 0x00, 0x80, 0x92, // mov x0, -1
    0x68, 0x0a, 0x80, 0xd2, // mov x8, fdatasync
    0x01, 0x00, 0x00, 0xd4, // svc 0
    0xe0, 0x03, 0x00, 0x4b, // neg w0, w0
    0xc8, 0x0b, 0x80, 0xd2, // mov x8, exit_group
    0x01, 0x00, 0x00, 0xd4, // svc 0
];

/// Returns the program: an ELF file with one segment (elf(5)).
pub(crate) fn program() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let length = HEADERS + CODE.len() as u64;
    // Class, byte order, version.
    let mut file = [&b"\x7fELF"[..], &[2, 1, 1], &[0; 9]].concat();
    let (executable, version) = (2_u16, 1_u32);
    file.extend([executable.to_le_bytes(), MACHINE.to_le_bytes()].concat());
    file.extend(version.to_le_bytes());
    // The first instruction, the program header and no sections; no flags.
    file.extend([BASE + HEADERS, 64, 0].map(u64::to_le_bytes).concat());
    file.extend([0; 4]);
    file.extend([64_u16, 56, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
    let (load, may_read_and_execute) = (1_u32, 5_u32);
    file.extend([load, may_read_and_execute].map(u32::to_le_bytes).concat());
    file.extend([0, BASE, BASE, length, length, 0x1000].map(u64::to_le_bytes).concat());
    file.extend(CODE);
    file
}

/// Returns an archive with one file that can be executed.
pub(crate) fn archive(name: &str, content: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut header = Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    let mut builder = Builder::new(Vec::new());
    builder.append_data(&mut header, name, content)?;
    builder.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    #[test]
    fn the_program_exits_with_the_error_of_its_sync() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(PROGRAM);
        std::fs::write(&path, program()).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let ended = Command::new(&path).status().unwrap();
        assert_eq!(ended.code().map(i64::from), Some(REAL));
    }

    #[test]
    fn a_removal_goes_on_until_nothing_is_left() {
        let calls = Cell::new(0);
        let remove = |left: usize| {
            calls.set(calls.get() + 1);
            Ok(vec![(); left.saturating_sub(calls.get())])
        };
        assert_eq!(until_gone(false, || remove(3)), Ok(Vec::new()));
        assert_eq!(calls.get(), 3);
        // What was cut may appear until the end.
        let begin = Instant::now();
        assert_eq!(until_gone(true, || remove(0)), Ok(Vec::new()));
        assert!(begin.elapsed() >= SETTLE);
        assert_eq!(until_gone(false, || remove(1000)).map(|left| left.is_empty()), Ok(false));
    }

    #[test]
    fn an_archive_has_a_program() {
        let bytes = archive(PROGRAM, b"content").unwrap();
        let mut archive = tar::Archive::new(&bytes[..]);
        let entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some(PROGRAM));
        assert_eq!((entry.size(), entry.header().mode().unwrap()), (7, 0o755));
    }
}
