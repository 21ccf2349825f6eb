//! A disk after a power cut, composed of three layers of ranges without moving data.
//!
//! The lowest layer is the image from the start of the recording. The middle layer is the data
//! that was durable at the cut; it only grows from one cut to a later one. The top layer is
//! the surviving part of the rest and everything written since the cut; the next cut empties
//! it. The layers refer to positions in files: a cut costs as many map entries as events lie
//! between it and the cut before.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::Result;
use crate::error::{Context, Error};
use crate::rig::log::{EventKind, Log};
use crate::rig::recording::Recording;
use crate::rig::replay::{BytesFrom, Cut, Extents, Loss};

pub(super) struct Replayed {
    base: File,
    /// Data written after the cut: by recovery, by fsck, by the test itself.
    scratch: File,
    size: u64,
    state: RwLock<ReplayState>,
}

struct ReplayState {
    log: Log,
    /// How many events are in `durable`.
    applied: usize,
    durable: Extents,
    overlay: Extents,
    scratch_end: u64,
    /// Ignore discards: `Disk::cut` uses one to empty the kernel's
    /// caches of the disk.
    settling: bool,
}

impl Replayed {
    pub(super) fn open(recording: &Recording, scratch: &Path) -> Result<Self> {
        let base = File::open(&recording.base).context("open", &recording.base)?;
        let mut options = File::options();
        let scratch_file = options.read(true).write(true).open(scratch).context("open", scratch)?;
        let state = ReplayState {
            log: Log::open(&recording.log)?,
            applied: 0,
            durable: Extents::default(),
            overlay: Extents::default(),
            scratch_end: 0,
            settling: false,
        };
        let (size, state) = (recording.size, RwLock::new(state));
        Ok(Self { base, scratch: scratch_file, size, state })
    }

    /// Makes this disk the one after `cut`. Data written since the last cut is lost.
    pub(super) fn cut(&self, cut: &Cut) -> Result<Loss> {
        let mut state = self.change();
        if cut.at > state.log.len() {
            state.log.refresh()?;
        }
        if cut.at > state.log.len() {
            let (at, len) = (cut.at, state.log.len());
            return Err(Error::Refused(format!("cannot cut after event {at}: the log has {len}")));
        }
        self.scratch.set_len(0).context("empty the overlay of", "the replayed disk")?;
        state.settling = true;
        Ok(state.cut(cut, self.size))
    }

    /// Ends the settling: from now on discards are executed.
    pub(super) fn settle(&self) {
        self.change().settling = false;
    }

    pub(super) fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let state = self.look();
        for (range, top) in state.overlay.pieces(offset..offset + data.len() as u64) {
            let pieces = match top {
                Some(source) => vec![(range, Some(source))],
                None => state.durable.pieces(range),
            };
            for (range, source) in pieces {
                let (from, to) = (range.start - offset, range.end - offset);
                let part = &mut data[index(from)?..index(to)?];
                let (file, position) = match source {
                    Some(BytesFrom::Log(position)) => (state.log.file(), position),
                    Some(BytesFrom::Scratch(position)) => (&self.scratch, position),
                    Some(BytesFrom::Zero) => {
                        part.fill(0);
                        continue;
                    }
                    None => (&self.base, range.start),
                };
                file.read_exact_at(part, position)?;
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.change();
        let (position, length) = (state.scratch_end, data.len() as u64);
        self.scratch.write_all_at(data, position)?;
        state.scratch_end += length;
        state.overlay.insert(offset..offset + length, BytesFrom::Scratch(position));
        Ok(())
    }

    pub(super) fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut state = self.change();
        if !state.settling {
            state.overlay.insert(clip(offset, length, self.size), BytesFrom::Zero);
        }
        Ok(())
    }

    fn look(&self) -> RwLockReadGuard<'_, ReplayState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, ReplayState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplayState {
    fn cut(&mut self, cut: &Cut, size: u64) -> Loss {
        let durable = self.log.durable(cut.at);
        if durable < self.applied {
            self.durable.clear();
            self.applied = 0;
        }
        for event in &self.log.events()[self.applied..durable] {
            if let Some((range, source)) = change(&event.what, size) {
                self.durable.insert(range, source);
            }
        }
        self.applied = durable;
        self.overlay.clear();
        self.scratch_end = 0;
        let mut loss = Loss { at: cut.at, durable, ..Loss::default() };
        for (number, event) in (durable..).zip(&self.log.events()[durable..cut.at]) {
            let Some((range, source)) = change(&event.what, size) else {
                continue;
            };
            let start = range.start;
            for piece in cut.surviving(number, range, &mut loss) {
                let source = source.skip(piece.start - start);
                self.overlay.insert(piece, source);
            }
        }
        loss
    }
}

/// Returns the range of the disk that an event changes, and the source of the new data.
fn change(what: &EventKind, size: u64) -> Option<(Range<u64>, BytesFrom)> {
    match *what {
        EventKind::Write { offset, length, position } => {
            Some((clip(offset, length, size), BytesFrom::Log(position)))
        }
        EventKind::Discard { offset, length } => {
            Some((clip(offset, length, size), BytesFrom::Zero))
        }
        _ => None,
    }
}

/// Clips a range to the disk.
fn clip(offset: u64, length: u64, size: u64) -> Range<u64> {
    offset.min(size)..offset.saturating_add(length).min(size)
}

fn index(number: u64) -> io::Result<usize> {
    usize::try_from(number).map_err(io::Error::other)
}
