//! Judges what a power cut left of held databases.

use super::database::DatabaseState;
use super::fixture::{HeldContent, HoldFixture, NAME, content, failed, shell};
use super::recording::LogMoment;
use crate::Result;
use crate::campaign::BrokenPromise;
use std::fs;
use std::path::{Path, PathBuf};

fn fault(kind: &'static str, detail: impl Into<String>) -> Result<Option<BrokenPromise>> {
    Ok(Some((kind, detail.into())))
}

/// Recovers on the mounted disks, and judges the result. With `puts_back`, what is set aside is
/// put back; otherwise the hold starts without it.
pub(super) fn judge(
    fixture: &HoldFixture,
    moment: LogMoment,
    puts_back: bool,
) -> Result<Option<BrokenPromise>> {
    fixture.boot()?;
    let before = fixture.content()?;
    let recovered = fixture.verb("recover")?;
    if !recovered.status.success() {
        return fault("not recovered", failed("recover", &recovered));
    }
    let said = recovered.stderr.trim();
    if moment.is_off && !said.is_empty() {
        return fault("false alarm", said);
    }
    if fixture.marker_path().exists() {
        return fault("marker left", said);
    }
    if !said.contains("set aside") {
        return in_place(fixture, moment);
    }
    if let Some(detail) = misplaced(fixture, &before)? {
        return fault("not set aside", detail);
    }
    if let Some(detail) = said_wrong(fixture, said)? {
        return fault("put back wrong", detail);
    }
    if puts_back {
        return put_back(fixture, &before);
    }
    used(fixture, 0)
}

/// Judges databases that the recovery left in place.
fn in_place(fixture: &HoldFixture, moment: LogMoment) -> Result<Option<BrokenPromise>> {
    let mut most = moment.durable;
    for database in fixture.databases() {
        match database.state()? {
            DatabaseState::Whole(count) if count >= moment.durable => most = most.max(count),
            DatabaseState::Whole(count) => {
                let wanted = moment.durable;
                return fault("lost", format!("{database} has {count} of {wanted}"));
            }
            DatabaseState::OtherContent(what) | DatabaseState::Damaged(what) => {
                return fault("silent damage", format!("{database}: {what}"));
            }
        }
    }
    used(fixture, most)
}

/// Starts the hold, writes, stops and settles. `from` is the most transactions of a database;
/// databases that are missing begin anew.
fn used(fixture: &HoldFixture, from: usize) -> Result<Option<BrokenPromise>> {
    let step = |verb: &str| -> Result<Option<BrokenPromise>> {
        let finished = fixture.verb(verb)?;
        let is_fault = !finished.status.success();
        Ok(is_fault.then(|| ("not usable", failed(verb, &finished))))
    };
    if let Some(fault) = step("start")? {
        return Ok(Some(fault));
    }
    let mut wanted = Vec::new();
    for database in fixture.databases() {
        let count = match database.state()? {
            DatabaseState::Whole(count) if count <= from => count,
            other => return Ok(Some(("not usable", format!("{database}: {other:?}")))),
        };
        database.write(count + 1, count + 2)?;
        wanted.push(count + 2);
    }
    for verb in ["stop", "settle", "status"] {
        if let Some(fault) = step(verb)? {
            return Ok(Some(fault));
        }
    }
    for (database, wanted) in fixture.databases().iter().zip(wanted) {
        let state = database.state()?;
        if state != DatabaseState::Whole(wanted) {
            return Ok(Some(("not usable", format!("{database}: {state:?}, not {wanted}"))));
        }
    }
    let left = fixture.leftovers()?;
    Ok((!left.is_empty()).then(|| ("left over", left.join("; "))))
}

/// Returns the directories of what is set aside.
fn aside(fixture: &HoldFixture) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for directory in [fixture.data(), fixture.data().join("snapshots")] {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&format!(".synconce-aside-{NAME}-")) {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// Returns what is wrong with the places of the files that were there `before`: each has to be
/// set aside, with its content.
pub(super) fn misplaced(fixture: &HoldFixture, before: &HeldContent) -> Result<Option<String>> {
    let mut places = HeldContent::new();
    for directory in aside(fixture)? {
        let below = content(std::iter::once(directory.as_path()))?;
        let home = directory.parent().unwrap_or(Path::new("/"));
        if !directory.join("README").exists() {
            return Ok(Some(format!("no README in {}", directory.display())));
        }
        let back = |path: PathBuf| Some(home.join(path.strip_prefix(&directory).ok()?));
        places.extend(below.into_iter().filter_map(|(path, it)| Some((back(path)?, it))));
    }
    for (path, digest) in before {
        if places.get(path) != Some(digest) {
            let path = path.display();
            return Ok(Some(format!("{path}: not set aside with its content")));
        }
    }
    let in_place = fixture.databases().iter().find(|database| database.held().exists());
    Ok(in_place.map(|database| format!("{database} is in place")))
}

/// Returns what is wrong with the command that was printed.
fn said_wrong(fixture: &HoldFixture, said: &str) -> Result<Option<String>> {
    let restore = format!("synconce hold restore {NAME}");
    let is_missing = !fixture.put_back()?.is_empty() && !said.contains(&restore);
    Ok(is_missing.then(|| format!("not printed: {restore}")))
}

/// Runs the commands of the journal: everything has to be there as `before`.
pub(super) fn put_back(
    fixture: &HoldFixture,
    before: &HeldContent,
) -> Result<Option<BrokenPromise>> {
    if let Err(error) = shell(&fixture.put_back()?) {
        return fault("put back wrong", error.to_string());
    }
    if fixture.content()? != *before {
        return fault("put back wrong", "the content differs");
    }
    for verb in ["recover", "settle", "status"] {
        let finished = fixture.verb(verb)?;
        if !finished.status.success() {
            return fault("put back wrong", failed(verb, &finished));
        }
    }
    if fixture.content()? != *before {
        return fault("put back wrong", "settle changed the files");
    }
    let left = fixture.leftovers()?;
    if left.is_empty() { Ok(None) } else { fault("left over", left.join("; ")) }
}
