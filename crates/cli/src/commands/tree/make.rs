//! Verbs that make trees and write them out: `init`, `import`, `clone`, `commit`, `squash`,
//! `export`.

use super::bar::Bar;
use super::failure::{Failure, print};
use super::store::StorePath;
use crate::arguments::tree::{Clone, Commit, Export, Import, Init};
use crate::text::{bytes, say};
use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_fs::archive::{self, LeftOut, PackOptions, UnpackOptions};
use synconce_fs::{CopyOptions, CopyReport};
use synconce_tree::record::Name;
use synconce_tree::{ImportReport, Store};

/// How many paths a notice lists.
const NAMED: usize = 5;

pub fn init(default: &StorePath, arguments: Init) -> Result<(), Failure> {
    let path = match arguments.directory {
        Some(path) => path,
        None => default.path()?,
    };
    let store = synconce_tree::init(&path)?;
    let choice = synconce_tree::choose(&store, &[], None)?;
    say(&format!(
        "trees in {} are cloned by {}: {}",
        store.path().display(),
        choice.strategy,
        choice.reason
    ));
    Ok(())
}

pub fn import(store: &Store, arguments: Import) -> Result<(), Failure> {
    let Import { name, source, strategy, cross_mounts, tolerate_changes } = arguments;
    let strategy = strategy.map(Into::into);
    let bar = Bar::new("imported");
    let is_directory = source != Path::new("-") && source.is_dir();
    let (record, imported) =
        synconce_tree::import(store, &name, strategy, &bar, |target| match is_directory {
            true => copy_in(&source, target, cross_mounts, tolerate_changes, &bar),
            false => unpack_in(&source, target, &bar),
        })?;
    drop(bar);
    imported.notices.iter().for_each(|notice| say(notice));
    say(&format!("{}: clones by {}: {}", record.name, record.strategy, record.reason));
    Ok(())
}

/// What an import reports.
struct Imported {
    notices: Vec<String>,
    has_whiteouts: bool,
}

impl ImportReport for Imported {
    fn has_whiteouts(&self) -> bool {
        self.has_whiteouts
    }
}

fn copy_in(
    source: &Path,
    target: BorrowedFd<'_>,
    cross_mounts: bool,
    tolerate_changes: bool,
    bar: &Bar,
) -> Result<Imported, Error> {
    let opened = fs::File::open(source).on("cannot open", source)?;
    let options = CopyOptions { cross_mounts, ..CopyOptions::default() };
    let report = synconce_fs::copy(opened.as_fd(), target, &options, bar)?;
    if let Some(path) = report.changed.first().filter(|_| !tolerate_changes) {
        let why = format!(
            "{} paths changed while they were read; --tolerate-changes takes them as they were found",
            report.changed.len()
        );
        return Err(Error::new("cannot import", &source.join(path), io::Error::other(why)));
    }
    let mut notices = notices(&report);
    notices.extend(named(&report.whiteouts, "are devices 0:0"));
    if report.nobodys > 0 {
        notices.push(format!(
            "{} have an owner or a group that is not among this user's ids: nobody's in the tree",
            report.nobodys
        ));
    }
    Ok(Imported { notices, has_whiteouts: !report.whiteouts.is_empty() })
}

/// Returns a notice with the first of `paths` and `what`; `None` if there are no paths.
fn named(paths: &[PathBuf], what: &str) -> Option<String> {
    let first = paths.iter().take(NAMED).map(|path| path.display().to_string());
    let first = first.collect::<Vec<_>>().join(", ");
    let more = if paths.len() > NAMED { ", ..." } else { "" };
    (!paths.is_empty()).then(|| format!("{} {what}: {first}{more}", paths.len()))
}

/// Returns notices of what differs between a copy and its source.
fn notices(report: &CopyReport) -> Vec<String> {
    let all = [
        named(&report.changed, "changed while they were read"),
        named(&report.mounts, "are mount points, left empty (--cross-mounts takes them in)"),
        named(&report.flagged, "are immutable or append-only, which their copies are not"),
        named(&report.devices, "are device nodes, left out: this user may not make them"),
        named(&report.attributes, "are without attributes or lists that this user may not set"),
    ];
    all.into_iter().flatten().collect()
}

