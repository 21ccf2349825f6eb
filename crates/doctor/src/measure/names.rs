//! Creates, links and unlinks, which package managers and copies of trees do by the thousand.

use super::clock::{Bound, Clock};
use super::syncs::Times;
use crate::error::Error;
use crate::observer::Observer;
use crate::scratch::Scratch;
use rustix::fs::{AtFlags, OFlags, linkat, unlinkat};
use rustix::io::Errno;
use serde::Serialize;
use std::time::Instant;

/// So few creates say nothing about a file system: one of them may have waited for other work.
pub(crate) const LEAST_CREATES: usize = 10;
/// How many times the bound may pass until there are [`LEAST_CREATES`].
const PATIENCE: u32 = 10;

/// Names made and removed in a second, without a sync.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NameRates {
    /// New empty files.
    pub creates: f64,
    /// The times of these creates; `None` if no file was made.
    pub create: Option<Times>,
    /// Hard links; `None` where the file system has none.
    pub links: Option<f64>,
    /// Removals.
    pub unlinks: f64,
}

pub(crate) fn measure(
    scratch: &Scratch,
    bound: Bound,
    observer: &mut dyn Observer,
) -> Result<NameRates, Error> {
    observer.begins("creates, links and unlinks");
    let (above, made) = (scratch.directory(), scratch.directory().make("names"));
    let directory = made.map_err(Error::io("create", &above.path_of("names")))?;
    let name = |kind: &str, at: usize| format!("{kind}{at}");

    let clock = Clock::start(bound);
    let patient = Clock::start(Bound { time: PATIENCE * bound.time, samples: LEAST_CREATES });
    let mut times = Vec::new();
    while clock.goes_on(times.len(), observer)? || patient.goes_on(times.len(), observer)? {
        let file = name("file", times.len());
        let start = Instant::now();
        let made = directory.create(&file, OFlags::empty());
        made.map_err(Error::io("create", &directory.path_of(&file)))?;
        times.push(start.elapsed());
    }
    let made = times.len();
    let creates = made as f64 / clock.elapsed().as_secs_f64();

    let clock = Clock::start(bound);
    let (mut linked, mut refused) = (0, false);
    while linked < made && !refused && clock.goes_on(linked, observer)? {
        let (file, link) = (name("file", linked), name("link", linked));
        match linkat(&directory, &file, &directory, &link, AtFlags::empty()) {
            Ok(()) => linked += 1,
            Err(errno) if is_unsupported(errno) => refused = true,
            Err(errno) => return Err(Error::io("link", &directory.path_of(&link))(errno)),
        }
    }
    let links = (!refused).then(|| linked as f64 / clock.elapsed().as_secs_f64());

    let all = (0..made).map(|at| name("file", at)).chain((0..linked).map(|at| name("link", at)));
    let clock = Clock::start(Bound { samples: usize::MAX, ..bound });
    let mut removed = 0;
    for name in all {
        // Files that are left when the time is over are removed with the directory.
        if !clock.goes_on(removed, observer)? {
            break;
        }
        let gone = unlinkat(&directory, &name, AtFlags::empty());
        gone.map_err(Error::io("remove", &directory.path_of(&name)))?;
        removed += 1;
    }
    let unlinks = removed as f64 / clock.elapsed().as_secs_f64();
    Ok(NameRates { creates, create: Times::from_samples(times), links, unlinks })
}

fn is_unsupported(errno: Errno) -> bool {
    [Errno::PERM, Errno::NOTSUP, Errno::NOSYS, Errno::MLINK].contains(&errno)
}
