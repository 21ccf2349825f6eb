//! The command line of `rig`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use synconce_testkit::rig::{
    self, Cut, Fault, FsKind, Granularity, Latency, Limits, Log, Preset, Requests, Survivors,
};
use synconce_testkit::{Error, Result, units};

/// Set up disks that are slow, fail, are recorded and lose their power on demand
#[derive(Parser)]
#[command(name = "rig")]
pub struct RigArguments {
    #[command(subcommand)]
    pub command: RigCommand,
}

#[derive(Subcommand)]
pub enum RigCommand {
    /// Set up a rig, which stays until `rig down`
    Up(Up),
    /// Take a rig down
    Down {
        /// Select the rig by its mount point
        mount_point: PathBuf,
        /// Take the rig down even if it is in use; its users get EIO
        #[arg(long)]
        force: bool,
    },
    /// List the rigs on record
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change the speed and the failures of the disk of a rig
    Set(SetArguments),
    /// Fail or hang requests to the disk of a rig from now on
    Fail(Fail),
    /// End every fault of a rig's disk, and complete the requests that hang
    Recover {
        /// Select the rig by its mount point
        mount_point: PathBuf,
    },
    /// Put a mark into the log of a recorded rig, and print the place after it
    Mark {
        /// Select the rig by its mount point
        mount_point: PathBuf,
        /// Name the mark
        name: String,
    },
    /// Print the log of a recorded rig: number, time and kind of each event
    Log {
        /// Select the rig by its mount point
        mount_point: PathBuf,
        /// Print the marks only
        #[arg(long)]
        marks: bool,
    },
    /// Mount the disk of a recorded rig as after a power cut, on a disk of its own
    Cut(CutArgs),
    /// Count the requests that the disk of a rig has done
    Stats {
        /// Select the rig by its mount point
        mount_point: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the presets of real disks, and the sources of their figures
    Presets,
    /// Take down the rigs of owners that have ended; remove the control groups of killed tests
    Reap,
    /// Serve the disk (started by the library)
    #[command(hide = true)]
    Serve { dir: PathBuf },
}

#[derive(Args)]
pub struct Up {
    /// Mount the disk on this existing directory
    pub mount_point: PathBuf,
    /// Make this file system: ext4, xfs or btrfs
    #[arg(long, default_value_t = FsKind::Ext4)]
    pub fs: FsKind,
    /// Make a disk of SIZE bytes (suffixes K, M, G); only written data takes memory
    #[arg(long, value_parser = units::size, default_value = "2G")]
    pub size: u64,
    #[command(flatten)]
    pub latency: LatencyArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Use the speed of a real kind of disk (see `rig presets`; default: no delay)
    #[arg(long, value_parser = rig::preset, conflicts_with_all = ["flush", "fsync"])]
    pub preset: Option<Preset>,
    /// Record the requests to the disk, for `rig log` and `rig cut`
    #[arg(long)]
    pub record: bool,
    /// Bypass the daemon for writes (`on`: undisturbed timing) or not (`off`: counted, can fail)
    #[arg(long, value_parser = on_or_off, value_name = "on|off")]
    pub passthrough: Option<bool>,
    /// Pass OPTIONS to mount(8)
    #[arg(short = 'o', long)]
    pub options: Option<String>,
}

#[derive(Args)]
#[group(multiple = false)]
pub struct LatencyArgs {
    /// Take TIME for each flush: a time such as 5ms, LOW..HIGH for a uniform distribution, or
    /// MEDIAN~P99 for a log-normal one. An fsync of new data takes two flushes
    #[arg(long, value_parser = latency, value_name = "TIME")]
    flush: Option<Latency>,
    /// Take TIME (such as 5ms) for each fsync of new data, which is two flushes
    #[arg(long, value_parser = units::duration, value_name = "TIME")]
    fsync: Option<Duration>,
}

#[derive(Args)]
pub struct LimitArgs {
    /// Read at most SIZE bytes a second
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    read_rate: Option<u64>,
    /// Write at most SIZE bytes a second
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    write_rate: Option<u64>,
    /// Do at most COUNT reads a second
    #[arg(long, value_name = "COUNT")]
    reads: Option<u64>,
    /// Do at most COUNT writes a second
    #[arg(long, value_name = "COUNT")]
    writes: Option<u64>,
}

#[derive(Args)]
pub struct SetArguments {
    /// Select the rig by its mount point
    pub mount_point: PathBuf,
    #[command(flatten)]
    pub latency: LatencyArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Fail the next COUNT flushes with EIO
    #[arg(long, value_name = "COUNT")]
    pub fail_flushes: Option<u64>,
    /// Fail every write with EIO (without passthrough only)
    #[arg(long, value_parser = on_or_off, value_name = "on|off")]
    pub fail_writes: Option<bool>,
    /// Delay every flush until this is off again
    #[arg(long, value_parser = on_or_off, value_name = "on|off")]
    pub stall: Option<bool>,
}

#[derive(Args)]
pub struct Fail {
    /// Select the rig by its mount point
    pub mount_point: PathBuf,
    /// Fail these requests: reads, writes, flushes or everything
    requests: Requests,
    /// Fail only writes that contain TEXT
    #[arg(long, value_name = "TEXT")]
    holding: Option<String>,
    /// Do COUNT requests before the first failure
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    after: u64,
    /// Recover after COUNT failures (default: never)
    #[arg(long, value_name = "COUNT")]
    times: Option<u64>,
    /// Recover after TIME, such as 5s (default: never)
    #[arg(long = "for", value_parser = units::duration, value_name = "TIME")]
    lasting: Option<Duration>,
    /// Leave requests without an answer, instead of EIO
    #[arg(long)]
    hang: bool,
}

#[derive(Args)]
pub struct CutArgs {
    /// Select the recorded rig by its mount point
    pub mount_point: PathBuf,
    /// Mount the disk after the cut on DIR, which exists or is that of an earlier cut
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Cut at PLACE: after a number of events, after a mark (mark:NAME), or at the end
    #[arg(long, value_name = "PLACE", default_value = "end")]
    at: String,
    /// Keep these unflushed writes: none, all or SEED:SHARE
    #[arg(long, default_value = "none")]
    survivors: Survivors,
    /// Keep writes by request, by block (4 KiB) or by sector (512 bytes, torn blocks)
    #[arg(long, default_value = "block")]
    granularity: Granularity,
    /// Pass OPTIONS to mount(8), instead of those of the recorded rig
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
        let mut fault = Fault::on(self.requests).after(self.after);
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
        let reason = || format!("no place {} in the log: use a number, mark:NAME or end", self.at);
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
        _ => Err("use on or off".to_owned()),
    }
}
