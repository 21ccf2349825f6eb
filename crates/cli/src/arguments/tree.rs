//! `synconce tree`

pub mod run;

pub use self::run::{Network, Personality, RunIn};
use crate::completion::values::{self, tree_names};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use synconce_tree::Strategy;
use synconce_tree::record::TreeName;

#[derive(Debug, Args)]
pub struct TreeArguments {
    /// The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and
    /// ~/.local/share/synconce/trees for others]
    #[arg(long, value_name = "DIR", global = true)]
    pub store: Option<PathBuf>,
    /// Print no notices, only errors and findings
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Print the result as JSON on standard output (`run`: on standard error), or write it to
    /// FILE (a path, or /dev/fd/N)
    #[arg(long, global = true, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub verb: TreeVerb,
}

// The verbs.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum TreeVerb {
    /// Make a store
    Init(Init),
    /// Make a tree from a directory or a tar archive
    ///
    /// The tree is a protected base: no run or mount leaves changes in it. `run --from BASE` runs
    /// in a clone; `run --from BASE --commit BASE` makes the next generation of BASE.
    Import(Import),
    /// Make a clone of a tree
    Clone(Clone),
    /// Run a command in a clone, or a shell, with its syncs held
    ///
    /// The command's root is the clone, in namespaces of its own for mounts and processes,
    /// with /proc, /dev, /sys, and the host's resolv.conf and hosts. Of the caller's environment
    /// the command gets TERM, proxies, and what a Debian build reads. When the command ends, so
    /// does every process that it started. Its changes stay in the clone NAME, and are
    /// durable after `tree commit`. With --from the changes are thrown away, or committed by
    /// --commit if the command exits with 0. If a signal ends the command, the changes are
    /// thrown away.
    ///
    /// Options precede the first word of the command.
    Run(RunIn),
    /// Mount a clone, to work in it
    Mount(MountArguments),
    /// Unmount a clone, and keep or discard the changes
    Umount(Umount),
    /// Make the changes in a clone durable
    Commit(Commit),
    /// Throw the changes in a clone away; it is at its last commit again
    Discard(NamedTree),
    /// List the generations of a tree, the newest first
    ///
    /// A generation has the name NAME@N, which `run --from`, `clone`, `diff`, `export`, `verify`,
    /// `restore` and `remove` accept. `commit --keep` says how many older ones are kept.
    Log(NamedTree),
    /// Make an older generation the newest
    ///
    /// The content of NAME@N becomes the next generation of NAME, in one durable step. What was
    /// the newest generation is kept, if the tree keeps older ones.
    Restore(Restore),
    /// Show the paths that were added, changed and removed from A to B, or since A's last commit
    ///
    /// Prints a line for each path: A (added), C (changed) or D (removed), then the path.
    Diff(Diff),
    /// Write a tree as a tar archive to standard output, or to a directory
    Export(Export),
    /// Merge the layers of a tree into one
    Squash(NamedTree),
    /// Protect a tree: no run or mount leaves changes in it
    Protect(NamedTree),
    /// Allow runs and mounts to change a protected tree
    Unprotect(NamedTree),
    /// Give a tree another name
    Rename(Rename),
    /// Remove trees or generations (files are removed in the background; --wait waits for it)
    Remove(Remove),
    /// List the trees
    List,
    /// Check that nothing has changed the layers of a tree
    Verify(Verify),
    /// Remove interrupted sessions and unneeded layers, and empty the trash
    Gc(Gc),
    /// Check the store for damage
    Fsck,
    /// Start a command in a clone
    #[command(hide = true)]
    Enter(Enter),
}

impl TreeVerb {
    /// Returns the command and its arguments, for the verb that runs one.
    pub(crate) fn command(&self) -> Option<&[OsString]> {
        match self {
            Self::Run(run) => Some(&run.words),
            _ => None,
        }
    }
}

#[derive(Debug, Args)]
pub struct Init {
    /// A new or empty directory [default: as --store]
    pub directory: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Import {
    /// The tree's name
    pub name: TreeName,
    /// A directory, a tar (as it is, or by gzip, xz, zstd, bzip2 or lz4), or - for standard input
    pub source: PathBuf,
    /// Make clones of the tree by STRATEGY, instead of the best one for the store
    #[arg(long, value_parser = strategy())]
    pub strategy: Option<Strategy>,
    /// Also import what is mounted below a directory
    #[arg(long)]
    pub cross_mounts: bool,
    /// Import a directory although its files change meanwhile
    #[arg(long)]
    pub tolerate_changes: bool,
    /// Leave out what this user may not read in an imported directory
    #[arg(long)]
    pub skip_unreadable: bool,
}

#[derive(Debug, Args)]
pub struct Clone {
    /// The tree to clone
    #[arg(add = ArgValueCompleter::new(tree_names))]
    pub base: TreeName,
    /// The name of the clone [default: a new name, which is printed]
    pub name: Option<TreeName>,
    /// Make the copy for changes by STRATEGY
    #[arg(long, value_parser = strategy())]
    pub strategy: Option<Strategy>,
}

#[derive(Debug, Args)]
pub struct MountArguments {
    /// The tree
    #[arg(add = ArgValueCompleter::new(tree_names))]
    pub name: TreeName,
    /// An existing directory
    pub directory: PathBuf,
    /// Mount read-only; nothing is kept
    #[arg(long)]
    pub read_only: bool,
}

#[derive(Debug, Args)]
pub struct Umount {
    /// The name of the tree, or its mount point
    #[arg(add = ArgValueCompleter::new(values::trees_and_paths))]
    pub what: OsString,
    /// Throw the changes away
    #[arg(long)]
    pub discard: bool,
}

#[derive(Debug, Args)]
pub struct Commit {
    /// The clone
    #[arg(add = ArgValueCompleter::new(tree_names))]
    pub name: TreeName,
    /// Commit to the new tree NEW, and leave the clone at its last commit
    #[arg(long = "as", value_name = "NEW")]
    pub new: Option<TreeName>,
    /// Keep N older generations of the committed tree, from now on [default: as before; at first 0]
    #[arg(long, value_name = "N", value_parser = keep())]
    pub keep: Option<u32>,
}

/// Returns the parser of the number of generations that are kept. A record lists each of them.
pub(super) fn keep() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(..=100)
}

