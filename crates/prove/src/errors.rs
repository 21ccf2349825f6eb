//! An error of write-back that another process was told of during the run. At the commit only a
//! descriptor that is older than the error reports it. Where there is none, a look at the caller's
//! own file has to report it.

use crate::cuts::Findings;
use crate::row::{Role, Row};
use crate::scene::{Disk, MarkerPlace, Scene};
use crate::take::places;
use crate::tool::Tool;
use crate::work::Work;
use crate::{Arguments, Result};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};
use synconce_testkit::patiently;
use synconce_testkit::process::Group;
use synconce_testkit::rig::Rig;

const SIZE: u64 = 384 << 20;
const LIMIT: Duration = Duration::from_secs(60);
/// What the tool exits with when it cannot promise anything.
const FAILED: i32 = 125;
const BYTES: usize = 65536;

/// What the workload ends with when a call told it of the error.
const TOLD: i32 = 9;
const SCRIPT: &str = include_str!("errors.pl");

/// When the error comes, and whose it is.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    /// The script's word for it.
    when: &'static str,
    /// A disk with the marker is pinned before the command starts, others at the first held call.
    marker: MarkerPlace,
}

const fn case(name: &'static str, when: &'static str, marker: MarkerPlace) -> Case {
    Case { name, when, marker }
}

const CASES: [Case; 8] = [
    case("error seen by another", "synced", MarkerPlace::Same),
    case("error before the first sync", "unsynced", MarkerPlace::Same),
    case("error of an older file", "older", MarkerPlace::Same),
    case("error of a mapping", "mapping", MarkerPlace::Same),
    case("error seen by another", "synced", MarkerPlace::Other),
    case("error before the first sync", "unsynced", MarkerPlace::Other),
    case("error of an older file", "older", MarkerPlace::Other),
    case("error of a mapping", "mapping", MarkerPlace::Other),
];

/// Mutants, and the cases that are tried on them.
const MUTANTS: [(&str, &[Case]); 2] =
    [("pins-late", CASES.split_at(1).0), ("late-look-skipped", CASES.split_at(5).1)];

/// The rows of the tool as it ships, and of the mutants, on each file system.
pub(crate) fn rows(arguments: &Arguments) -> Result<Vec<Row>> {
    let shipped = Tool::Synconce(arguments.synconce.clone());
    let promise = CASES.iter().map(|case| (Role::Promise, case.name, case, shipped.clone()));
    let mut all: Vec<_> = promise.collect();
    for (mutant, cases) in MUTANTS {
        let Some(program) = &arguments.mutants else { continue };
        let (program, shipped) = (program.clone(), arguments.synconce.clone());
        let tool = Tool::Mutant { program, mutant, shipped };
        all.extend(cases.iter().map(|case| (Role::Mutant, mutant, case, tool.clone())));
    }
    let mut rows = Vec::new();
    for (role, name, case, tool) in all {
        for disk in Disk::SOUND {
            let scene = Scene::supervised(disk, case.marker);
            if arguments.wants(role.group(), name, scene) {
                // A sync(2) of another process may write the data before the disk fails.
                let met = || meet(scene, case.when, &tool);
                let findings = met().or_else(|_| met()).or_else(|_| met())?;
                let row = Row { role, name: name.to_owned(), scene, findings };
                eprintln!("{row}");
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Makes one such error; broken is a run in which no call fails and that returns 0.
fn meet(scene: Scene, when: &str, tool: &Tool) -> Result<Findings> {
    let began = Instant::now();
    let control = tempfile::tempdir()?;
    let rig = Rig::builder().fs(scene.disk.kind()).size(SIZE).passthrough(false).up()?;
    let elsewhere = (scene.marker == MarkerPlace::Other).then_some(control.path());
    let places = places(scene, Work::Files, rig.path(), elsewhere, control.path());
    fs::create_dir_all(places.tree())?;
    let files = ["data", "other"].map(|name| places.tree().join(name));
    // There before, so that to write it needs no journal, which an error would end.
    files.iter().try_for_each(|file| fs::write(file, [b'a'; BYTES]))?;
    // The kernel keeps an error for descriptors to come until one of this kind was told (errseq).
    let other = File::open(rig.path())?;
    rustix::fs::syncfs(&other)?;
    let words = ["perl", "-e", SCRIPT, when].map(str::to_owned).into_iter();
    let [data, second] = &files;
    let arguments = [data, second, control.path()].map(|path: &Path| path.display().to_string());
    let words: Vec<String> = words.chain(arguments).collect();
    let run = Group::spawn(&mut tool.command(scene, &places, &words)?)?;
    wait_for(&control.path().join("written"))?;
    rig.disk().fail_writes(true)?;
    let told = rustix::fs::syncfs(&other);
    rig.disk().fail_writes(false)?;
    if told.is_ok() {
        return Err("nobody was told of the error".into());
    }
    fs::write(control.path().join("go"), "")?;
    let status = run.wait(patiently(LIMIT))?.ok_or("the run did not end")?;
    let mut findings = Findings { cuts: 1, ..Findings::default() };
    if !matches!(status.code(), Some(FAILED | TOLD)) {
        findings.found.insert("error unseen", 1);
        findings.first = Some(format!("{status}, {}", run.stderr()?));
    }
    findings.millis = began.elapsed().as_millis() as u64;
    Ok(findings)
}

fn wait_for(path: &Path) -> Result<()> {
    let end = Instant::now() + patiently(LIMIT);
    while !path.exists() {
        if Instant::now() > end {
            return Err(format!("{} did not come", path.display()).into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
