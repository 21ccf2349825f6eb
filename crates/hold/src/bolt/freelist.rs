//! The list of free pages.

use super::Checked;
use super::damage::{Damage, Problem};
use super::meta::HEADER;
use super::meta::Meta;
use super::page::{FREELIST, Header, Span};
use super::page_set::PageSet;
use super::window::{Window, number};
use std::fs::File;

/// With this number in the header, the number of entries is before the first entry.
const MANY: u64 = 0xFFFF;
/// The length of an entry.
const ENTRY: u64 = 8;

/// The list of free pages, not yet read.
pub(super) struct Freelist {
    page: u64,
    /// The pages of the list itself.
    pages: u64,
    /// The bytes of the entries.
    entries: Span,
}

/// Reads the header of the list; returns `None` if the database has no list.
pub(super) fn open(file: &File, meta: &Meta) -> Checked<Option<Freelist>> {
    let Some(page) = meta.freelist else { return Ok(None) };
    let mut window = Window::new(file);
    let (header, span) = Header::read(&mut window, meta, page)?;
    if header.flags != FREELIST {
        return Err(Damage::new(page, Problem::Flags(header.flags)).into());
    }
    let first = span.at + HEADER as u64;
    let (at, count) = match header.count {
        MANY => {
            let bytes = window.get(first, ENTRY as usize, span.end())?;
            (first + ENTRY, u64::from_ne_bytes(number(bytes, 0)))
        }
        count => (first, count),
    };
    if count > (span.end() - at) / ENTRY {
        return Err(Damage::new(page, Problem::FreelistSize(count)).into());
    }
    let entries = Span { at, length: count * ENTRY };
    Ok(Some(Freelist { page, pages: span.length / meta.page_size, entries }))
}

impl Freelist {
    /// Adds the pages of the list itself to `used`.
    pub(super) fn claim(&self, used: &mut PageSet) -> Checked<()> {
        let claimed = used.insert(self.page, self.pages);
        Ok(claimed.map_err(|twice| Damage::new(twice, Problem::Twice))?)
    }

    /// Adds the free pages to `used`, which has all pages in use; returns the number of free
    /// pages.
    pub(super) fn read(self, file: &File, meta: &Meta, used: &mut PageSet) -> Checked<u64> {
        let mut window = Window::new(file);
        let mut free = PageSet::default();
        let count = self.entries.length / ENTRY;
        for index in 0..count {
            let at = self.entries.at + index * ENTRY;
            let bytes = window.get(at, ENTRY as usize, self.entries.end())?;
            let id = u64::from_ne_bytes(number(bytes, 0));
            if !meta.is_possible(id) {
                return Err(Damage::new(self.page, Problem::FreeRange(id)).into());
            }
            free.insert(id, 1).map_err(|id| Damage::new(id, Problem::FreeTwice))?;
            used.insert(id, 1).map_err(|id| Damage::new(id, Problem::FreeUsed))?;
        }
        Ok(count)
    }
}
