//! `rig`: disks that are slow, fail and lose their power on demand. Used on the command line,
//! and by the library as its daemon.
//!
//! Exit codes: 0 done, 1 failed (the reason is on stderr), 2 invalid arguments.
#![forbid(unsafe_code)]

mod arguments;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;
use synconce_testkit::rig::{self, EventKind, PRESETS, Rig, RigSummary, Stats};
use synconce_testkit::{Error, Result};

use self::arguments::{CutArgs, RigArguments, RigCommand, SetArguments, Up};

fn main() -> ExitCode {
    match run(RigArguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rig: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: RigCommand) -> Result<()> {
    match command {
        RigCommand::Up(up) => set_up(up),
        RigCommand::Down { mount_point, force } => rig::find(&mount_point)?.down(force),
        RigCommand::List { json } => list(json),
        RigCommand::Set(set) => set_disk(&set),
        RigCommand::Fail(fail) => rig::find(&fail.mount_point)?.disk().fail(fail.fault()),
        RigCommand::Recover { mount_point } => rig::find(&mount_point)?.disk().recover(),
        RigCommand::Mark { mount_point, name } => {
            println!("{}", rig::find(&mount_point)?.disk().mark(&name)?);
            Ok(())
        }
        RigCommand::Log { mount_point, marks } => print_log(&mount_point, marks),
        RigCommand::Cut(cut) => cut_power(&cut),
        RigCommand::Presets => {
            PRESETS.iter().for_each(|preset| print!("{preset}"));
            Ok(())
        }
        RigCommand::Stats { mount_point, json } => {
            let stats = rig::find(&mount_point)?.disk().stats()?;
            if json {
                print_json(&stats);
            } else {
                print_stats(&stats);
            }
            Ok(())
        }
        RigCommand::Reap => {
            for mount_point in rig::reap()? {
                println!("{}", mount_point.display());
            }
            Ok(())
        }
        RigCommand::Serve { dir } => rig::serve(&dir),
    }
}

/// Returns the path of this program, which is also the daemon of the rigs that it sets up.
fn this_program() -> Result<std::path::PathBuf> {
    std::env::current_exe()
        .map_err(|error| Error::Refused(format!("cannot find this program: {error}")))
}

fn set_up(up: Up) -> Result<()> {
    let mut builder = Rig::builder().fs(up.fs).size(up.size).at(up.mount_point).record(up.record);
    builder = builder.binary(this_program()?);
    if let Some(preset) = &up.preset {
        builder = builder.preset(preset);
    }
    if let Some(latency) = up.latency.get() {
        builder = builder.latency(latency);
    }
    if let Some(limits) = up.limits.get() {
        builder = builder.limits(limits);
    }
    if let Some(passthrough) = up.passthrough {
        builder = builder.passthrough(passthrough);
    }
    if let Some(options) = up.options {
        builder = builder.mount_options(options);
    }
    builder.up()?.keep()
}

fn cut_power(args: &CutArgs) -> Result<()> {
    let entry = rig::find(&args.mount_point)?;
    let recording = entry.recording()?;
    let cut = args.cut(&recording.log()?)?;
    if let Ok(earlier) = rig::find(&args.to) {
        println!("{}", earlier.recut(recording, cut)?);
        return Ok(());
    }
    let mut builder = recording.replay().at(&args.to).binary(this_program()?);
    if let Some(options) = &args.options {
        builder = builder.mount_options(options);
    }
    let replay = builder.up()?;
    let disk = replay.mounted(cut)?;
    println!("{}", disk.loss());
    disk.leave();
    replay.keep()
}

fn print_log(mount_point: &Path, marks: bool) -> Result<()> {
    let log = rig::find(mount_point)?.recording()?.log()?;
    let start = log.events().first().map_or(0, |event| event.nanos);
    for (number, event) in log.events().iter().enumerate() {
        if !marks || matches!(event.what, EventKind::Mark(_)) {
            let time = Duration::from_nanos(event.nanos - start).as_secs_f64();
            println!("{number} {time:.6} {}", event.what);
        }
    }
    Ok(())
}

fn set_disk(set: &SetArguments) -> Result<()> {
    let disk = rig::find(&set.mount_point)?.disk();
    if let Some(latency) = set.latency.get() {
        disk.set_latency(latency)?;
    }
    if let Some(limits) = set.limits.get() {
        disk.set_limits(limits)?;
    }
    if let Some(count) = set.fail_flushes {
        disk.fail_flushes(count)?;
    }
    if let Some(fail) = set.fail_writes {
        disk.fail_writes(fail)?;
    }
    match set.stall {
        Some(true) => disk.stall_flushes(),
        Some(false) => disk.release_flushes(),
        None => Ok(()),
    }
}

fn list(json: bool) -> Result<()> {
    let summaries: Vec<RigSummary> =
        rig::entries()?.iter().map(rig::RecordedRig::summary).collect();
    if json {
        print_json(&summaries);
        return Ok(());
    }
    for rig in summaries {
        let device = rig.device.unwrap_or_else(|| "-".into());
        let keeper = match (rig.stale, rig.owner) {
            (true, _) => "stale".to_owned(),
            (false, Some(pid)) => format!("of process {pid}"),
            (false, None) => "kept".to_owned(),
        };
        let mebibytes = rig.size >> 20;
        println!(
            "{} {} {mebibytes}M {} {keeper}",
            rig.mount_point.display(),
            rig.fs,
            device.display()
        );
    }
    Ok(())
}

fn print_stats(stats: &Stats) {
    println!(
        "flushes {}, failed {}, waiting {}, hanging requests {}",
        stats.flushes, stats.failed_flushes, stats.waiting_flushes, stats.hanging
    );
    let answered = stats.flushes - stats.waiting_flushes;
    if let Some(mean) = stats.flush_nanos.checked_div(answered) {
        println!("mean flush {:?}", Duration::from_nanos(mean));
    }
    match stats.transfers {
        Some(t) => println!(
            "reads {} ({} bytes, failed {}), writes {} ({} bytes), discards {}, failed writes {}",
            t.reads,
            t.read_bytes,
            t.failed_reads,
            t.writes,
            t.written_bytes,
            t.discards,
            t.failed_writes
        ),
        None => println!("reads and writes bypass the daemon (passthrough)"),
    }
}

fn print_json(value: &impl Serialize) {
    println!("{}", serde_json::to_string(value).expect("numbers and text serialise"));
}
