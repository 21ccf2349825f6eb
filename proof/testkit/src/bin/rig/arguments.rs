//! The command line of `rig`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use synconce_testkit::rig::{
    self, Cut, Fault, FsKind, Granularity, Latency, Limits, Log, Preset, Requests, Survivors,
};
use synconce_testkit::{Error, Result, units};

/// A file system on a disk that is slow, fails, is recorded and loses its power on demand.
#[derive(Parser)]
#[command(name = "rig")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
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
    /// Let requests to the disk of a rig fail or hang from now on
    Fail(Fail),
    /// End every fault of a rig's disk, and do what hangs
    Recover {
        /// Where it is mounted
        mount_point: PathBuf,
    },
    /// Put a mark into the log of a recorded rig, and print the place after it
    Mark {
        /// Where it is mounted
        mount_point: PathBuf,
        /// What to call it
        name: String,
    },
    /// Print the log of a recorded rig: the number of each event, its time, what it was
    Log {
        /// Where it is mounted
        mount_point: PathBuf,
        /// The marks alone
        #[arg(long)]
        marks: bool,
    },
    /// Mount the disk of a recorded rig as after a power cut, on a disk of its own
    Cut(CutArgs),
    /// Show what the disk of a rig has done
    Stats {
        /// Where it is mounted
        mount_point: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// List the disks that can be imitated, and where their figures come from
    Presets,
    /// Take down what dead owners have left
    Reap,
    /// Be the disk (the library starts this)
    #[command(hide = true)]
    Serve { dir: PathBuf },
}

#[derive(Args)]
pub struct Up {
    /// Where to mount it: an existing directory
    pub mount_point: PathBuf,
    /// ext4, xfs or btrfs
    #[arg(long, default_value_t = FsKind::Ext4)]
    pub fs: FsKind,
    /// Size of the disk; only what is written takes memory
    #[arg(long, value_parser = units::size, default_value = "2G")]
    pub size: u64,
    #[command(flatten)]
    pub latency: LatencyArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// As slow as a kind of disk that there is (`rig presets`)
    #[arg(long, value_parser = rig::preset, conflicts_with_all = ["flush", "fsync"])]
    pub preset: Option<Preset>,
    /// Record what the disk is asked to do, for `rig log` and `rig cut`
    #[arg(long)]
    pub record: bool,
    /// Let writes pass the daemon (`off`: counted, and can fail) or bypass it (`on`: undisturbed timing)
    #[arg(long, value_parser = on_or_off, value_name = "on|off")]
    pub passthrough: Option<bool>,
    /// Options for mount(8)
    #[arg(short = 'o', long)]
    pub options: Option<String>,
}

#[derive(Args)]
#[group(multiple = false)]
pub struct LatencyArgs {
    /// Time of one flush, of which an fsync of new data is two: TIME, LOW..HIGH for any between, or
    /// MEDIAN~P99 for a log-normal one
    #[arg(long, value_parser = latency, value_name = "TIME")]
    flush: Option<Latency>,
    /// Time of an fsync of new data: twice the time of a flush
    #[arg(long, value_parser = units::duration, value_name = "TIME")]
    fsync: Option<Duration>,
}

#[derive(Args)]
pub struct LimitArgs {
    /// Bytes a second that can be read
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    read_rate: Option<u64>,
    /// Bytes a second that can be written
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    write_rate: Option<u64>,
    /// Reads a second
    #[arg(long, value_name = "COUNT")]
    reads: Option<u64>,
    /// Writes a second
    #[arg(long, value_name = "COUNT")]
    writes: Option<u64>,
}

#[derive(Args)]
pub struct Set {
    /// Where it is mounted
    pub mount_point: PathBuf,
    #[command(flatten)]
    pub latency: LatencyArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Fail the next so many flushes with EIO
    #[arg(long, value_name = "COUNT")]
    pub fail_flushes: Option<u64>,
    /// Fail every write with EIO (without passthrough only)
    #[arg(long, value_parser = on_or_off, value_name = "on|off")]
    pub fail_writes: Option<bool>,
    /// Let every flush wait until this is off again
    #[arg(long, value_parser = on_or_off, value_name = "on|off")]
    pub stall: Option<bool>,
}

