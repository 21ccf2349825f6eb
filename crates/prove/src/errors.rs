//! An error of write-back that somebody else was told of during the run. Only a descriptor that was
//! opened before the run still sees it at the commit: this is what catches one that is opened late.

use crate::cuts::Findings;
use crate::row::{Role, Row};
use crate::scene::{Disk, MarkerPlace, Mode, Scene};
use crate::take::places;
use crate::tool::Tool;
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

/// Overwrites and syncs a file, and waits to be told to end.
const SCRIPT: &str = "use IO::Handle; use Time::HiRes (); my ($data, $control) = @ARGV; \
    open(my $file, '+<', $data) or die; print $file 'b' x 65536; $file->flush; $file->sync or die; \
    close $file; open(my $said, '>', \"$control/written\") or die; close $said; \
    Time::HiRes::sleep(0.005) until -e \"$control/go\";";

const MUTANT: &str = "pins-late";

/// A row for each file system, of the tool as it ships and of the one whose descriptors are late.
pub(crate) fn rows(arguments: &Arguments) -> Result<Vec<Row>> {
    let shipped = Tool::Synconce(arguments.synconce.clone());
    let mut tools = vec![(Role::Promise, "error seen by another", shipped)];
    if let Some(program) = &arguments.mutants {
        let shipped = arguments.synconce.clone();
        let mutant = Tool::Mutant { program: program.clone(), mutant: MUTANT, shipped };
        tools.push((Role::Mutant, MUTANT, mutant));
    }
    let mut rows = Vec::new();
    for (role, name, tool) in tools {
        for disk in Disk::SOUND {
            let scene = Scene { disk, marker: MarkerPlace::Same, mode: Mode::Supervised };
            if arguments.wants(role.group(), name, scene) {
                let findings = meet(scene, &tool)?;
                let row = Row { role, name: name.to_owned(), scene, findings };
                eprintln!("{row}");
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Makes one such error; broken is a run that returns 0 all the same.
fn meet(scene: Scene, tool: &Tool) -> Result<Findings> {
    let began = Instant::now();
    let control = tempfile::tempdir()?;
    let rig = Rig::builder().fs(scene.disk.kind()).size(SIZE).passthrough(false).up()?;
    let places = places(scene, rig.path(), None, control.path());
    fs::create_dir_all(places.tree())?;
    let data = places.tree().join("data");
    // There before, so that to write it needs no journal, which an error would end.
    fs::write(&data, [b'a'; BYTES])?;
    // The kernel keeps an error for descriptors to come until one of this kind was told (errseq).
    let other = File::open(rig.path())?;
    rustix::fs::syncfs(&other)?;
    let words = ["perl", "-e", SCRIPT].map(str::to_owned).into_iter();
    let arguments = [&data, control.path()].map(|path: &Path| path.display().to_string());
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
    if status.code() != Some(FAILED) {
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
