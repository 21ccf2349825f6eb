//! `synconce bench`

use super::Json;
use clap::builder::{OsStr, Resettable};
use clap::{Arg, Args, Subcommand};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct BenchArguments {
    /// What to measure.
    #[command(subcommand)]
    pub scenario: BenchScenario,
}

// Scenarios.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum BenchScenario {
    /// apt-get install into a fresh Debian root, by every way to skip syncs
    Install(Install),
    /// docker build with an apt-get install, by every way to skip its syncs
    ///
    /// Builds the same steps by a dockerd of its own, interleaved: as an image's default has it,
    /// with every sync, and under eatmydata. Then by synconce-oci with roots as mounted and with
    /// volatile ones, each also with BuildKit's databases held, and by synconce as SHELL. No other
    /// daemon, cache or image is touched.
    Build(BuildArguments),
    /// Put one key in each of many transactions: bbolt, SQLite, LMDB and others, by every way
    ///
    /// Runs one program for each engine, interleaved: without syncs by the engine's own
    /// option, with all of its syncs, as a held file, under `synconce run` with and without a
    /// rule for the database, and sealed. The times are of one transaction.
    Db(Db),
    /// Import and unpack an image by containerd, with its own options and with held databases
    ///
    /// Makes an image, and imports it by a containerd of its own with an empty root,
    /// interleaved: for the overlayfs and erofs snapshotters, as containerd's default has it,
    /// with a sync after each layer, with its option no_sync, with all of its options, and with its
    /// databases held.
    Import(Import),
    /// Build a copy of a source tree: the cost of the tool for a command without syncs
    ///
    /// Builds copies of the source tree by itself, under `synconce run` with and
    /// without a commit, and sealed, interleaved. Copying is outside the time.
    Compile(Compile),
    /// Clone a root of 100,000 files, write in it and remove it, by every way to do so
    ///
    /// Clones a root, writes in the clone what a small build writes, and removes it, with
    /// the sync after each: by hard links, copies, reflinks, snapshots, cpz and rmz,
    /// cowbuilder and synconce tree, interleaved. Then what it takes to enter and leave a
    /// clone, and to mount and unmount one.
    Tree(Clones),
    /// Measure the tool's own cost: start-up (also of a container), a held call, other calls
    Cost(Cost),
    /// Make one kind of call in a loop and print the nanoseconds a call took
    #[command(hide = true)]
    Loop(Loop),
}

impl BenchScenario {
    /// Returns the value of `--json`.
    pub(crate) fn json(&self) -> Option<&Path> {
        let common = match self {
            Self::Install(it) => &it.common,
            Self::Build(it) => &it.common,
            Self::Db(it) => &it.common,
            Self::Import(it) => &it.common,
            Self::Compile(it) => &it.common,
            Self::Tree(it) => &it.common,
            Self::Cost(it) => &it.common,
            Self::Loop(_) => return None,
        };
        common.json.json.as_deref()
    }
}

// What the benchmarks have in common.
#[derive(Debug, Args)]
pub struct CommonArguments {
    /// Work in DIR, on the disk to be measured
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Rounds over all variants
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Measure only these variants
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub variants: Vec<String>,
    /// Where every sample is printed as JSON.
    #[command(flatten)]
    pub json: Json,
}

/// Lets the work directory be /var/tmp.
fn in_var_tmp(argument: Arg) -> Arg {
    argument.required(false).default_value("/var/tmp")
}

