//! Makes the description of a member from its header and the extended headers before that header.

use rustix::fs::makedev;
use synconce_durable::error::Error;
use tar::Header;

use super::sparse::{self, Map, Piece};
use super::{acl, header, pax, refuse};

/// The description of one file in an archive.
#[derive(Debug)]
pub(super) struct Member {
    /// The path as written in the archive.
    pub(super) path: Vec<u8>,
    pub(super) kind: MemberKind,
    /// The number of content bytes in the archive.
    pub(super) stored: u64,
    /// The pieces of a sparse file that have content.
    pub(super) map: Option<Map>,
    pub(super) attributes: Attributes,
    /// What in the headers cannot be converted for this system, for a report.
    pub(super) strange: Option<String>,
}

/// The name of an extended attribute and its value.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

/// The attributes that are set on a file once it exists.
#[derive(Debug)]
pub(super) struct Attributes {
    /// Permission and set-id bits (`0o7777`).
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Seconds since 1970, and nanoseconds.
    pub(super) mtime: (i64, u32),
    pub(super) xattrs: Vec<Xattr>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum MemberKind {
    File,
    Directory,
    /// A symbolic link, with its target.
    Symlink(Vec<u8>),
    /// A hard link to the member with this path.
    Link(Vec<u8>),
    /// A device, with its number (makedev(3)).
    CharDevice(u64),
    BlockDevice(u64),
    Fifo,
}

/// What the extended headers before a member's header contain.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    mtime: Option<(i64, u32)>,
    xattrs: Vec<Xattr>,
    sparse: SparseRecords,
    /// Access lists with an entry that cannot be converted: the attribute's name and the
    /// entry.
    strange: Vec<(&'static [u8], String)>,
}

/// GNU tar's PAX records for a sparse file, in one of three formats: 0.0, 0.1 and 1.0.
#[derive(Debug, Default)]
struct SparseRecords {
    /// The major and the minor number of the format, which GNU tar writes for 1.0 only.
    version: (Option<u64>, Option<u64>),
    name: Option<Vec<u8>>,
    /// The file's size in bytes, with its holes.
    size: Option<u64>,
    /// Offset and length in bytes of each piece, alternating.
    numbers: Vec<u64>,
    has_map: bool,
}

/// Where the map of a sparse file is. A number is the file's size in bytes, with its holes.
pub(super) enum SparseForm {
    /// The file is not sparse.
    Not,
    /// The map was in the PAX records.
    Known(u64, Vec<Piece>),
    /// The map is in the archive before the content.
    InContent(u64),
}

impl Extensions {
    /// Makes extensions with the path and the link target from GNU's own headers.
    pub(super) fn new(long_name: Option<Vec<u8>>, long_link: Option<Vec<u8>>) -> Self {
        Self { long_name, long_link, ..Self::default() }
    }

