//! Writes members: a header, a PAX header before it where fields do not suffice, and content.

use std::io::{self, Write};

use rustix::fs::{major, minor};
use tar::{EntryType, Header, UstarHeader};

use super::member::{Attributes, MemberKind};
use super::sparse::Map;
use super::{BLOCK, acl, header, pax, places};

const BUFFER: usize = 256 << 10;
/// The length of an archive is a multiple of this, as with GNU tar.
const RECORD: u64 = 20 * BLOCK;
/// The owner that a reader without PAX support sees if the real id does not fit the field: the
/// user `nobody`, because any other user could get a set-id file.
const NOBODY: u64 = 65534;

/// A member to be written.
pub(super) struct Outgoing<'a> {
    pub(super) path: &'a [u8],
    pub(super) kind: &'a MemberKind,
    /// A file's length in bytes, else 0.
    pub(super) size: u64,
    pub(super) map: Option<&'a Map>,
    pub(super) attributes: &'a Attributes,
}

/// An archive being written.
pub(super) struct Writer<W> {
    output: W,
    buffer: Vec<u8>,
    filled: usize,
    written: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(output: W) -> Self {
        Self { output, buffer: vec![0; BUFFER], filled: 0, written: 0 }
    }

    /// Returns free space in the buffer for content; never empty.
    pub(super) fn room(&mut self) -> io::Result<&mut [u8]> {
        if self.filled == self.buffer.len() {
            self.send()?;
        }
        Ok(&mut self.buffer[self.filled..])
    }

    /// Marks `length` bytes of that space as filled.
    pub(super) fn filled(&mut self, length: usize) {
        self.filled += length;
        self.written += length as u64;
    }

    /// Pads the last block of a member's content.
    pub(super) fn pad(&mut self) -> io::Result<()> {
        let padding = self.written.next_multiple_of(BLOCK) - self.written;
        self.bytes(&[0; BLOCK as usize][..padding as usize])
    }

    /// Writes a member's headers and its map, but not its content.
    pub(super) fn member(&mut self, it: &Outgoing<'_>) -> io::Result<()> {
        let mut header = Header::new_ustar();
        let map = it.map.map(Map::text);
        let stored = match (it.map, &map) {
            (Some(map), Some(text)) => map.stored() + text.len() as u64,
            _ => it.size,
        };
        let records = compose(&mut header, it, stored)?;
        if !records.is_empty() {
            self.extension(&records)?;
        }
        header.set_cksum();
        self.bytes(header.as_bytes())?;
        self.bytes(&map.unwrap_or_default())
    }

    fn extension(&mut self, records: &[u8]) -> io::Result<()> {
        let mut header = Header::new_ustar();
        // The name that Python uses: always the same, and no file of a tree has it.
        header::set_path(ustar(&mut header)?, b"././@PaxHeader");
        header.set_entry_type(EntryType::XHeader);
        header.set_size(records.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        self.bytes(header.as_bytes())?;
        self.bytes(records)?;
        self.pad()
    }

    /// Writes the archive's end.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let end = (self.written + 2 * BLOCK).next_multiple_of(RECORD);
        while self.written < end {
            self.bytes(&[0; BLOCK as usize])?;
        }
        self.send()?;
        self.output.flush()
    }

    fn bytes(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.room()?;
            let length = room.len().min(bytes.len());
            room[..length].copy_from_slice(&bytes[..length]);
            self.filled(length);
            bytes = &bytes[length..];
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let filled = std::mem::take(&mut self.filled);
        self.output.write_all(&self.buffer[..filled])
    }
}

fn ustar(header: &mut Header) -> io::Result<&mut UstarHeader> {
    header.as_ustar_mut().ok_or_else(|| io::Error::other("a new header is not of its kind"))
}

