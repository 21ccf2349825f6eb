//! The fixture of the tree scenario: a base as a directory and in synconce's store, and a path
//! for one clone per iteration.

use super::build_script::BuildScript;
use super::cleanup::{empty, is_btrfs, make_writable};
use super::commands::{BASE, tree};
use super::{clones, visits};
use crate::base::{self, Base, Recipe};
use crate::command::{fill, show};
use crate::harness::Common;
use crate::launcher::Launcher;
use crate::mounts::{remove_tree, unmount_below};
use crate::scenario::{Iteration, IterationConfig, Need, Observation, Phase, SamplePart, Steps};
use crate::work_dir::WorkDir;
use crate::{Error, files};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use synconce_sys::btrfs;

const HEADERS: &str =
    if cfg!(target_arch = "aarch64") { "linux-headers-arm64" } else { "linux-headers-amd64" };

/// Packages for a root of about 100,000 entries: a compiler, headers and sources, as in roots
/// for builds, and the programs that cowbuilder needs in the root.
pub const PACKAGES: [&str; 6] =
    ["build-essential", "cowdancer", "golang-src", "libboost-dev", HEADERS, "rust-src"];

/// What to clone, where and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneOptions {
    /// The work directory, the variants and the rounds. Each variant runs once before the
    /// rounds, which also fills the caches. The seed also makes the data of the build.
    pub common: Common,
    /// A root to clone instead of the prepared one; it is copied and never written.
    pub source: Option<PathBuf>,
    /// The prepared root.
    pub base: base::BaseOptions,
    /// Start with cold caches the parts clone, write, remove, enter and mount.
    pub cold: bool,
}

/// The parts that begin with cold caches, if requested.
const COLD: [&str; 7] = [
    clones::CLONE,
    clones::WRITE,
    clones::REMOVE,
    clones::COPY,
    clones::SESSION,
    visits::VISIT,
    visits::MOUNT,
];

/// Variants that see no /dev in a clone but the base's: cowbuilder mounts only parts of a
/// /dev.
const NEED_DEVICES: [&str; 2] = [clones::COWDANCER, clones::COWBUILDER];

/// pbuilder's settings, which keep all its files inside the work directory.
const SETTINGS: &str = "APTCACHE=\nHOOKDIR=\nUSECGROUP=no\nCCACHEDIR=\nUSECOLORS=no\n\
    PKGNAME_LOGFILE=\nAUTOCLEANAPTCACHE=no\n";

/// Makes and clears the directories for clones.
pub(super) struct CloneFixture {
    options: CloneOptions,
    recipe: Option<Recipe>,
    synconce: PathBuf,
    script: Option<BuildScript>,
    summary: String,
    iterations: u32,
    clone: String,
    /// The files of the base that each variant altered in its last iteration.
    altered: BTreeMap<String, Vec<PathBuf>>,
    findings: Vec<Observation>,
    work: WorkDir,
}