    /// Adds the records of a PAX header.
    ///
    /// # Errors
    /// A message about the first invalid record.
    pub(super) fn take(&mut self, text: &[u8]) -> Result<(), String> {
        let records = pax::records(text).ok_or("its extended header is damaged")?;
        for (key, value) in records {
            self.record(key, value)
                .ok_or_else(|| format!("its extended header has a wrong {}", key.escape_ascii()))?;
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            // An empty value removes the value of an earlier global header (POSIX pax).
            b"path" => self.path = Some(value.to_vec()).filter(|path| !path.is_empty()),
            b"linkpath" => self.link = Some(value.to_vec()).filter(|path| !path.is_empty()),
            b"size" => self.size = optional(value, sparse::decimal)?,
            b"uid" => self.uid = optional(value, id)?,
            b"gid" => self.gid = optional(value, id)?,
            b"mtime" => self.mtime = optional(value, pax::time)?,
            b"SCHILY.acl.access" => self.acl(b"system.posix_acl_access", value),
            b"SCHILY.acl.default" => self.acl(b"system.posix_acl_default", value),
            // libselinux includes the trailing NUL in a label's length.
            b"RHT.security.selinux" => self.xattr(b"security.selinux", [value, b"\0"].concat()),
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattr(&pax::unescaped(name), value.to_vec());
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.record(key, value)?;
                }
            }
        }
        Some(())
    }

    fn acl(&mut self, name: &'static [u8], text: &[u8]) {
        match acl::attribute(text) {
            // The archive has the attribute itself, which is more exact than the text.
            Ok(_) if self.xattrs.iter().any(|(other, _)| other == name) => {}
            Ok(value) if value.len() > 4 => self.xattr(name, value),
            Ok(_) => {}
            Err(wrong) => self.strange.push((name, wrong)),
        }
    }

    fn xattr(&mut self, name: &[u8], value: Vec<u8>) {
        self.xattrs.retain(|(other, _)| other != name);
        self.xattrs.push((name.to_vec(), value));
    }

    /// Returns the path, unchecked: also for messages about a member that is refused.
    pub(super) fn path(&self, header: &Header) -> Vec<u8> {
        let extended = self.sparse.name.as_ref().or(self.path.as_ref()).or(self.long_name.as_ref());
        extended.cloned().unwrap_or_else(|| header.path_bytes().into_owned())
    }

    fn link(&self, header: &Header) -> Vec<u8> {
        let extended = self.link.as_ref().or(self.long_link.as_ref()).cloned();
        extended.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned())
    }

    /// Returns the size field of `header` in bytes, which a PAX record can override.
    pub(super) fn plain_size(header: &Header) -> Option<u64> {
        header::number(&header.as_old().size)?.try_into().ok()
    }

    /// Makes the member from its `header` and these extensions. The member has no map yet.
    ///
    /// # Errors
    /// Names the member and the invalid field.
    pub(super) fn member(self, header: &Header) -> Result<(Member, SparseForm), Error> {
        let path = self.path(header);
        let wrong = |what: &str| refuse(&path, format!("its header has a wrong {what}"));
        if path.is_empty() || path.contains(&0) {
            return Err(wrong("name"));
        }
        let old = header.as_old();
        let kind = self.kind(header, &path)?;
        let size = self.size.or_else(|| Self::plain_size(header)).ok_or_else(|| wrong("size"))?;
        let number = |field, what| header::number(field).ok_or_else(|| wrong(what));
        let owner = |known: Option<u32>, field, what| match known {
            Some(id) => Ok(id),
            None => u32::try_from(number(field, what)?)
                .ok()
                .filter(|id| *id != u32::MAX)
                .ok_or_else(|| wrong(what)),
        };
        let mode = number(&old.mode, "mode")? & 0o7777;
        let known = |name: &[u8]| self.xattrs.iter().any(|(other, _)| other == name);
        let strange = self.strange.iter().find(|(name, _)| !known(name));
        let strange =
            strange.map(|(_, wrong)| format!("an access control list, whose entry {wrong}"));
        let attributes = Attributes {
            mode: u32::try_from(mode).map_err(|_| wrong("mode"))?,
            uid: owner(self.uid, &old.uid, "owner")?,
            gid: owner(self.gid, &old.gid, "group")?,
            mtime: match self.mtime {
                Some(time) => time,
                None => (number(&old.mtime, "time")?, 0),
            },
            xattrs: self.xattrs,
        };
        let form = self.sparse.form().ok_or_else(|| wrong("map of its holes"))?;
        let stored = stored(header, &kind, size);
        Ok((Member { path, kind, stored, map: None, attributes, strange }, form))
    }

    fn kind(&self, header: &Header, path: &[u8]) -> Result<MemberKind, Error> {
        let device = || {
            let field = |at: usize| header::number(&header.as_bytes()[at..at + 8]);
            let number = |at| field(at).and_then(|number| u32::try_from(number).ok());
            number(329).zip(number(337)).map(|(major, minor)| makedev(major, minor))
        };
        let wrong = || refuse(path, "its header has a wrong device number");
        Ok(match header.as_old().linkflag[0] {
            // Before POSIX, only a slash at the end of the name marked a directory.
            b'0' | 0 if path.ends_with(b"/") && self.sparse.name.is_none() => MemberKind::Directory,
            b'0' | b'7' | b'S' | 0 => MemberKind::File,
            b'1' => MemberKind::Link(self.link(header)),
            b'2' => MemberKind::Symlink(self.link(header)),
            b'3' => MemberKind::CharDevice(device().ok_or_else(wrong)?),
            b'4' => MemberKind::BlockDevice(device().ok_or_else(wrong)?),
            b'5' | b'D' => MemberKind::Directory,
            b'6' => MemberKind::Fifo,
            b'M' => return Err(refuse(path, "it began in another volume of the archive")),
            other => {
                let kind = char::from(other).escape_default();
                return Err(refuse(path, format!("it is of the unknown kind '{kind}'")));
            }
        })
    }
}

/// Returns the number of content bytes in the archive. Only files, GNU tar's listings of
/// directories and directories from before POSIX have content. In other members the size field has
/// another meaning (POSIX pax, "ustar Interchange Format").
fn stored(header: &Header, kind: &MemberKind, size: u64) -> u64 {
    match kind {
        MemberKind::File => size,
        MemberKind::Directory if matches!(header.as_old().linkflag[0], b'D' | b'0' | 0) => size,
        _ => 0,
    }
}

impl SparseRecords {
    fn record(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"major" => self.version.0 = Some(sparse::decimal(value)?),
            b"minor" => self.version.1 = Some(sparse::decimal(value)?),
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.size = Some(sparse::decimal(value)?),
            b"offset" | b"numbytes" => {
                let is_offset = self.numbers.len().is_multiple_of(2);
                (is_offset == (key == b"offset")).then_some(())?;
                self.numbers.push(sparse::decimal(value)?);
                self.has_map = true;
            }
            b"map" => {
                let numbers = value.split(|byte| *byte == b',').filter(|part| !part.is_empty());
                self.numbers = numbers.map(sparse::decimal).collect::<Option<_>>()?;
                self.has_map = true;
            }
            _ => {}
        }
        Some(())
    }

    fn form(self) -> Option<SparseForm> {
        match (self.version, self.size) {
            ((Some(1), Some(0)), Some(size)) => Some(SparseForm::InContent(size)),
            ((None | Some(0), _), Some(size)) if self.has_map => {
                Some(SparseForm::Known(size, sparse::pairs(&self.numbers)?))
            }
            ((None, None), None) if !self.has_map && self.name.is_none() => Some(SparseForm::Not),
            _ => None,
        }
    }
}

/// Parses a value that may be empty. Returns `None` for an invalid value, and `Some(None)` for an
/// empty one.
fn optional<T>(value: &[u8], parse: impl FnOnce(&[u8]) -> Option<T>) -> Option<Option<T>> {
    if value.is_empty() { Some(None) } else { parse(value).map(Some) }
}

/// Parses a user or group id. Refuses the id of all ones, which means "no change" to chown(2).
fn id(text: &[u8]) -> Option<u32> {
    sparse::decimal(text).and_then(|id| u32::try_from(id).ok()).filter(|id| *id != u32::MAX)
}
