//! Scenario `tree`: a root of about 100,000 files is cloned, changed and removed.
//!
//! Five groups, interleaved: the life of a clone (clone, write, remove, with the sync after
//! each), a session in one command, the copy of a whole tree, entering and leaving a clone,
//! and mounting and unmounting a clone. The variants of synconce run the binary with the
//! benchmark's own store. Needs root: every tree is entered as a root directory.

mod clearing;
mod commands;
mod copies;
mod fixture;
mod life;
mod payload;
mod visits;

use crate::install::{require_disk, resolve};
use crate::launcher::Launcher;
use crate::report::Report;
use crate::report::host::Host;
use crate::runner::{Settings, WarmUp, run};
use crate::scenario::{Scenario, Tool, Variant, select};
use crate::{Error, base, mounts};
use fixture::Fixture;
use std::path::{Path, PathBuf};

/// Packages for a root of about 100,000 entries: a compiler, headers and sources, as in roots
/// for builds, and the programs that cowbuilder needs in the root.
pub(crate) const PACKAGES: [&str; 6] = [
    "build-essential",
    "cowdancer",
    "golang-src",
    "libboost-dev",
    "linux-headers-amd64",
    "rust-src",
];

/// What to clone, where and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Work directory on the disk under test.
    pub dir: PathBuf,
    /// A root to clone instead of the prepared one; it is copied and never written.
    pub source: Option<PathBuf>,
    /// The prepared root.
    pub base: base::Options,
    /// Start with cold caches the parts clone, write, remove, enter and mount.
    pub cold: bool,
    /// Measured rounds.
    pub rounds: u32,
    /// Untimed runs before the rounds. The default, all, also fills the caches.
    pub warm_up: WarmUp,
    /// Names of the variants; empty means all.
    pub variants: Vec<String>,
    /// Seed of the order, of the bootstrap and of the data that the build writes.
    pub seed: u64,
}

impl Options {
    /// Returns the defaults for a work directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            source: None,
            base: base::Options {
                packages: PACKAGES.map(str::to_owned).to_vec(),
                installed: true,
                ..base::Options::default()
            },
            cold: false,
            rounds: 5,
            warm_up: WarmUp::All,
            variants: Vec::new(),
            seed: 1,
        }
    }
}

/// Runs the scenario and returns its report.
///
/// # Errors
/// See [`crate::tree()`]. The logs of a failure stay in place, and the error names them.
pub fn measure(options: &Options, synconce: &Path) -> Result<Report, Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Unsuitable {
            what: "the tree scenario".to_owned(),
            reason: "it enters root directories and mounts, which needs root".to_owned(),
        });
    }
    std::fs::create_dir_all(&options.dir).map_err(Error::io("create", &options.dir))?;
    require_disk(&options.dir)?;
    let synconce = resolve(synconce);
    // An interrupt discards the store with all its work, so no program is spared.
    let launcher = Launcher::new()?;
    let result = mounts::in_private_namespace(|| with_launcher(options, &synconce, &launcher));
    if matches!(result, Err(Error::Variant { .. } | Error::Helper { .. })) {
        launcher.keep_logs();
    }
    result
}

fn with_launcher(options: &Options, synconce: &Path, launcher: &Launcher) -> Result<Report, Error> {
    let settings =
        Settings { rounds: options.rounds, warm_up: options.warm_up, seed: options.seed };
    let mut scenario = scenario(options, synconce)?;
    let host = Host::read(&options.dir, &scenario.tools, launcher)?;
    let record = run(&mut scenario, &settings, launcher)?;
    Ok(Report::new(&scenario, settings, host, record))
}

fn scenario(options: &Options, synconce: &Path) -> Result<Scenario, Error> {
    let cache = if options.cold { "cold" } else { "warm" };
    Ok(Scenario {
        name: "tree".to_owned(),
        about: format!("clones of a root, {cache} caches"),
        dir: options.dir.clone(),
        variants: select(variants(synconce), &options.variants)?,
        tools: tools(synconce),
        steps: Box::new(Fixture::new(options, synconce)?),
    })
}

fn variants(synconce: &Path) -> Vec<Variant> {
    let program = synconce.display().to_string();
    let groups = [
        life::variants(&program),
        life::sessions(&program),
        copies::variants(&program),
        visits::variants(&program),
    ];
    groups.into_iter().flatten().collect()
}

fn tools(synconce: &Path) -> Vec<Tool> {
    let synconce = synconce.display().to_string();
    let named = [("synconce", synconce.as_str()), ("cp", "cp"), ("btrfs", "btrfs"), ("cpz", "cpz")];
    named
        .map(|(name, program)| Tool {
            name: name.to_owned(),
            command: vec![program.to_owned(), "--version".to_owned()],
        })
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_a_baseline_in_its_group_and_a_part_for_each_command() {
        let all = variants(Path::new("/opt/synconce"));
        let group = |name: &str| name.split('/').next().map(str::to_owned);
        for variant in &all {
            let baseline = all.iter().find(|other| other.name == variant.against);
            assert!(baseline.is_some(), "{}", variant.name);
            assert_eq!(group(&variant.against), group(&variant.name));
            assert_eq!(variant.parts.len(), variant.commands.len(), "{}", variant.name);
        }
    }

    #[test]
    fn every_group_measures_ours_beside_rivals() {
        let all = variants(Path::new("/opt/synconce"));
        for group in ["clone/", "session/", "copy/", "enter/", "mount/"] {
            let members: Vec<&Variant> =
                all.iter().filter(|variant| variant.name.starts_with(group)).collect();
            let ours = members.iter().filter(|v| v.name.contains("synconce")).count();
            assert!(ours > 0 && ours < members.len(), "{group}");
        }
    }

    #[test]
    fn whatever_writes_runs_the_same_script_in_the_clone() {
        let all = variants(Path::new("/opt/synconce"));
        for variant in all.iter().filter(|variant| variant.name.starts_with("clone/")) {
            let write = variant.parts.iter().position(|part| part == life::WRITE);
            let words = &variant.commands[write.expect("it writes")];
            assert_eq!(words[words.len() - 2..], ["/bin/sh", payload::SCRIPT], "{}", variant.name);
        }
    }
}
