//! Verbs that make and change trees: `init`, `import`, `clone`, `commit`, `discard`, `protect`,
//! `unprotect`, `rename`, `restore`, `squash`.

use super::bar::Bar;
use super::failure::{outside, verb_on};
use super::store::{StorePath, tell_of_memory};
use crate::arguments::tree::{Clone, Commit, Import, Init, Rename};
use crate::commands::error::CommandError;
use crate::commands::output::{Output, print};
use crate::text::{notice, shell};
use rustix::fs::{Access, Mode, OFlags, ResolveFlags, openat2};
use serde_json::json;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_durable::marker::RUNS;
use synconce_durable::recovery;
use synconce_durable::standard_paths::STATE_BELOW_ROOT;
use synconce_fs::archive::{self, LeftOut};
use synconce_fs::{CopyOptions, CopyReport};
use synconce_tree::record::TreeName;
use synconce_tree::{ImportReport, NameTaken, Squashed, Store};

/// How many paths a notice lists.
const NAMED: usize = 5;

pub fn init(default: &StorePath, arguments: Init, output: Output) -> Result<(), CommandError> {
    let path = match arguments.directory {
        Some(path) => path,
        None => default.path()?,
    };
    let store = synconce_tree::init(&path).map_err(outside)?;
    // The store of an earlier call may be on a file system that is read-only now.
    rustix::fs::access(store.path(), Access::WRITE_OK).on("cannot write to", store.path())?;
    let choice = synconce_tree::choose(&store, &[], None)?;
    let (path, strategy) = (store.path().display().to_string(), choice.strategy);
    notice(&format!("trees in {path} are cloned by {strategy}: {}", choice.reason));
    tell_of_memory(&store);
    output.write(&json!({
        "store": path,
        "strategy": strategy.as_str(),
        "reason": choice.reason,
    }))
}

/// Fails if the source of an import into `store` does not exist.
pub fn find_source(store: &Path, Import { name, source, .. }: &Import) -> Result<(), CommandError> {
    if source == Path::new("-") {
        return Ok(());
    }
    let Err(error) = fs::metadata(source).on("cannot open", source) else { return Ok(()) };
    let (name, text) = (name.to_string(), source.display().to_string());
    let failure = CommandError::from(error);
    Err(if text.contains("://") {
        let url = shell(&[text]);
        let import = verb_on(store, &["import", &name, "-"]);
        failure.hint(format!("curl --location {url} | {import}"))
    } else if Path::new(&name).exists() && text.parse::<TreeName>().is_ok() {
        let import = verb_on(store, &["import", &text, &name]);
        failure.hint(format!("the name of the tree comes first: {import}"))
    } else {
        failure
    })
}

pub fn import(store: &Store, arguments: Import, output: Output) -> Result<(), CommandError> {
    let Import { ref name, ref source, strategy, .. } = arguments;
    let bar = Bar::new("imported");
    let is_directory = source != Path::new("-") && source.is_dir();
    let (record, imported) = synconce_tree::import(store, name, strategy, &bar, |target| {
        let mut imported = if is_directory {
            copy_in(&arguments, target, store.path(), &bar)?
        } else {
            unpack_in(source, target, &bar)?
        };
        imported.notices.extend(interrupted(target).map(|what| {
            let source = source.display().to_string();
            let remedy = if is_directory {
                format!(
                    "`{}` shows what to do",
                    shell(&["synconce", "status", "--root", &source].map(str::to_owned))
                )
            } else {
                "make it anew".to_owned()
            };
            format!("{source} {what}; {remedy}; then import it again")
        }));
        Ok(imported)
    })
    .map_err(|error| failed_import(store.path(), error, &arguments))?;
    drop(bar);
    imported.notices.iter().for_each(|line| notice(line));
    notice(&format!("{}: clones by {}: {}", record.name, record.strategy, record.reason));
    tell_of_memory(store);
    output.write(&json!({
        "name": record.name,
        "generation": record.generation,
        "strategy": record.strategy.as_str(),
        "reason": record.reason,
        "notices": imported.notices,
    }))
}

