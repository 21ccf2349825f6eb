//! What can be said on the command line. The help, the manual pages and the
//! completions are made from this file.

pub(crate) mod in_run;
pub(crate) mod tree;

use self::in_run::{Commit, Real, duration};
use self::tree::Tree;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Hold every disk sync of a command, and sync the disks once at its end
#[derive(Debug, Parser)]
#[command(name = "synconce", version, disable_help_subcommand = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command with its disk syncs held, and commit once when it ends
    Run(Run),
    /// Make durable now what a run in flight has written until now
    Commit(Commit),
    /// Inside a run: run a command whose disk syncs are real
    Real(Real),
    /// Clone roots in milliseconds, run commands in the clones, and commit the results
    Tree(Tree),
    /// Show runs in flight, runs that were interrupted, and survivors
    Status(Status),
    /// Configure a container engine to hold the syncs of its builds, or undo that
    Setup(Setup),
    /// Measure synconce and its rivals, interleaved
    Bench(Bench),
    /// Wrap an OCI runtime (runc, crun), and hold the syncs of build containers
    Oci(Oci),
}

/// `synconce run`
///
/// Every disk sync of COMMAND and its descendants succeeds at once without
/// being done. When COMMAND ends, each file system on which a sync was held
/// is synced once, and only then does synconce exit. Until then a durable marker
/// records that the run is in flight: if it is cut short, `synconce status` shows it.
///
/// The exit code is COMMAND's own; 125 if synconce failed (a failed commit
/// included), 126 if COMMAND cannot be executed, 127 if it is not found. Death
/// by a signal is passed on as that signal.
#[derive(Debug, Args)]
pub struct Run {
    /// Answer sync calls in the kernel, without a supervisor process
    ///
    /// A held call then costs nothing. No calls are counted, and O_SYNC, RWF_SYNC
    /// and aio are not held. The hold cannot be ended: the syncs of a daemon that
    /// outlives the run stay held until the daemon is restarted. A warning names it.
    #[arg(long)]
    pub sealed: bool,
    /// Do not commit: the result is thrown away, or synced by another program
    ///
    /// No marker is written. What the run wrote can be lost in a crash after exit 0.
    #[arg(long, conflicts_with_all = ["commit_only", "commit_all"])]
    pub no_commit: bool,
    /// Commit only the file system of PATH (may be given several times)
    ///
    /// A sealed run cannot distinguish file systems: it also makes a sync(2) of all disks.
    #[arg(long, value_name = "PATH")]
    pub commit_only: Vec<PathBuf>,
    /// Commit every mounted file system, whether or not a sync on it was held
    ///
    /// Use it for a command that asks for no sync, such as tar. Otherwise the commit leaves
    /// file systems alone on which COMMAND asked for no sync.
    #[arg(long, conflicts_with = "commit_only")]
    pub commit_all: bool,
    /// Also commit every DURATION (90s, 5m, 1h) if a sync was held since the last time
    ///
    /// A commit that fails is a notice, and the exit code at the end is 125. A run inside
    /// another run ignores this option.
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "no_commit")]
    pub commit_every: Option<Duration>,
    /// Give up on a device that completes no request for SECONDS during the commit
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    pub commit_timeout: u64,
    /// Keep a second marker in DIR, the root of the system that the command changes
    ///
    /// DIR must be a directory. The command is not confined to DIR, and may empty it
    /// or make it anew.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// How to answer a program that sets up io_uring, whose syncs no filter sees
    #[arg(long, value_name = "ANSWER", value_enum, default_value_t = IoUring::Refuse)]
    pub io_uring: IoUring,
    /// Print on standard error the calls that were held and passed, and the commit's time
    #[arg(long)]
    pub stats: bool,
    /// With --stats: print one JSON object instead of a table
    #[arg(long, requires = "stats")]
    pub json: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `synconce oci`
///
/// Called as `synconce-oci`, or as `runc` or `crun` by a link that is found first,
/// it is a container engine's runtime: it puts the sealed hold into the seccomp
/// profile of every build container and executes the real runtime, with the same
/// arguments. Ordinary containers keep their syncs, unless they have the
/// annotation `io.synconce.hold=true` or /etc/synconce/oci.toml has a rule for them.
#[derive(Debug, Args)]
pub struct Oci {
    /// The runtime's arguments; or `--explain BUNDLE`: print what would be done, and why
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}

/// `synconce setup`
///
/// The engine's own configuration is edited so that it calls synconce-oci, which
/// holds the syncs of build containers and leaves those of all others alone.
/// Comments and order stay. What a file was before is in a journal below
/// /var/lib/synconce/setup, by which --undo puts every byte back. A configuration
/// that is not understood is refused, with its line. No daemon is restarted.
#[derive(Debug, Args)]
pub struct Setup {
    /// The engine to configure
    #[arg(value_enum)]
    pub engine: Configured,
    /// Print the changes as a diff on standard output, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Restore every file as it was before
    #[arg(long)]
    pub undo: bool,
    /// With --undo: also where a file was edited since, and its edits are lost, or
    /// where containers would not start any more
    #[arg(long, requires = "undo")]
    pub force: bool,
    /// Configure the system whose root is DIR, such as an image
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// The path of synconce-oci in that system [default: beside synconce, or
    /// /usr/local/bin/synconce-oci]
    #[arg(long, value_name = "PATH")]
    pub runtime: Option<PathBuf>,
}

/// What `synconce setup` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Configured {
    /// dockerd: docker build, classic and by its own BuildKit, and docker run
    Docker,
    /// Podman and Buildah
    Podman,
    /// buildkitd
    Buildkit,
    /// containerd: a runtime that pods may ask for
    Containerd,
    /// Print the RuntimeClass by which pods ask for it
    Kubernetes,
}

