//! The context of an image build: what a builder reads, what `.dockerignore` leaves out, and
//! what it could leave out.

mod archive;
mod ignore;
mod part;
mod sending;

pub use part::SendingCost;
pub use sending::Sending;

use crate::engine::ContainerEngine;
use crate::error::Error;
use crate::observer::{Observer, check};
use crate::regular_file;
use crate::text::repeat;
use crate::units::{bytes, whole};
use ignore::{Ignore, Matched};
use part::{Beginning, SentContext};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use synconce_durable::text::{self, printable};

/// How many of the largest files and directories are listed.
const LISTED: usize = 10;
/// Bytes of the header of an entry in an archive.
const HEADER: u64 = 512;
/// Directories that a build makes, downloads, or does not need.
const SELDOM_NEEDED: [&str; 15] = [
    ".cache",
    ".git",
    ".gradle",
    ".hg",
    ".mypy_cache",
    ".next",
    ".nuxt",
    ".pytest_cache",
    ".svn",
    ".terraform",
    ".tox",
    ".turbo",
    ".venv",
    "__pycache__",
    "node_modules",
];
/// The tag of directories with caches, such as Cargo's `target` (bford.info/cachedir).
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// Files and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Files, symbolic links and directories.
    pub entries: u64,
    /// The lengths of the files. A sparse file is sent with its holes.
    pub bytes: u64,
}

/// A path of the context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContextPart {
    /// Relative to the context.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// What is sent of it.
    pub amount: Amount,
}

/// A build context.
#[derive(Clone, Debug, Serialize)]
pub struct BuildContext {
    /// The directory.
    #[serde(serialize_with = "text::path")]
    pub directory: PathBuf,
    /// The file with the patterns; `None` if there is none.
    #[serde(serialize_with = "text::path_if_any")]
    pub ignore_file: Option<PathBuf>,
    /// What a builder sends.
    pub sent: Amount,
    /// What `.dockerignore` leaves out.
    pub ignored: Amount,
    /// Symbolic links among what is sent.
    pub symbolic_links: u64,
    /// Bytes of holes in sparse files among what is sent.
    pub holes: u64,
    /// The entries of the top directory from which most bytes are sent, the largest first.
    pub largest: Vec<ContextPart>,
    /// The files with the most bytes, the largest first.
    pub largest_files: Vec<ContextPart>,
    /// Directories that are sent and seldom needed: lines for `.dockerignore`, and what each
    /// saves. The order is that of the bytes, with 512 more for each entry.
    pub could_be_ignored: Vec<ContextPart>,
    /// Directories that this user cannot read. A builder may fail there.
    #[serde(serialize_with = "text::paths")]
    pub unreadable: Vec<PathBuf>,
    /// What sending costs; none unless a dockerd was named.
    pub sending: Option<Sending>,
}

/// The directory of a build context, which can be examined.
#[derive(Debug)]
pub struct ContextDirectory {
    root: PathBuf,
    ignore: Ignore,
    ignore_file: Option<PathBuf>,
}

impl ContextDirectory {
    /// Opens `directory`, and reads its `.dockerignore`.
    ///
    /// # Errors
    /// The directory or `.dockerignore` cannot be read.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let root = fs::canonicalize(directory).map_err(Error::io("examine", directory))?;
        if !root.is_dir() {
            return Err(Error::NotDirectory(directory.to_owned()));
        }
        let file = root.join(".dockerignore");
        let (ignore, ignore_file) = match regular_file::read(&file) {
            Ok(text) => {
                let text = String::from_utf8_lossy(&text);
                if let Some((number, line)) = Ignore::refused(&text) {
                    let why = format!("line {number}: builders refuse the pattern {line}");
                    return Err(Error::io("understand", &file)(io::Error::other(why)));
                }
                (Ignore::parse(&text), Some(file))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (Ignore::default(), None),
            Err(error) => return Err(Error::io("read", &file)(error)),
        };
        // An error of the top directory is one of the context.
        fs::read_dir(&root).map_err(Error::io("read", &root))?;
        Ok(Self { root, ignore, ignore_file })
    }
}

