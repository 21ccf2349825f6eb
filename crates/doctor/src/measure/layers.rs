//! Measures an overlay with its layers at the place: the kernel's own syncs, which no hold of calls
//! reaches, and writes like a container's.
//!
//! The overlay is a detached mount: no other process sees it, and it ends with its descriptor.

use super::clock::{Bound, Clock};
use super::syncs::Times;
use super::writes::{self, Writes};
use crate::error::Error;
use crate::not_measured::NotMeasured;
use crate::observer::Observer;
use crate::scratch::{Scratch, ScratchDirectory};
use rustix::fs::{AtFlags, Mode, OFlags, chmodat, fstat};
use rustix::mount::MountAttrFlags;
use rustix::process::geteuid;
use serde::Serialize;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_sys::overlay::mounted;
use synconce_sys::reason;

/// The bytes of a file that is copied up.
const FILE: usize = 4_096;

/// The waits of an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Layers {
    /// A change of the mode of a file of a lower layer, which copies the file up.
    pub file: Times,
    /// The same change of a directory.
    pub directory: Times,
    /// As `file`, in an overlay with the option `volatile`, which syncs nothing.
    pub volatile: Times,
    /// Microseconds of the unmount, which syncs the file system of the layers.
    pub unmount: f64,
    /// Random writes of 4 KiB to a file of the overlay, as in a container or a step of a build.
    pub random: Option<Writes>,
}

/// The bounds of these measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayersBudget {
    /// For each kind of copy-up.
    pub copies: Bound,
    /// For the random writes; `None` leaves them out.
    pub writes: Option<Duration>,
}

impl LayersBudget {
    /// Returns the most that the copied files occupy, which are in three layers. The file of the
    /// random writes takes a part of what is free.
    pub(crate) fn bytes(&self) -> u64 {
        // Files and directories.
        self.copies.samples as u64 * 2 * 3 * FILE as u64
    }
}

/// Measures an overlay in `scratch`; returns `None` where none can be mounted, and adds why.
pub(crate) fn measure(
    scratch: &Scratch,
    budget: &LayersBudget,
    size: u64,
    observer: &mut dyn Observer,
    not_measured: &mut Vec<NotMeasured>,
) -> Result<Option<Layers>, Error> {
    observer.begins("copy-up in an overlay");
    let path = scratch.directory().path_of("lower");
    let lower = fill(scratch, budget.copies.samples).map_err(Error::io("write to", &path))?;
    let plain = match overlay(scratch, &lower, Kind::Plain) {
        Ok(plain) => plain,
        Err(error) => {
            not_measured.push(NotMeasured::new("copy-up in an overlay", reason(&error)));
            return Ok(None);
        }
    };
    let file = copy_ups(&plain, "file", budget.copies, observer)?;
    let directory = copy_ups(&plain, "directory", budget.copies, observer)?;
    let random = match budget.writes {
        None => None,
        Some(time) => {
            observer.begins("random writes in an overlay");
            writes::random((plain.as_fd(), &path), size, time, observer)?
        }
    };
    let start = Instant::now();
    drop(plain);
    let unmount = start.elapsed().as_nanos() as f64 / 1e3;
    let volatile = overlay(scratch, &lower, Kind::Volatile).map_err(Error::io("mount", &path))?;
    let volatile = copy_ups(&volatile, "file", budget.copies, observer)?;
    let all =
        (Times::from_samples(file), Times::from_samples(directory), Times::from_samples(volatile));
    let (Some(file), Some(directory), Some(volatile)) = all else { return Ok(None) };
    Ok(Some(Layers { file, directory, volatile, unmount, random }))
}

/// Makes the lower layer with `count` files and directories.
fn fill(scratch: &Scratch, count: usize) -> io::Result<ScratchDirectory> {
    let lower = scratch.directory().make("lower")?;
    for at in 0..count {
        let mut file = lower.create(&format!("file{at}"), OFlags::empty())?;
        file.write_all(&[0x5a; FILE])?;
        lower.make(&format!("directory{at}"))?;
    }
    Ok(lower)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Volatile,
}

/// Mounts an overlay over the lower layer, with an upper directory of its own.
fn overlay(scratch: &Scratch, lower: &ScratchDirectory, kind: Kind) -> io::Result<OwnedFd> {
    let name = if kind == Kind::Volatile { "volatile" } else { "plain" };
    let made = |part: &str| scratch.directory().make(&format!("{name}-{part}"));
    let (upper, work) = (made("upper")?, made("work")?);
    [lower, &upper, &work].into_iter().try_for_each(refuse_foreign)?;
    mounted(MountAttrFlags::empty(), |context| {
        context.lowers(&[lower.as_fd()])?;
        context.directory("upperdir", upper.as_fd())?;
        context.directory("workdir", work.as_fd())?;
        if kind == Kind::Volatile { context.flag("volatile") } else { Ok(()) }
    })
}

/// Refuses a directory of another user, which may have replaced a new directory. Its owner can put
/// links into the overlay, and [`copy_ups`] would follow the links.
fn refuse_foreign(layer: impl AsFd) -> io::Result<()> {
    if fstat(layer)?.st_uid == geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other("a directory of the overlay belongs to another user"))
}

/// Changes the modes of what is named `kind` in the lower layer.
fn copy_ups(
    overlay: &OwnedFd,
    kind: &str,
    bound: Bound,
    observer: &dyn Observer,
) -> Result<Vec<Duration>, Error> {
    let mut samples = Vec::new();
    let clock = Clock::start(bound);
    while clock.goes_on(samples.len(), observer)? {
        let name = format!("{kind}{}", samples.len());
        let start = Instant::now();
        let changed = chmodat(overlay, &name, Mode::RWXU, AtFlags::empty());
        changed.map_err(Error::io("change the mode of", Path::new(&name)))?;
        samples.push(start.elapsed());
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Uid, chown};
    use std::fs::File;

    #[test]
    fn a_directory_of_another_user_becomes_no_layer() {
        let place = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(place.path()).unwrap();
        let lower = fill(&scratch, 1).unwrap();
        refuse_foreign(&lower).unwrap();
        if geteuid().is_root() {
            chown(lower.path(), Some(Uid::from_raw(12_345)), None).unwrap();
            let error = overlay(&scratch, &lower, Kind::Plain).unwrap_err();
            assert!(error.to_string().contains("belongs to another user"), "{error}");
        } else {
            refuse_foreign(File::open("/").unwrap()).unwrap_err();
        }
    }
}
