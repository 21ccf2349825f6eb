//! Why a verb failed, and what the user can do.

use crate::commands::json::WriteError;
use crate::exit;
use crate::text::{say, shell};
use rustix::process::Signal;
use std::path::Path;
use std::process::ExitCode;
use std::{fmt, io};
use synconce_durable::error::{Context, Error};
use synconce_tree::namespace::NamespaceRefusal;
use synconce_tree::{Busy, Guard, Guarded, TreeUser, default_path};

/// Why a verb failed, and a hint.
pub struct VerbFailure {
    why: String,
    hint: Option<String>,
    /// Whether the reader of standard output has ended, as `head` does.
    reader_ended: bool,
}

impl VerbFailure {
    /// Adds a line that says what to do.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Prints the reason and the hint.
    pub fn report(&self) {
        say(&self.why);
        if let Some(hint) = &self.hint {
            say(&format!("hint: {hint}"));
        }
    }

    /// Prints the reason and the hint, and returns the exit code. Ends by SIGPIPE, quietly, as other
    /// programs do, if the reader of the output has ended.
    pub fn end(&self) -> ExitCode {
        if self.reader_ended {
            return exit::by_signal(Signal::PIPE.as_raw());
        }
        self.report();
        exit::FAILED.into()
    }
}

impl From<String> for VerbFailure {
    fn from(why: String) -> Self {
        Self { why, hint: None, reader_ended: false }
    }
}

impl From<WriteError> for VerbFailure {
    fn from(WriteError { message, reader_ended }: WriteError) -> Self {
        Self { reader_ended, ..Self::from(message) }
    }
}

impl From<Error> for VerbFailure {
    fn from(error: Error) -> Self {
        let failure = Self::from(error.to_string());
        if let Some(busy) = Busy::in_error(error.io()) {
            return failure.hint(freeing(busy));
        }
        if let Some(guarded) = Guarded::in_error(error.io()) {
            return failure.hint(allowing(guarded));
        }
        match error.io().kind() {
            io::ErrorKind::StorageFull => {
                failure.hint("`synconce tree gc --wait` frees what no tree needs")
            }
            _ => failure,
        }
    }
}

/// Returns the failure of an act outside the store, which no space in the store would help.
pub fn outside(error: Error) -> VerbFailure {
    VerbFailure::from(error.to_string())
}

/// Returns the command that frees a tree which is in use.
fn freeing(Busy { store, tree, by }: &Busy) -> String {
    let umount = format!("`{}`", verb_on(store, &["umount", tree]));
    let path = |path: &Path| shell(&[path.display().to_string()]);
    match by {
        TreeUser::Process(pid) => {
            format!("`kill {pid}` ends that command, if you cannot wait for it")
        }
        TreeUser::Mount(_) | TreeUser::Unmounted(_) => {
            format!("{umount} frees it and keeps its changes; --discard drops them")
        }
        TreeUser::Covered(at) => format!("`umount {}`, then {umount}", path(at)),
        TreeUser::Workers(at) => {
            format!("`fuser -vm {}` lists them; when they have ended: {umount}", path(at))
        }
        TreeUser::Elsewhere(upper) => format!(
            "`grep -l {} /proc/[0-9]*/mountinfo` lists the processes that still have it; when \
             they have ended: {umount}",
            path(upper)
        ),
    }
}

/// Returns the commands after which an act on a guarded tree is allowed.
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

impl From<NamespaceRefusal> for VerbFailure {
    fn from(refusal: NamespaceRefusal) -> Self {
        let NamespaceRefusal { error, remedy: hint } = refusal;
        Self { hint, ..Self::from(error.to_string()) }
    }
}

/// Writes `text` to standard output.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), VerbFailure> {
    use io::Write;
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    let reader_ended =
        written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
    let written = written.on("cannot write to", Path::new("standard output"));
    written.map_err(|error| VerbFailure { reader_ended, ..outside(error) })
}
