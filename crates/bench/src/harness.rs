//! Measures a scenario: checks the host, runs the rounds and makes the report.

use crate::command::show;
use crate::launcher::Launcher;
use crate::mount::MountProperties;
use crate::report::{BenchReport, host::MeasuredHost};
use crate::runner::{Settings, WarmUp, run};
use crate::scenario::{Need, Observation, Scenario, select};
use crate::work_dir::WorkDir;
use crate::{Error, files, mounts};
use std::path::{Path, PathBuf};

/// File systems without a disk.
const MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];

/// The options of every scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// Work directory on the disk under test.
    pub dir: PathBuf,
    /// Names of the variants; empty means all.
    pub variants: Vec<String>,
    /// The rounds and what runs before them.
    pub settings: Settings,
}

impl Common {
    /// Returns the options of so many rounds in `dir`, over all variants.
    pub fn new(dir: PathBuf, rounds: u32, warm_up: WarmUp) -> Self {
        let settings = Settings { rounds, warm_up, seed: 1 };
        Self { dir, variants: Vec::new(), settings }
    }
}

/// What a scenario needs of the host, and how it is ended.
#[derive(Default)]
pub(crate) struct Harness<'a> {
    /// The scenario's name in errors.
    pub(crate) scenario: &'a str,
    /// Why the scenario needs root. The scenario then runs in a private mount namespace.
    pub(crate) root: Option<&'a str>,
    /// Whether root's scenario runs in a private mount namespace although other users can run
    /// it, too: a variant of it mounts.
    pub(crate) mounts: bool,
    /// Programs without which no variant can run.
    pub(crate) needs: Vec<Need>,
    /// Whether the work directory must be on a disk.
    pub(crate) disk: bool,
    /// Whether synconce may end by itself on an interrupt ([`Launcher::sparing`]).
    pub(crate) spared: bool,
    /// Whether the roots of the last round and the logs stay.
    pub(crate) keep: bool,
}

impl Harness<'_> {
    /// Runs a scenario of the program `synconce` and returns its report. The logs of a failed
    /// command stay in place, and the error names them. A directory that was made for the scenario
    /// is removed, unless something is kept in it.
    pub(crate) fn measure(
        &self,
        common: &Common,
        synconce: &Path,
        scenario: impl FnOnce(&Path) -> Result<Scenario, Error> + Send,
    ) -> Result<BenchReport, Error> {
        let above = common.dir.ancestors().filter(|dir| *dir != Path::new(""));
        let missing: Vec<_> = above.take_while(|dir| !dir.exists()).collect();
        let result = self.measure_there(common, synconce, scenario);
        for made in missing {
            let _ = std::fs::remove_dir(made);
        }
        result
    }

    fn measure_there(
        &self,
        common: &Common,
        synconce: &Path,
        scenario: impl FnOnce(&Path) -> Result<Scenario, Error> + Send,
    ) -> Result<BenchReport, Error> {
        self.check_host(&common.dir)?;
        let synconce = resolve(synconce);
        let mut launcher = Launcher::new()?;
        if self.spared {
            launcher = launcher.sparing(&synconce);
        }
        let measured = || measure(scenario(&synconce)?, common, &launcher);
        let private = self.root.is_some() || (self.mounts && is_root());
        let mut result = if private { mounts::in_private_namespace(measured) } else { measured() };
        match &mut result {
            Ok(report) if self.keep => report.findings.push(Observation::new(format!(
                "kept: the roots of the last round in {}, the logs in {}",
                show(WorkDir::new(&common.dir).path()),
                show(&launcher.keep_logs())
            ))),
            Err(Error::Variant { .. } | Error::Helper { .. }) => drop(launcher.keep_logs()),
            _ => {}
        }
        result
    }

    /// Fails on a host on which the scenario cannot run; makes the work directory.
    fn check_host(&self, dir: &Path) -> Result<(), Error> {
        let unsuitable = |what: String, reason: String| Err(Error::Unsuitable { what, reason });
        if let Some(reason) = self.root.filter(|_| !is_root()) {
            return unsuitable(format!("the {} scenario", self.scenario), reason.to_owned());
        }
        if let Some(Need { program, package, .. }) = self.needs.iter().find(|need| !need.is_met()) {
            let reason = format!("{program} is not installed; the package {package} brings it");
            return unsuitable("this host".to_owned(), reason);
        }
        files::create_dir(dir)?;
        let kind = MountProperties::find(dir).map(|mount| mount.kind).unwrap_or_default();
        if self.disk && MEMORY.contains(&kind.as_str()) {
            let reason =
                format!("it is on a {kind}, which has nothing to sync; name a directory on a disk");
            return unsuitable(show(dir), reason);
        }
        Ok(())
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn measure(
    mut scenario: Scenario,
    common: &Common,
    launcher: &Launcher,
) -> Result<BenchReport, Error> {
    scenario.variants = select(scenario.variants, &common.variants)?;
    let host = MeasuredHost::read(&common.dir, &scenario.tools, launcher)?;
    let record = run(&mut scenario, &common.settings, launcher)?;
    Ok(BenchReport::new(&scenario, common.settings, host, record))
}

/// Resolves /proc/self/exe, which would mean a child's own program in the child.
fn resolve(synconce: &Path) -> PathBuf {
    if synconce.starts_with("/proc/self") {
        return std::fs::read_link(synconce).unwrap_or_else(|_| synconce.to_path_buf());
    }
    synconce.to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_directory_in_memory_is_refused() {
        if MountProperties::find(Path::new("/dev/shm")).is_none_or(|m| m.kind != "tmpfs") {
            eprintln!("skipped: /dev/shm is no tmpfs here");
            return;
        }
        let harness = Harness { disk: true, ..Harness::default() };
        let error = harness.check_host(Path::new("/dev/shm")).expect_err("it is a tmpfs");
        assert!(error.to_string().contains("nothing to sync"), "{error}");
    }

    #[test]
    fn the_magic_link_to_the_program_is_resolved_before_a_child_reads_it() {
        let resolved = resolve(Path::new("/proc/self/exe"));
        assert_eq!(resolved, std::env::current_exe().expect("proc is there"));
        assert_eq!(resolve(Path::new("/usr/bin/x")), Path::new("/usr/bin/x"));
    }
}
