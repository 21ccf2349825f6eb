//! Directories of root beside the held files, and a process that has a file below a hold open.

use super::super::fixture::{HoldFixture, NAME, failed};
use super::{LIMIT, command_by};
use crate::Result;
use crate::campaign::BrokenPromise;
use crate::recording::wait_until;
use rustix::process::Signal;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use synconce_testkit::patiently;
use synconce_testkit::process::Group;
use synconce_testkit::rig::Rig;

pub(super) fn started(fixture: &HoldFixture, _: &Rig) -> Result<Option<BrokenPromise>> {
    let kept = put(&fixture.data().join(".synconce-hold/meta.db/upper"))?;
    // Whether the verb fails does not matter here.
    let started = fixture.verb("start")?;
    is_kept(&kept, || failed("start", &started))
}

pub(super) fn recovered(fixture: &HoldFixture, _: &Rig) -> Result<Option<BrokenPromise>> {
    fixture.must("start")?;
    fixture.crash()?;
    let held = fixture.data().join("jobs");
    fs::rename(&held, fixture.data().join("moved"))?;
    let kept = put(&held)?;
    let recovered = fixture.verb("recover")?;
    is_kept(&kept, || failed("recover", &recovered))
}

pub(super) fn settled(fixture: &HoldFixture, _: &Rig) -> Result<Option<BrokenPromise>> {
    fixture.must("start")?;
    fs::write(fixture.data().join("jobs/data"), "old")?;
    fixture.crash()?;
    fixture.must("recover")?;
    fixture.make_directories()?;
    fs::write(fixture.data().join("jobs/data"), "new")?;
    let aside = fixture.data().join(format!(".synconce-aside-{NAME}-1"));
    fs::rename(&aside, fixture.data().join("moved"))?;
    let kept = put(&aside)?;
    let settled = fixture.verb("settle")?;
    is_kept(&kept, || failed("settle", &settled))
}

/// A process opens a file after the look at the processes, and before the mount. No process may
/// write through the hold while it has the file open: neither would see the locks of the other.
pub(super) fn opened(fixture: &HoldFixture, _: &Rig) -> Result<Option<BrokenPromise>> {
    fixture.write(1, 1)?;
    let trace = fixture.base().join("trace");
    let to = trace.display().to_string();
    let inject = "inject=fsopen:signal=SIGSTOP:when=1";
    let words = ["strace", "-f", "-o", &to, "-e", "trace=fsopen", "-e", inject];
    let start = Group::spawn(&mut command_by(fixture, &words, "start"))?;
    let is_stopped =
        || fs::read_to_string(&trace).is_ok_and(|text| text.contains("stopped by SIGSTOP"));
    wait_until("a start is stopped", patiently(LIMIT), is_stopped)?;
    let below = fs::File::options().write(true).open(fixture.data().join("jobs/queue.db"))?;
    start.signal(Signal::CONT)?;
    let limit = Instant::now() + patiently(LIMIT);
    // The tracer of a start that succeeds follows its guard.
    while start.wait(Duration::from_millis(20))?.is_none() {
        let status = fixture.verb("status")?;
        let mut rows = status.stdout.lines().map(|line| line.split_whitespace().take(2));
        if rows.any(|row| row.eq([NAME, "held"])) {
            return Ok(Some(("two writers", "a file below a hold is open".to_owned())));
        }
        if Instant::now() > limit {
            return Err(format!("the start neither ends nor holds: {}", status.stdout).into());
        }
    }
    drop(below);
    let said = start.stderr()?;
    if said.contains("in use by") {
        Ok(None)
    } else {
        Err(format!("the start was not refused: {said}").into())
    }
}

/// Makes a file of root in `directory`, which no hold made.
fn put(directory: &Path) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let file = directory.join("file");
    fs::write(&file, "of root")?;
    Ok(file)
}

fn is_kept(file: &Path, said: impl FnOnce() -> String) -> Result<Option<BrokenPromise>> {
    match fs::read(file) {
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok(Some(("a file of root removed", said())))
        }
        Err(error) => Err(error.into()),
    }
}
