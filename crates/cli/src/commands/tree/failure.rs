//! Why a verb failed, and what the user can do.

use crate::commands::error::{CommandError, nearest};
use crate::text::shell;
use rustix::io::Errno;
use std::io;
use std::path::Path;
use synconce_durable::error::Error;
use synconce_run::RAISE_OPEN_FILES;
use synconce_tree::namespace::NamespaceRefusal;
use synconce_tree::record::TreeName;
use synconce_tree::{
    Busy, DamagedSums, Guard, Guarded, NoSuchTree, TreeUser, default_path, store_of,
};

/// Converts an error of a store, with its hint. Only verbs of `tree` convert an error by this:
/// other commands have other hints.
impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let failure = Self::from(error.to_string());
        if let Some(busy) = Busy::in_error(error.io()) {
            return failure.hint(freeing(busy));
        }
        if let Some(guarded) = Guarded::in_error(error.io()) {
            return failure.hint(allowing(guarded));
        }
        if let Some(NoSuchTree { store, name, names }) = NoSuchTree::in_error(error.io()) {
            let near = nearest(name.as_str(), names.iter().map(TreeName::as_str));
            let near = near.map(|near| format!("; there is {near}"));
            let list = verb_on(store, &["list"]);
            return failure.hint(format!("`{list}` lists the trees{}", near.unwrap_or_default()));
        }
        let quoted = |path: &Path| shell(&[path.display().to_string()]);
        if DamagedSums::in_error(error.io()).is_some() {
            return failure.hint(format!(
                "`rm {}`, then verify again: the new checksums are of the content by then, with \
                 what is wrong in it",
                quoted(error.path())
            ));
        }
        if let Some(remedy) = remedy_for_limit(&error) {
            return failure.hint(remedy);
        }
        match (error.io().kind(), store_of(error.path())) {
            (io::ErrorKind::StorageFull, Some(store)) => {
                let gc = verb_on(store, &["gc", "--wait"]);
                failure.hint(format!("`{gc}` frees what no tree needs"))
            }
            (io::ErrorKind::ReadOnlyFilesystem, Some(store)) => failure.hint(format!(
                "`findmnt -T {}` shows the mount; list, log, diff, export, fsck, and verify without \
                 --content work without writes",
                quoted(store)
            )),
            _ => failure,
        }
    }
}

/// Returns what helps if `error`, or a cause of it, is a limit of open files.
pub(super) fn remedy_for_limit(error: &Error) -> Option<&'static str> {
    matches!(errno_of(error), Some(Errno::MFILE | Errno::NFILE)).then_some(RAISE_OPEN_FILES)
}

pub(super) fn errno_of(error: &Error) -> Option<Errno> {
    let first: &(dyn std::error::Error + 'static) = error;
    let mut causes = std::iter::successors(Some(first), |error| error.source());
    causes.find_map(|cause| Errno::from_io_error(cause.downcast_ref()?))
}

/// Returns the failure of an act outside the store. It has no hint to free space in the store.
pub fn outside(error: Error) -> CommandError {
    let remedy = remedy_for_limit(&error).map(str::to_owned);
    CommandError::from(error.to_string()).with_remedy(remedy)
}

/// Returns the command that frees a tree which is in use.
fn freeing(Busy { store, tree, by }: &Busy) -> String {
    let umount = format!("`{}`", verb_on(store, &["umount", tree]));
    let path = |path: &Path| shell(&[path.display().to_string()]);
    match by {
        TreeUser::Process(pid) => {
            format!(
                "`kill {pid}` ends that command and throws its changes away, if you cannot wait \
                 for it"
            )
        }
        TreeUser::Mount(_) | TreeUser::Unmounted(_) => {
            format!("{umount} frees it and keeps its changes; --discard drops them")
        }
        TreeUser::Covered(at) => format!("`umount {}`, then {umount}", path(at)),
        TreeUser::Workers(at) => {
            format!("`fuser -vm {}` lists them; when they have ended: {umount}", path(at))
        }
        TreeUser::Namespace { pid, at: None } => {
            format!("`ps -fp {pid}` shows that process; when it has ended: {umount}")
        }
        TreeUser::Namespace { pid, at: Some(at) } => format!(
            "`nsenter -t {pid} -m umount {}` unmounts it there, unless a process works in it; \
             then {umount}",
            path(at)
        ),
        TreeUser::Elsewhere => format!(
            "`findmnt -t nsfs` lists the files of such namespaces; when it is unmounted: {umount}"
        ),
    }
}

/// Returns the commands that make an act on a guarded tree possible.
fn allowing(Guarded { store, tree, by }: &Guarded) -> String {
    let verb = |verb: &[&str]| format!("`{}`", verb_on(store, verb));
    match by {
        Guard::Changes => format!(
            "{} keeps them, {} throws them away",
            verb(&["commit", tree]),
            verb(&["discard", tree])
        ),
        Guard::Protection => format!(
            "{} makes a tree to work in; {} allows changes",
            verb(&["clone", tree, "NEW"]),
            verb(&["unprotect", tree])
        ),
        Guard::Generation => format!(
            "{} makes a tree of it; {} makes it the newest generation",
            verb(&["clone", tree, "NEW"]),
            verb(&["restore", tree])
        ),
        Guard::Loss | Guard::Unmount => format!(
            "{} throws the changes away; {} saves what can be read of them",
            verb(&["discard", tree]),
            verb(&["export", tree, "DIRECTORY"])
        ),
        Guard::Unreadable => format!("{} removes the tree", verb(&["remove", "--force", tree])),
    }
}

/// Returns `synconce tree VERB` for the store at `store`, quoted for a shell.
pub(super) fn verb_on(store: &Path, verb: &[&str]) -> String {
    let mut words = vec!["synconce".to_owned(), "tree".to_owned()];
    if default_path(rustix::process::geteuid().is_root()).is_none_or(|default| default != store) {
        words.extend(["--store".to_owned(), store.display().to_string()]);
    }
    words.extend(verb.iter().map(|word| (*word).to_owned()));
    shell(&words)
}

impl From<NamespaceRefusal> for CommandError {
    fn from(refusal: NamespaceRefusal) -> Self {
        Self::from(refusal.error.to_string()).with_remedy(refusal.remedy)
    }
}
