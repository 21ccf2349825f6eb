//! What can be said on the command line. The help, the manual pages and the
//! completions are made from this file.
#![expect(
    missing_docs,
    reason = "a doc comment of arguments replaces the text of their command (clap, `defer`)"
)]

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod hold;
pub(crate) mod in_run;
pub mod manual;
mod numbers;
mod parse;
pub(crate) mod tree;

pub use self::parse::{definition, parse};

use self::bench::BenchArguments;
use self::doctor::Doctor;
use self::hold::HoldArguments;
use self::in_run::{Commit, Real};
use self::numbers::duration;
use self::tree::TreeArguments;
use crate::completion::values;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  synconce run -- apt-get install -y build-essential
  sudo synconce setup docker
  synconce status

`synconce help run` prints the options of a command, and `man synconce-run` all about it.";

/// Hold every disk sync of a command, and sync the disks once at its end
#[derive(Debug, Parser)]
#[command(
    name = "synconce",
    version,
    disable_version_flag = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = EXAMPLES
)]
pub struct Arguments {
    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands. The options of a command are defined once it is parsed (`defer`): a run starts
/// 0.3 ms sooner without those of all others. [`definition`] has them all.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Command {
    /// Run a command with its disk syncs held, and commit once when it ends
    ///
    /// Every disk sync of COMMAND and its descendants succeeds at once without
    /// being done. When COMMAND ends, each file system on which a sync was held
    /// is synced once, and only then does synconce exit. Until then a durable marker
    /// records that the run is in flight: if it is cut short, `synconce status` shows it.
    ///
    /// The exit code is COMMAND's own; 125 if synconce failed (a failed commit
    /// included), 126 if COMMAND cannot be executed, 127 if it is not found. Death
    /// by a signal is passed on as that signal.
    ///
    /// By the name `eatmydata`, a link to synconce, the command line is
    /// `eatmydata [--] COMMAND`. If there can be no hold, COMMAND runs with real syncs.
    Run(RunArguments),
    /// Make durable now what a run in flight has written until now
    ///
    /// When this command returns 0, everything that the run had written before is durable on the
    /// file systems that the run commits, and on those of the working directory, /, HOME and
    /// TMPDIR. The run goes on, and stays marked as in flight until its own commit.
    ///
    /// Without ID: the run that this command is started in, or else your only run in flight.
    /// Root may commit the run of any user by its ID.
    ///
    /// Exit code: 0 everything is durable; 125 something is not, or there is no such run. After a
    /// write error the run itself also ends with 125.
    Commit(Commit),
    /// Inside a run: run a command whose disk syncs are real
    ///
    /// Inside a run, the disk syncs of COMMAND and its descendants are done, and those of all
    /// other processes of the run stay held. Daemons that COMMAND leaves behind keep their real
    /// syncs. What the run wrote before is not synced as a whole: see `synconce commit`.
    ///
    /// A sealed run is refused, because its filter cannot be lifted. Outside a run COMMAND is
    /// executed as it is.
    ///
    /// The exit code is COMMAND's own; 125 if synconce failed, 126 if COMMAND cannot be executed,
    /// 127 if it is not found.
    Real(Real),
    /// Hold the databases of a daemon, and nothing of the containers that it starts
    ///
    /// The syncs of the held files succeed at once, in the kernel, for every process. No other
    /// file is affected. When the hold stops, the files are made durable. After a crash of the
    /// machine the files may be damaged: `hold recover` decides before the daemon starts.
    Hold(HoldArguments),
    /// Clone roots in milliseconds, run commands in the clones, and commit the results
    ///
    /// A tree is a root, such as a Debian system, in a store. A clone costs the writing of
    /// one small file, whatever the size of its base. Changes in the clone never reach the
    /// base. The syncs of commands in the clone are held, and one commit makes it durable.
    ///
    /// Exit code: 125 when synconce failed; `run` ends as its command does, `diff` with 1
    /// where the trees differ, `verify` and `fsck` with 1 where something is wrong.
    Tree(TreeArguments),
    /// Show runs in flight, runs that were interrupted, survivors, holds, and held build steps
    ///
    /// Root sees the interrupted runs of every user. For a user, runs of root are listed, and
    /// do not change the exit code. In JSON a hold has the fields of a run, and in the field
    /// `hold` those of `hold status --json`; of a run that field is null. The held build steps
    /// of an engine since the boot are in the field `steps`.
    ///
    /// Exit code: 0 no run is in flight or interrupted, 3 runs are in flight, 4 a run or a hold
    /// was interrupted or a hold has failed, 125 `status` failed.
    Status(StatusArguments),
    /// Configure a container engine or apt to hold the syncs of its work, or undo that
    ///
    /// Edits the engine's own configuration so that the engine calls synconce-oci.
    /// synconce-oci holds the syncs of build containers, and leaves those of all others
    /// alone. With --hold, the daemon starts with the syncs of its own databases held. Comments
    /// and order stay. A journal below /var/lib/synconce/setup keeps each
    /// file's former content, from which --undo restores every byte. A configuration that
    /// cannot be parsed is refused, with its line. No daemon is restarted.
    ///
    /// For apt, dpkg-divert moves dpkg, apt-get, apt, aptitude and tasksel aside, and a wrapper in
    /// the place of each starts it in a run, with one commit at its end. Where no run can be
    /// started, the wrapper starts the program as before, and says so in one line.
    Setup(Setup),
    /// Say why installs and builds are slow in a directory, or where a command waits for syncs
    ///
    /// Measures syncs, flushes of the device and names in PATH, and reads limits of control
    /// groups, mount options and what skips syncs already. The findings are sorted by the least
    /// seconds that each costs a stated workload, such as an install of 55 packages. Nothing is
    /// changed. Temporary files are in a directory PATH/.synconce-doctor-*, which is
    /// removed at the end, also after Ctrl-C.
    ///
    /// With COMMAND, runs the command once with its syncs timed, and says how long it waited, by
    /// program, call and directory, and what `synconce run` would save at least. Writes with
    /// O_SYNC, io_uring and mapped memory are not timed; the report names them.
    ///
    /// Exit code: 0 also with findings, 1 if a finding reaches --fail-on, 125 if PATH cannot be
    /// measured. With COMMAND, the command's own.
    Doctor(Doctor),
    /// Measure synconce and its rivals, interleaved
    Bench(BenchArguments),
    /// Print help for a command
    Help(Help),
    /// Print the version
    Version,
    /// Wrap an OCI runtime (runc, crun), and hold the syncs of build containers
    ///
    /// A container engine calls it as `synconce-oci`, or as `runc` or `crun` by a link. It
    /// adds the sealed hold to the seccomp profile of every build container, and executes
    /// the real runtime with the same arguments. Other containers keep their syncs, unless
    /// they have the annotation `io.synconce.hold=true` or a rule in
    /// /etc/synconce/oci.toml.
    Oci(Oci),
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// Answer sync calls in the kernel, without a supervisor process
    ///
    /// A held call then costs nothing. No calls are counted, and O_SYNC, RWF_SYNC
    /// and aio are not held. The hold cannot be ended: the syncs of a daemon that
    /// outlives the run stay held until the daemon is restarted. A warning names it.
    #[arg(long)]
    pub sealed: bool,
    /// Hold only the syncs of files at or below PATH (may be given several times)
    ///
    /// The syncs of all other files are real. PATH may have the wildcards * and ?, and ** for any
    /// number of directories (quote them), and may not exist yet. It means a place in a file
    /// system, by whatever mount, root or link a process reaches it. A sync of a whole file
    /// system, and of a file with several hard links, is real unless all that it concerns is
    /// held. Not for --sealed.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub only: Vec<PathBuf>,
    /// Make the syncs of files at or below PATH real (may be given several times)
    ///
    /// PATH is as for --only. A file below both --only and --except has real syncs.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub except: Vec<PathBuf>,
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
    /// Give up on a device that transfers no data for DURATION during the commit
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    pub commit_timeout: Duration,
    /// The command changes the system whose root is DIR: keep a second marker there
    ///
    /// The commit covers DIR. DIR must be a directory. The command is not confined to DIR,
    /// and may empty it or make it anew.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,
    /// How to answer a program that sets up io_uring, whose syncs no filter sees
    #[arg(long, value_name = "ANSWER", value_enum, default_value_t = IoUring::Refuse)]
    pub io_uring: IoUring,
    /// Let the command run with real syncs if the marker cannot be written
    ///
    /// For the wrappers of `setup apt`. Otherwise the command is ended, with exit code 125.
    #[arg(long, hide = true, conflicts_with = "sealed")]
    pub or_real: bool,
    /// Give the command NAME as its `argv[0]`
    ///
    /// For the wrappers of `setup apt`. apt writes its `argv[0]` to its history.
    #[arg(long, value_name = "NAME", hide = true)]
    pub argv0: Option<OsString>,
    /// Print statistics on standard error: calls held and passed, the commit, the wall time
    #[arg(short = 'v', long)]
    pub stats: bool,
    /// Print the statistics as one JSON object, or write the object to FILE (also /dev/fd/N)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Print no notices, only errors and what did not become durable
    #[arg(short, long)]
    pub quiet: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Oci {
    /// The runtime's arguments; or `--explain BUNDLE`: print what would be done, and why
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Setup {
    /// The engine to configure; or apt
    #[arg(value_enum)]
    pub engine: Configured,
    /// Hold the disk syncs of the daemon's own databases, in the kernel: of docker, buildkit or
    /// containerd
    ///
    /// The daemon is unmodified, and containers have real syncs. A unit starts the hold before
    /// the daemon. After a crash of the machine, the daemon's cache is set aside before the
    /// daemon starts. This set-up is apart from the one without --hold, and so is its --undo.
    #[arg(long, conflicts_with = "runtime")]
    pub hold: bool,
    /// Of docker, hold build steps of its BuildKit alone, and leave the default runtime as it is
    ///
    /// This is the default where another default runtime is set, such as nvidia. dockerd finds
    /// synconce-oci as the first runc in its PATH; without synconce-oci it takes the next one.
    /// Steps of the classic builder are held only if dockerd starts containerd itself.
    #[arg(long, conflicts_with_all = ["hold", "undo"])]
    pub builds_only: bool,
    /// Print the changes as a diff on standard output, and write nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Exit with 0 if the set-up would change nothing and the running daemon has it, else with 1;
    /// print the diff; change no file
    ///
    /// With a running daemon, and with Podman, which has none, root also runs a build step and an
    /// ordinary container, without a network, to see which of them is held: with buildkit the step
    /// alone, with containerd two containers. They are removed.
    #[arg(long, conflicts_with_all = ["dry_run", "undo"])]
    pub check: bool,
    /// Restore every file as it was before
    #[arg(long)]
    pub undo: bool,
    /// With --undo: discard later edits of a file, and ignore containers that could not start
    /// any more
    #[arg(short, long, requires = "undo")]
    pub force: bool,
    /// Configure the system whose root is DIR, such as an image
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Use the synconce-oci at PATH of that system [default: beside synconce, or
    /// /usr/local/bin/synconce-oci]
    #[arg(long, value_name = "PATH")]
    pub runtime: Option<PathBuf>,
    /// Print no notices, only errors and where edits are saved
    #[arg(short, long)]
    pub quiet: bool,
    /// Where the changes are printed as JSON.
    #[command(flatten)]
    pub json: Json,
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
    /// apt and dpkg: each call that changes packages is a run
    Apt,
}

/// Answers to `io_uring_setup(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IoUring {
    /// ENOSYS: programs fall back to calls that can be held
    Refuse,
    /// Let it through: its syncs are not held
    Pass,
}

#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Also show the interrupted runs of the system whose root is DIR
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,
    /// Remove the markers of each interrupted run ID, after you threw away or repaired its result
    ///
    /// The first characters of an ID are enough where they name one run. If a run cannot be
    /// cleared, the others are, and the exit code is 125.
    #[arg(long, value_name = "ID", num_args = 1..)]
    #[arg(add = ArgValueCompleter::new(values::interrupted_runs))]
    pub clear: Vec<String>,
    /// Install every package again after the interrupted run ID, whose command ran apt or dpkg
    ///
    /// Runs one command after the other, each printed first, and stops at the first that fails,
    /// with its exit code. It can be repeated. At the end, type what it prints: the command that
    /// was cut short, and --clear. It acts in the --root of the run. With --root, it acts in DIR,
    /// which must have the marker of the run. Only as root, and only for runs of your own.
    #[arg(long, value_name = "ID", conflicts_with_all = ["json", "clear", "quiet", "format"])]
    #[arg(add = ArgValueCompleter::new(values::interrupted_runs))]
    pub mend: Option<String>,
    /// With --mend: print the commands on standard output, and run none
    #[arg(short = 'n', long, requires = "mend")]
    pub dry_run: bool,
    /// Print nothing: the exit code says whether a run is in flight or interrupted
    #[arg(short, long, conflicts_with_all = ["json", "clear"])]
    pub quiet: bool,
    /// Print metrics of runs, holds and held build steps, for a collector that reads files
    ///
    /// The exit code is then 0 also if runs are in flight or interrupted.
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["json", "clear", "quiet"])]
    pub format: Option<Format>,
    /// Where the runs, holds and held build steps are printed as JSON.
    #[command(flatten)]
    pub json: Json,
}

/// A format of `synconce status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The text format of Prometheus.
    Prometheus,
}

#[derive(Debug, Args)]
pub struct Help {
    /// The command, such as `tree run`
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
}

// Where JSON is written.
#[derive(Debug, Default, Args)]
pub struct Json {
    /// Print JSON on standard output, or write it to FILE (a path, or /dev/fd/N)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}