fn unpack_in(source: &Path, target: BorrowedFd<'_>, bar: &Bar) -> Result<Imported, Error> {
    // Names the archive in the error: errors of unpacking name only the entry.
    let wrong = |error: Error| {
        let cause = io::Error::new(error.io().kind(), error.to_string());
        Error::new("cannot import", source, cause)
    };
    let input = archive::open(source)?;
    let unpacked = archive::unpack_from(input, target, &UnpackOptions::default(), bar);
    let unpacked = unpacked.map_err(wrong)?;
    let notices = left_out(&unpacked.left_out);
    Ok(Imported { notices, has_whiteouts: unpacked.whiteouts > 0 })
}

/// Returns notices of what an import or export of a tar has left out.
fn left_out(left: &LeftOut) -> Vec<String> {
    let named = left.named.iter().take(NAMED);
    let mut notices: Vec<String> =
        named.map(|(path, what)| format!("{}: {what}", path.display())).collect();
    let more = left.count.saturating_sub(notices.len() as u64);
    if more > 0 {
        notices.push(format!("and {more} more of the kind"));
    }
    notices
}

pub fn clone(store: &Store, arguments: Clone) -> Result<(), Failure> {
    let strategy = arguments.strategy.map(Into::into);
    let Some(name) = arguments.name else {
        let name = synconce_tree::new_name(&arguments.base)?;
        synconce_tree::clone(store, &arguments.base, &name, strategy)?;
        return print(&format!("{name}\n"));
    };
    synconce_tree::clone(store, &arguments.base, &name, strategy)?;
    Ok(())
}

pub fn commit(store: &Store, arguments: &Commit) -> Result<(), Failure> {
    synconce_tree::commit(store, &arguments.name, arguments.new.as_ref(), &Bar::new("looked at"))?;
    Ok(())
}

pub fn squash(store: &Store, name: &Name) -> Result<(), Failure> {
    let bar = Bar::new("squashed");
    synconce_tree::squash(store, name, &bar)?;
    Ok(())
}

pub fn export(store: &Store, arguments: Export) -> Result<(), Failure> {
    let reading = synconce_tree::read(store, &arguments.name)?;
    let view = reading.view()?;
    match &arguments.directory {
        Some(directory) => export_to(view.as_fd(), directory),
        None => export_tar(view.as_fd()),
    }
}

fn export_to(view: BorrowedFd<'_>, directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory).on("cannot create", directory)?;
    if fs::read_dir(directory).on("cannot read", directory)?.next().is_some() {
        return Err(Error::new("cannot export to", directory, rustix::io::Errno::NOTEMPTY).into());
    }
    let target = fs::File::open(directory).on("cannot open", directory)?;
    let bar = Bar::new("exported");
    let report = synconce_fs::copy(view, target.as_fd(), &CopyOptions::default(), &bar)?;
    // A commit of the store does not cover a directory outside the store.
    rustix::fs::syncfs(&target).on("cannot commit: sync of the file system of", directory)?;
    drop(bar);
    notices(&report).iter().for_each(|notice| say(notice));
    Ok(())
}

fn export_tar(view: BorrowedFd<'_>) -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        let failure =
            Failure::from("standard output is a terminal, and a tar is no text".to_owned());
        return Err(failure.hint("> FILE, or a directory to export to"));
    }
    let bar = Bar::new("exported");
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let packed = archive::pack(view, &mut out, &PackOptions::default(), &bar)?;
    let flushed = out.flush();
    drop(bar);
    flushed.map_err(|error| Failure::from(format!("cannot write to standard output: {error}")))?;
    left_out(&packed.left_out).iter().for_each(|notice| say(notice));
    say(&format!("{} in {} entries", bytes(packed.bytes), packed.entries));
    Ok(())
}
