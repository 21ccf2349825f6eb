//! `synconce tree`

mod bar;
mod bound_disks;
mod check;
mod enter;
pub(super) mod environment;
mod export;
mod failure;
mod limits;
mod make;
mod modes;
mod mount;
mod run;
mod show;
mod store;
mod trash;

use self::store::StorePath;
use crate::arguments::tree::{TreeArguments, TreeVerb};
use crate::cancellation::cancelled_by;
use crate::commands::error::CommandError;
use crate::commands::output::{Output, Stream};
use crate::text::{is_output_cut_off, set_quiet};
use std::path::PathBuf;
use std::process::ExitCode;
use synconce_tree::{Store, namespace};

/// Runs the verb.
pub fn tree(arguments: TreeArguments) -> Result<ExitCode, CommandError> {
    let TreeArguments { store, quiet, json, verb } = arguments;
    if let TreeVerb::Enter(arguments) = verb {
        return Ok(enter::enter(arguments));
    }
    set_quiet(quiet);
    let stream = if matches!(verb, TreeVerb::Run(_)) { Stream::Errors } else { Stream::Output };
    begin(store, verb, Output::open(json.as_deref(), stream)?)
}

fn begin(path: Option<PathBuf>, verb: TreeVerb, output: Output) -> Result<ExitCode, CommandError> {
    // Done while the process is single-threaded: only then can it change its user namespace.
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        namespace::enter_private()?;
    }
    let path = StorePath { given: path, is_root };
    let store = match verb {
        TreeVerb::Init(arguments) => {
            return make::init(&path, arguments, output).map(|()| ExitCode::SUCCESS);
        }
        TreeVerb::Import(ref arguments) => {
            // A mistyped source makes no store.
            make::find_source(&path.path()?, arguments)?;
            path.open_or_make()?
        }
        TreeVerb::List => match path.missing_default()? {
            Some(missing) => {
                return show::list_none(&missing, output).map(|()| ExitCode::SUCCESS);
            }
            None => path.open()?,
        },
        // A dry run removes nothing, not even what interrupted commands left.
        TreeVerb::Remove(ref arguments) if arguments.dry_run => {
            let store = path.open_unchanged()?;
            return trash::preview(&store, arguments, output).map(|()| ExitCode::SUCCESS);
        }
        TreeVerb::Gc(ref arguments) if arguments.dry_run => {
            let store = path.open_unchanged()?;
            return trash::preview_gc(&store, output).map(|()| ExitCode::SUCCESS);
        }
        _ => path.open()?,
    };
    let mut done = go_on(&store, verb, is_root, output);
    if done.is_ok() && is_output_cut_off() {
        // The signal that ended the wait is the only reason.
        done = Err(CommandError::in_lines(""));
    }
    let done = done.map_err(|error| error.ended_by(cancelled_by()));
    // Earlier commands may have left trash too.
    trash::empty_in_background(&store);
    done
}

fn go_on(
    store: &Store,
    verb: TreeVerb,
    is_root: bool,
    output: Output,
) -> Result<ExitCode, CommandError> {
    match verb {
        TreeVerb::Import(arguments) => make::import(store, arguments, output)?,
        TreeVerb::Clone(arguments) => make::clone(store, arguments, output)?,
        TreeVerb::Run(arguments) => return run::run(store, arguments, output),
        TreeVerb::Mount(arguments) => mount::mount(store, &arguments, is_root, output)?,
        TreeVerb::Umount(arguments) => mount::umount(store, &arguments, output)?,
        TreeVerb::Commit(arguments) => make::commit(store, &arguments, output)?,
        TreeVerb::Discard(arguments) => make::discard(store, &arguments.name, output)?,
        TreeVerb::Protect(arguments) => make::protect(store, &arguments.name, output)?,
        TreeVerb::Unprotect(arguments) => make::unprotect(store, &arguments.name, output)?,
        TreeVerb::Restore(arguments) => make::restore(store, &arguments.generation, output)?,
        TreeVerb::Log(arguments) => show::log(store, &arguments.name, output)?,
        TreeVerb::Rename(arguments) => make::rename(store, &arguments, output)?,
        TreeVerb::Diff(arguments) => return show::diff(store, &arguments, output),
        TreeVerb::Export(arguments) => export::export(store, arguments, output)?,
        TreeVerb::Squash(arguments) => make::squash(store, &arguments.name, output)?,
        TreeVerb::Remove(arguments) => trash::remove(store, &arguments, output)?,
        TreeVerb::List => show::list(store, output)?,
        TreeVerb::Verify(arguments) => return check::verify(store, &arguments, output),
        TreeVerb::Gc(arguments) => trash::gc(store, &arguments, output)?,
        TreeVerb::Fsck => return check::fsck(store, output),
        TreeVerb::Init(_) | TreeVerb::Enter(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}
