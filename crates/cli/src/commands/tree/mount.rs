//! `synconce tree mount` and `umount`: clones that other programs than a run work in.

use super::bar::Bar;
use super::failure::outside;
use crate::arguments::tree::{MountArguments, Umount};
use crate::commands::error::CommandError;
use crate::commands::output::Output;
use serde_json::json;
use std::fs;
use std::io;
use std::path::{Path, absolute};
use synconce_durable::error::{Context, Error};
use synconce_durable::text::quote;
use synconce_tree::{MountOf, Store};

pub fn mount(
    store: &Store,
    arguments: &MountArguments,
    is_root: bool,
    output: Output,
) -> Result<(), CommandError> {
    if !is_root {
        let failure =
            CommandError::from("cannot mount: only a mount of root is seen by other processes");
        return Err(failure.hint("`synconce tree run` works without"));
    }
    let directory = &arguments.directory;
    let at = fs::canonicalize(directory).on("cannot mount on", directory).map_err(|error| {
        let is_missing = error.io().kind() == io::ErrorKind::NotFound;
        let failure = outside(error);
        if is_missing { failure.hint(format!("mkdir -p -- {}", quote(directory))) } else { failure }
    })?;
    if !at.is_dir() {
        return Err(Error::new("cannot mount on", &at, rustix::io::Errno::NOTDIR).into());
    }
    if at.starts_with(store.path()) || store.path().starts_with(&at) {
        let why = io::Error::other("the store is there, and would be out of reach");
        return Err(Error::new("cannot mount on", &at, why).into());
    }
    let begun = if arguments.read_only {
        synconce_tree::open_read_only(store, &arguments.name, &at)?
    } else {
        synconce_tree::open_mounted(store, &arguments.name, &at)?
    };
    let session = begun.prepare(&Bar::new("copied"))?;
    match session.attach_at(&at) {
        Ok(()) => output.write(&json!({
            "tree": arguments.name,
            "mount_point": at.to_string_lossy(),
            "read_only": arguments.read_only,
        })),
        Err(error) => {
            session.discard()?;
            Err(error.into())
        }
    }
}

pub fn umount(store: &Store, arguments: &Umount, output: Output) -> Result<(), CommandError> {
    // A word without a slash is the name of a tree first, and a path only if no tree has the
    // name.
    let is_path = arguments.what.as_encoded_bytes().contains(&b'/');
    let name = arguments.what.to_str().filter(|_| !is_path);
    let mut session =
        name.map(|name| synconce_tree::mounted(store, MountOf::Tree(name))).transpose()?.flatten();
    if session.is_none() {
        // The mount point may have been removed since a `tree mount` was killed.
        let at = fs::canonicalize(&arguments.what).or_else(|_| absolute(&arguments.what));
        session = synconce_tree::mounted(
            store,
            MountOf::Path(&at.on("cannot find", Path::new(&arguments.what))?),
        )?;
    }
    let Some((session, point)) = session else {
        let what = Path::new(&arguments.what).display();
        let no_name = if is_path { "" } else { "no mounted tree has this name, and " };
        let why = "no tree of this store is mounted there";
        return Err(CommandError::from(format!("cannot unmount {what}: {no_name}{why}")));
    };
    session.detach_from(&point)?;
    let is_kept = !arguments.discard && session.can_be_kept();
    if is_kept {
        session.freeze(&())?.keep(&())?;
    } else {
        session.discard()?;
    }
    output.write(&json!({ "mount_point": point.to_string_lossy(), "kept": is_kept }))
}
