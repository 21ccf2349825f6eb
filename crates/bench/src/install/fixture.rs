//! The fixture of the install scenario: a fresh root per iteration.

use super::manifest::{self, Manifest};
use super::variants::{NSPAWN, PLAIN};
use super::wrappers;
use crate::Error;
use crate::base::{self, Base, Recipe};
use crate::command::{show, words};
use crate::harness::Common;
use crate::launcher::Launcher;
use crate::mounts::{ChrootMounts, remove_tree};
use crate::scenario::{Iteration, IterationConfig, Observation, Phase, Steps};
use crate::work_dir::WorkDir;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What to install, where and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallOptions {
    /// The work directory, the variants and the rounds. The identity check needs two plain trees:
    /// the first is of a round of the baseline before the measured rounds.
    pub common: Common,
    /// The packages, and the base that they are installed into.
    pub base: base::BaseOptions,
    /// Compare the trees of the last round, path by path.
    pub identity: bool,
    /// Leave the last root of each variant and the logs in place.
    pub keep: bool,
}

/// Unpacks, mounts, checks and removes roots.
pub(super) struct InstallFixture {
    options: InstallOptions,
    recipe: Recipe,
    base: Option<Base>,
    iterations: u32,
    root: PathBuf,
    chroot_mounts: Option<ChrootMounts>,
    /// The directory of all roots; dropped after the mounts in a root.
    work: WorkDir,
    /// The first plain tree, and the trees of the last round.
    reference: Option<Manifest>,
    last: BTreeMap<String, Manifest>,
}

impl InstallFixture {
    pub(super) fn new(options: &InstallOptions) -> Result<Self, Error> {
        let dir = &options.common.dir;
        Ok(Self {
            options: options.clone(),
            recipe: Recipe::new(&options.base)?,
            base: None,
            work: if options.keep { WorkDir::kept(dir) } else { WorkDir::new(dir) },
            iterations: 0,
            root: PathBuf::new(),
            chroot_mounts: None,
            reference: None,
            last: BTreeMap::new(),
        })
    }

    fn require_installed(
        &self,
        iteration: &Iteration<'_>,
        launcher: &Launcher,
    ) -> Result<(), Error> {
        let log = iteration.other_log("-check", launcher);
        let root = show(&self.root);
        let before = ["chroot", &root, "dpkg-query", "-W", "-f", "${db:Status-Abbrev}\n"];
        let command = [words(&before), self.options.base.packages.clone()].concat();
        let (outcome, text) = launcher.output(&command, &log)?;
        let installed = text.lines().filter(|line| line.trim_end() == "ii").count();
        if outcome.status.success() && installed >= self.options.base.packages.len() {
            return Ok(());
        }
        let ending = "exit code 0, yet the packages are not installed";
        Err(iteration.error(&command, ending, &log))
    }

    /// Keeps the trees that the identity check needs.
    fn keep_manifest(
        &mut self,
        iteration: &Iteration<'_>,
        launcher: &Launcher,
    ) -> Result<(), Error> {
        let plain = iteration.variant.name == PLAIN;
        let first = plain && self.reference.is_none();
        if !self.options.identity || iteration.phase == Phase::Trial || !(iteration.last || first) {
            return Ok(());
        }
        let manifest = manifest::read(&self.root, launcher)?;
        if iteration.last {
            let name = iteration.variant.name.clone();
            self.last.insert(name, manifest.clone());
        }
        if first {
            self.reference = Some(manifest);
        }
        Ok(())
    }

    fn compare(&self) -> Vec<Observation> {
        let mut findings = Vec::new();
        if !self.options.identity {
            return findings;
        }
        let Some(reference) = &self.reference else {
            return vec![Observation::new(format!("trees not compared: {PLAIN} was not measured"))];
        };
        let own: BTreeMap<PathBuf, String> = self
            .last
            .get(PLAIN)
            .map(|plain| manifest::differences(plain, reference))
            .unwrap_or_default();
        findings.push(between_plain_runs(&own));
        let expected: BTreeSet<&PathBuf> = own.keys().collect();
        for (name, tree) in self.last.iter().filter(|(name, _)| *name != PLAIN) {
            let details: Vec<String> = manifest::differences(tree, reference)
                .into_iter()
                .filter(|(path, _)| !expected.contains(path) && !manifest::is_volatile(path))
                .map(|(path, what)| format!("/{}: {what}", path.display()))
                .collect();
            let summary = match details.len() {
                0 => format!("same tree as {PLAIN}, {} entries", tree.len()),
                count => format!("{count} of {} entries differ from {PLAIN}", tree.len()),
            };
            findings.push(Observation { variant: Some(name.clone()), summary, details });
        }
        findings
    }
}

/// Returns the paths that differ between two plain runs. At these paths a difference is no defect
/// of a variant.
fn between_plain_runs(own: &BTreeMap<PathBuf, String>) -> Observation {
    let details = own.iter();
    Observation {
        variant: Some(PLAIN.to_owned()),
        summary: format!("two runs of it differ in {}, left out below", own.len()),
        details: details.map(|(path, what)| format!("/{}: {what}", path.display())).collect(),
    }
}

impl Steps for InstallFixture {
    fn prepare(&mut self, launcher: &Launcher) -> Result<(), Error> {
        self.work.lock_and_clear()?;
        self.base = Some(Base::obtain(&self.recipe, launcher)?);
        Ok(())
    }

    fn reset(
        &mut self,
        iteration: &Iteration<'_>,
        launcher: &Launcher,
    ) -> Result<IterationConfig, Error> {
        self.iterations += 1;
        self.root = self.work.path().join(format!("root-{}", self.iterations));
        if let Some(base) = &self.base {
            base.unpack(&self.root, launcher)?;
        }
        if iteration.variant.name != NSPAWN {
            self.chroot_mounts = Some(ChrootMounts::new(&self.root)?);
        }
        wrappers::set_up(iteration.variant, &self.root, launcher)?;
        Ok(IterationConfig {
            values: BTreeMap::from([("root", show(&self.root))]),
            settle: Some(self.root.clone()),
            ..IterationConfig::default()
        })
    }

    fn check(&mut self, iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        self.require_installed(iteration, launcher)?;
        wrappers::undo(iteration.variant, &self.root, launcher)?;
        if let Some(mut chroot_mounts) = self.chroot_mounts.take() {
            chroot_mounts.unmount()?;
        }
        self.keep_manifest(iteration, launcher)
    }

    fn clear(&mut self, iteration: &Iteration<'_>, _launcher: &Launcher) -> Result<(), Error> {
        if let Some(mut chroot_mounts) = self.chroot_mounts.take() {
            chroot_mounts.unmount()?;
        }
        if self.options.keep && iteration.last {
            return Ok(());
        }
        remove_tree(&self.root)
    }

    fn conclude(&mut self) -> Result<Vec<Observation>, Error> {
        let base = self.base.as_ref().map(|base| Observation::new(base.summary()));
        self.work.remove()?;
        Ok(base.into_iter().chain(self.compare()).collect())
    }
}
