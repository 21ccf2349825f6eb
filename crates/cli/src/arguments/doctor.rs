//! `synconce doctor`

use super::Json;
use super::numbers::duration;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use synconce_doctor::FINDINGS;

/// A format of `--as`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RecordAs {
    Trace,
    Stacks,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// The directory to measure in, on the disk where the work is done
    #[arg(value_name = "PATH", default_value = ".", value_hint = ValueHint::DirPath)]
    pub path: PathBuf,
    /// Measure syncs and names, for at most some ten seconds (the default)
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Take more samples, and measure random writes and bandwidth, for less than a minute
    ///
    /// The writes go to one file of at most 3 GiB, and at most a quarter of the free space. With
    /// --docker: also let dockerd export an image, and load one, which is removed.
    #[arg(long)]
    pub full: bool,
    /// Exit with 1 if one finding costs, or `run` saves, at least SECONDS
    ///
    /// A command that fails keeps its exit code.
    #[arg(long, value_name = "SECONDS", value_parser = duration)]
    pub fail_on: Option<Duration>,
    /// Leave out the finding NAME, also from --fail-on; can be repeated
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(FINDINGS),
        hide_possible_values = true, conflicts_with = "context")]
    pub ignore: Vec<String>,
    /// Measure where Docker keeps its layers, and look at its storage driver and set-up
    ///
    /// DOCKER_HOST names another socket than /var/run/docker.sock. Needs root, unless dockerd is
    /// rootless. With COMMAND, which may be a script that calls `docker build`: show the steps of
    /// builds, in place of a disk. With --context: measure what sending of DIR costs.
    #[arg(long, conflicts_with_all = ["path", "podman", "containerd", "buildkit", "read"])]
    pub docker: bool,
    /// Measure where Podman keeps its layers, and look at its storage driver and set-up
    #[arg(long, conflicts_with_all = ["path", "containerd", "buildkit", "context", "read",
        "command"])]
    pub podman: bool,
    /// Measure where containerd keeps its data, and look at snapshotter, no_sync and hold
    ///
    /// CONTAINERD_ADDRESS names another socket than /run/containerd/containerd.sock. Needs root.
    #[arg(long, conflicts_with_all = ["path", "buildkit", "context", "read", "command"])]
    pub containerd: bool,
    /// Measure where buildkitd keeps its cache, and look at snapshotter, set-up and hold
    ///
    /// BUILDKIT_HOST names another socket than unix:///run/buildkit/buildkitd.sock. Needs root.
    /// With COMMAND: as --docker.
    #[arg(long, conflicts_with_all = ["path", "context", "read"])]
    pub buildkit: bool,
    /// Look at the context DIR of an image build, in place of a disk
    ///
    /// Counts what a builder sends of DIR, and what .dockerignore leaves out. Lists the largest
    /// files, and lines for .dockerignore. Writes nothing. With --docker: also send up to 256 MiB
    /// of DIR to dockerd, once as it is and once compressed. Each sends for at most 10 s; the
    /// answer may take longer. dockerd makes no image.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath,
        conflicts_with_all = ["path", "quick", "full", "fail_on"])]
    pub context: Option<PathBuf>,
    /// Keep the record of a command in FILE: one JSON object a line
    // clap ignores `requires` beside an option that conflicts with `command`: so those are listed.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath,
        requires = "command",
        conflicts_with_all = ["path", "quick", "full", "context", "read", "podman", "containerd"])]
    pub output: Option<PathBuf>,
    /// Report on a record that --output kept, in place of a disk
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
        conflicts_with_all = ["path", "quick", "full", "context", "command"])]
    pub read: Option<PathBuf>,
    /// With --read: print the calls in FORMAT, in place of the report
    ///
    /// `trace` is JSON for Perfetto and Chrome's about:tracing. `stacks` are folded stacks, for
    /// programs such as flamegraph.pl: microseconds of waits by stack of programs.
    #[arg(long = "as", value_name = "FORMAT", value_enum, requires = "read",
        conflicts_with_all = ["ignore", "fail_on", "html", "support_bundle", "json"])]
    pub format: Option<RecordAs>,
    /// With --read: compare the record with an earlier one in FILE, in place of the report
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "read",
        conflicts_with_all = ["format", "ignore", "fail_on", "html", "support_bundle"])]
    pub against: Option<PathBuf>,
    /// Write the report to FILE, too, as a page for a browser
    ///
    /// The page is one HTML file, which loads nothing. FILE is replaced as a whole. The page has
    /// names of files and the words of COMMAND.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Write the report to FILE, too, without names, for someone who helps you
    ///
    /// FILE is JSON, with versions, set-ups and what `status` shows. Each name, address and unknown
    /// word is replaced, and no command line and no environment is in it. --json has the names.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub support_bundle: Option<PathBuf>,
    /// Run COMMAND once, and say how long it waits for syncs, in place of a disk
    ///
    /// Nothing is held. The report goes to standard error, with --json, too. The exit code is the
    /// command's. For `docker build` and other clients of builders, the report shows each step, if
    /// root runs doctor and `synconce setup` was made.
    #[arg(last = true, value_name = "COMMAND",
        conflicts_with_all = ["path", "quick", "full", "context"])]
    pub command: Vec<OsString>,
    /// Where the report is printed as JSON.
    #[command(flatten)]
    pub json: Json,
}
