//! A disk with a file system for stores, and the verbs of `synconce tree` on one of them.

use crate::support::{Place, SYNCONCE};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_testkit::manifest::{Manifest, Options, diff};
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::{FsKind, Rig};

/// Installs of packages among them.
pub fn limit() -> Duration {
    patiently(Duration::from_secs(240))
}

/// The strategies that a store on `kind` has, the one of choice first.
pub fn strategies(kind: FsKind) -> &'static [&'static str] {
    match kind {
        FsKind::Ext4 => &["overlay", "copy"],
        FsKind::Xfs => &["overlay", "reflink", "copy"],
        FsKind::Btrfs => &["snapshot", "overlay", "reflink", "copy"],
    }
}

/// Runs `test` with a store for each strategy that `kind` has, all of them before it
/// fails, so that one report names every strategy at fault.
pub fn for_each_strategy(place: &Place, kind: FsKind, size: u64, test: impl Fn(&Site<'_>)) {
    let point = place.path("rig");
    fs::create_dir(&point).unwrap();
    let rig = Rig::builder().fs(kind).size(size).at(point).up().unwrap();
    let failed = strategies(kind).iter().filter(|strategy| {
        let site = Site::new(place, rig.path(), Some(strategy));
        let passed = catch_unwind(AssertUnwindSafe(|| test(&site))).is_ok();
        println!("{kind}, {strategy}: {}", if passed { "as it should be" } else { "FAILED" });
        !passed
    });
    let failed: Vec<_> = failed.collect();
    assert!(failed.is_empty(), "on {kind} with {failed:?}");
    rig.down().unwrap();
}

/// A store, and what is done with it by one strategy.
pub struct Site<'a> {
    pub place: &'a Place,
    /// A directory on the disk that is tested.
    pub dir: PathBuf,
    strategy: Option<&'static str>,
    counter: Cell<u32>,
}

impl<'a> Site<'a> {
    /// A store below `disk`; the strategy is the tool's own choice unless it is given.
    pub fn new(place: &'a Place, disk: &Path, strategy: Option<&'static str>) -> Self {
        let dir = disk.join(strategy.unwrap_or("chosen"));
        fs::create_dir(&dir).unwrap();
        let site = Self { place, dir, strategy, counter: Cell::new(0) };
        site.well(&["init"]);
        site
    }

    /// A store on the disk of `place`, with the tool's own choice of strategy.
    pub fn plain(place: &'a Place) -> Self {
        Self::new(place, &place.path(""), None)
    }

