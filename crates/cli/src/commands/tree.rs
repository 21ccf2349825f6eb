//! `synconce tree`

mod bar;
mod enter;
mod environment;
mod export;
mod failure;
mod limits;
mod make;
mod modes;
mod mount;
mod output;
mod run;
mod show;
mod store;
mod trash;

use self::failure::Failure;
use self::output::Output;
use self::store::StorePath;
use crate::arguments::tree::{Tree, Verb};
use crate::commands::json::Stream;
use crate::text::set_quiet;
use std::path::PathBuf;
use std::process::ExitCode;
use synconce_tree::{Store, namespace};

/// Runs the verb.
pub fn tree(arguments: Tree) -> ExitCode {
    let Tree { store, quiet, json, verb } = arguments;
    if let Verb::Enter(arguments) = verb {
        return enter::enter(arguments);
    }
    set_quiet(quiet);
    let stream = if matches!(verb, Verb::Run(_)) { Stream::Errors } else { Stream::Output };
    match Output::open(json.as_deref(), stream).and_then(|output| begin(store, verb, output)) {
        Ok(code) => code,
        Err(failure) => failure.end(),
    }
}

fn begin(path: Option<PathBuf>, verb: Verb, output: Output) -> Result<ExitCode, Failure> {
    // Done while the process is single-threaded: only then can it change its user namespace.
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        namespace::enter_private()?;
    }
    let path = StorePath { given: path, is_root };
    let store = match verb {
        Verb::Init(arguments) => {
            return make::init(&path, arguments, output).map(|()| ExitCode::SUCCESS);
        }
        Verb::Import(_) => path.open_or_make()?,
        // A dry run removes nothing, not even what interrupted commands left.
        Verb::Remove(ref arguments) if arguments.dry_run => {
            let store = path.open_unchanged()?;
            return trash::preview(&store, arguments, output).map(|()| ExitCode::SUCCESS);
        }
        Verb::Gc(ref arguments) if arguments.dry_run => {
            let store = path.open_unchanged()?;
            return trash::preview_gc(&store, output).map(|()| ExitCode::SUCCESS);
        }
        _ => path.open()?,
    };
    let done = go_on(&store, verb, is_root, output);
    // Earlier commands may have left trash too.
    trash::empty_in_background(&store);
    done
}

fn go_on(store: &Store, verb: Verb, is_root: bool, output: Output) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Import(arguments) => make::import(store, arguments, output)?,
        Verb::Clone(arguments) => make::clone(store, arguments, output)?,
        Verb::Run(arguments) => return run::run(store, arguments, output),
        Verb::Mount(arguments) => mount::mount(store, &arguments, is_root, output)?,
        Verb::Umount(arguments) => mount::umount(store, &arguments, output)?,
        Verb::Commit(arguments) => make::commit(store, &arguments, output)?,
        Verb::Discard(arguments) => make::discard(store, &arguments.name, output)?,
        Verb::Protect(arguments) => make::protect(store, &arguments.name, output)?,
        Verb::Unprotect(arguments) => make::unprotect(store, &arguments.name, output)?,
        Verb::Restore(arguments) => make::restore(store, &arguments.generation, output)?,
        Verb::Log(arguments) => show::log(store, &arguments.name, output)?,
        Verb::Rename(arguments) => make::rename(store, &arguments, output)?,
        Verb::Diff(arguments) => return show::diff(store, &arguments, output),
        Verb::Export(arguments) => export::export(store, arguments, output)?,
        Verb::Squash(arguments) => make::squash(store, &arguments.name, output)?,
        Verb::Remove(arguments) => trash::remove(store, &arguments, output)?,
        Verb::List => show::list(store, output)?,
        Verb::Verify(arguments) => return show::verify(store, &arguments.name, output),
        Verb::Gc(arguments) => trash::gc(store, &arguments, output)?,
        Verb::Fsck => return show::fsck(store, output),
        Verb::Init(_) | Verb::Enter(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}
