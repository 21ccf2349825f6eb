//! `synconce tree export`: a tree as a tar archive or a directory.

use super::bar::Bar;
use super::failure::{errno_of, outside, remedy_for_limit, verb_on};
use super::make::{left_out, notices};
use crate::arguments::tree::Export;
use crate::commands::error::CommandError;
use crate::commands::output::{Output, standard_output};
use crate::text::{OutputStream, bytes, notice};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde_json::json;
use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use synconce_durable::error::{Context, Error};
use synconce_durable::file_system;
use synconce_durable::replace::missing_above;
use synconce_durable::text::quote;
use synconce_fs::CopyOptions;
use synconce_fs::archive;
use synconce_sys::directory::is_empty;
use synconce_tree::{Store, refuse_in_store};

pub fn export(store: &Store, arguments: Export, output: Output) -> Result<(), CommandError> {
    let reading = synconce_tree::read(store, &arguments.name)?;
    let view = reading.view()?;
    match arguments.directory.as_deref().filter(|path| *path != Path::new("-")) {
        Some(path) if is_archive(path) && !path.is_dir() => {
            let why = "DIRECTORY would become a directory, and this is the name of an archive";
            let failure = CommandError::from(format!("cannot export to {}: {why}", path.display()));
            let export = verb_on(store.path(), &["export", arguments.name.as_str()]);
            Err(failure.hint(format!("{export} >{}", quote(path))))
        }
        Some(directory) => export_to(view.as_fd(), directory, output),
        None => export_tar(view.as_fd(), output),
    }
}

/// Whether `path` has the suffix of a tar archive.
fn is_archive(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    name.ends_with(".tar") || name.contains(".tar.") || name.ends_with(".tgz")
}

fn export_to(view: BorrowedFd<'_>, directory: &Path, output: Output) -> Result<(), CommandError> {
    refuse_in_store("cannot export to", directory).map_err(outside)?;
    let target = open_empty(directory).map_err(|error| {
        let missing = missing_above(directory).pop();
        match missing {
            Some(above) => outside(error).hint(format!("mkdir -p -- {}", quote(&above))),
            None => outside(error),
        }
    })?;
    let bar = Bar::new("exported");
    let copied = synconce_fs::copy(view, target.as_fd(), &CopyOptions::default(), &bar);
    let report = copied.map_err(|error| uncopied(error, directory))?;
    // A commit of the store does not cover a directory outside the store.
    file_system::sync(target.as_fd())
        .on("cannot commit: sync of the file system of", directory)
        .map_err(outside)?;
    drop(bar);
    let notices = notices(&report);
    notices.iter().for_each(|line| notice(line));
    output.write(&json!({ "directory": directory.to_string_lossy(), "notices": notices }))
}

/// Returns why the copy to `directory` has failed. A part of a tree looks like a whole one.
fn uncopied(error: Error, directory: &Path) -> CommandError {
    if errno_of(&error) == Some(Errno::NOTEMPTY) {
        // Another process has written there since `open_empty`. The export has copied nothing yet.
        return outside(error);
    }
    let there = quote(directory);
    let limit = remedy_for_limit(&error).map(|remedy| format!("; then {remedy}"));
    let limit = limit.unwrap_or_default();
    outside(error).hint(format!("{there} is incomplete: rm -r -- {there}{limit}"))
}

/// Makes `directory`, unless it exists and is empty, and opens it. The directory above has to
/// exist, as for cp(1): otherwise a mistyped path would fill another disk.
///
/// The directory above can belong to another user, who can put a link in the place of `directory`.
/// So only a link of root or of this user is followed. `copy` closes the directory to other users,
/// and then looks again whether the directory is empty.
fn open_empty(directory: &Path) -> Result<fs::File, Error> {
    // A slash at the end would follow a link.
    let directory = directory.components().as_path();
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match fs::create_dir(directory) {
        Err(_) if directory.is_dir() => {
            let found = directory.symlink_metadata().on("cannot look at", directory)?;
            let is_trusted = [0, geteuid().as_raw()].contains(&found.uid());
            if found.is_symlink() && !is_trusted {
                let why = io::Error::other("it is a symbolic link of another user");
                return Err(Error::new("cannot export to", directory, why));
            }
            flags.set(OFlags::NOFOLLOW, !found.is_symlink());
        }
        made => made.on("cannot create", directory)?,
    }
    let opened = rustix::fs::open(directory, flags, Mode::empty());
    let opened = opened.map_err(|errno| Error::new("cannot open", directory, errno))?;
    if !is_empty(&opened).map_err(|errno| Error::new("cannot read", directory, errno))? {
        return Err(Error::new("cannot export to", directory, Errno::NOTEMPTY));
    }
    Ok(opened.into())
}

/// Returns the error of a write to standard output, whose reader may have ended.
fn unwritten(error: Error) -> CommandError {
    let has_ended = error.io().kind() == io::ErrorKind::BrokenPipe;
    CommandError::unwritten(error.to_string(), has_ended)
}

fn export_tar(view: BorrowedFd<'_>, output: Output) -> Result<(), CommandError> {
    if output.is_standard_json() {
        let failure = CommandError::from("cannot write JSON: standard output is the archive");
        return Err(failure.hint("--json=FILE, or a directory to export to"));
    }
    if io::stdout().is_terminal() {
        let failure = CommandError::from("cannot write an archive to a terminal");
        return Err(failure.hint("> FILE, or a directory to export to"));
    }
    let name = Path::new("standard output");
    let stdout = standard_output().on("cannot write to", name).map_err(outside)?;
    let bar = Bar::new("exported");
    let mut out = BufWriter::with_capacity(1 << 20, OutputStream::new(stdout));
    let packed = archive::pack(view, &mut out, &bar).map_err(unwritten)?;
    out.flush().on("cannot write to", name).map_err(unwritten)?;
    drop(out);
    drop(bar);
    let notices = left_out(&packed.left_out);
    notices.iter().for_each(|line| notice(line));
    notice(&format!("{} in {} entries", bytes(packed.bytes), packed.entries));
    output.write(&json!({
        "bytes": packed.bytes,
        "entries": packed.entries,
        "notices": notices,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_another_process_wrote_are_not_to_be_removed() {
        let directory = Path::new("/there");
        let of = |errno| {
            let error = Error::new("cannot copy to", directory, errno);
            format!("{:?}", uncopied(error, directory))
        };
        assert!(of(Errno::IO).contains("rm -r -- /there"), "{}", of(Errno::IO));
        assert!(!of(Errno::NOTEMPTY).contains("rm "), "{}", of(Errno::NOTEMPTY));
    }
}
