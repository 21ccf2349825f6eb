//! A run that goes on: what it has written down, pinned and held.

mod commit;
mod in_memory;
mod leaving;
mod sealed_scope;
mod work;

use self::in_memory::place_in_memory;
use self::leaving::Leaving;
use self::sealed_scope::SealedScope;
use crate::options::Options;
use crate::protocol::Notice;
use crate::runfile::{Phase, RunFile};
use crate::state::PATIENCE;
use crate::trouble::{Act, Trouble};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use synconce_durable::earlier::News;
use synconce_durable::marker::Marker;
use synconce_durable::mutant;
use synconce_durable::pins::Pins;
use synconce_durable::record::{FileSystem, Record};
use synconce_probe::device::Writes;
use synconce_probe::mounts::{self, DeviceId};
pub(crate) use work::{Done, Via, Work};
use work::{Markers, Root};

/// The books of a run.
pub(crate) struct Active {
    record: Record,
    pins: Pins,
    markers: Markers,
    /// Whether the markers are durable.
    marked: bool,
    /// The [`Work`] that goes on, by [`Work::device`], and since when.
    works: HashMap<Option<DeviceId>, Instant>,
    /// Where the markers are, when none of them is on a disk; until that is told.
    in_memory: Option<PathBuf>,
    run_file: Option<RunFile>,
    /// Whether there will be a commit; without one everything may be held.
    commits: bool,
    /// Whether all that is mounted is committed.
    commits_all: bool,
    /// The only file systems on which calls are held, with `--commit-only`.
    only: Option<HashSet<DeviceId>>,
    /// The file systems that are committed: those that were named, and those on which a call
    /// was held.
    scope: HashSet<DeviceId>,
    /// Volatile overlays, on which the kernel's own answer costs nothing.
    volatile: HashSet<DeviceId>,
    /// The root that has a marker of its own.
    root: Option<PathBuf>,
    /// Interrupted runs that the user is to be told of.
    earlier: Option<News>,
    /// File systems that are synced because they are unmounted.
    leaving: Vec<Arc<Leaving>>,
    patience: Duration,
    /// What the disks had been asked to write before the command started.
    written_before: Writes,
    /// Whether a sync() was held, so that the commit makes one.
    holds_sync: bool,
    /// Set once the filter answers alone.
    sealed: Option<SealedScope>,
}

/// Whether a call may be held.
pub(crate) enum Admission {
    /// It may; the marker is durable, and the commit will cover it.
    Held {
        /// Whether a file system was pinned after the command had started: an error from before
        /// that may have been reported to another process, and only the caller's own
        /// descriptor still tells it.
        late: bool,
    },
    /// The commit will not cover it: it goes to the kernel.
    Passed,
    /// This has to be done first, and may take long.
    After(Work),
    /// Something has to be done first: another thread does it, or this one may not wait.
    Busy,
}

impl Active {
    pub(crate) fn new(
        options: &Options,
        record: Record,
        pins: Pins,
        named: HashSet<DeviceId>,
        markers: Vec<Marker>,
        run_file: Option<RunFile>,
    ) -> Self {
        let only = (!options.commit_only.is_empty()).then(|| named.clone());
        let root = (markers.len() > 1).then(|| options.root.clone()).flatten();
        let in_memory = place_in_memory(&markers);
        let commits = options.commit;
        Self {
            record,
            pins,
            markers: Markers::new(markers),
            marked: false,
            works: HashMap::new(),
            in_memory,
            run_file,
            commits,
            commits_all: options.commit_all,
            only,
            scope: named,
            volatile: HashSet::new(),
            root,
            earlier: None,
            leaving: Vec::new(),
            patience: options.patience,
            written_before: if commits { Writes::now() } else { Writes::default() },
            holds_sync: false,
            sealed: None,
        }
    }

    /// The same run, which has found `earlier` ones.
    pub(crate) fn after(self, earlier: Option<News>) -> Self {
        Self { earlier, ..self }
    }