/// Fills in a header. Returns the PAX records for values that do not fit.
fn compose(header: &mut Header, it: &Outgoing<'_>, stored: u64) -> io::Result<Vec<u8>> {
    let ustar = ustar(header)?;
    let mut records = Vec::new();
    names(ustar, it, &mut records);
    let attributes = it.attributes;
    header::set_octal(&mut ustar.mode, attributes.mode.into());
    ustar.typeflag = [kind_flag(it.kind)];
    if !header::set_octal(&mut ustar.size, stored) {
        header::set_octal(&mut ustar.size, 0);
        pax::append(&mut records, b"size", stored.to_string().as_bytes());
    }
    let owners = [
        (&b"uid"[..], &mut ustar.uid, attributes.uid),
        (&b"gid"[..], &mut ustar.gid, attributes.gid),
    ];
    for (key, field, id) in owners {
        if !header::set_octal(field, id.into()) {
            header::set_octal(field, NOBODY);
            pax::append(&mut records, key, id.to_string().as_bytes());
        }
    }
    let (seconds, nanoseconds) = attributes.mtime;
    let whole = u64::try_from(seconds).is_ok_and(|time| header::set_octal(&mut ustar.mtime, time));
    if !whole {
        header::set_octal(&mut ustar.mtime, 0);
    }
    // A hard link's times are those of the file's first member.
    let is_link = matches!(it.kind, MemberKind::Link(_));
    if (!whole || nanoseconds != 0) && !is_link {
        pax::append(&mut records, b"mtime", pax::time_text(seconds, nanoseconds).as_bytes());
    }
    if let MemberKind::CharDevice(number) | MemberKind::BlockDevice(number) = it.kind {
        // Linux has 12 bits for major and 20 for minor numbers: both fit.
        header::set_octal(&mut ustar.dev_major, major(*number).into());
        header::set_octal(&mut ustar.dev_minor, minor(*number).into());
    }
    for (name, value) in &attributes.xattrs {
        // For readers that support lists only as text (`tar --acls`).
        if let Some(list) = name.strip_prefix(b"system.posix_acl_")
            && let Some(text) = acl::text(value)
        {
            let key = [b"SCHILY.acl.", list].concat();
            pax::append(&mut records, &key, text.as_bytes());
        }
        let key = [b"SCHILY.xattr.", &*pax::escaped(name)].concat();
        pax::append(&mut records, &key, value);
    }
    Ok(records)
}

/// Writes the member's name and the target of a link.
fn names(ustar: &mut UstarHeader, it: &Outgoing<'_>, records: &mut Vec<u8>) {
    let target = match it.kind {
        MemberKind::Link(target) | MemberKind::Symlink(target) => &target[..],
        _ => b"",
    };
    // By the PAX standard, names are UTF-8 unless hdrcharset is BINARY.
    if [it.path, target].iter().any(|name| std::str::from_utf8(name).is_err()) {
        pax::append(records, b"hdrcharset", b"BINARY");
    }
    if let Some(map) = it.map {
        for (key, value) in [
            (&b"GNU.sparse.major"[..], &b"1"[..]),
            (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.name", it.path),
            (b"GNU.sparse.realsize", map.size.to_string().as_bytes()),
        ] {
            pax::append(records, key, value);
        }
        // Readers without support for sparse files see this name, because the content is not
        // the file's.
        let name = places::split(it.path).1;
        let name = [b"./GNUSparseFile.0/", &name[..name.len().min(80)]].concat();
        header::set_path(ustar, &name);
    } else if !it.path.is_ascii() || !header::set_path(ustar, it.path) {
        pax::append(records, b"path", it.path);
        header::set_path(ustar, &it.path[..it.path.len().min(ustar.name.len())]);
    }
    let fits = target.len().min(ustar.linkname.len());
    ustar.linkname[..fits].copy_from_slice(&target[..fits]);
    if fits < target.len() || !target.is_ascii() {
        pax::append(records, b"linkpath", target);
    }
}

fn kind_flag(kind: &MemberKind) -> u8 {
    match kind {
        MemberKind::File => b'0',
        MemberKind::Link(_) => b'1',
        MemberKind::Symlink(_) => b'2',
        MemberKind::CharDevice(_) => b'3',
        MemberKind::BlockDevice(_) => b'4',
        MemberKind::Directory => b'5',
        MemberKind::Fifo => b'6',
    }
}