#[derive(Debug, Args)]
pub struct Restore {
    /// The generation, as in bookworm@2
    #[arg(add = ArgValueCompleter::new(tree_names))]
    pub generation: TreeName,
}

#[derive(Debug, Args)]
pub struct Diff {
    /// The older tree
    #[arg(add = ArgValueCompleter::new(tree_names))]
    pub a: TreeName,
    /// The newer tree [default: A with its changes, against A's last commit]
    #[arg(add = ArgValueCompleter::new(tree_names))]
    pub b: Option<TreeName>,
    /// End each line with a NUL, because names may contain newlines
    #[arg(short = '0', long, conflicts_with = "json")]
    pub null: bool,
}

#[derive(Debug, Args)]
pub struct Export {
    /// The tree
    #[arg(add = ArgValueCompleter::new(tree_names))]
    pub name: TreeName,
    /// A new or empty directory to write to, in a directory that exists; without it, or with -, a
    /// tar archive goes to standard output
    pub directory: Option<PathBuf>,
}

// A tree by its name.
#[derive(Debug, Args)]
pub struct NamedTree {
    /// The tree
    #[arg(add = ArgValueCompleter::new(tree_names))]
    pub name: TreeName,
}

#[derive(Debug, Args)]
pub struct Verify {
    #[command(flatten)]
    pub tree: NamedTree,
    /// Read each file from the disk, and compare its content with its checksum. The first time the
    /// checksums are taken
    #[arg(long)]
    pub content: bool,
    /// Print what has changed, and take the content of these layers as it is from now on; with
    /// --content also the checksums
    #[arg(long)]
    pub accept: bool,
}

#[derive(Debug, Args)]
pub struct Rename {
    /// The tree
    #[arg(add = ArgValueCompleter::new(tree_names))]
    pub name: TreeName,
    /// Its new name
    pub new: TreeName,
}

#[derive(Debug, Args)]
pub struct Remove {
    /// The trees, or generations such as bookworm@2
    #[arg(required = true, add = ArgValueCompleter::new(tree_names))]
    pub names: Vec<TreeName>,
    /// Also remove trees with changes that are not committed
    #[arg(short, long)]
    pub force: bool,
    /// Print the trees and the bytes that would be freed, and remove nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Wait until the files are removed, by whichever process
    #[arg(long)]
    pub wait: bool,
}

#[derive(Debug, Args)]
pub struct Gc {
    /// Print what would be removed, and remove nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Wait until the trash is empty, also if another process empties it
    #[arg(long)]
    pub wait: bool,
}

#[derive(Debug, Args)]
pub struct Enter {
    /// The root of the clone
    pub root: PathBuf,
    /// A user of the clone, or UID[:GID]
    #[arg(long)]
    pub user: Option<String>,
    /// A path of the host, its path in the clone, and rw or ro
    #[arg(long, num_args = 3, value_names = ["A", "B", "MODE"])]
    pub bind: Vec<OsString>,
    /// The command's working directory
    #[arg(long)]
    pub directory: Option<PathBuf>,
    /// The command's host name
    #[arg(long)]
    pub hostname: Option<String>,
    /// The command's network
    #[arg(long, value_enum, default_value = "host")]
    pub network: Network,
    /// The command's personality
    #[arg(long, value_enum, default_value = "linux")]
    pub personality: Personality,
    /// How long the command may run
    #[arg(long, value_parser = crate::arguments::numbers::duration)]
    pub timeout: Option<Duration>,
    /// A control group that the command joins
    #[arg(long)]
    pub group: Vec<OsString>,
    /// The command and its arguments
    #[arg(required = true, last = true)]
    pub command: Vec<OsString>,
}

/// Returns the parser of a strategy.
fn strategy() -> impl TypedValueParser<Value = Strategy> {
    let values = [
        (Strategy::Snapshot, "A snapshot of a btrfs subvolume"),
        (Strategy::Overlay, "An overlay over the frozen layers"),
        (Strategy::Reflink, "A copy that shares its extents"),
        (Strategy::Copy, "A copy"),
    ];
    let shown = values.map(|(value, help)| PossibleValue::new(value.as_str()).help(help));
    PossibleValuesParser::new(shown).try_map(move |name| {
        let mut values = values.into_iter().map(|(value, _)| value);
        values.find(|value| value.as_str() == name).ok_or("no strategy")
    })
}