    /// Returns, once, that an earlier run was interrupted.
    pub(crate) fn news_of_earlier(&mut self) -> Option<Notice> {
        self.earlier.take().map(|news| news.note()).map(|()| Notice::EarlierInterrupted)
    }

    /// From now on the filter answers alone, on whatever file system a call is made: the
    /// scope of the commit becomes everything that the run can reach.
    ///
    /// # Errors
    /// The run would work on a file system that no commit reaches.
    pub(crate) fn seal(&mut self, options: &Options) -> Result<(), Trouble> {
        if !self.commits {
            return Ok(());
        }
        self.sealed = Some(SealedScope::new(options, &mut self.pins)?);
        if !options.sealed && self.only.is_none() {
            // The listener around us was not known when the marker was armed.
            let mounts = mounts::ours().unwrap_or_default();
            self.pins.add(&mounts, Path::new("/"), true);
            let systems = self.pins.iter().filter(|pin| !pin.volatile).map(FileSystem::of);
            let named = systems.map(|system| self.markers.name(&system));
            let named: Result<Vec<_>, _> = named.collect();
            named.map_err(|error| Trouble::MarkerUnwritable(Act::from(&error)))?;
        }
        self.pins.drop_volatile();
        Ok(())
    }

    /// FUSE file systems whose syncs a sealed run held and did not commit.
    pub(crate) fn uncommitted_fuse(&self) -> Option<Notice> {
        self.sealed.as_ref()?.uncommitted_fuse()
    }

    pub(crate) fn id(&self) -> &str {
        &self.record.id
    }

    /// Where the marker is once it is durable.
    pub(crate) fn marker(&self) -> Option<PathBuf> {
        self.markers.path()
    }

    pub(crate) fn enter(&mut self, phase: Phase) {
        self.run_file.iter_mut().for_each(|file| file.enter(phase));
    }

    /// Makes the markers durable.
    ///
    /// # Errors
    /// Nothing may be held then.
    pub(crate) fn engage(&mut self) -> Result<(), Trouble> {
        self.markers.engage()?;
        self.marked = true;
        Ok(())
    }

    /// That the marker goes with the power, once, if there is a disk that does not.
    pub(crate) fn news_of_marker(&mut self) -> Option<Notice> {
        if self.in_memory.is_none() || self.pins.iter().all(|pin| pin.in_memory) {
            return None;
        }
        self.in_memory.take().map(Notice::MarkerInMemory)
    }

    /// The run was cut short: its markers stay, unlocked, and its pins go.
    pub(crate) fn abandon(&mut self) {
        self.markers.abandon();
        self.pins = Pins::default();
    }

    /// Removes the markers once all is durable; keeps them when `failed`.
    pub(crate) fn clear(&mut self, failed: bool) -> Result<(), Trouble> {
        if failed {
            self.markers.abandon();
            return Ok(());
        }
        self.markers.clear().map_err(|error| Trouble::Clear(Act::from(&error)))
    }
}

/// What calls ask.
impl Active {
    /// Whether a call on the file systems `devices` may be held; none are those of sync().
    /// `via` may lead to a file there. [`Work`] is for a thread that `may_wait`; others are
    /// told [`Admission::Busy`].
    pub(crate) fn admit(&mut self, devices: &[DeviceId], via: Via, may_wait: bool) -> Admission {
        if !self.commits {
            return Admission::Held { late: false };
        }
        if devices.iter().any(|device| self.volatile.contains(device)) {
            return Admission::Passed;
        }
        let uncovered = devices.iter().find(|device| !self.pins.covers(**device)).copied();
        let is_asked = |device| self.only.as_ref().is_none_or(|only| only.contains(&device));
        if uncovered.is_some_and(|device| !is_asked(device) || self.is_lost(device)) {
            return Admission::Passed;
        }
        if !self.marked && !mutant::is_at_first("marker-late") {
            return self.begin(Work::Mark(self.markers.clone()), may_wait);
        }
        if let Some(device) = uncovered {
            // Mounted meanwhile, let go for an unmount that failed, or not open to us at the
            // start: the caller's own file leads there.
            let root = self.root.clone();
            let root = root.map(|path| Box::new(Root { path, record: self.record.clone() }));
            let markers = self.markers.clone();
            return self.begin(Work::Pin { device, via, root, markers }, may_wait);
        }
        // With --commit-only a sync() is for that file system alone, as was asked.
        self.holds_sync |= devices.is_empty() && self.only.is_none();
        for device in devices {
            self.scope.insert(*device);
            self.scope.extend(self.pins.of(*device).into_iter().flat_map(|pin| &pin.uppers));
        }
        let is_late = |device| self.pins.of(device).is_some_and(|pin| !pin.early);
        Admission::Held { late: devices.iter().copied().any(is_late) }
    }

