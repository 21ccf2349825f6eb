//! `synconce tree`

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use synconce_tree::record::Name;

/// `synconce tree`
///
/// A tree is a root, such as a Debian system, in a store. A clone costs the writing of
/// one small file, whatever the size of its base; what is done in it never reaches the
/// base, is held while it runs, and is made durable by one commit if it is kept.
///
/// Exit code: 125 when synconce failed; `run` ends as its command does, `diff` with 1
/// where the trees differ, `verify` and `fsck` with 1 where something is wrong.
#[derive(Debug, Args)]
pub struct Tree {
    /// The store [default: $SYNCONCE_TREES, or /var/lib/synconce/trees for root and
    /// ~/.local/share/synconce/trees for others]
    #[arg(long, value_name = "DIR", global = true)]
    pub store: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a store
    Init(Init),
    /// Make a tree of a directory or a tar
    Import(Import),
    /// Make a tree that begins as another one is
    Clone(Clone),
    /// Run a command in a clone, with its syncs held
    Run(RunIn),
    /// Mount a clone to be worked in
    Mount(Mount),
    /// Unmount what was mounted, and keep or discard what was done
    Umount(Umount),
    /// Make what was done in a clone durable, once
    Commit(Commit),
    /// Show the paths that were added, changed and removed from A to B
    Diff(Diff),
    /// Write a tree as a tar on standard output, or to a directory
    Export(Export),
    /// Make one layer of a tree's stack
    Squash(Named),
    /// Remove trees: at once for who asks, in the background for the disk
    Remove(Remove),
    /// List the trees
    List(Json),
    /// Prove that nothing wrote into a tree's layers
    Verify(Named),
    /// Throw away what was cut short and what nobody needs, and empty the trash
    Gc(Gc),
    /// Check the store
    Fsck(Json),
    /// Be the process that a command in a clone is started by
    #[command(hide = true)]
    Enter(Enter),
}

/// `synconce tree init`
#[derive(Debug, Args)]
pub struct Init {
    /// Where; a directory that is new or empty [default: as --store]
    pub directory: Option<PathBuf>,
}

/// `synconce tree import`
#[derive(Debug, Args)]
pub struct Import {
    /// The tree's name
    pub name: Name,
    /// A directory, a tar (as it is, or by gzip, xz, zstd or bzip2), or - for standard input
    pub source: PathBuf,
    /// How its clones are made, instead of what suits the store
    #[arg(long, value_enum)]
    pub strategy: Option<Strategy>,
    /// Of a directory: also what is mounted below it
    #[arg(long)]
    pub cross_mounts: bool,
    /// Of a directory: also when files change while they are read
    #[arg(long)]
    pub tolerate_changes: bool,
}

/// `synconce tree clone`
#[derive(Debug, Args)]
pub struct Clone {
    /// The tree to begin from
    pub base: Name,
    /// The clone's name [default: one that is made up, and printed]
    pub name: Option<Name>,
    /// How runs in it get a copy to write in
    #[arg(long, value_enum)]
    pub strategy: Option<Strategy>,
}

/// `synconce tree run`
///
/// The command's root is the clone, in namespaces of its own for mounts and processes,
/// with /proc, /dev, /sys and the host's resolv.conf. Its syncs are held. When it ends,
/// so does every process that it started. What it did stays in the clone NAME; it is
/// durable after `tree commit`. With --from it is thrown away, or committed by --commit
/// if the command ended with 0. Where the command was ended by a signal it is thrown
/// away.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("where").required(true).args(["name", "from"])))]
pub struct RunIn {
    /// The clone to run in
    pub name: Option<Name>,
    /// Run in a clone of BASE that has no name
    #[arg(long, value_name = "BASE")]
    pub from: Option<Name>,
    /// Commit the result as the tree NEW; BASE's own name makes its next generation
    #[arg(long, value_name = "NEW", requires = "from")]
    pub commit: Option<Name>,
    /// Throw the result away
    #[arg(long, conflicts_with = "commit")]
    pub discard: bool,
    /// How the copy to write in is made
    #[arg(long, value_enum)]
    pub strategy: Option<Strategy>,
    /// Run as USER of the clone, or UID[:GID]
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Run as the clone's root, which is the default
    #[arg(long, conflicts_with = "user")]
    pub root: bool,
    /// Show the host's path A at B, A:B:ro to read only (may be given several times)
    #[arg(long, value_name = "A:B")]
    pub bind: Vec<String>,
    /// Begin in DIR of the clone
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Let syncs through
    #[arg(long)]
    pub no_hold: bool,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `synconce tree mount`
#[derive(Debug, Args)]
pub struct Mount {
    /// The tree
    pub name: Name,
    /// Where; a directory that is there
    pub directory: PathBuf,
    /// To read only; nothing is kept of it
    #[arg(long)]
    pub read_only: bool,
}

/// `synconce tree umount`
#[derive(Debug, Args)]
pub struct Umount {
    /// The tree's name, or where it is mounted
    pub what: OsString,
    /// Throw away what was done
    #[arg(long)]
    pub discard: bool,
}

/// `synconce tree commit`
#[derive(Debug, Args)]
pub struct Commit {
    /// The clone
    pub name: Name,
    /// As the new tree NEW; the clone is as it was before then
    #[arg(long = "as", value_name = "NEW")]
    pub new: Option<Name>,
}

/// `synconce tree diff`
///
/// A line a path, with A for added, C for changed, D for removed before it.
#[derive(Debug, Args)]
pub struct Diff {
    /// The older tree
    pub a: Name,
    /// The newer tree
    pub b: Name,
    /// End each line with a NUL, as names may have newlines
    #[arg(short = '0', long, conflicts_with = "json")]
    pub null: bool,
    /// JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// `synconce tree export`
#[derive(Debug, Args)]
pub struct Export {
    /// The tree
    pub name: Name,
    /// A directory that is new or empty, instead of a tar on standard output
    pub directory: Option<PathBuf>,
}

/// A tree by its name.
#[derive(Debug, Args)]
pub struct Named {
    /// The tree
    pub name: Name,
}

/// `synconce tree remove`
#[derive(Debug, Args)]
pub struct Remove {
    /// The trees
    #[arg(required = true)]
    pub names: Vec<Name>,
    /// Wait until the disk has its space back
    #[arg(long)]
    pub wait: bool,
}

/// Something to be shown.
#[derive(Debug, Args)]
pub struct Json {
    /// JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// `synconce tree gc`
#[derive(Debug, Args)]
pub struct Gc {
    /// Wait until the trash is empty, also when another process is at it
    #[arg(long)]
    pub wait: bool,
}

/// `synconce tree enter`
#[derive(Debug, Args)]
pub struct Enter {
    /// Where, as whom and with what, as JSON
    pub how: String,
    /// The command and its arguments
    #[arg(required = true, last = true)]
    pub command: Vec<OsString>,
}

/// Ways to copy on write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// A snapshot of a btrfs subvolume
    Snapshot,
    /// An overlay over the frozen layers
    Overlay,
    /// A copy that shares its extents
    Reflink,
    /// A copy
    Copy,
    /// Hard links: what is written in place reaches the base
    Hardlinks,
}

impl From<Strategy> for synconce_tree::Strategy {
    fn from(strategy: Strategy) -> Self {
        match strategy {
            Strategy::Snapshot => Self::Snapshot,
            Strategy::Overlay => Self::Overlay,
            Strategy::Reflink => Self::Reflink,
            Strategy::Copy => Self::Copy,
            Strategy::Hardlinks => Self::Hardlinks,
        }
    }
}
