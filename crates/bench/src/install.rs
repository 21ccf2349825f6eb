//! Scenario `install`: apt installs packages into a fresh Debian root.
//!
//! Every variant runs the same `env -i ... apt-get install` inside a root unpacked from one
//! tar, with downloaded packages and without starting services. Needs root, apt sources for
//! the suite, and mmdebstrap or debootstrap.

mod fixture;
mod manifest;
mod variants;

use crate::launcher::Launcher;
use crate::mount::Mount;
use crate::report::Report;
use crate::report::host::Host;
use crate::runner::{Settings, WarmUp, run};
use crate::scenario::{Finding, Scenario, Tool, select};
use crate::workplace::Workplace;
use crate::{Error, base, mounts};
use fixture::Fixture;
use std::path::{Path, PathBuf};

/// File systems without a disk.
const MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];

/// What to install, where and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Work directory on the disk under test.
    pub dir: PathBuf,
    /// The packages, and the base that they are installed into.
    pub base: base::Options,
    /// Measured rounds.
    pub rounds: u32,
    /// Untimed runs before the rounds. The default, the baseline once, also supplies the first
    /// of the two plain trees that the identity check needs.
    pub warm_up: WarmUp,
    /// Names of the variants; empty means all.
    pub variants: Vec<String>,
    /// Compare the trees of the last round, path by path.
    pub identity: bool,
    /// Leave the last root of each variant and the logs in place.
    pub keep: bool,
    /// Seed of the order and of the bootstrap.
    pub seed: u64,
}

impl Options {
    /// Returns the defaults for a work directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            base: base::Options::default(),
            rounds: 5,
            warm_up: WarmUp::Baselines,
            variants: Vec::new(),
            identity: true,
            keep: false,
            seed: 1,
        }
    }
}

/// Runs the scenario and returns its report.
///
/// # Errors
/// See [`crate::install()`]. The logs of a failure stay in place, and the error names them.
pub fn measure(options: &Options, synconce: &Path) -> Result<Report, Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Unsuitable {
            what: "the install scenario".to_owned(),
            reason: "it unpacks and enters a root directory, which needs root".to_owned(),
        });
    }
    std::fs::create_dir_all(&options.dir).map_err(Error::io("create", &options.dir))?;
    require_disk(&options.dir)?;
    let synconce = resolve(synconce);
    let launcher = Launcher::new()?.sparing(&synconce);
    let mut result = mounts::in_private_namespace(|| with_launcher(options, &synconce, &launcher));
    match &mut result {
        Ok(report) if options.keep => report.findings.push(Finding {
            variant: None,
            summary: format!(
                "kept: the roots of the last round in {}, the logs in {}",
                Workplace::new(&options.dir, true).path().display(),
                launcher.keep_logs().display()
            ),
            details: Vec::new(),
        }),
        Err(Error::Variant { .. } | Error::Helper { .. }) => drop(launcher.keep_logs()),
        _ => {}
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
    let tool = |name: &str, program: &str| Tool {
        name: name.to_owned(),
        command: vec![program.to_owned(), "--version".to_owned()],
    };
    Ok(Scenario {
        name: "install".to_owned(),
        about: format!(
            "apt-get install {} into a fresh {} root, {} recommended packages",
            options.base.packages.join(" "),
            options.base.suite,
            if options.base.recommends { "with" } else { "without" }
        ),
        dir: options.dir.clone(),
        variants: select(variants::all(synconce, &options.base.packages), &options.variants)?,
        tools: vec![
            tool("synconce", &synconce.display().to_string()),
            tool("systemd-nspawn", "systemd-nspawn"),
            tool("chroot", "chroot"),
        ],
        steps: Box::new(Fixture::new(options)?),
    })
}

/// Resolves /proc/self/exe, which would mean a child's own program in the child.
pub(crate) fn resolve(synconce: &Path) -> PathBuf {
    if synconce.starts_with("/proc/self") {
        return std::fs::read_link(synconce).unwrap_or_else(|_| synconce.to_path_buf());
    }
    synconce.to_path_buf()
}

/// Rejects a directory in memory: nothing can be committed there.
pub(crate) fn require_disk(dir: &Path) -> Result<(), Error> {
    let kind = Mount::of(dir).map(|mount| mount.kind);
    match kind {
        Some(kind) if MEMORY.contains(&kind.as_str()) => Err(Error::Unsuitable {
            what: dir.display().to_string(),
            reason: format!(
                "it is on a {kind}, which has nothing to sync; name a directory on a disk"
            ),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_directory_in_memory_is_refused() {
        if Mount::of(Path::new("/dev/shm")).is_none_or(|m| m.kind != "tmpfs") {
            eprintln!("skipped: /dev/shm is no tmpfs here");
            return;
        }
        let error = require_disk(Path::new("/dev/shm")).expect_err("it is a tmpfs");
        assert!(error.to_string().contains("nothing to sync"), "{error}");
    }

    #[test]
    fn the_magic_link_to_the_program_is_resolved_before_a_child_reads_it() {
        let resolved = resolve(Path::new("/proc/self/exe"));
        assert_eq!(resolved, std::env::current_exe().expect("proc is there"));
        assert_eq!(resolve(Path::new("/usr/bin/x")), Path::new("/usr/bin/x"));
    }

    #[test]
    fn an_unknown_variant_is_refused_with_the_known_ones() {
        let mut options = Options::new("/var/tmp");
        options.base.mirror = Some("http://mirror.invalid/debian".to_owned());
        options.variants = vec!["fast".to_owned()];
        let error = scenario(&options, Path::new("synconce")).err();
        let text = error.expect("it is refused").to_string();
        assert!(text.contains("force-unsafe-io"), "{text}");
    }
}
