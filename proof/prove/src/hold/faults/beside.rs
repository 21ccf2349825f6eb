//! Directories of root beside the held files.

use super::super::fixture::{HoldFixture, NAME, failed};
use crate::Result;
use crate::campaign::BrokenPromise;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
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
