//! The program of a probe: static, without a library. It calls fdatasync(2) with a descriptor that
//! does not exist. A hold answers the call with 0; the kernel answers with EBADF. The program exits
//! with the error.

use tar::{Builder, Header};

/// The path of the program in the image.
pub(crate) const PROGRAM: &str = "probe";
/// The exit code of the program if its sync is real: EBADF.
pub(crate) const REAL: i64 = 9;

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
    fn an_archive_has_a_program() {
        let bytes = archive(PROGRAM, b"content").unwrap();
        let mut archive = tar::Archive::new(&bytes[..]);
        let entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some(PROGRAM));
        assert_eq!((entry.size(), entry.header().mode().unwrap()), (7, 0o755));
    }
}
