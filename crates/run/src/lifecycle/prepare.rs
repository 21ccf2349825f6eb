//! Preparation of a run: everything that can fail is tried before the command starts.

use super::near;
use crate::commit::active::{Active, record};
use crate::options::RunOptions;
use crate::report::run_error::{FailedAct, RunError, number};
use crate::request::held::RUN_VARIABLE;
use crate::request::runfile::RunFile;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::env;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_durable::earlier;
use synconce_durable::error::Error;
use synconce_durable::marker::{Marker, RUNS, directory_in};
use synconce_durable::pins::{Pins, mount_of};
use synconce_durable::record::RunRecord;
use synconce_durable::standard_paths;
use synconce_probe::mounts::{self, DeviceId, Mount};
use synconce_sys::handover::{Handover, MarkerStep};
use synconce_sys::notify::Listener;
use synconce_sys::process::{self, WaitFor, Whose};

/// Finds the file systems, arms the markers, and writes the run file.
pub(super) fn prepare(options: &RunOptions, handover: &Handover) -> Result<Active, RunError> {
    try_calls(options)?;
    // Without a commit no file systems are needed.
    let mounts = if options.commit { mounts::ours() } else { Ok(Vec::new()) };
    let mounts = mounts.map_err(|error| RunError::Mounts(number(&error)))?;
    let pins = if options.commit { pins(options, &mounts)? } else { Pins::default() };
    let record = record(options, &pins, &mounts);
    let (mut markers, mut earlier) = (Vec::new(), None);
    if options.commit {
        // A frozen disk makes this step wait.
        handover.change_marker_step(MarkerStep::None, MarkerStep::Arms);
        let state = standard_paths::state().ok_or(RunError::NoStateDirectory)?;
        markers = arm(options, &state, &record)?;
        if !handover.change_marker_step(MarkerStep::Arms, MarkerStep::None) {
            // The frontend has killed this process, or is about to.
            return Err(RunError::SupervisorDied { started: false });
        }
        // In a nested run, the outer run has already printed this notice.
        earlier = env::var_os(RUN_VARIABLE).is_none().then(|| earlier::find(&state)).flatten();
    }
    // The run file informs people and tests; a run works without it.
    let directory = standard_paths::runtime().filter(|path| {
        options.record.is_none() && (options.commit || standard_paths::may_hold_run_files(path))
    });
    let run_file = directory.and_then(|path| RunFile::create(&path, &record).ok());
    let named = named(options, &mounts, &pins);
    let before = mounts.iter().map(|mount| mount.device).collect();
    Ok(Active::new(options, record, pins, before, named, markers, run_file).after(earlier))
}

/// Arms the marker in `state`, and that in the target of `--root` if the target is another place.
fn arm(options: &RunOptions, state: &Path, record: &RunRecord) -> Result<Vec<Marker>, RunError> {
    let unwritable = |error: Error| RunError::MarkerUnwritable(FailedAct::from(&error));
    let marker = Marker::arm(state, record).map_err(unwritable)?;
    let mut markers = vec![marker.registered_in(standard_paths::registry())];
    if let Some(root) = &options.root {
        let unwritable = |error: Error| RunError::RootUnwritable(FailedAct::from(&error));
        // Compared before: without O_TMPFILE, two markers of a run in one directory need one name.
        let runs = directory_in(root).map_err(unwritable)?;
        if !is_same(&runs, &state.join(RUNS)) {
            markers.push(Marker::arm_in_root(root, record).map_err(unwritable)?);
        }
    }
    Ok(markers)
}

/// Returns the directory of run files, if the run with `options` is counted there: the counts stay.
pub(super) fn directory_of_counts(options: &RunOptions) -> Option<PathBuf> {
    standard_paths::runtime().filter(|path| {
        options.commit && options.record.is_none() && standard_paths::may_hold_run_files(path)
    })
}

