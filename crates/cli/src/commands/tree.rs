//! `synconce tree`

mod bar;
mod enter;
mod failure;
mod make;
mod mount;
mod run;
mod show;
mod signal_forwarder;
mod store;
mod trash;

use self::failure::Failure;
use self::store::StorePath;
use crate::arguments::tree::{Tree, Verb};
use crate::exit;
use std::path::PathBuf;
use std::process::ExitCode;
use synconce_tree::{Store, namespace};

/// Runs the verb.
pub fn tree(arguments: Tree) -> ExitCode {
    let Tree { store, verb } = arguments;
    if let Verb::Enter(arguments) = verb {
        return enter::enter(arguments);
    }
    match begin(store, verb) {
        Ok(code) => code,
        Err(failure) => {
            failure.report();
            exit::FAILED.into()
        }
    }
}

fn begin(path: Option<PathBuf>, verb: Verb) -> Result<ExitCode, Failure> {
    // Done while the process is single-threaded: only then can it change its user namespace.
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        namespace::enter_private()?;
    }
    let path = StorePath { given: path, is_root };
    let store = match verb {
        Verb::Init(arguments) => return make::init(&path, arguments).map(|()| ExitCode::SUCCESS),
        Verb::Import(_) => path.open_or_make()?,
        _ => path.open()?,
    };
    let done = go_on(&store, verb, is_root);
    // Earlier commands may have left trash too.
    trash::empty_in_background(&store);
    done
}

fn go_on(store: &Store, verb: Verb, is_root: bool) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Import(arguments) => make::import(store, arguments)?,
        Verb::Clone(arguments) => make::clone(store, arguments)?,
        Verb::Run(arguments) => return run::run(store, arguments),
        Verb::Mount(arguments) => mount::mount(store, &arguments, is_root)?,
        Verb::Umount(arguments) => mount::umount(store, &arguments)?,
        Verb::Commit(arguments) => make::commit(store, &arguments)?,
        Verb::Diff(arguments) => return show::diff(store, &arguments),
        Verb::Export(arguments) => make::export(store, arguments)?,
        Verb::Squash(arguments) => make::squash(store, &arguments.name)?,
        Verb::Remove(arguments) => trash::remove(store, &arguments)?,
        Verb::List(arguments) => show::list(store, &arguments)?,
        Verb::Verify(arguments) => return show::verify(store, &arguments.name),
        Verb::Gc(arguments) => trash::gc(store, &arguments)?,
        Verb::Fsck(arguments) => return show::fsck(store, &arguments),
        Verb::Init(_) | Verb::Enter(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}
