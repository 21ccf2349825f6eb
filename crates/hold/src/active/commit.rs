//! The commit of a run.

use super::Active;
use crate::process_tree::Process;
use crate::protocol::{CommitReport, Committed, CommittedEverything};
use crate::runfile::Phase;
use rustix::fs::{Mode, OFlags};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use synconce_durable::commit::{self, Outcome, Progress};
use synconce_durable::everything::Everything;
use synconce_durable::mutant;
use synconce_durable::pins::{Pins, mount_of};
use synconce_durable::synced::Synced;
use synconce_probe::device;
use synconce_probe::mounts::{self, Mount};

impl Active {
    /// Makes everything durable on the file systems that were named and on those on which a
    /// call was held. Returns `None` if there are none.
    pub(crate) fn commit(
        &mut self,
        survivors: &[Process],
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Option<CommitReport> {
        let began = Instant::now();
        let is_sealed = self.sealed.is_some();
        let mut pins = std::mem::take(&mut self.pins);
        let takes_all = is_sealed || self.options.commit_all || self.holds_sync;
        if !takes_all && self.scope.is_empty() {
            return None;
        }
        self.enter(Phase::Committing);
        self.wait_for_unmounts(progress);
        if mutant::is("pins-late") {
            pins = Pins::default();
        }
        self.note_root();
        pins.retain(|device| takes_all || self.scope.contains(&device));
        self.add_late(&mut pins, survivors, takes_all);
        // A failed sync is never repeated: the second sync would succeed although data was
        // lost.
        pins.retain(|device| !self.is_lost(device));
        pins.drop_volatile();
        let left: Vec<_> =
            self.unmounts.iter().filter_map(|unmount| unmount.take_outcome()).collect();
        let (pins, everything) = mutated(pins, self.everything());
        let report = commit::commit(pins, everything, self.options.patience, progress);
        let report = CommitReport {
            micros: began.elapsed().as_micros() as u64,
            file_systems: left.into_iter().chain(report.file_systems).map(committed).collect(),
            everything: report.everything.map(committed_everything),
        };
        if !report.is_durable() {
            self.run_file.iter().for_each(|file| file.note(&report));
        }
        Some(report)
    }

    /// Adds the file system of `--root`, which the command may have mounted.
    fn note_root(&mut self) {
        let Some(root) = self.root.as_ref().filter(|_| self.only.is_none()) else { return };
        let mounts = mounts::ours().unwrap_or_default();
        self.scope.extend(mount_of(root, &mounts).ok().map(|mount| mount.device));
    }

    /// Returns what the commit syncs beside the pins: a sealed filter has answered calls on
    /// any file system, and a held sync() covers all disks.
    fn everything(&mut self) -> Option<Everything> {
        let is_sealed = self.sealed.is_some();
        let before = std::mem::take(&mut self.written_before);
        (is_sealed || self.holds_sync).then(|| Everything::new(before, is_sealed))
    }

    /// Waits for file systems that are being synced for an unmount. Each sync has its own
    /// timeout.
    fn wait_for_unmounts(&self, progress: &mut dyn FnMut(&Progress<'_>)) {
        let began = Instant::now();
        for unmount in &self.unmounts {
            while !unmount.is_over_within(Duration::from_millis(250)) {
                let waiting = vec![unmount.point.as_path()];
                let dirty = device::dirty_bytes();
                progress(&Progress { elapsed: began.elapsed(), waiting, dirty });
            }
        }
    }

    /// Pins the file systems that the commit covers and that have no pin, in the mount
    /// namespaces of this process and of the survivors. They were mounted during the run, or
    /// were unpinned for an unmount that failed or that left another mount. The kernel itself
    /// has written back every file system that was unmounted.
    fn add_late(&mut self, pins: &mut Pins, survivors: &[Process], takes_all: bool) {
        let places = survivors.iter().map(|process| process.pid.to_string());
        let (only, scope) = (self.only.clone(), self.scope.clone());
        let wanted = |mount: &Mount| match &only {
            Some(only) => only.contains(&mount.device),
            None => takes_all || scope.contains(&mount.device),
        };
        for place in ["self".to_owned()].into_iter().chain(places) {
            let Ok(mut mounts) = mounts::read(&place) else { continue };
            if let Some(sealed) = self.sealed.as_mut().filter(|_| place == "self") {
                sealed.add(&mounts, pins, false);
            }
            mounts.retain(wanted);
            pins.add(&mounts, &prefix(&place), false);
            for directory in ["root", "cwd"] {
                adopt(pins, &Path::new("/proc").join(&place).join(directory), wanted);
            }
        }
    }
}

/// Pins the file system of the directory `path` if it is `wanted`. In a chroot, mountinfo does
/// not show the mount of the root.
fn adopt(pins: &mut Pins, path: &Path, wanted: impl Fn(&Mount) -> bool) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mount = mounts::at(path).filter(|mount| mount.writable && !pins.covers(mount.device));
    let mount = mount.filter(wanted);
    if let (Some(mount), Ok(file)) = (mount, rustix::fs::open(path, flags, Mode::empty())) {
        pins.adopt(&mount, file);
    }
}

fn prefix(place: &str) -> PathBuf {
    match place {
        "self" => PathBuf::from("/"),
        pid => Path::new("/proc").join(pid).join("root"),
    }
}

fn committed(outcome: Outcome) -> Committed {
    let error = outcome.result.as_ref().err().map(ToString::to_string);
    Committed {
        mount_point: outcome.point,
        type_name: outcome.type_name,
        source: outcome.source,
        micros: outcome.result.ok().map(|time| time.as_micros() as u64),
        error,
    }
}

fn committed_everything(synced: Synced) -> CommittedEverything {
    CommittedEverything {
        error: synced.as_ref().err().map(ToString::to_string),
        micros: synced.ok().map(|time| time.as_micros() as u64),
    }
}

/// Returns what is committed: everything except what a mutant leaves out.
fn mutated(pins: Pins, everything: Option<Everything>) -> (Pins, Option<Everything>) {
    #[cfg(feature = "mutants")]
    if mutant::is("commit-by-write-back") {
        pins.iter().for_each(|pin| synconce_sys::write_back::all_below(&pin.point));
    }
    let skipped = mutant::is("commit-skipped") || mutant::is("commit-by-write-back");
    if skipped { (Pins::default(), None) } else { (pins, everything) }
}
