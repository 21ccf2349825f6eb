//! Damage of a database, with the page and the problem.

use std::fmt;

/// The first damage that a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The number of the page.
    pub page: u64,
    /// What is wrong there.
    pub problem: Problem,
}

impl Damage {
    pub(super) fn new(page: u64, problem: Problem) -> Self {
        Self { page, problem }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}: {}", self.page, self.problem)
    }
}

/// What is wrong with a page.
///
/// Some problems are no errors for every version of bbolt. They are damage here, because bbolt
/// never writes such a page:
///
/// - [`Unsummed`](Problem::Unsummed): bbolt 1.3.6 accepts the meta page, bbolt 1.4 does not.
/// - [`Short`](Problem::Short): the missing pages may be free. bbolt maps the file by its
///   length, and a later allocation of such a page faults.
/// - [`Id`](Problem::Id): bbolt 1.3.6 does not compare the numbers, so it accepts two pages of
///   the tree in each other's place. bbolt 1.4 panics when it reads such a page.
/// - [`Flags`](Problem::Flags) with more than one flag: bbolt 1.3.6 looks at each flag alone.
/// - [`Id`](Problem::Id) and [`Flags`](Problem::Flags) of a meta page: only the check of bbolt
///   1.4 reads these headers.
/// - [`Inline`](Problem::Inline): bbolt writes this header and never reads all of it.
/// - [`Elements`](Problem::Elements): bbolt reads beyond the page, or never comes to the last
///   element.
/// - [`Data`](Problem::Data), [`ElementFlags`](Problem::ElementFlags),
///   [`BucketValue`](Problem::BucketValue), [`EmptyKey`](Problem::EmptyKey) and
///   [`LongKey`](Problem::LongKey): bbolt reads keys and values from such an element, but they
///   cannot be those that were written.
/// - [`Order`](Problem::Order), [`BelowParent`](Problem::BelowParent) and
///   [`AboveParent`](Problem::AboveParent): bbolt before 1.3.7 does not check the order of keys,
///   but then lookups miss keys.
/// - [`Overflow`](Problem::Overflow): bbolt compares the first page only with the high water
///   mark. When it frees the page, it would free pages that do not exist.
/// - [`FreeRange`](Problem::FreeRange) and [`FreeUsed`](Problem::FreeUsed): bbolt checks the
///   first page of a run of pages only. The next allocation would overwrite data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Neither meta page is valid.
    Metas,
    /// The meta page is valid but has no checksum.
    Unsummed,
    /// The meta page states a page size that cannot be.
    PageSize(u64),
    /// The meta page names a page that cannot be.
    MetaPage(u64),
    /// The file ends before this page; the database has this number of pages.
    Short(u64),
    /// The header has another page number.
    Id(u64),
    /// The header has these flags, which are wrong for the page.
    Flags(u16),
    /// The page continues beyond the last page of the database.
    Overflow(u32),
    /// The elements do not fit the page.
    Elements,
    /// A branch page has no elements.
    EmptyBranch,
    /// The data of this element is not where bbolt writes it, or ends outside the page.
    Data(u64),
    /// This element has unknown flags.
    ElementFlags(u64, u32),
    /// This element has a key without bytes.
    EmptyKey(u64),
    /// The key of this element has this length, which no key has.
    LongKey(u64, u64),
    /// The key of this element is not greater than the key before.
    Order(u64),
    /// The first key is less than the key of the page in its parent.
    BelowParent,
    /// The last key is not less than the next key in the parent.
    AboveParent,
    /// This element leads to a page that cannot be.
    Child(u64, u64),
    /// This element is a bucket whose value has a wrong length.
    BucketValue(u64),
    /// A bucket inside this page has a wrong header, or buckets of its own.
    Inline,
    /// Two references lead to the page.
    Twice,
    /// The tree has more levels than any database.
    Depth,
    /// The list of free pages has more entries than its page can hold.
    FreelistSize(u64),
    /// The list of free pages names a page that cannot be free.
    FreeRange(u64),
    /// The list of free pages names the page twice.
    FreeTwice,
    /// The page is free and in use.
    FreeUsed,
    /// The page is neither free nor in use.
    Unreachable,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metas => f.write_str("neither meta page is valid"),
            Self::Unsummed => f.write_str("the meta page has no checksum"),
            Self::PageSize(size) => write!(f, "the meta page states a page size of {size}"),
            Self::MetaPage(page) => write!(f, "the meta page refers to page {page}"),
            Self::Short(pages) => {
                write!(f, "the file ends here, but the database has {pages} pages")
            }
            Self::Id(id) => write!(f, "the header is that of page {id}"),
            Self::Flags(flags) => write!(f, "the header has the wrong flags {flags:#x}"),
            Self::Overflow(more) => {
                write!(f, "the header counts {more} more pages, beyond the end of the database")
            }
            Self::Elements => f.write_str("the elements do not fit the page"),
            Self::EmptyBranch => f.write_str("the branch page is empty"),
            Self::Data(at) => write!(f, "the data of element {at} is in the wrong place"),
            Self::ElementFlags(at, flags) => {
                write!(f, "element {at} has the wrong flags {flags:#x}")
            }
            Self::EmptyKey(at) => write!(f, "the key of element {at} is empty"),
            Self::LongKey(at, length) => write!(f, "the key of element {at} has {length} bytes"),
            Self::Order(at) => {
                write!(f, "the key of element {at} is not greater than the key before")
            }
            Self::BelowParent => f.write_str("the first key is less than the key in the parent"),
            Self::AboveParent => {
                f.write_str("the last key is not less than the next key in the parent")
            }
            Self::Child(at, page) => write!(f, "element {at} refers to page {page}"),
            Self::BucketValue(at) => {
                write!(f, "element {at} is a bucket with a value of the wrong length")
            }
            Self::Inline => f.write_str("a bucket inside the page has a wrong header"),
            Self::Twice => f.write_str("two references lead to the page"),
            Self::Depth => f.write_str("the tree has too many levels"),
            Self::FreelistSize(count) => {
                write!(f, "the list of free pages has {count} entries and does not fit its pages")
            }
            Self::FreeRange(id) => write!(f, "the list of free pages names page {id}"),
            Self::FreeTwice => f.write_str("the list of free pages names the page twice"),
            Self::FreeUsed => f.write_str("the page is free and in use"),
            Self::Unreachable => f.write_str("the page is neither free nor in use"),
        }
    }
}
