//! Records the script.

use super::fixture;
use super::script::{Effect, ScriptVerb, StoreState, script, tree_of};
use super::store::{LIMIT, Store};
use crate::Result;
use crate::background_load::{BackgroundLoad, LoadKind};
use crate::config::DiskKind;
use crate::tool::Tool;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use synconce_sys::btrfs;
use synconce_testkit::manifest::{Manifest, diff};
use synconce_testkit::patiently;
use synconce_testkit::process;
use synconce_testkit::rig::Tape;
use tempfile::TempDir;

const SIZE: u64 = 512 << 20;
/// How long the background load continues after the last verb.
const AFTER: Duration = Duration::from_millis(80);
pub(super) const START: &str = "start";
pub(super) const END: &str = "end";

/// A recorded script.
pub(super) struct RecordedScript {
    pub tool: Tool,
    pub disk: Tape,
    pub steps: Vec<ScriptVerb>,
    /// The state before the first step, and after each step.
    pub states: Vec<StoreState>,
}

/// Returns the mark after step `index`.
pub(super) fn mark(index: usize) -> String {
    format!("verb {index}")
}

/// Makes a directory in memory that contains the tree to import.
pub(super) fn control() -> Result<TempDir> {
    let control = tempfile::Builder::new().prefix("synconce-prove-").tempdir_in("/dev/shm")?;
    fs::create_dir(control.path().join("source"))?;
    fixture::make(&control.path().join("source"))?;
    Ok(control)
}

/// Returns the path of the store on a disk mounted at `disk`.
pub(super) fn store_on(disk: &Path) -> std::path::PathBuf {
    disk.join("store")
}

/// Records every verb; clones are made by `strategy` if one is given.
pub(super) fn record(
    disk: DiskKind,
    strategy: Option<&'static str>,
    tool: &Tool,
    load: LoadKind,
) -> Result<RecordedScript> {
    let _shared = crate::recording::without_sync();
    let control = control()?;
    let rig = disk.rig(SIZE).record(true).up()?;
    let store = Store {
        tool,
        path: store_on(rig.path()),
        control: control.path().to_owned(),
        times: true,
        is_random: false,
    };
    let background_load = rig.path().join("background_load");
    if disk == DiskKind::Btrfs {
        let above = fs::File::open(rig.path())?;
        btrfs::create_subvolume(above.as_fd(), "background_load".as_ref())?;
    } else {
        fs::create_dir(&background_load)?;
    }
    let synced = process::run(Command::new("sync").arg("-f").arg(rig.path()), patiently(LIMIT))?;
    if !synced.status.success() {
        return Err(format!("{synced:?}").into());
    }
    let background_load =
        BackgroundLoad::start(load, &background_load, std::slice::from_ref(&store.path));
    rig.disk().mark(START)?;
    let steps = script(&control.path().join("source"), strategy);
    let mut states = vec![StoreState::default()];
    let mut reference = Reference::new(control.path())?;
    for (index, step) in steps.iter().enumerate() {
        store.perform(step)?;
        rig.disk().mark(&mark(index))?;
        let content = step.effect.changes().map(|name| store.content(name)).transpose()?;
        reference.follow(step, content.as_ref())?;
        let next = states[index].after(step, content);
        states.push(next);
    }
    std::thread::sleep(AFTER);
    rig.disk().mark(END)?;
    drop(background_load);
    Ok(RecordedScript { tool: tool.clone(), disk: rig.finish()?, steps, states })
}

/// Repeats every verb in plain directories. This comparison finds errors that the tool makes in the
/// same way when it writes and when it reads.
struct Reference<'a> {
    control: &'a Path,
}

impl<'a> Reference<'a> {
    fn new(control: &'a Path) -> Result<Self> {
        fs::create_dir(control.join("reference"))?;
        Ok(Self { control })
    }

    fn place(&self, name: &str) -> std::path::PathBuf {
        self.control.join("reference").join(name)
    }

    fn forget(&self, name: &str) -> Result<()> {
        if self.place(name).exists() { Ok(fs::remove_dir_all(self.place(name))?) } else { Ok(()) }
    }

    fn follow(&mut self, step: &ScriptVerb, content: Option<&Arc<Manifest>>) -> Result<()> {
        match step.effect {
            Effect::Makes
            | Effect::Nothing
            | Effect::Discards(_)
            | Effect::Protects(_)
            | Effect::Unprotects(_)
            | Effect::Squashes(_) => {}
            Effect::Commits(name) => self.forget(&committed(name))?,
            Effect::Imports(name) => {
                fixture::copy(&self.control.join("source"), &self.place(name))?;
            }
            Effect::Clones(base, name) => fixture::copy(&self.place(base), &self.place(name))?,
            Effect::Runs(name, number) => {
                if !self.place(&committed(name)).exists() {
                    fixture::copy(&self.place(name), &self.place(&committed(name)))?;
                }
                fixture::edit(&self.place(name), number, Duration::ZERO)?;
            }
            Effect::Keeps(name, older) => {
                fs::rename(self.place(&committed(name)), self.place(older))?;
            }
            Effect::Restores(generation, older) => {
                let place = self.place(tree_of(generation));
                fs::rename(&place, self.place(older))?;
                fs::rename(self.place(generation), place)?;
            }
            // The content of `name` after this step is its last commit, which an earlier state
            // contains.
            Effect::CommitsAs(name, new) => {
                fs::rename(self.place(name), self.place(new))?;
                self.forget(&committed(name))?;
            }
            Effect::Reverts(name) => {
                self.forget(name)?;
                fs::rename(self.place(&committed(name)), self.place(name))?;
            }
            Effect::Renames(name, new) => fs::rename(self.place(name), self.place(new))?,
            Effect::Becomes(from, name, number) => {
                let made = self.place("new generation");
                fixture::copy(&self.place(from), &made)?;
                fixture::edit(&made, number, Duration::ZERO)?;
                if from == name {
                    fs::remove_dir_all(self.place(name))?;
                }
                fs::rename(made, self.place(name))?;
            }
            Effect::Removes(name) => {
                self.forget(name)?;
                self.forget(&committed(name))?;
            }
        }
        let Some((name, content)) = step.effect.changes().zip(content) else { return Ok(()) };
        let expected = Manifest::read(self.place(name))?;
        let found = without_times(content);
        match diff(&expected, &found).first() {
            None => Ok(()),
            Some(first) => Err(format!(
                "{}: differs from the same steps in a plain directory: {first}",
                step.name()
            )
            .into()),
        }
    }
}

/// Returns the name of the copy of `name` as of its last commit, while `name` has changes.
fn committed(name: &str) -> String {
    format!("{name}, committed")
}

fn without_times(manifest: &Manifest) -> Manifest {
    let mut manifest = manifest.clone();
    manifest.entries.values_mut().for_each(|entry| entry.mtime = None);
    manifest
}
