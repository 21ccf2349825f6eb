//! Splits an archive into members and their content.

use std::io::{BufRead, BufReader, Read};

use synconce_durable::error::{Context, Error};
use tar::{GnuExtSparseHeader, GnuSparseHeader, Header};

use super::member::{Extensions, Member, SparseForm};
use super::sparse::{self, Map, Piece};
use super::{BLOCK, as_path, failed, header, refuse};

/// The most bytes of names, attributes and maps that are read into memory.
const LONGEST: u64 = 64 << 20;
const BUFFER: usize = 256 << 10;
const NO_TAR: &str = "it is no tar";

/// Reads an archive from its first byte to its last.
pub(super) struct Reader<R> {
    input: BufReader<R>,
    /// The current member's path, or the last one's, for errors.
    member: Vec<u8>,
    /// Whether the current member has been read to its end.
    between: bool,
    /// The bytes of content that have not been read yet, and of the padding behind them.
    left: u64,
    padding: u64,
    /// Records of global PAX headers, which apply to all following members.
    for_all: Vec<Vec<u8>>,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(input: R) -> Self {
        let input = BufReader::with_capacity(BUFFER, input);
        let (member, for_all) = (Vec::new(), Vec::new());
        Self { input, member, between: true, left: 0, padding: 0, for_all }
    }

    /// Returns the next member. Returns `None` at the archive's end, after reading the input
    /// to its end.
    pub(super) fn next(&mut self) -> Result<Option<Member>, Error> {
        self.skip()?;
        self.between = true;
        let mut own = Vec::new();
        let (mut long_name, mut long_link) = (None, None);
        loop {
            let extended = !own.is_empty() || long_name.is_some() || long_link.is_some();
            let Some(header) = self.header(extended)? else { return Ok(None) };
            let kind = header.as_old().linkflag[0];
            let slot = match kind {
                b'x' | b'X' if own.is_empty() => {
                    own.push(self.text(&header)?);
                    continue;
                }
                b'g' => {
                    let text = self.text(&header)?;
                    self.for_all.push(text);
                    continue;
                }
                b'L' => &mut long_name,
                b'K' => &mut long_link,
                // A volume's label has a name, but is no file.
                b'V' => {
                    self.expect(Extensions::plain_size(&header))?;
                    self.skip()?;
                    continue;
                }
                b'x' | b'X' => return Err(self.damaged("two extended headers for one member")),
                _ => return self.member(&header, &own, long_name, long_link).map(Some),
            };
            if slot.is_some() {
                return Err(self.damaged("two long names for one member"));
            }
            let mut text = self.text(&header)?;
            text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
            *slot = Some(text);
        }
    }

