//! `rig`: sets up disks whose flushes take a set time, for people and as the library's daemon.
//!
//! Exit codes: 0 done, 1 failed (the reason is on stderr), 2 the arguments make no sense.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use synconce_testkit::rig::{self, FsKind, Latency, Rig, Stats, Summary};
use synconce_testkit::{Error, Result, units};

/// A file system on a disk whose flushes take a set time.
#[derive(Parser)]
#[command(name = "rig")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set up a rig and leave it standing until `rig down`
    Up(Up),
    /// Take a rig down
    Down {
        /// Where it is mounted
        mount_point: PathBuf,
        /// Even if it is in use: its users get EIO
        #[arg(long)]
        force: bool,
    },
    /// List the rigs on record
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Command the disk of a rig
    Set(Set),
    /// Show what the disk of a rig has done
    Stats {
        /// Where it is mounted
        mount_point: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Take down what dead owners have left
    Reap,
    /// Be the disk (the library starts this)
    #[command(hide = true)]
    Serve { dir: PathBuf },
}

#[derive(Args)]
struct Up {
    /// Where to mount it: an existing directory
    mount_point: PathBuf,
    /// ext4, xfs or btrfs
    #[arg(long, default_value_t = FsKind::Ext4)]
    fs: FsKind,
    /// Size of the disk; only what is written takes memory
    #[arg(long, value_parser = units::size, default_value = "2G")]
    size: u64,
    #[command(flatten)]
    latency: LatencyArgs,
    /// Let writes pass the daemon (`off`: counted, and can fail) or bypass it (`on`: undisturbed timing)
    #[arg(long, value_parser = on_or_off, value_name = "on|off")]
    passthrough: Option<bool>,
    /// Options for mount(8)
    #[arg(short = 'o', long)]
    options: Option<String>,
}

#[derive(Args)]
#[group(multiple = false)]
struct LatencyArgs {
    /// Time of one flush; an fsync of new data is two
    #[arg(long, value_parser = units::duration, value_name = "TIME")]
    flush: Option<Duration>,
    /// Time of an fsync of new data: twice the time of a flush
    #[arg(long, value_parser = units::duration, value_name = "TIME")]
    fsync: Option<Duration>,
}

#[derive(Args)]
struct Set {
    /// Where it is mounted
    mount_point: PathBuf,
    #[command(flatten)]
    latency: LatencyArgs,
    /// Fail the next so many flushes with EIO
    #[arg(long, value_name = "COUNT")]
    fail_flushes: Option<u64>,
    /// Fail every write with EIO (without passthrough only)
    #[arg(long, value_parser = on_or_off, value_name = "on|off")]
    fail_writes: Option<bool>,
    /// Let every flush wait until this is off again
    #[arg(long, value_parser = on_or_off, value_name = "on|off")]
    stall: Option<bool>,
}

impl LatencyArgs {
    fn get(&self) -> Option<Latency> {
        self.flush.map(Latency::of_flush).or(self.fsync.map(Latency::of_fsync))
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("say on or off".to_owned()),
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rig: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Up(up) => set_up(up),
        Command::Down { mount_point, force } => rig::find(&mount_point)?.down(force),
        Command::List { json } => list(json),
        Command::Set(set) => set_disk(&set),
        Command::Stats { mount_point, json } => {
            let stats = rig::find(&mount_point)?.disk().stats()?;
            if json {
                print_json(&stats);
            } else {
                print_stats(&stats);
            }
            Ok(())
        }
        Command::Reap => {
            for mount_point in rig::reap()? {
                println!("{}", mount_point.display());
            }
            Ok(())
        }
        Command::Serve { dir } => rig::serve(&dir),
    }
}

fn set_up(up: Up) -> Result<()> {
    let this = std::env::current_exe();
    let this =
        this.map_err(|error| Error::Refused(format!("cannot find this program: {error}")))?;
    let latency = up.latency.get().unwrap_or_default();
    let mut builder =
        Rig::builder().fs(up.fs).size(up.size).latency(latency).at(up.mount_point).binary(this);
    if let Some(passthrough) = up.passthrough {
        builder = builder.passthrough(passthrough);
    }
    if let Some(options) = up.options {
        builder = builder.mount_options(options);
    }
    builder.up()?.keep()
}

fn set_disk(set: &Set) -> Result<()> {
    let disk = rig::find(&set.mount_point)?.disk();
    if let Some(latency) = set.latency.get() {
        disk.set_latency(latency)?;
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
    let summaries: Vec<Summary> = rig::entries()?.iter().map(rig::Entry::summary).collect();
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
        "flushes {}, failed {}, waiting {}",
        stats.flushes, stats.failed_flushes, stats.waiting_flushes
    );
    let answered = stats.flushes - stats.waiting_flushes;
    if let Some(mean) = stats.flush_nanos.checked_div(answered) {
        println!("mean flush {:?}", Duration::from_nanos(mean));
    }
    match stats.transfers {
        Some(t) => println!(
            "reads {} ({} bytes), writes {} ({} bytes), discards {}, failed writes {}",
            t.reads, t.read_bytes, t.writes, t.written_bytes, t.discards, t.failed_writes
        ),
        None => println!("reads and writes bypass the daemon (passthrough)"),
    }
}

fn print_json(value: &impl Serialize) {
    println!("{}", serde_json::to_string(value).expect("numbers and text serialise"));
}
