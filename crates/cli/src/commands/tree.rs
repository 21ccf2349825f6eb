//! `synconce tree`

mod bar;
mod enter;
mod make;
mod mount;
mod run;
mod show;
mod signal_forwarder;
mod trash;

use crate::arguments::tree::{Tree, Verb};
use crate::exit;
use crate::text::{ago, say, shell};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use synconce_durable::error::Error;
use synconce_tree::namespace::{self, Refusal};
use synconce_tree::record::Purpose;
use synconce_tree::{Busy, Recovered, Store, User, default_path};

/// Runs the verb.
pub fn tree(arguments: Tree) -> ExitCode {
    let Tree { store, verb } = arguments;
    if let Verb::Enter(arguments) = verb {
        return enter::enter(arguments);
    }
    match begin(store, verb) {
        Ok(code) => code,
        Err(failure) => {
            failure.tell();
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
    let wanted = Wanted { path, is_root };
    let store = match verb {
        Verb::Init(arguments) => return make::init(&wanted, arguments).map(|()| ExitCode::SUCCESS),
        Verb::Import(_) => wanted.made()?,
        _ => wanted.open()?,
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

/// The store to open.
struct Wanted {
    path: Option<PathBuf>,
    is_root: bool,
}

impl Wanted {
    fn path(&self) -> Result<PathBuf, Failure> {
        let default = || default_path(self.is_root);
        self.path.clone().or_else(default).ok_or_else(|| {
            Failure::from("there is no HOME, and no store is named".to_owned())
                .hint("--store DIR names one")
        })
    }

    /// Opens the store; reports and removes what interrupted commands left in it.
    fn open(&self) -> Result<Store, Failure> {
        let path = self.path()?;
        let store = Store::open(&path).map_err(|error| self.no_store(error, &path))?;
        tell(&synconce_tree::recover(&store)?);
        Ok(store)
    }

    /// Opens the store; makes the user's default store if it does not exist.
    fn made(&self) -> Result<Store, Failure> {
        let path = self.path()?;
        if self.path.is_none() && !path.exists() {
            synconce_tree::init(&path)?;
        }
        self.open()
    }

    fn no_store(&self, error: Error, path: &Path) -> Failure {
        let missing = error.io().kind() == io::ErrorKind::NotFound;
        let failure = Failure::from(error);
        match (missing, &self.path) {
            (false, _) => failure,
            (true, None) => failure.hint("`synconce tree import NAME DIR|TAR` makes it"),
            (true, Some(_)) => {
                failure.hint(format!("`synconce tree init {}` makes a store", path.display()))
            }
        }
    }
}

/// Prints what was found and removed.
fn tell(recovered: &Recovered) {
    for one in &recovered.interrupted {
        let what = match &one.purpose {
            Purpose::Run => format!("a run in {}", one.from),
            Purpose::Mount(at) => format!("the mount of {} at {}", one.from, at.display()),
            Purpose::View(at) => format!("the mount of {} at {}", one.from, at.display()),
            Purpose::Import => format!("the making of {}", one.from),
        };
        let when = ago(one.began);
        say(&format!("{what}, begun {when}, was interrupted; what it did is thrown away"));
    }
    for lost in &recovered.lost {
        let tree = &lost.tree;
        say(&format!(
            "uncommitted changes to {tree} were lost when the machine stopped; \
             {tree} is at its last commit"
        ));
    }
}

/// Why a verb failed, and a hint.
struct Failure {
    why: String,
    hint: Option<String>,
}

impl Failure {
    fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    fn tell(&self) {
        say(&self.why);
        if let Some(hint) = &self.hint {
            say(&format!("hint: {hint}"));
        }
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, hint: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let failure = Self::from(error.to_string());
        if let Some(busy) = Busy::in_error(error.io()) {
            return failure.hint(freeing(busy));
        }
        match error.io().kind() {
            io::ErrorKind::StorageFull => {
                failure.hint("`synconce tree gc --wait` frees what nobody needs")
            }
            _ => failure,
        }
    }
}

/// Returns the command that frees a tree which is in use.
fn freeing(Busy { store, tree, by }: &Busy) -> String {
    let umount = format!("`{}`", verb_on(store, &["umount", tree]));
    let path = |path: &Path| shell(&[path.display().to_string()]);
    match by {
        User::Process(pid) => format!("`kill {pid}` ends that command, if you cannot wait for it"),
        User::Mount(_) => format!("{umount} frees it and keeps its changes; --discard drops them"),
        User::Covered(at) => format!("`umount {}`, then {umount}", path(at)),
        User::Workers(at) => {
            format!("`fuser -vm {}` lists them; when they have ended: {umount}", path(at))
        }
        User::Elsewhere(upper) => format!(
            "`grep -l {} /proc/[0-9]*/mountinfo` lists the processes that still have it; when \
             they have ended: {umount}",
            path(upper)
        ),
    }
}

/// Returns `synconce tree VERB` for the store at `store`, quoted for a shell.
fn verb_on(store: &Path, verb: &[&str]) -> String {
    let mut words = vec!["synconce".to_owned(), "tree".to_owned()];
    if default_path(rustix::process::geteuid().is_root()).is_none_or(|default| default != store) {
        words.extend(["--store".to_owned(), store.display().to_string()]);
    }
    words.extend(verb.iter().map(|word| (*word).to_owned()));
    shell(&words)
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let Refusal { error, remedy: hint } = refusal;
        Self { why: error.to_string(), hint }
    }
}

/// Writes `text` to standard output. A write error, such as a closed pipe, is reported.
fn print(text: &str) -> Result<(), Failure> {
    use io::Write;
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::from(format!("cannot write to standard output: {error}")))
}