impl CloneFixture {
    pub(super) fn new(options: &CloneOptions, synconce: &Path) -> Result<Self, Error> {
        let recipe = match &options.source {
            None => Some(Recipe::new(&options.base)?),
            Some(_) => None,
        };
        let work = WorkDir::new(&options.common.dir);
        Ok(Self {
            options: options.clone(),
            recipe,
            synconce: synconce.to_owned(),
            script: None,
            summary: String::new(),
            iterations: 0,
            clone: String::new(),
            altered: BTreeMap::new(),
            findings: Vec::new(),
            work,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    fn base(&self) -> PathBuf {
        self.path("base")
    }

    /// Makes the base a subvolume where the file system supports subvolumes: a snapshot needs
    /// one, and hard links cannot cross its boundary.
    fn make_subvolume(&self, launcher: &Launcher) -> Result<(), Error> {
        if !is_btrfs(self.work.path()) || !Need::new("btrfs", "btrfs-progs").is_met() {
            return Ok(());
        }
        let work = self.work.path();
        let made = File::open(work)
            .and_then(|work| btrfs::create_subvolume(work.as_fd(), OsStr::new("subvolume")));
        made.map_err(Error::io("make a subvolume in", work))?;
        let subvolume = show(&self.path("subvolume"));
        let from = show(&self.base().join("."));
        let copy = ["cp", "-a", "--reflink=always", "--", &from, &subvolume];
        launcher.run_helper("copy the base into a subvolume", &copy)
    }

    /// Fills the base from the given source or from the prepared root.
    fn fill_base(&mut self, launcher: &Launcher) -> Result<String, Error> {
        let base = self.base();
        fs::create_dir(&base).map_err(Error::io("create", &base))?;
        let from = match (&self.options.source, &self.recipe) {
            (Some(source), _) => {
                let real = fs::canonicalize(source).map_err(Error::io("find", source))?;
                self.require_apart(&real)?;
                let from = show(&real.join("."));
                let copy = ["cp", "-a", "-x", "--reflink=auto", "--", &from, &show(&base)];
                launcher.run_helper("copy the source", &copy)?;
                format!("a copy of {}", source.display())
            }
            (None, Some(recipe)) => {
                let prepared = Base::obtain(recipe, launcher)?;
                prepared.unpack(&base, launcher)?;
                format!("{} with {}", recipe.suite(), self.options.base.packages.join(", "))
            }
            (None, None) => String::new(),
        };
        self.move_devices_away(launcher)?;
        Ok(from)
    }

    /// Moves the base's devices away: variants that enter a clone mount a /dev, and cpz would
    /// read the devices to their end.
    fn move_devices_away(&self, launcher: &Launcher) -> Result<(), Error> {
        let dev = self.base().join("dev");
        if dev.is_dir() {
            let rename = ["mv", "--", &show(&dev), &show(&self.path("dev"))];
            launcher.run_helper("set the devices aside", &rename)?;
        }
        files::create_dir(&dev)?;
        let aside = self.path("dev");
        files::create_dir(&aside)
    }

    /// Copies the devices into the base for variants that need them there.
    fn restore_devices(&self, launcher: &Launcher) -> Result<(), Error> {
        let (from, to) = (show(&self.path("dev").join(".")), show(&self.base().join("dev")));
        launcher.run_helper("bring the devices back", &["cp", "-a", "--", &from, &to])
    }

    fn require_apart(&self, source: &Path) -> Result<(), Error> {
        let work = self.work.path();
        if work.starts_with(source) || source.starts_with(work) {
            return Err(Error::Unsuitable {
                what: format!("the source {}", source.display()),
                reason: format!("it and {} are inside each other", work.display()),
            });
        }
        Ok(())
    }

    /// Returns a `synconce tree` command with the benchmark's own store.
    fn tree(&self, words: &[&str]) -> Vec<String> {
        let store = BTreeMap::from([("store", show(&self.path("store")))]);
        fill(&tree(&show(&self.synconce), words), &store)
    }

    /// Imports the base into synconce's store if this binary has the command; otherwise the
    /// variants' trials fail.
    fn import(&self, launcher: &Launcher) -> Result<(), Error> {
        let known = [&show(&self.synconce), "tree", "--help"];
        if !launcher.run(&known, &launcher.log("tree-help"))?.status.success() {
            return Ok(());
        }
        launcher.run_helper("make a store", &self.tree(&["init"]))?;
        launcher.run_helper("import the base", &self.tree(&["import", BASE, &show(&self.base())]))
    }

    /// Checks whether the base is unchanged, and adds a finding in the last round.
    fn check_base(&mut self, iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let name = iteration.variant.name.clone();
        if !is_ours(&name) {
            if let Some(script) = &self.script {
                self.altered.insert(name, script.restore()?);
            }
            return Ok(());
        }
        if !iteration.last || !name.starts_with("clone/") {
            return Ok(());
        }
        let log = iteration.other_log("-verify", launcher);
        let outcome = launcher.run(&self.tree(&["verify", BASE]), &log)?;
        let text = fs::read_to_string(&log).unwrap_or_default();
        let (summary, details) = if outcome.status.success() {
            ("its base is as it was (tree verify)", Vec::new())
        } else {
            ("its base is altered (tree verify)", text.lines().map(str::to_owned).collect())
        };
        self.findings.push(Observation {
            variant: Some(name),
            summary: summary.to_owned(),
            details,
        });
        Ok(())
    }

    /// Whether the iteration begins with a clone by synconce.
    fn needs_clone(iteration: &Iteration<'_>) -> bool {
        let name = &iteration.variant.name;
        iteration.phase != Phase::Trial
            && is_ours(name)
            && (name.starts_with("enter/") || name.starts_with("mount/"))
    }

    fn values(&self) -> BTreeMap<&'static str, String> {
        let layers = self.path("overlay");
        let subvolume = self.path("subvolume");
        let subvolume = if subvolume.exists() { subvolume } else { self.base() };
        let paths = [
            ("work", self.work.path().to_path_buf()),
            ("base", self.base()),
            ("subvolume", subvolume),
            ("store", self.path("store")),
            ("clone", self.path(&self.clone)),
            ("point", self.path("point")),
            ("upper", layers.join("upper")),
            ("scratch", layers.join("work")),
        ];
        let shown = paths.into_iter().map(|(key, path)| (key, show(&path)));
        shown.chain([("name", self.clone.clone())]).collect()
    }

    /// Removes everything that an iteration may have left, except the base and synconce's
    /// store.
    fn remove_clone(&self) -> Result<(), Error> {
        unmount_below(self.work.path())?;
        empty(&self.base().join("dev"))?;
        for name in [self.clone.as_str(), "overlay", "point"] {
            if !name.is_empty() {
                remove_tree(&self.path(name))?;
            }
        }
        Ok(())
    }
}

impl Steps for CloneFixture {
    fn prepare(&mut self, launcher: &Launcher) -> Result<(), Error> {
        self.work.lock()?;
        unmount_below(self.work.path())?;
        make_writable(self.work.path());
        self.work.clear()?;
        let from = self.fill_base(launcher)?;
        let script =
            BuildScript::install(&self.base(), self.options.common.settings.seed, launcher)?;
        let (entries, bytes) = (script.entries, script.bytes);
        self.summary = format!("base: {entries} entries, {} MiB in files; {from}", bytes >> 20);
        self.script = Some(script);
        let settings = self.path("pbuilderrc");
        let text = format!("{SETTINGS}BUILDRESULT='{}'\n", show(self.work.path()));
        files::write(&settings, text)?;
        self.make_subvolume(launcher)?;
        self.import(launcher)
    }

    fn reset(
        &mut self,
        iteration: &Iteration<'_>,
        launcher: &Launcher,
    ) -> Result<IterationConfig, Error> {
        self.iterations += 1;
        self.clone = format!("clone-{}", self.iterations);
        for name in ["overlay/upper", "overlay/work", "point"] {
            let path = self.path(name);
            files::create_dir(&path)?;
        }
        if Self::needs_clone(iteration) {
            launcher.run_helper("clone the base", &self.tree(&["clone", BASE, &self.clone]))?;
        }
        if NEED_DEVICES.contains(&iteration.variant.name.as_str()) {
            self.restore_devices(launcher)?;
        }
        let cold = if self.options.cold { COLD.map(str::to_owned).to_vec() } else { Vec::new() };
        Ok(IterationConfig {
            values: self.values(),
            settle: Some(self.work.path().to_path_buf()),
            cold,
            ..IterationConfig::default()
        })
    }

    fn parts(
        &mut self,
        iteration: &Iteration<'_>,
        timed: Vec<SamplePart>,
        log: &Path,
    ) -> Result<Vec<SamplePart>, Error> {
        if iteration.variant.name.starts_with("enter/") {
            let text = files::read(log)?;
            return visits::parts(&text).ok_or_else(|| {
                let command = &iteration.variant.commands[0];
                iteration.error(command, "it said no three times", log)
            });
        }
        Ok(clones::with_removal(timed))
    }

    fn check(&mut self, iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let clone = self.path(&self.clone);
        let removes = iteration.variant.parts.iter().any(|part| part == clones::REMOVE);
        if removes && clone.symlink_metadata().is_ok() {
            let ending = format!("exit code 0, yet {} is still there", clone.display());
            let command = &iteration.variant.commands[0];
            return Err(iteration.error(command, ending, &iteration.log(launcher)));
        }
        self.check_base(iteration, launcher)
    }

    fn clear(&mut self, iteration: &Iteration<'_>, launcher: &Launcher) -> Result<(), Error> {
        let removed = if Self::needs_clone(iteration) {
            // The clone's mount is gone if the iteration succeeded.
            launcher.run_helper(
                "remove the clone",
                &self.tree(&["remove", "--force", "--wait", &self.clone]),
            )
        } else {
            Ok(())
        };
        launcher.kill_leftovers();
        self.remove_clone().and(removed)
    }

    fn conclude(&mut self) -> Result<Vec<Observation>, Error> {
        unmount_below(self.work.path())?;
        make_writable(self.work.path());
        self.work.remove()?;
        let base = Observation::new(self.summary.clone());
        let altered = std::mem::take(&mut self.altered).into_iter();
        let altered =
            altered.filter(|(_, paths)| !paths.is_empty()).map(|(name, paths)| Observation {
                variant: Some(name),
                summary: format!("{} files of its base were altered from the clone", paths.len()),
                details: paths.iter().map(|path| show(path)).collect(),
            });
        let findings = std::mem::take(&mut self.findings);
        Ok(std::iter::once(base).chain(altered).chain(findings).collect())
    }
}

impl Drop for CloneFixture {
    fn drop(&mut self) {
        // After a failure or an interrupt; the work directory is removed next.
        let _ = unmount_below(self.work.path());
        make_writable(self.work.path());
    }
}

fn is_ours(variant: &str) -> bool {
    variant.contains("/synconce")
}