    /// Returns the next buffered piece of the member's content, of any length; empty at its
    /// end.
    pub(super) fn content(&mut self) -> Result<&[u8], Error> {
        if self.left == 0 {
            return Ok(&[]);
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        fill(&mut self.input, &self.member, self.between)
            .map(|piece| &piece[..piece.len().min(left)])
    }

    /// Marks `length` bytes of the last piece as used.
    pub(super) fn used(&mut self, length: usize) {
        self.input.consume(length);
        self.left -= length as u64;
    }

    fn member(
        &mut self,
        header: &Header,
        own: &[Vec<u8>],
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Member, Error> {
        let mut extensions = Extensions::new(long_name, long_link);
        for text in self.for_all.iter().chain(own) {
            extensions.take(text).map_err(|why| refuse(&extensions.path(header), why))?;
        }
        let (mut member, form) = extensions.member(header)?;
        self.member.clone_from(&member.path);
        self.between = false;
        let in_content = form_in_content(&form, header);
        let (size, pieces) = match form {
            _ if header.as_old().linkflag[0] == b'S' => self.gnu_map(header)?,
            SparseForm::Not => (0, None),
            SparseForm::Known(size, pieces) => (size, Some(pieces)),
            SparseForm::InContent(size) => (size, None),
        };
        self.expect(Some(member.stored))?;
        let pieces = if in_content { Some(self.map_in_content()?) } else { pieces };
        if let Some(pieces) = pieces {
            let map = Map::checked(size, pieces, self.left);
            member.map = Some(map.ok_or_else(|| self.damaged("its map of holes makes no sense"))?);
        }
        member.stored = self.left;
        Ok(member)
    }

    /// Reads the map in GNU's own header and in the blocks behind it.
    fn gnu_map(&mut self, header: &Header) -> Result<(u64, Option<Vec<Piece>>), Error> {
        let wrong = |reader: &Self| reader.damaged("its map of holes makes no sense");
        let gnu = header.as_gnu().ok_or_else(|| wrong(self))?;
        let unsigned = |field: &[u8]| header::number(field).and_then(|value| value.try_into().ok());
        let size = unsigned(&gnu.realsize).ok_or_else(|| wrong(self))?;
        let mut pieces = Vec::new();
        let mut add = |sparse: &[GnuSparseHeader]| {
            for piece in
                sparse.iter().filter(|piece| piece.offset[0] != 0 || piece.numbytes[0] != 0)
            {
                pieces.push((unsigned(&piece.offset)?, unsigned(&piece.numbytes)?));
            }
            Some(())
        };
        add(&gnu.sparse).ok_or_else(|| wrong(self))?;
        let mut more = gnu.is_extended();
        let mut read = 0;
        while more {
            let mut block = GnuExtSparseHeader::new();
            *block.as_mut_bytes() = self.block()?.ok_or_else(|| self.cut())?;
            add(&block.sparse).ok_or_else(|| wrong(self))?;
            more = block.is_extended();
            read += BLOCK;
            if read > LONGEST {
                return Err(self.damaged("its map of holes is too long"));
            }
        }
        Ok((size, Some(pieces)))
    }

    /// Reads the map before the content: a count and as many pairs, one number per line.
    fn map_in_content(&mut self) -> Result<Vec<Piece>, Error> {
        let wrong = |reader: &Self| reader.damaged("its map of holes makes no sense");
        let (mut numbers, mut text) = (Vec::new(), Vec::new());
        let mut wanted = 1;
        let mut read = 0;
        while numbers.len() < wanted {
            read += BLOCK;
            if self.left < BLOCK || read > LONGEST {
                return Err(wrong(self));
            }
            let block = self.block()?.ok_or_else(|| self.cut())?;
            self.left -= BLOCK;
            for byte in block {
                match byte {
                    b'\n' if numbers.len() < wanted => {
                        let number = sparse::decimal(&text).ok_or_else(|| wrong(self))?;
                        if numbers.is_empty() {
                            let count = usize::try_from(number).ok();
                            let count =
                                count.and_then(|count| count.checked_mul(2)?.checked_add(1));
                            wanted = count.ok_or_else(|| wrong(self))?;
                        }
                        numbers.push(number);
                        text.clear();
                    }
                    _ if numbers.len() < wanted && text.len() < 20 => text.push(byte),
                    _ if numbers.len() < wanted => return Err(wrong(self)),
                    // Padding.
                    _ => {}
                }
            }
        }
        sparse::pairs(&numbers[1..]).ok_or_else(|| wrong(self))
    }

    /// Returns the next header, or `None` at the archive's end.
    fn header(&mut self, extended: bool) -> Result<Option<Header>, Error> {
        let Some(block) = self.block()? else {
            return Err(if self.member.is_empty() && self.for_all.is_empty() && !extended {
                refuse(b"the archive", "it is empty")
            } else {
                self.cut()
            });
        };
        if block == [0; BLOCK as usize] {
            if extended {
                return Err(self.damaged("the archive ends where another member was announced"));
            }
            return self.end().map(|()| None);
        }
        let header = Header::from_byte_slice(&block);
        if header::is_sound(header) {
            return Ok(Some(header.clone()));
        }
        Err(if self.member.is_empty() && !extended && self.for_all.is_empty() {
            refuse(b"the archive", NO_TAR)
        } else {
            self.damaged("the header behind this member is damaged")
        })
    }

    /// Reads the input to its end, where only zeros may follow: a second, concatenated archive
    /// would be ignored without notice.
    fn end(&mut self) -> Result<(), Error> {
        loop {
            let piece = self.input.fill_buf().on("cannot read beyond", as_path(&self.member))?;
            if piece.is_empty() {
                return Ok(());
            }
            if piece.iter().any(|byte| *byte != 0) {
                let is_tar = !self.member.is_empty();
                let why = if is_tar { "the archive continues after its end" } else { NO_TAR };
                return Err(self.damaged(why));
            }
            let length = piece.len();
            self.input.consume(length);
        }
    }

    /// Starts reading the content of a header.
    fn expect(&mut self, size: Option<u64>) -> Result<(), Error> {
        let size = size.filter(|size| i64::try_from(*size).is_ok());
        self.left = size.ok_or_else(|| self.damaged("its header has a wrong size"))?;
        self.padding = self.left.next_multiple_of(BLOCK) - self.left;
        Ok(())
    }

    /// Reads the content of an extended header.
    fn text(&mut self, header: &Header) -> Result<Vec<u8>, Error> {
        self.expect(Extensions::plain_size(header))?;
        // Headers for all members stay in memory.
        let kept: usize = self.for_all.iter().map(Vec::len).sum();
        if self.left > LONGEST.saturating_sub(kept as u64) {
            return Err(self.damaged("the header behind this member is too long"));
        }
        let mut text = Vec::new();
        while self.left > 0 {
            let piece = self.content()?;
            text.extend_from_slice(piece);
            let length = piece.len();
            self.used(length);
        }
        self.skip()?;
        Ok(text)
    }

    /// Skips the rest of a member's content and the padding behind it.
    fn skip(&mut self) -> Result<(), Error> {
        self.left += std::mem::take(&mut self.padding);
        while self.left > 0 {
            let length = self.content()?.len();
            self.used(length);
        }
        Ok(())
    }

    /// Returns the next block, or `None` at the input's end.
    fn block(&mut self) -> Result<Option<[u8; BLOCK as usize]>, Error> {
        let mut block = [0; BLOCK as usize];
        let mut filled = 0;
        while filled < block.len() {
            let length = match self.input.read(&mut block[filled..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                result => result.on("cannot read beyond", as_path(&self.member))?,
            };
            match length {
                0 if filled == 0 => return Ok(None),
                0 => return Err(self.cut()),
                length => filled += length,
            }
        }
        Ok(Some(block))
    }

    fn cut(&self) -> Error {
        cut(&self.member, self.between)
    }

    fn damaged(&self, why: &str) -> Error {
        refuse(if self.member.is_empty() { b"the archive" } else { &self.member }, why)
    }
}

fn form_in_content(form: &SparseForm, header: &Header) -> bool {
    matches!(form, SparseForm::InContent(_)) && header.as_old().linkflag[0] != b'S'
}

/// Returns the input's buffered bytes; never empty.
fn fill<'a, R: Read>(
    input: &'a mut BufReader<R>,
    member: &[u8],
    between: bool,
) -> Result<&'a [u8], Error> {
    while let Err(error) = input.fill_buf() {
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(failed("cannot read", member, error));
        }
    }
    match input.buffer() {
        [] => Err(cut(member, between)),
        _ => Ok(input.buffer()),
    }
}

fn cut(member: &[u8], between: bool) -> Error {
    if member.is_empty() {
        refuse(b"the archive", "it is no tar, or it is cut short")
    } else if between {
        refuse(member, "the archive is cut short behind this member")
    } else {
        refuse(member, "the archive is cut short within this member")
    }
}
