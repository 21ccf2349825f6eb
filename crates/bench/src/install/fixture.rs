//! The fixture of the install scenario: a fresh root per iteration.

use super::Options;
use super::manifest::{self, Manifest};
use super::variants::{FURNISHES_ITSELF, PLAIN};
use crate::base::{Base, Recipe};
use crate::launcher::Launcher;
use crate::mounts::{ChrootMounts, remove_tree};
use crate::scenario::{Finding, Iteration, Phase, Place, Steps};
use crate::workplace::Workplace;
use crate::{Error, Failure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::PathBuf;

/// Unpacks, mounts, checks and removes roots.
pub(super) struct Fixture {
    options: Options,
    recipe: Recipe,
    base: Option<Base>,
    turns: u32,
    root: PathBuf,
    furnished: Option<ChrootMounts>,
    /// The directory of all roots; dropped after the mounts in a root.
    work: Workplace,
    /// The first plain tree, and the trees of the last round.
    reference: Option<Manifest>,
    last: BTreeMap<String, Manifest>,
}

impl Fixture {
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        Ok(Self {
            options: options.clone(),
            recipe: Recipe::new(&options.base)?,
            base: None,
            work: Workplace::new(&options.dir, options.keep),
            turns: 0,
            root: PathBuf::new(),
            furnished: None,
            reference: None,
            last: BTreeMap::new(),
        })
    }

    fn require_installed(&self, turn: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let log =
            launcher.log(&format!("{}-{}-check", turn.phase, turn.variant.name).replace(' ', "-"));
        let out = log.with_extension("out");
        let root = self.root.display().to_string();
        let words = ["chroot", &root, "dpkg-query", "-W", "-f", "${db:Status-Abbrev}\n"];
        let words = words.into_iter().map(str::to_owned);
        let command: Vec<String> =
            words.chain(self.options.base.packages.iter().cloned()).collect();
        let outcome = launcher.run(&command, &log, Some(&out))?;
        let text = fs::read_to_string(&out).map_err(Error::io("read", &out))?;
        let installed = text.lines().filter(|line| line.trim_end() == "ii").count();
        if outcome.status.success() && installed >= self.options.base.packages.len() {
            return Ok(());
        }
        Err(Error::Variant {
            variant: turn.variant.name.clone(),
            phase: turn.phase.to_string(),
            failure: Failure::new(
                &command,
                "exit code 0, yet the packages are not installed",
                &log,
            ),
        })
    }

    /// Keeps the trees that the identity check needs.
    fn remember(&mut self, turn: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let plain = turn.variant.name == PLAIN;
        let first = plain && self.reference.is_none();
        if !self.options.identity || turn.phase == Phase::Trial || !(turn.last || first) {
            return Ok(());
        }
        let manifest = manifest::read(&self.root, launcher)?;
        if turn.last {
            let name = turn.variant.name.clone();
            self.last.insert(name, manifest.clone());
        }
        if first {
            self.reference = Some(manifest);
        }
        Ok(())
    }

    fn compare(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !self.options.identity {
            return findings;
        }
        let Some(reference) = &self.reference else {
            return vec![Finding {
                variant: None,
                summary: format!("trees not compared: {PLAIN} was not measured"),
                details: Vec::new(),
            }];
        };
        let own: BTreeMap<PathBuf, String> = self
            .last
            .get(PLAIN)
            .map(|plain| manifest::differences(plain, reference))
            .unwrap_or_default();
        findings.push(natural(&own));
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
            findings.push(Finding { variant: Some(name.clone()), summary, details });
        }
        findings
    }
}

/// Returns the differences between two plain runs, which are no defect of any variant.
fn natural(own: &BTreeMap<PathBuf, String>) -> Finding {
    let details = own.iter();
    Finding {
        variant: Some(PLAIN.to_owned()),
        summary: format!("two runs of it differ in {}, left out below", own.len()),
        details: details.map(|(path, what)| format!("/{}: {what}", path.display())).collect(),
    }
}

impl Steps for Fixture {
    fn prepare(&mut self, launcher: &Launcher) -> Result<(), Error> {
        self.work.occupy()?;
        self.base = Some(Base::obtain(&self.recipe, launcher)?);
        Ok(())
    }

    fn reset(&mut self, turn: &Iteration<'_>, launcher: &Launcher) -> Result<Place, Error> {
        self.turns += 1;
        self.root = self.work.path().join(format!("root-{}", self.turns));
        if let Some(base) = &self.base {
            base.unpack(&self.root, launcher)?;
        }
        if turn.variant.name != FURNISHES_ITSELF {
            self.furnished = Some(ChrootMounts::new(&self.root)?);
        }
        let dir = File::open(&self.root).map_err(Error::io("open", &self.root))?;
        rustix::fs::syncfs(&dir).map_err(Error::io("sync", &self.root))?;
        let root = self.root.display().to_string();
        Ok(Place {
            values: BTreeMap::from([("root".to_owned(), root)]),
            settle: Some(self.root.clone()),
            ..Place::default()
        })
    }

    fn check(&mut self, turn: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        self.require_installed(turn, launcher)?;
        if let Some(mut furnished) = self.furnished.take() {
            furnished.dismantle()?;
        }
        self.remember(turn, launcher)
    }

    fn clear(&mut self, turn: &Iteration<'_>, _launcher: &Launcher) -> Result<(), Error> {
        if let Some(mut furnished) = self.furnished.take() {
            furnished.dismantle()?;
        }
        if self.options.keep && turn.last {
            return Ok(());
        }
        remove_tree(&self.root)
    }

    fn conclude(&mut self) -> Result<Vec<Finding>, Error> {
        let base = self.base.as_ref().map(|base| Finding {
            variant: None,
            summary: base.summary(),
            details: Vec::new(),
        });
        self.work.vacate()?;
        Ok(base.into_iter().chain(self.compare()).collect())
    }
}