/// Returns what is wrong with the root at `target` if it has the marker of a run that has not
/// ended. In the copy the marker is not locked, so each clone reports an interrupted run.
fn interrupted(target: BorrowedFd<'_>) -> Option<&'static str> {
    let (flags, inside) =
        (OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, ResolveFlags::IN_ROOT);
    let runs = Path::new(STATE_BELOW_ROOT).join(RUNS);
    let runs = openat2(target, runs, flags, Mode::empty(), inside | ResolveFlags::NO_SYMLINKS);
    let state = format!("/proc/self/fd/{}/..", runs.as_ref().ok()?.as_raw_fd());
    let found = recovery::markers(Path::new(&state)).ok()?;
    (!found.is_empty())
        .then_some("has the marker of a run that has not ended; each clone will report it")
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

/// Returns the failure of an import into `store`. If the name is taken, the hint is the commands
/// that replace or keep the tree; if a file cannot be read, the option that leaves it out.
fn failed_import(store: &Path, error: Error, arguments: &Import) -> CommandError {
    let Import { name, source, skip_unreadable, .. } = arguments;
    if NameTaken::is_in_error(error.io()) {
        let remove = verb_on(store, &["remove", name.as_str()]);
        let import = verb_on(store, &["import", "NEW", &source.display().to_string()]);
        return CommandError::from(error)
            .hint(format!("to replace it: `{remove}`, then repeat; to keep it: `{import}`"));
    }
    let is_denied = error.io().kind() == io::ErrorKind::PermissionDenied;
    // The path in an error of the copy has no symbolic links.
    let is_below = fs::canonicalize(source)
        .is_ok_and(|source| error.path().starts_with(&source) && error.path() != source);
    let failure = CommandError::from(error);
    if is_denied && is_below && !skip_unreadable {
        failure.hint("--skip-unreadable leaves out what this user may not read")
    } else {
        failure
    }
}

fn copy_in(
    arguments: &Import,
    target: BorrowedFd<'_>,
    store: &Path,
    bar: &Bar,
) -> Result<Imported, Error> {
    let &Import { ref source, cross_mounts, tolerate_changes, skip_unreadable, .. } = arguments;
    let opened = fs::File::open(source).on("cannot open", source)?;
    let store = fs::metadata(store).on("cannot look at", store)?;
    let except = Some((store.dev(), store.ino()));
    let options = CopyOptions { cross_mounts, skip_unreadable, except, ..CopyOptions::default() };
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
            "{} have an owner or a group that is not among this user's ids: in the tree they belong \
             to the overflow user (65534)",
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
pub(super) fn notices(report: &CopyReport) -> Vec<String> {
    let all = [
        named(&report.changed, "changed while they were read"),
        named(&report.mounts, "are mount points, left empty (--cross-mounts takes them in)"),
        named(&report.flagged, "are immutable or append-only, which their copies are not"),
        named(&report.devices, "are device nodes, left out: this user may not make them"),
        named(&report.unreadable, "cannot be read by this user, and are left out"),
        named(&report.excepted, "is the store itself, and is left out"),
        named(&report.overlays, "have attributes of overlays, which are left out"),
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
    let input = archive::open(source, bar)?;
    let unpacked = archive::unpack_from(input, target, bar);
    let unpacked = unpacked.map_err(wrong)?;
    let notices = left_out(&unpacked.left_out);
    Ok(Imported { notices, has_whiteouts: unpacked.whiteouts > 0 })
}

/// Returns notices of what an import or export of a tar has left out.
pub(super) fn left_out(left: &LeftOut) -> Vec<String> {
    let named = left.named.iter().take(NAMED);
    let mut notices: Vec<String> =
        named.map(|(path, what)| format!("{}: {what}", path.display())).collect();
    let more = left.count.saturating_sub(notices.len() as u64);
    if more > 0 {
        notices.push(format!("and {more} more of the kind"));
    }
    notices
}

pub fn clone(store: &Store, arguments: Clone, output: Output) -> Result<(), CommandError> {
    let Clone { base, name: wanted, strategy } = arguments;
    let is_new = wanted.is_none();
    let name = wanted.map_or_else(|| synconce_tree::new_name(&base), Ok)?;
    let record = synconce_tree::clone(store, &base, &name, strategy)?;
    let result = json!({
        "name": record.name,
        "base": base,
        "strategy": record.strategy.as_str(),
        "reason": record.reason,
    });
    output.write_or(&result, || if is_new { print(format!("{name}\n")) } else { Ok(()) })
}

pub fn commit(store: &Store, arguments: &Commit, output: Output) -> Result<(), CommandError> {
    let &Commit { ref name, ref new, keep } = arguments;
    let bar = Bar::new("looked at");
    let record = synconce_tree::commit(store, name, new.as_ref(), keep, &bar)?;
    drop(bar);
    tell_of_memory(store);
    output.write(&json!({ "name": record.name, "generation": record.generation }))
}

pub fn discard(store: &Store, name: &TreeName, output: Output) -> Result<(), CommandError> {
    let discarded = synconce_tree::discard(store, name)?;
    output.write(&json!({ "name": name, "discarded": discarded }))
}

pub fn protect(store: &Store, name: &TreeName, output: Output) -> Result<(), CommandError> {
    synconce_tree::protect(store, name)?;
    output.write(&json!({ "name": name, "protected": true }))
}

pub fn unprotect(store: &Store, name: &TreeName, output: Output) -> Result<(), CommandError> {
    synconce_tree::unprotect(store, name)?;
    output.write(&json!({ "name": name, "protected": false }))
}

pub fn rename(store: &Store, arguments: &Rename, output: Output) -> Result<(), CommandError> {
    let Rename { name, new } = arguments;
    synconce_tree::rename(store, name, new)?;
    output.write(&json!({ "name": new, "from": name }))
}

pub fn restore(store: &Store, generation: &TreeName, output: Output) -> Result<(), CommandError> {
    let record = synconce_tree::restore(store, generation)?;
    output.write(&json!({ "name": record.name, "generation": record.generation }))
}

pub fn squash(store: &Store, name: &TreeName, output: Output) -> Result<(), CommandError> {
    let bar = Bar::new("squashed");
    let squashed = synconce_tree::squash(store, name, &bar)?;
    drop(bar);
    let record = match squashed {
        Squashed::Merged(record) => record,
        Squashed::HadOneLayer(record) => {
            notice(&format!("nothing to squash: {name} has one layer"));
            record
        }
    };
    output.write(&json!({ "name": record.name, "generation": record.generation }))
}