/// Answers to `io_uring_setup(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IoUring {
    /// ENOSYS: programs fall back to calls that can be held
    Refuse,
    /// Let it through: its syncs are not held
    Pass,
}

/// `synconce status`
///
/// Root sees the interrupted runs of every user. A user is told that root has some,
/// which does not count for the exit code.
///
/// Exit code: 0 nothing to say, 3 runs are in flight, 4 a run was interrupted, 125
/// `status` could not look.
#[derive(Debug, Args)]
pub struct Status {
    /// Also look for markers in the system whose root is DIR
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Remove the markers of the interrupted run ID, after you threw away or repaired its result
    #[arg(long, value_name = "ID")]
    pub clear: Option<String>,
    /// Print JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// `synconce bench`
#[derive(Debug, Args)]
pub struct Bench {
    /// What to measure.
    #[command(subcommand)]
    pub scenario: Scenario,
}

/// Scenarios.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// apt-get install into a fresh Debian root, by every way to skip syncs
    Install(Install),
    /// docker build with an apt-get install, by every way to skip its syncs
    Build(Build),
    /// Build a copy of a source tree: what the tool costs where nothing syncs
    Compile(Compile),
    /// Clone a root of 100,000 files, write in it and remove it, by every way to do so
    Tree(Clones),
    /// What the tool itself costs: start-up, of a container too, a held call, any other call
    Cost(Cost),
    /// Make one kind of call in a loop and print the nanoseconds a call took
    #[command(hide = true)]
    Loop(Loop),
}

/// A Debian root with packages downloaded.
#[derive(Debug, Args)]
pub struct Base {
    /// Packages to install
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "build-essential,ca-certificates,libssl-dev"
    )]
    pub packages: Vec<String>,
    /// Debian release of the root
    #[arg(long, value_name = "NAME", default_value = "bookworm")]
    pub suite: String,
    /// A mirror to install from, instead of this machine's own apt sources
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Where the prepared root is kept between benchmarks
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// `synconce bench install`
#[derive(Debug, Args)]
pub struct Install {
    /// Work in DIR, on the disk to be measured
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Rounds over all variants
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: u32,
    /// What is installed, and into what.
    #[command(flatten)]
    pub base: Base,
    /// Measure only these variants
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub variants: Vec<String>,
    /// Leave the installed roots of the last round
    #[arg(long)]
    pub keep: bool,
    /// Print every sample as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// `synconce bench build`
///
/// Builds the same steps by a dockerd of its own, interleaved: as an image's
/// default has it, with every sync, under eatmydata, by synconce-oci and by
/// synconce as SHELL. No other daemon, cache or image is touched.
#[derive(Debug, Args)]
pub struct Build {
    /// Work in DIR, on the disk to be measured
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Rounds over all variants
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: u32,
    /// What is installed, and into what.
    #[command(flatten)]
    pub base: Base,
    /// Measure only these variants
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub variants: Vec<String>,
    /// Print every sample as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// `synconce bench compile`
///
/// Builds copies of the source tree by itself, under `synconce run` with and
/// without a commit, and sealed, interleaved. Copying is outside the time.
#[derive(Debug, Args)]
pub struct Compile {
    /// The source tree; it is copied and never written
    #[arg(long, value_name = "DIR")]
    pub source: PathBuf,
    /// What {jobs} in the commands stands for
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// Rounds over all variants
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub rounds: u32,
    /// Work in DIR, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Make the tree ready by CMD, once and untimed, such as './configure'
    #[arg(long, value_name = "CMD")]
    pub prepare: Option<String>,
    /// Build by CMD, a line for sh
    #[arg(long, value_name = "CMD", default_value = "make -j{jobs}")]
    pub command: String,
    /// Measure only these variants
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub variants: Vec<String>,
    /// Print every sample as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// `synconce bench tree`
///
/// Clones a root, writes in the clone what a small build writes, and removes it, with
/// the sync after each: by hard links, copies, reflinks, snapshots, cpz and rmz,
/// cowbuilder and synconce tree, interleaved. Then what it takes to enter and leave a
/// clone, and to mount and unmount one.
#[derive(Debug, Args)]
pub struct Clones {
    /// Work in DIR, on the disk to be measured
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Rounds over all variants
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: u32,
    /// Clone a copy of the root DIR, which needs /bin/sh, tar and coreutils, instead of
    /// a prepared one
    #[arg(long, value_name = "DIR", conflicts_with_all = ["packages", "suite", "mirror", "cache"])]
    pub source: Option<PathBuf>,
    /// Empty the caches of the whole machine before what is timed
    #[arg(long)]
    pub cold: bool,
    /// Packages in the prepared root [default: about 100,000 entries]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub packages: Vec<String>,
    /// Debian release of the prepared root
    #[arg(long, value_name = "NAME", default_value = "bookworm")]
    pub suite: String,
    /// A mirror to install from, instead of this machine's own apt sources
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Where the prepared root is kept between benchmarks
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Measure only these variants
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub variants: Vec<String>,
    /// Print every sample as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// `synconce bench cost`
#[derive(Debug, Args)]
pub struct Cost {
    /// Work in DIR, on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// Rounds over all variants
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rounds: u32,
    /// Measure only these variants
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub variants: Vec<String>,
    /// Print every sample as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// `synconce bench loop`
#[derive(Debug, Args)]
pub struct Loop {
    /// The call.
    pub call: String,
    /// How often.
    pub count: u64,
    /// A file for calls that need one.
    pub file: Option<PathBuf>,
}