// A Debian root with packages downloaded.
#[derive(Debug, Args)]
pub struct BaseArguments {
    /// Packages to install; NAME:ARCH is of another architecture, which is added
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
    /// Keep the prepared root in DIR between benchmarks
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Install {
    /// Where, how often and what is measured.
    #[command(flatten)]
    pub common: CommonArguments,
    /// What is installed, and into what.
    #[command(flatten)]
    pub base: BaseArguments,
    /// Keep the installed roots of the last round
    #[arg(long)]
    pub keep: bool,
}

#[derive(Debug, Args)]
pub struct BuildArguments {
    /// Where, how often and what is measured.
    #[command(flatten)]
    pub common: CommonArguments,
    /// What is installed, and into what.
    #[command(flatten)]
    pub base: BaseArguments,
    /// Instead of an install, change the owner of FILES files of the layer below
    #[arg(long, value_name = "FILES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub chown: Option<u32>,
    /// Instead of an install, append to a file of MEBIBYTES of the layer below, which the overlay
    /// copies up
    #[arg(long, value_name = "MEBIBYTES", conflicts_with_all = ["chown", "upgrade"],
        value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub copy_up: Option<u32>,
    /// Instead of an install, replace every package of a root in which the packages are installed,
    /// as an upgrade does
    #[arg(long, conflicts_with = "chown")]
    pub upgrade: bool,
}

#[derive(Debug, Args)]
pub struct Db {
    /// Where, how often and what is measured.
    #[command(flatten)]
    pub common: CommonArguments,
    /// Transactions of each sample
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    pub transactions: u64,
    /// Measure the etcd PROGRAM
    #[arg(long, value_name = "PROGRAM", default_value = "etcd")]
    pub etcd: PathBuf,
    /// Measure redb by PROGRAM, which is built in the source directory by `cargo build --release
    /// --package synconce-bench --example redb`
    #[arg(long, value_name = "PROGRAM")]
    pub redb: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Import {
    /// Where, how often and what is measured.
    #[command(flatten)]
    pub common: CommonArguments,
    /// Measure the containerd PROGRAM, 2.1 or later, by the client ctr beside it
    #[arg(long, value_name = "PROGRAM", default_value = "containerd")]
    pub containerd: PathBuf,
    /// Layers of the image
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub layers: u32,
    /// Files in each layer, of up to 32 KiB
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub files: u32,
}

#[derive(Debug, Args)]
#[command(mut_arg("dir", in_var_tmp), mut_arg("rounds", |it| it.default_value("10")))]
pub struct Compile {
    /// The source tree; it is copied and never written
    #[arg(long, value_name = "DIR")]
    pub source: PathBuf,
    /// Where, how often and what is measured.
    #[command(flatten)]
    pub common: CommonArguments,
    /// Replace {jobs} in the commands by N
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// Prepare the tree once, untimed, by CMD, such as './configure'
    #[arg(long, value_name = "CMD")]
    pub prepare: Option<String>,
    /// Build by CMD, a line for sh
    #[arg(long, value_name = "CMD", default_value = "make -j{jobs}")]
    pub command: String,
}

#[derive(Debug, Args)]
#[command(mut_arg("packages", |it| {
    let help = "Packages in the prepared root [default: about 100,000 entries]";
    it.help(help).default_value(Resettable::<OsStr>::Reset)
}))]
pub struct Clones {
    /// Where, how often and what is measured.
    #[command(flatten)]
    pub common: CommonArguments,
    /// Clone a copy of the root DIR, which needs /bin/sh, tar and coreutils, instead of
    /// a prepared one
    #[arg(long, value_name = "DIR", conflicts_with_all = ["packages", "suite", "mirror", "cache"])]
    pub source: Option<PathBuf>,
    /// Empty the caches of the whole machine before what is timed
    #[arg(long)]
    pub cold: bool,
    /// What is installed in the prepared root.
    #[command(flatten)]
    pub base: BaseArguments,
}

#[derive(Debug, Args)]
#[command(mut_arg("dir", in_var_tmp), mut_arg("rounds", |it| it.default_value("20")))]
pub struct Cost {
    /// Where, how often and what is measured.
    #[command(flatten)]
    pub common: CommonArguments,
}

#[derive(Debug, Args)]
pub struct Loop {
    /// The call.
    pub call: String,
    /// How often.
    pub count: u64,
    /// A file for calls that need one.
    pub file: Option<PathBuf>,
}