#[derive(Args)]
pub struct Fail {
    /// Where it is mounted
    pub mount_point: PathBuf,
    /// reads, writes, flushes or everything
    requests: Requests,
    /// Only writes that hold this text
    #[arg(long, value_name = "TEXT")]
    holding: Option<String>,
    /// Let so many go by first
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    after: u64,
    /// Recover after so many failures
    #[arg(long, value_name = "COUNT")]
    times: Option<u64>,
    /// Recover after this time
    #[arg(long = "for", value_parser = units::duration, value_name = "TIME")]
    lasting: Option<Duration>,
    /// No answer instead of EIO
    #[arg(long)]
    hang: bool,
}

#[derive(Args)]
pub struct CutArgs {
    /// Where the recorded rig is mounted
    pub mount_point: PathBuf,
    /// Where to mount the disk after the cut: an existing directory, or that of an earlier cut
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// After so many events, after a mark (mark:NAME), or at the end
    #[arg(long, value_name = "PLACE", default_value = "end")]
    at: String,
    /// What no flush has made durable survives: none, all or SEED:SHARE
    #[arg(long, default_value = "none")]
    survivors: Survivors,
    /// In what pieces: request, block (4 KiB) or sector (512 bytes, torn blocks)
    #[arg(long, default_value = "block")]
    granularity: Granularity,
    /// Options for mount(8), instead of those of the recorded rig
    #[arg(short = 'o', long)]
    pub options: Option<String>,
}

impl LatencyArgs {
    pub fn get(&self) -> Option<Latency> {
        self.flush.or(self.fsync.map(Latency::of_fsync))
    }
}

impl LimitArgs {
    pub fn get(&self) -> Option<Limits> {
        let limits = Limits {
            read_bytes: self.read_rate,
            written_bytes: self.write_rate,
            reads: self.reads,
            writes: self.writes,
            ..Limits::NONE
        };
        (limits != Limits::NONE).then_some(limits)
    }
}

impl Fail {
    pub fn fault(&self) -> Fault {
        let mut fault = Fault::of(self.requests).after(self.after);
        if let Some(text) = &self.holding {
            fault = fault.holding(text.as_bytes());
        }
        if let Some(times) = self.times {
            fault = fault.times(times);
        }
        if let Some(time) = self.lasting {
            fault = fault.lasting(time);
        }
        if self.hang { fault.hanging() } else { fault }
    }
}

impl CutArgs {
    pub fn cut(&self, log: &Log) -> Result<Cut> {
        let place = match self.at.strip_prefix("mark:") {
            Some(name) => log.mark(name),
            None if self.at == "end" => Some(log.len()),
            None => self.at.parse().ok(),
        };
        let reason = || format!("no place {} in the log: say a number, mark:NAME or end", self.at);
        let place = place.ok_or_else(|| Error::Refused(reason()))?;
        Ok(Cut::at(place).survivors(self.survivors).granularity(self.granularity))
    }
}

/// A fixed seed: with a new one for every rig no two runs would be alike.
const SEED: u64 = 1;

fn latency(text: &str) -> Result<Latency, String> {
    let two = |(a, b)| Ok::<_, String>((units::duration(a)?, units::duration(b)?));
    if let Some((low, high)) = text.split_once("..").map(two).transpose()? {
        return Ok(Latency::uniform(low, high, SEED));
    }
    if let Some((median, p99)) = text.split_once('~').map(two).transpose()? {
        return Ok(Latency::log_normal(median, p99, SEED));
    }
    units::duration(text).map(Latency::of_flush)
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("say on or off".to_owned()),
    }
}