/// Looks at all files of `context`. Measures what sending them to `engine` costs, if it is dockerd.
///
/// # Errors
/// A file cannot be read, or a signal has arrived.
pub fn examine_context(
    context: ContextDirectory,
    engine: Option<&ContainerEngine>,
    observer: &mut dyn Observer,
) -> Result<BuildContext, Error> {
    let ContextDirectory { root: absolute, ignore, ignore_file } = context;
    observer.begins("the build context");
    let mut walk = ContextWalk { root: &absolute, ignore, observer, found: ContextSums::default() };
    let top = ContextPath { path: String::new(), matched: Matched::default(), seldom: None };
    let began = Instant::now();
    walk.directory(&top)?;
    let (look, found) = (began.elapsed(), walk.found);
    let context = SentContext { root: &absolute, whole: found.sent, beginning: &found.beginning };
    let api = engine.and_then(|engine| engine.api.as_ref());
    let sending = api.map(|api| sending::measure(api, &context, look, observer)).transpose()?;
    let mut could_be_ignored = sorted(found.seldom);
    could_be_ignored.sort_by_key(|part| std::cmp::Reverse(part.amount.archived()));
    Ok(BuildContext {
        directory: absolute,
        ignore_file,
        sent: found.sent,
        ignored: found.ignored,
        symbolic_links: found.symbolic_links,
        holes: found.holes,
        largest: largest(found.top),
        largest_files: largest(found.files),
        could_be_ignored,
        unreadable: found.unreadable,
        sending,
    })
}

/// A path in the context.
struct ContextPath {
    /// Relative, with `/` between names.
    path: String,
    matched: Matched,
    /// The directory above it that is seldom needed, as a line for `.dockerignore`.
    seldom: Option<String>,
}

#[derive(Default)]
struct ContextSums {
    sent: Amount,
    ignored: Amount,
    symbolic_links: u64,
    holes: u64,
    top: BTreeMap<String, Amount>,
    files: BTreeMap<String, Amount>,
    seldom: BTreeMap<String, Amount>,
    unreadable: Vec<PathBuf>,
    beginning: Beginning,
}

struct ContextWalk<'a> {
    root: &'a Path,
    ignore: Ignore,
    observer: &'a mut dyn Observer,
    found: ContextSums,
}

impl ContextWalk<'_> {
    fn directory(&mut self, place: &ContextPath) -> Result<(), Error> {
        check(self.observer)?;
        let path = self.root.join(&place.path);
        let Ok(entries) = fs::read_dir(&path) else {
            self.found.unreadable.push(place.path.clone().into());
            return Ok(());
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let relative = match place.path.as_str() {
                "" => name,
                above => format!("{above}/{name}"),
            };
            // A file that was removed meanwhile is not sent.
            let Ok(meta) = entry.metadata() else { continue };
            let matched = self.ignore.matches(&relative, &place.matched);
            let mut seldom = place.seldom.clone();
            if seldom.is_none() && meta.is_dir() {
                seldom = seldom_needed(&relative, &entry.path());
            }
            let inner = ContextPath { path: relative, matched, seldom };
            self.count(&inner, &meta);
            if meta.is_dir() {
                self.directory(&inner)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, place: &ContextPath, meta: &Metadata) {
        let bytes = if meta.is_file() { meta.len() } else { 0 };
        let found = &mut self.found;
        if self.ignore.ignores(&place.matched) {
            found.ignored.add(bytes);
            return;
        }
        found.sent.add(bytes);
        found.beginning.add(&place.path, bytes);
        let top = place.path.split('/').next().unwrap_or_default();
        found.top.entry(top.to_owned()).or_default().add(bytes);
        if let Some(line) = &place.seldom {
            found.seldom.entry(line.clone()).or_default().add(bytes);
        }
        found.symbolic_links += u64::from(meta.is_symlink());
        if meta.is_file() {
            found.holes += bytes.saturating_sub(512 * meta.blocks());
            found.files.insert(place.path.clone(), Amount { entries: 1, bytes });
            // Only the largest are listed; more would fill the memory with names.
            if found.files.len() > 64 * LISTED {
                found.files = largest(std::mem::take(&mut found.files))
                    .into_iter()
                    .map(|part| (part.path.to_string_lossy().into_owned(), part.amount))
                    .collect();
            }
        }
    }
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes += bytes;
    }

    /// Returns the bytes in an archive, in which each entry has a header (tar(5)): many empty files
    /// are a large part of a context, too.
    fn archived(&self) -> u64 {
        self.bytes.saturating_add(self.entries.saturating_mul(HEADER))
    }

    pub(crate) fn shown(&self) -> String {
        let (size, entries) = (bytes(self.bytes as f64), whole(self.entries as f64));
        let noun = if self.entries == 1 { "entry" } else { "entries" };
        format!("{size} in {entries} {noun}")
    }
}