/// Tries calls that a profile may refuse (an old Docker refuses statx(2)), or swallow.
fn try_calls(options: &RunOptions) -> Result<(), RunError> {
    // Without waitid(2) the run would not end with its command. There is no child yet.
    let ends = WaitFor { ends: true, ..WaitFor::default() };
    let waited = process::wait(Whose::Any, ends);
    refuse_without("cannot wait for the command by waitid(2)", waited, Some(Errno::CHILD))?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    if let Ok(root) = rustix::fs::open("/", flags, Mode::empty()) {
        // The kernel's answer to a call with an `O_PATH` descriptor (open(2)).
        let expected = Some(Errno::BADF);
        if options.commit {
            let synced = rustix::fs::syncfs(&root).map_err(io::Error::from);
            if synced.is_ok() {
                return Err(RunError::SyncsSwallowed);
            }
            refuse_without("cannot commit by syncfs(2)", synced, expected)?;
        }
        if !options.sealed {
            // Without ioctl(2) the calls of the command would have no answer.
            let received = Listener::from(root).receive();
            refuse_without("cannot receive calls by ioctl(2)", received, expected)?;
        }
    }
    // A sealed run without a commit looks up no file.
    if options.commit || !options.sealed {
        let stat = rustix::fs::statx(CWD, "/", AtFlags::empty(), StatxFlags::MNT_ID);
        let stat = stat.map_err(io::Error::from);
        refuse_without("cannot look up files by statx(2)", stat, None)?;
    }
    Ok(())
}

/// Returns an error that says `act` if the call that has `tried` failed otherwise than the kernel
/// has it fail, by `expected`: a filter chooses its own error.
fn refuse_without<T>(
    act: &str,
    tried: io::Result<T>,
    expected: Option<Errno>,
) -> Result<(), RunError> {
    match tried {
        Err(error) if Errno::from_io_error(&error) != expected => {
            Err(RunError::set_up(act, &error))
        }
        _ => Ok(()),
    }
}

/// Whether both paths lead to the same directory, as with `--root /` or a bind mount of `/`.
fn is_same(one: &Path, other: &Path) -> bool {
    let identify = |path: &Path| path.metadata().ok().map(|it| (it.dev(), it.ino()));
    identify(one).is_some_and(|one| identify(other) == Some(one))
}

/// Returns the file systems that are committed whether or not a call on them is held.
fn named(options: &RunOptions, mounts: &[Mount], pins: &Pins) -> HashSet<DeviceId> {
    if options.commits_all() || !options.commit_only.is_empty() {
        return pins.iter().map(|pin| pin.device).collect();
    }
    let root = options.root.iter().filter_map(|root| mount_of(root, mounts).ok());
    root.map(|mount| mount.device).collect()
}

/// Opens the pins that a run has before its command starts.
fn pins(options: &RunOptions, mounts: &[Mount]) -> Result<Pins, RunError> {
    if !options.commit_only.is_empty() {
        let pins = Pins::open_only(&options.commit_only, mounts);
        let pins = pins.map_err(|error| match Errno::from_io_error(error.io()) {
            Some(Errno::NODEV) => {
                RunError::NoDisk(format!("cannot use --commit-only {}", error.path().display()))
            }
            _ => {
                RunError::Path(FailedAct::new("cannot use --commit-only", error.path(), error.io()))
            }
        })?;
        let volatile = pins.iter().find(|pin| pin.volatile).map(|pin| pin.point.clone());
        return volatile.map_or(Ok(pins), |point| Err(RunError::VolatileOverlay(point)));
    }
    let near = near::devices(options, mounts);
    let is_pinned = |mount: &&Mount| options.commit_all || near.contains(&mount.device);
    let pinned: Vec<_> = mounts.iter().filter(is_pinned).cloned().collect();
    let mut pins = Pins::open(&pinned);
    if options.sealed {
        // No unmount by a sealed run is seen, and a descriptor would make it fail.
        pins.add_found(mounts, Path::new("/"), |_| false);
    }
    let places = near::places_of_work(options, mounts);
    for (path, mount) in places.filter(|(_, mount)| !mount.is_volatile_step_root()) {
        if pins.find(mount.device).is_some_and(|pin| pin.volatile) {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            return Err(RunError::VolatileOverlay(path));
        }
    }
    pins.drop_volatile();
    let home = env::var_os("HOME").map(PathBuf::from);
    for path in home.into_iter().chain(env::current_dir().ok()) {
        pins.note_owned(&path);
    }
    Ok(pins)
}
