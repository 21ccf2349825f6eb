//! The walk through the trees of all buckets.

use super::Checked;
use super::damage::{Damage, Problem};
use super::meta::Meta;
use super::page::{Content, Page, Span};
use super::page_set::PageSet;
use super::window::{Window, number};
use std::fs::File;

/// The value of a bucket: the number of its root page, or 0 if the bucket is inline, and a
/// sequence number.
const BUCKET_LENGTH: u64 = 16;
/// More levels than a tree of bbolt can have: it joins branch pages that are nearly empty.
const DEEPEST: u32 = 64;

/// Where a bucket's tree starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At this page.
    Page(u64),
    /// In these bytes of this page.
    Inline(u64, Span),
}

/// A page to visit. The bounds of its keys are bytes of the file, because copies of the keys
/// of all branch pages could need much memory.
struct Item {
    place: Place,
    /// The least key that the page may have.
    least: Option<Span>,
    /// The key that is greater than all keys of the page.
    above: Option<Span>,
    depth: u32,
}

/// The function that is called for each key of a leaf page, with the place of the bucket if
/// the key is the name of one. Returns whether to walk through that bucket, too.
pub(super) type Each<'a> = dyn FnMut(&[u8], Option<&Place>) -> bool + 'a;

/// A walk through a database.
pub(super) struct Walk<'a> {
    meta: &'a Meta,
    elements: Window<'a>,
    data: Window<'a>,
    /// Keys of other pages.
    bounds: Window<'a>,
    used: PageSet,
    work: Vec<Item>,
    /// The key before the current one.
    previous: Vec<u8>,
}

impl<'a> Walk<'a> {
    /// Starts a walk; no page of `used` may be reached.
    pub(super) fn new(file: &'a File, meta: &'a Meta, used: PageSet) -> Self {
        let window = || Window::new(file);
        let (elements, data, bounds) = (window(), window(), window());
        Self { meta, elements, data, bounds, used, work: Vec::new(), previous: Vec::new() }
    }

    /// Returns the pages that were reached or given.
    pub(super) fn into_used(self) -> PageSet {
        self.used
    }

    /// Visits every page of the tree at `root`, and calls `each` for the keys of its leaves.
    pub(super) fn run(&mut self, root: Place, each: &mut Each<'_>) -> Checked<()> {
        self.work.push(Item::root(root));
        while let Some(item) = self.work.pop() {
            let page = self.open(&item)?;
            self.visit(&page, &item, each)?;
        }
        Ok(())
    }

    fn open(&mut self, item: &Item) -> Checked<Page> {
        let page = match item.place {
            Place::Inline(around, span) => {
                return Page::read_inline(&mut self.elements, around, span);
            }
            Place::Page(page) => page,
        };
        if item.depth > DEEPEST {
            return Err(Damage::new(page, Problem::Depth).into());
        }
        let page = Page::read(&mut self.elements, self.meta, page)?;
        let pages = page.span.length / self.meta.page_size;
        let claimed = self.used.insert(page.number, pages);
        claimed.map_err(|twice| Damage::new(twice, Problem::Twice))?;
        Ok(page)
    }

    fn visit(&mut self, page: &Page, item: &Item, each: &mut Each<'_>) -> Checked<()> {
        let mut end = page.data();
        for index in 0..page.count {
            let element = page.element(&mut self.elements, index, end)?;
            end = element.end();
            self.take_key(page, index, element.key)?;
            if let Some(least) = item.least.filter(|_| index == 0)
                && self.is_below(least)?
            {
                return Err(page.damage(Problem::BelowParent).into());
            }
            match element.content {
                Content::Page(child) if !self.meta.is_possible(child) => {
                    return Err(page.damage(Problem::Child(index, child)).into());
                }
                Content::Page(child) => {
                    if index > 0
                        && let Some(before) = self.work.last_mut()
                    {
                        before.above = Some(element.key);
                    }
                    self.work.push(item.child(child, element.key));
                }
                Content::Value(_) => {
                    each(&self.previous, None);
                }
                Content::Bucket(value) => {
                    let bucket = self.bucket(page, index, value)?;
                    if each(&self.previous, Some(&bucket)) {
                        self.work.push(Item::root(bucket));
                    }
                }
            }
        }
        if let Some(above) = item.above.filter(|_| page.count > 0)
            && !self.is_below(above)?
        {
            return Err(page.damage(Problem::AboveParent).into());
        }
        match page.is_inline && end != page.span.end() {
            true => Err(page.damage(Problem::Inline).into()),
            false => Ok(()),
        }
    }

    /// Makes `key` the previous key, if it is greater than the previous key of the page.
    fn take_key(&mut self, page: &Page, index: u64, key: Span) -> Checked<()> {
        let bytes = self.data.get(key.at, key.length as usize, page.span.end())?;
        if index > 0 && bytes <= self.previous.as_slice() {
            return Err(page.damage(Problem::Order(index)).into());
        }
        self.previous.clear();
        self.previous.extend_from_slice(bytes);
        Ok(())
    }

    /// Whether the previous key is less than `bound`.
    fn is_below(&mut self, bound: Span) -> Checked<bool> {
        let bytes = self.bounds.get(bound.at, bound.length as usize, bound.end())?;
        Ok(self.previous.as_slice() < bytes)
    }

    /// Returns where the bucket starts whose value is `value`.
    fn bucket(&mut self, page: &Page, index: u64, value: Span) -> Checked<Place> {
        let wrong = page.damage(Problem::BucketValue(index));
        if page.is_inline {
            return Err(page.damage(Problem::Inline).into());
        }
        if value.length < BUCKET_LENGTH {
            return Err(wrong.into());
        }
        let bytes = self.data.get(value.at, BUCKET_LENGTH as usize, page.span.end())?;
        match u64::from_ne_bytes(number(bytes, 0)) {
            0 => {
                let at = value.at + BUCKET_LENGTH;
                let span = Span { at, length: value.length - BUCKET_LENGTH };
                Ok(Place::Inline(page.number, span))
            }
            _ if value.length != BUCKET_LENGTH => Err(wrong.into()),
            root if !self.meta.is_possible(root) => {
                Err(page.damage(Problem::Child(index, root)).into())
            }
            root => Ok(Place::Page(root)),
        }
    }
}

impl Item {
    fn root(place: Place) -> Self {
        Self { place, least: None, above: None, depth: 0 }
    }

    /// Returns the item of the page `page`, which this item's page has under `key`.
    fn child(&self, page: u64, key: Span) -> Self {
        let place = Place::Page(page);
        Self { place, least: Some(key), above: self.above, depth: self.depth + 1 }
    }
}