    fn begin(&mut self, work: Work, may_wait: bool) -> Admission {
        match self.works.get(&work.device()) {
            // What hangs shall not make every call wait.
            Some(began) if began.elapsed() >= PATIENCE => Admission::Passed,
            Some(_) => Admission::Busy,
            None if !may_wait => Admission::Busy,
            None => {
                self.works.insert(work.device(), Instant::now());
                Admission::After(work)
            }
        }
    }

    /// Notes that `work`, which [`Active::admit`] gave out, is not done.
    pub(crate) fn give_up(&mut self, work: &Work) {
        self.works.remove(&work.device());
    }

    /// Notes what work has `done`. What the user should know of it.
    ///
    /// # Errors
    /// Nothing may be held any more.
    pub(crate) fn conclude(&mut self, done: Done) -> Result<Option<Notice>, Trouble> {
        self.works.remove(&done.device());
        match done {
            Done::Pinned(_, pins) => self.pins.join(pins),
            Done::Unpinned(_) => {}
            Done::Volatile(device) => drop(self.volatile.insert(device)),
            Done::Marked(marked) => self.marked = marked.map(|_| true)?,
        }
        Ok(if self.marked { self.news_of_marker() } else { None })
    }

    /// Lets go of the mount, which is about to be unmounted, once what is returned has been
    /// done. That may take long.
    pub(crate) fn unmount(&mut self, mount: u64) -> Option<Box<dyn FnOnce() + Send>> {
        // Their numbers may be used again.
        self.volatile.clear();
        let Some(pin) = self.pins.take(mount) else {
            // Another call to unmount it may have the pin.
            let leaving = self.leaving.iter().find(|leaving| leaving.mount == mount)?;
            let leaving = Arc::clone(leaving);
            return Some(Box::new(move || leaving.wait()));
        };
        if !self.scope.contains(&pin.device) && !self.holds_sync && self.sealed.is_none() {
            return Some(Box::new(move || drop(pin)));
        }
        let leaving = Arc::new(Leaving::of(&pin));
        self.leaving.push(Arc::clone(&leaving));
        let (markers, patience) = (self.markers.clone(), self.patience);
        Some(Box::new(move || leaving.depart(pin, &markers, patience)))
    }

    /// Whether `device` is being synced for an unmount, or that failed.
    fn is_lost(&self, device: DeviceId) -> bool {
        self.leaving.iter().any(|leaving| leaving.device == device && !leaving.is_durable())
    }
}

#[cfg(test)]
impl Active {
    /// A run that commits nothing.
    pub(crate) fn for_tests() -> Self {
        let options = Options {
            command: Vec::new(),
            sealed: false,
            commit: false,
            commit_only: Vec::new(),
            commit_all: false,
            patience: Duration::ZERO,
            root: None,
            io_uring: crate::options::IoUring::Refuse,
            by_program: false,
        };
        let record = crate::lifecycle::record(&options, &Pins::default());
        Self::new(&options, record, Pins::default(), HashSet::new(), Vec::new(), None)
    }
}