    pub fn strategy(&self) -> &'static str {
        self.strategy.unwrap_or("chosen")
    }

    /// The store itself.
    pub fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// A path on the disk that nobody had yet.
    pub fn fresh(&self, name: &str) -> PathBuf {
        self.counter.set(self.counter.get() + 1);
        self.dir.join(format!("{name}-{}", self.counter.get()))
    }

    /// `synconce tree --store STORE WORDS`.
    pub fn tree(&self, words: &[&str]) -> Command {
        let mut command = self.place.command(SYNCONCE);
        command.args(["tree", "--store"]).arg(self.store()).args(words);
        command
    }

    /// The same to its end, however it is.
    pub fn ends(&self, words: &[&str]) -> Finished {
        process::run(&mut self.tree(words), limit()).unwrap()
    }

    /// The same, which succeeds.
    pub fn well(&self, words: &[&str]) -> Finished {
        let finished = self.ends(words);
        assert!(finished.status.success(), "{words:?}: {finished:?}");
        finished
    }

    /// The same, which ends with `code`, says why in a line that has each of `why`, and
    /// writes nothing else.
    pub fn refused(&self, code: i32, words: &[&str], why: &[&str]) {
        let finished = self.ends(words);
        assert_eq!(finished.status.code(), Some(code), "{words:?}: {finished:?}");
        assert_eq!(finished.stdout, "", "{words:?}: {finished:?}");
        let said = finished.stderr.to_lowercase();
        assert!(said.starts_with("synconce: "), "{words:?}: {finished:?}");
        for word in why {
            assert!(said.contains(&word.to_lowercase()), "{word}: {words:?}: {finished:?}");
        }
        assert!(!said.contains("panicked"), "{words:?}: {finished:?}");
    }

    fn with_strategy<'w>(&self, verb: &[&'w str], words: &[&'w str]) -> Vec<&'w str> {
        let chosen = self.strategy.map(|strategy| ["--strategy", strategy]);
        let chosen = chosen.iter().flatten().copied();
        verb.iter().copied().chain(chosen).chain(words.iter().copied()).collect()
    }

    pub fn import(&self, name: &str, source: &Path) {
        self.well(&self.with_strategy(&["import"], &[name, source.to_str().unwrap()]));
    }

    /// Clones `base` as `name`.
    pub fn clone_of(&self, base: &str, name: &str) {
        self.well(&self.with_strategy(&["clone"], &[base, name]));
    }

    /// Runs `words` in the tree `name`, however it ends.
    pub fn run(&self, name: &str, words: &[&str]) -> Finished {
        let run = self.with_strategy(&["run"], &[name, "--"]);
        self.ends(&[&run, words].concat())
    }

    /// Runs a script in the tree `name`, which succeeds; what it wrote to stdout.
    pub fn sh(&self, name: &str, script: &str) -> String {
        let finished = self.run(name, &["/bin/sh", "-ec", script]);
        assert!(finished.status.success(), "{}: {script}: {finished:?}", self.strategy());
        finished.stdout
    }

    /// `words` in a new tree of `base` that is kept as `name`.
    pub fn keep(&self, base: &str, name: &str, words: &[&str]) {
        let run = self.with_strategy(&["run"], &["--from", base, "--commit", name, "--"]);
        self.well(&[&run, words].concat());
    }

    pub fn remove(&self, name: &str) {
        self.well(&["remove", name]);
    }

    /// The lines of `tree diff A B`, each as a letter and a path without a slash before it.
    pub fn diff(&self, a: &str, b: &str) -> BTreeSet<(char, String)> {
        let finished = self.ends(&["diff", a, b]);
        let lines = finished.stdout.lines().map(|line| {
            let (letter, path) = line.split_once(' ').unwrap_or_else(|| panic!("{finished:?}"));
            assert!(matches!(letter, "A" | "C" | "D"), "{finished:?}");
            let path = path.trim_start_matches("./").trim_start_matches('/').trim_end_matches('/');
            (letter.chars().next().unwrap(), path.to_owned())
        });
        let lines: BTreeSet<_> = lines.collect();
        let code = i32::from(!lines.is_empty());
        assert_eq!(finished.status.code(), Some(code), "{finished:?}");
        lines
    }

    /// What the tree `name` holds, as whoever mounts it sees it.
    pub fn content(&self, name: &str) -> Manifest {
        let point = self.fresh("mount");
        fs::create_dir(&point).unwrap();
        let point = point.to_str().unwrap();
        self.well(&["mount", name, point, "--read-only"]);
        let mut content = times(point.as_ref());
        // How xfs calls access lists, beside the names that every file system has.
        let own = |name: &String| name.starts_with("trusted.SGI_ACL_");
        content.entries.values_mut().for_each(|entry| entry.xattrs.retain(|name, _| !own(name)));
        self.well(&["umount", point]);
        fs::remove_dir(point).unwrap();
        content
    }

    /// What the tree `name` holds, as it is exported into a new directory.
    pub fn exported(&self, name: &str) -> Manifest {
        let to = self.place.path(&format!("exported-{}", self.strategy()));
        self.well(&["export", name, to.to_str().unwrap()]);
        let content = times(&to);
        fs::remove_dir_all(&to).unwrap();
        content
    }

    /// The layers themselves, with times: what nothing may ever write to.
    pub fn layers(&self) -> Layers {
        let manifest = times(&self.store().join("layers"));
        assert!(manifest.entries.keys().any(|path| path.ends_with("/tree")), "there are layers");
        Layers(manifest)
    }

    /// Asserts that the layers of `before` are as they were, and that the tool says so of
    /// the tree `name`, which stands on them.
    pub fn assert_unharmed(&self, what: &str, name: &str, before: &Layers) {
        let what = format!("{what} by {}", self.strategy());
        let mut now = times(&self.store().join("layers"));
        let ids: BTreeSet<_> = before.0.entries.keys().map(|path| top(path)).collect();
        now.entries.retain(|path, _| ids.contains(top(path)));
        let mut before = before.0.clone();
        // The directory of all layers has new ones.
        for manifest in [&mut now, &mut before] {
            manifest.entries.remove(".");
        }
        same(&what, &before, &now);
        let verified = self.ends(&["verify", name]);
        assert!(verified.status.success(), "{what}: {verified:?}");
    }
}

/// The layers of a store at some time.
pub struct Layers(Manifest);

/// The layer that `path` is in.
fn top(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// The manifest of `path`, with times.
pub fn times(path: &Path) -> Manifest {
    Manifest::with(path, &Options::default().mtimes()).unwrap()
}

/// Asserts that both are the same, and tells the first few differences.
pub fn same(what: &str, first: &Manifest, second: &Manifest) {
    assert!(first.entries.len() > 1, "{what}: there is something to compare");
    let differences = diff(first, second);
    let told: Vec<_> = differences.iter().take(20).map(|one| shortened(&one.to_string())).collect();
    assert!(told.is_empty(), "{what}: {} differences: {told:#?}", differences.len());
}

/// Without the middle, where paths are of thousands of bytes.
fn shortened(text: &str) -> String {
    let characters: Vec<_> = text.chars().collect();
    match characters.len() {
        ..=400 => text.to_owned(),
        length => {
            let part = |from, to| characters[from..to].iter().collect::<String>();
            format!("{} [...] {}", part(0, 100), part(length - 250, length))
        }
    }
}
