//! Pages of the tree and their elements.

use super::Checked;
use super::damage::{Damage, Problem};
use super::meta::{HEADER, Meta};
use super::window::{Window, number};

/// The length of an element of a branch page and of a leaf page.
const ELEMENT: u64 = 16;
/// The flag of a branch page, of a leaf page, and of the list of free pages.
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
pub(super) const FREELIST: u16 = 0x10;
/// The flag of an element of a leaf page that is a bucket.
const BUCKET: u32 = 0x01;
/// Keys have up to 32 KiB. bbolt never limited the names of buckets, so they get more.
const LONGEST_KEY: u64 = 1 << 20;

/// Bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) at: u64,
    pub(super) length: u64,
}

impl Span {
    pub(super) fn end(self) -> u64 {
        self.at + self.length
    }
}

/// The header of a page.
pub(super) struct Header {
    pub(super) id: u64,
    pub(super) flags: u16,
    pub(super) count: u64,
    pub(super) overflow: u32,
}

impl Header {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            id: u64::from_ne_bytes(number(bytes, 0)),
            flags: u16::from_ne_bytes(number(bytes, 8)),
            count: u16::from_ne_bytes(number(bytes, 10)).into(),
            overflow: u32::from_ne_bytes(number(bytes, 12)),
        }
    }

    /// Reads the header of the page `page`, and returns it with the bytes of the page.
    pub(super) fn read(window: &mut Window<'_>, meta: &Meta, page: u64) -> Checked<(Self, Span)> {
        let at = page * meta.page_size;
        let header = Self::of(window.get(at, HEADER, at + meta.page_size)?);
        if header.id != page {
            return Err(Damage::new(page, Problem::Id(header.id)).into());
        }
        let pages = u64::from(header.overflow) + 1;
        if pages > meta.high_water - page {
            return Err(Damage::new(page, Problem::Overflow(header.overflow)).into());
        }
        Ok((header, Span { at, length: pages * meta.page_size }))
    }
}

/// A page of the tree, or the part of one that is an inline bucket.
pub(super) struct Page {
    /// The number of the page, also of the page around an inline bucket.
    pub(super) number: u64,
    pub(super) is_leaf: bool,
    /// Whether the page is an inline bucket, which its data fills to the end.
    pub(super) is_inline: bool,
    pub(super) count: u64,
    pub(super) span: Span,
}

/// An element of a page.
pub(super) struct Element {
    pub(super) key: Span,
    pub(super) content: Content,
}

/// What a key leads to.
pub(super) enum Content {
    Page(u64),
    Value(Span),
    Bucket(Span),
}

impl Page {
    /// Reads the page `number`; its header must be that of a branch or leaf page.
    pub(super) fn read(window: &mut Window<'_>, meta: &Meta, number: u64) -> Checked<Self> {
        let (header, span) = Header::read(window, meta, number)?;
        if header.flags != BRANCH && header.flags != LEAF {
            return Err(Damage::new(number, Problem::Flags(header.flags)).into());
        }
        let is_leaf = header.flags == LEAF;
        Self { number, is_leaf, is_inline: false, count: header.count, span }.fitting()
    }

    /// Reads the inline bucket in the bytes `span` of the page `number`.
    pub(super) fn read_inline(window: &mut Window<'_>, number: u64, span: Span) -> Checked<Self> {
        let wrong = Damage::new(number, Problem::Inline);
        if span.length < HEADER as u64 {
            return Err(wrong.into());
        }
        let header = Header::of(window.get(span.at, HEADER, span.end())?);
        if (header.id, header.flags, header.overflow) != (0, LEAF, 0) {
            return Err(wrong.into());
        }
        Self { number, is_leaf: true, is_inline: true, count: header.count, span }.fitting()
    }

    fn fitting(self) -> Checked<Self> {
        if !self.is_leaf && self.count == 0 {
            return Err(self.damage(Problem::EmptyBranch).into());
        }
        match self.data() > self.span.end() {
            true => Err(self.damage(Problem::Elements).into()),
            false => Ok(self),
        }
    }

    /// Returns where the data of the first element starts.
    pub(super) fn data(&self) -> u64 {
        self.element_at(self.count)
    }

    fn element_at(&self, index: u64) -> u64 {
        self.span.at + HEADER as u64 + index * ELEMENT
    }

    pub(super) fn damage(&self, problem: Problem) -> Damage {
        Damage::new(self.number, problem)
    }

    /// Reads the element `index`, whose data must start at `expected`, where the data of the
    /// element before ends: bbolt leaves no gaps.
    pub(super) fn element(
        &self,
        window: &mut Window<'_>,
        index: u64,
        expected: u64,
    ) -> Checked<Element> {
        let at = self.element_at(index);
        let bytes = window.get(at, ELEMENT as usize, self.span.end())?;
        let word = |at| u64::from(u32::from_ne_bytes(number(bytes, at)));
        let (flags, position, key, value) = match self.is_leaf {
            true => (word(0) as u32, word(4), word(8), word(12)),
            false => (0, word(0), word(4), 0),
        };
        let key = Span { at: at + position, length: key };
        let rest = Span { at: key.end(), length: value };
        let content = match (self.is_leaf, flags) {
            (false, _) => Content::Page(u64::from_ne_bytes(number(bytes, 8))),
            (true, 0) => Content::Value(rest),
            (true, BUCKET) => Content::Bucket(rest),
            (true, _) => return Err(self.damage(Problem::ElementFlags(index, flags)).into()),
        };
        let problem = match key.length {
            _ if key.at != expected || rest.end() > self.span.end() => Problem::Data(index),
            0 => Problem::EmptyKey(index),
            length if length > LONGEST_KEY => Problem::LongKey(index, length),
            _ => return Ok(Element { key, content }),
        };
        Err(self.damage(problem).into())
    }
}

impl Element {
    /// Returns where the data of the element ends.
    pub(super) fn end(&self) -> u64 {
        match &self.content {
            Content::Page(_) => self.key.end(),
            Content::Value(value) | Content::Bucket(value) => value.end(),
        }
    }
}