/// Returns the line of `.dockerignore` for the directory `relative`, if it is seldom needed.
fn seldom_needed(relative: &str, path: &Path) -> Option<String> {
    let name = relative.rsplit('/').next().unwrap_or_default();
    if SELDOM_NEEDED.contains(&name) {
        return Some(format!("**/{name}"));
    }
    path.join(CACHE_TAG).is_file().then(|| relative.to_owned())
}

fn largest(parts: BTreeMap<String, Amount>) -> Vec<ContextPart> {
    let mut parts = sorted(parts);
    parts.truncate(LISTED);
    parts
}

fn sorted(parts: BTreeMap<String, Amount>) -> Vec<ContextPart> {
    let part = |(path, amount): (String, Amount)| ContextPart { path: path.into(), amount };
    let mut parts: Vec<_> = parts.into_iter().map(part).collect();
    parts.sort_by_key(|part| std::cmp::Reverse((part.amount.bytes, part.amount.entries)));
    parts
}

impl BuildContext {
    /// Returns the sentence that begins and ends the report.
    pub(crate) fn verdict(&self) -> String {
        let sum = |pick: fn(&Amount) -> u64| -> u64 {
            self.could_be_ignored.iter().map(|part| pick(&part.amount)).sum()
        };
        let (entries, size) = (sum(|amount| amount.entries), sum(|amount| amount.bytes));
        let sent = self.sent.shown();
        let directory = printable(&self.directory.to_string_lossy());
        match entries {
            0 => format!(
                "{directory}: a build sends {sent}; nothing that is seldom needed was found"
            ),
            _ => format!(
                "{directory}: a build sends {sent}; .dockerignore could save {}",
                Amount { entries, bytes: size }.shown()
            ),
        }
    }

    /// Returns what `.dockerignore` leaves out.
    pub(crate) fn left_out(&self) -> String {
        match &self.ignore_file {
            Some(_) => format!(".dockerignore leaves out {}", self.ignored.shown()),
            None => "there is no .dockerignore".to_owned(),
        }
    }

    /// Returns the report for a terminal.
    pub fn text(&self) -> String {
        let verdict = self.verdict();
        let mut text = format!("{verdict}\n");
        // A write to a string cannot fail.
        let _ = writeln!(
            text,
            "{}; {} symbolic links, {} of holes are sent",
            self.left_out(),
            whole(self.symbolic_links as f64),
            bytes(self.holes as f64)
        );
        for (title, parts) in [
            ("bytes and entries of the largest at the top", &self.largest),
            ("the largest files", &self.largest_files),
            (
                "lines for .dockerignore, and the bytes and entries that each saves",
                &self.could_be_ignored,
            ),
        ] {
            if !parts.is_empty() {
                let _ = writeln!(text, "\n{title}");
            }
            for part in parts {
                let Amount { entries, bytes: size } = part.amount;
                let (size, entries) = (bytes(size as f64), whole(entries as f64));
                let path = printable(&part.path.to_string_lossy());
                let _ = writeln!(text, "  {size:>9} {entries:>9}  {path}");
            }
        }
        self.add_sending(&mut text);
        for path in &self.unreadable {
            let _ = writeln!(text, "\nnot read: {}", printable(&path.to_string_lossy()));
        }
        repeat(&mut text, &verdict);
        text
    }

    /// Adds the lines about what sending costs.
    fn add_sending(&self, text: &mut String) {
        let Some(sending) = &self.sending else { return };
        let _ = writeln!(text, "\nwhat sending to dockerd costs");
        for (name, time, note) in sending.lines() {
            let _ = writeln!(text, "  {name:<10} {time:>20}  {note}");
        }
        for missing in &sending.not_measured {
            let _ = writeln!(text, "  not measured: {}: {}", missing.what, missing.why);
        }
        let cheapest = sending.cheapest().map(|way| format!("cheapest: {way}"));
        for line in sending.bound(&self.sent).into_iter().chain(cheapest) {
            let _ = writeln!(text, "  {line}");
        }
    }
}

#[cfg(test)]
mod tests;
