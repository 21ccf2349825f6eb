//! Everything that can fail is tried before the command starts.

use super::near;
use crate::active::Active;
use crate::held::RUN_VARIABLE;
use crate::options::Options;
use crate::runfile::RunFile;
use crate::trouble::{Act, Trouble};
use std::collections::HashSet;
use std::env;
use std::path::Path;
use synconce_durable::earlier;
use synconce_durable::error::Error;
use synconce_durable::marker::Marker;
use synconce_durable::pins::{Pins, mount_of};
use synconce_durable::places;
use synconce_durable::record::{FileSystem, Private, Record, VERSION, boot_id, new_id, now};
use synconce_probe::filesystem::is_memory_magic;
use synconce_probe::mounts::{self, DeviceId, Mount};

const ENODEV: i32 = 19;

/// Finds the file systems, arms the markers, writes the run file.
pub(super) fn prepare(options: &Options) -> Result<Active, Trouble> {
    if options.commit && syncs_are_swallowed() {
        return Err(Trouble::SyncsSwallowed);
    }
    // Without a commit there is nothing to find file systems for.
    let mounts = if options.commit { mounts::ours() } else { Ok(Vec::new()) };
    let mounts = mounts.map_err(|error| {
        Trouble::Path(Act::new("cannot read", Path::new("/proc/self/mountinfo"), &error))
    })?;
    let pins = if options.commit { pins(options, &mounts)? } else { Pins::default() };
    let record = record(options, &pins);
    let (mut markers, mut earlier) = (Vec::new(), None);
    if options.commit {
        let unwritable = |error: Error| Trouble::MarkerUnwritable(Act::from(&error));
        let state = places::state().ok_or(Trouble::NoStateDirectory)?;
        let marker = Marker::arm(&state, &record, None).map_err(unwritable)?;
        markers.push(marker.registered_in(places::registry()));
        // The user of a nested run was told by the outer one.
        earlier = env::var_os(RUN_VARIABLE).is_none().then(|| earlier::look(&state)).flatten();
        if let Some(root) = &options.root {
            let below = root.join(places::STATE_BELOW_ROOT);
            if !is_same(&below, &state) {
                let marker = Marker::arm(&below, &record, Some(root));
                let unwritable = |error: Error| Trouble::RootUnwritable(Act::from(&error));
                markers.push(marker.map_err(unwritable)?);
            }
        }
    }
    // The run file is for people and tests; a run can do without.
    let directory = places::runtime().filter(|path| options.commit || may_hold_a_trace(path));
    let run_file = directory.and_then(|path| RunFile::create(&path, &record).ok());
    let named = named(options, &mounts, &pins);
    Ok(Active::new(options, record, pins, named, markers, run_file).after(earlier))
}

/// Whether the run file of a run that commits nothing may be in `directory`: where it
/// was named, or in memory. In an image's build `/run` is of the layer that is made,
/// where the directory would stay, and the time of the one above it.
fn may_hold_a_trace(directory: &Path) -> bool {
    let system = directory.ancestors().find_map(|above| rustix::fs::statfs(above).ok());
    places::is_runtime_named() || system.is_some_and(|it| is_memory_magic(it.f_type as u64))
}

/// Whether a sync that must fail, of an `O_PATH` descriptor (open(2)), succeeds.
fn syncs_are_swallowed() -> bool {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, rustix::fs::Mode::empty());
    root.is_ok_and(|root| rustix::fs::syncfs(&root).is_ok())
}

/// Whether both paths lead to one directory (`--root /`).
fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The file systems that are committed whether or not a call on them is held.
fn named(options: &Options, mounts: &[Mount], pins: &Pins) -> HashSet<DeviceId> {
    if options.commits_all() || !options.commit_only.is_empty() {
        return pins.iter().map(|pin| pin.device).collect();
    }
    let root = options.root.iter().filter_map(|root| mount_of(root, mounts).ok());
    root.map(|mount| mount.device).collect()
}

/// What is pinned before the command starts.
fn pins(options: &Options, mounts: &[Mount]) -> Result<Pins, Trouble> {
    if !options.commit_only.is_empty() {
        let pins = Pins::open_only(&options.commit_only, mounts);
        let pins = pins.map_err(|error| match error.io().raw_os_error() {
            Some(ENODEV) => Trouble::NoDisk(error.path().to_owned()),
            _ => Trouble::Path(Act::from(&error)),
        })?;
        let volatile = pins.iter().find(|pin| pin.volatile).map(|pin| pin.point.clone());
        return volatile.map_or(Ok(pins), |point| Err(Trouble::VolatileOverlay(point)));
    }
    let mut pins = if options.commits_all() {
        Pins::open(mounts, Path::new("/"), true)
    } else {
        let near = near::devices(options, mounts);
        let mounts = mounts.iter().filter(|mount| near.contains(&mount.device));
        Pins::open(&mounts.cloned().collect::<Vec<_>>(), Path::new("/"), true)
    };
    for (path, mount) in near::places_of_work(options, mounts) {
        if pins.of(mount.device).is_some_and(|pin| pin.volatile) {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            return Err(Trouble::VolatileOverlay(path));
        }
    }
    pins.drop_volatile();
    Ok(pins)
}

pub(crate) fn record(options: &Options, pins: &Pins) -> Record {
    let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
    let file_systems = pins.iter().map(FileSystem::of);
    Record {
        version: VERSION,
        id: new_id(),
        private: Some(Private {
            command: words.collect(),
            directory: env::current_dir().unwrap_or_default(),
            root: options.root.clone(),
        }),
        started: now(),
        boot: boot_id(),
        user: rustix::process::geteuid().as_raw(),
        supervisor: std::process::id(),
        sealed: options.sealed,
        file_systems: file_systems.collect(),
    }
}
