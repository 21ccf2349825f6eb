//! A store on a disk of its own, and the verbs of `synconce tree` on that store.

use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use synconce_testkit::harness::{Need, Place, binary, eventually};
use synconce_testkit::manifest::{Manifest, ManifestOptions, diff};
use synconce_testkit::patiently;
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::{Cut, FsKind, Rig, RigBuilder, Survivors};

/// The mark of a rig at which its power is cut.
pub const CUT: &str = "cut";

/// Returns a limit that covers installs of packages.
pub fn limit() -> Duration {
    patiently(Duration::from_secs(240))
}

/// Returns the strategies of a store on `kind`, the default first.
pub fn strategies(kind: FsKind) -> &'static [&'static str] {
    match kind {
        FsKind::Ext4 => &["overlay", "copy"],
        FsKind::Xfs => &["overlay", "reflink", "copy"],
        FsKind::Btrfs => &["snapshot", "overlay", "reflink", "copy"],
    }
}

/// Returns `needs`, and what makes a disk of `kind`.
pub fn on(kind: FsKind, needs: &[Need]) -> Vec<Need> {
    [needs, &[Need::disk(kind)]].concat()
}

/// Returns `needs`, and what makes a disk of each kind.
pub fn on_all(needs: &[Need]) -> Vec<Need> {
    [needs, &FsKind::ALL.map(Need::disk)].concat()
}

/// Makes a disk, mounted at the directory `rig` of `place`.
pub fn disk(place: &Place, builder: RigBuilder) -> Rig {
    let point = place.path("rig");
    fs::create_dir(&point).unwrap();
    builder.at(point).up().unwrap()
}

/// Runs `test` with a store for each strategy on `kind`. Fails only after the last strategy,
/// so that one report names every strategy that failed.
pub fn for_each_strategy(place: &Place, kind: FsKind, size: u64, test: impl Fn(&Site<'_>)) {
    let rig = disk(place, Rig::builder().fs(kind).size(size));
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

/// A store, and the strategy under test.
pub struct Site<'a> {
    pub place: &'a Place,
    /// A directory on the disk under test.
    pub dir: PathBuf,
    strategy: Option<&'static str>,
    counter: Cell<u32>,
}

impl<'a> Site<'a> {
    /// Makes a site below `disk`. Without `strategy`, the tool chooses it.
    pub fn new(place: &'a Place, disk: &Path, strategy: Option<&'static str>) -> Self {
        let dir = disk.join(strategy.unwrap_or("chosen"));
        fs::create_dir(&dir).unwrap();
        let site = Self { place, dir, strategy, counter: Cell::new(0) };
        site.well(&["init"]);
        site
    }

    /// Makes a disk, and a site on it; the tool chooses the strategy.
    pub fn on_disk(place: &'a Place, builder: RigBuilder) -> (Rig, Self) {
        let rig = disk(place, builder);
        let site = Self::new(place, rig.path(), None);
        (rig, site)
    }

    /// Makes a site on the disk of `place`; the tool chooses the strategy.
    pub fn plain(place: &'a Place) -> Self {
        Self::new(place, &place.path(""), None)
    }

    pub fn strategy(&self) -> &'static str {
        self.strategy.unwrap_or("chosen")
    }

    /// Returns the path of the store.
    pub fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// Returns the content of the newest layer of the tree `name`.
    pub fn newest_layer(&self, name: &str) -> PathBuf {
        let record = fs::read(self.store().join(format!("trees/{name}.json"))).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        let layers = record["layers"].as_array().unwrap();
        let id = layers.last().unwrap()["id"].as_str().unwrap();
        self.store().join("layers").join(id).join("tree")
    }

    /// Cuts the power of `rig` at its mark [`CUT`], and calls `check` with the disk as it is then:
    /// once none of the unflushed writes have survived, once all of them.
    pub fn after_the_cut(&self, rig: Rig, check: impl Fn()) {
        eventually("no process has the disk open", || rig.unmount().is_ok());
        rig.mount().unwrap();
        let tape = rig.finish().unwrap();
        let at = tape.log().unwrap().mark(CUT).unwrap();
        for survivors in [Survivors::None, Survivors::All] {
            let replay = tape.replay().at(self.place.path("rig")).up().unwrap();
            let cut = replay.mounted(Cut::at(at).survivors(survivors)).unwrap();
            check();
            cut.unmount().unwrap();
            replay.down().unwrap();
        }
    }

    /// Returns a new path on the disk.
    pub fn fresh(&self, name: &str) -> PathBuf {
        self.counter.set(self.counter.get() + 1);
        self.dir.join(format!("{name}-{}", self.counter.get()))
    }

    /// Returns the command `synconce tree --store STORE WORDS`.
    pub fn tree(&self, words: &[&str]) -> Command {
        let mut command = self.place.command(binary());
        command.args(["tree", "--store"]).arg(self.store()).args(words);
        command
    }

    /// Runs `tree WORDS` to its end.
    pub fn ends(&self, words: &[&str]) -> Finished {
        process::run(&mut self.tree(words), limit()).unwrap()
    }

    /// Runs `tree WORDS`, and expects success.
    pub fn well(&self, words: &[&str]) -> Finished {
        let finished = self.ends(words);
        assert!(finished.status.success(), "{words:?}: {finished:?}");
        finished
    }

    /// Runs `tree WORDS`; expects the exit code `code`, one line that contains each of `why`,
    /// and no other output.
    pub fn refused(&self, code: i32, words: &[&str], why: &[&str]) {
        let finished = self.ends(words);
        assert_eq!(finished.status.code(), Some(code), "{words:?}: {finished:?}");
        assert_eq!(finished.stdout, "", "{words:?}: {finished:?}");
        let message = finished.stderr.to_lowercase();
        assert!(message.starts_with("synconce: "), "{words:?}: {finished:?}");
        for word in why {
            assert!(message.contains(&word.to_lowercase()), "{word}: {words:?}: {finished:?}");
        }
        assert!(!message.contains("panicked"), "{words:?}: {finished:?}");
    }

    fn with_strategy<'w>(&self, verb: &[&'w str], words: &[&'w str]) -> Vec<&'w str> {
        let chosen = self.strategy.map(|strategy| ["--strategy", strategy]);
        let chosen = chosen.iter().flatten().copied();
        verb.iter().copied().chain(chosen).chain(words.iter().copied()).collect()
    }

    pub fn import(&self, name: &str, source: &Path) {
        self.well(&self.with_strategy(&["import"], &[name, source.to_str().unwrap()]));
    }

    pub fn clone_of(&self, base: &str, name: &str) {
        self.well(&self.with_strategy(&["clone"], &[base, name]));
    }

    /// Runs `words` in the tree `name` to their end.
    pub fn run(&self, name: &str, words: &[&str]) -> Finished {
        let run = self.with_strategy(&["run"], &[name, "--"]);
        self.ends(&[&run, words].concat())
    }

    /// Runs a script in the tree `name`, and expects success; returns its standard output.
    pub fn sh(&self, name: &str, script: &str) -> String {
        let finished = self.run(name, &["/bin/sh", "-ec", script]);
        assert!(finished.status.success(), "{}: {script}: {finished:?}", self.strategy());
        finished.stdout
    }

    /// Runs a script in a clone of `base` that is thrown away, and expects success; returns its
    /// standard output.
    pub fn from(&self, base: &str, script: &str) -> String {
        self.well(&["run", "--from", base, "--", "/bin/sh", "-ec", script]).stdout
    }

    /// Runs `words` in a new tree of `base`, which is kept as `name`.
    pub fn keep(&self, base: &str, name: &str, words: &[&str]) {
        let run = self.with_strategy(&["run"], &["--from", base, "--commit", name, "--"]);
        self.well(&[&run, words].concat());
    }

    /// Removes the tree `name`, also with uncommitted changes.
    pub fn remove(&self, name: &str) {
        self.well(&["remove", "--force", name]);
    }

    /// Returns the lines of `tree diff A B`, each as a letter and a path without a leading
    /// slash.
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

    /// Returns the content of the tree `name`, read through a mount.
    pub fn content(&self, name: &str) -> Manifest {
        let point = self.fresh("mount");
        fs::create_dir(&point).unwrap();
        let point = point.to_str().unwrap();
        self.well(&["mount", name, point, "--read-only"]);
        let mut content = times(point.as_ref());
        // The names of access lists in xfs, beside the names that every file system uses.
        let own = |name: &String| name.starts_with("trusted.SGI_ACL_");
        content.entries.values_mut().for_each(|entry| entry.xattrs.retain(|name, _| !own(name)));
        self.well(&["umount", point]);
        fs::remove_dir(point).unwrap();
        content
    }

    /// Returns the content of the tree `name`, exported into a new directory.
    pub fn exported(&self, name: &str) -> Manifest {
        let to = self.place.path(&format!("exported-{}", self.strategy()));
        self.well(&["export", name, to.to_str().unwrap()]);
        let content = times(&to);
        fs::remove_dir_all(&to).unwrap();
        content
    }

    /// Returns the layers themselves, with times. Nothing may ever write to a layer.
    pub fn layers(&self) -> Layers {
        let manifest = times(&self.store().join("layers"));
        assert!(manifest.entries.keys().any(|path| path.ends_with("/tree")), "there are layers");
        Layers(manifest)
    }

    /// Asserts that the layers in `before` are unchanged, and that `verify` succeeds for the
    /// tree `name`, which uses them.
    pub fn assert_unchanged(&self, what: &str, name: &str, before: &Layers) {
        self.assert_same_layers(what, before);
        let verified = self.ends(&["verify", name]);
        assert!(verified.status.success(), "{what} by {}: {verified:?}", self.strategy());
    }

    /// Asserts that the layers in `before` are unchanged.
    pub fn assert_same_layers(&self, what: &str, before: &Layers) {
        let what = format!("{what} by {}", self.strategy());
        let mut now = times(&self.store().join("layers"));
        let ids: BTreeSet<_> = before.0.entries.keys().map(|path| top(path)).collect();
        now.entries.retain(|path, _| ids.contains(top(path)));
        let mut before = before.0.clone();
        // The directory of all layers has new entries.
        for manifest in [&mut now, &mut before] {
            manifest.entries.remove(".");
        }
        same(&what, &before, &now);
    }
}

/// The layers of a store at one moment.
pub struct Layers(Manifest);

/// Returns the layer that contains `path`.
fn top(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// Returns the manifest of `path`, with times.
pub fn times(path: &Path) -> Manifest {
    Manifest::with(path, &ManifestOptions::default().mtimes()).unwrap()
}

/// Asserts that both manifests are equal; prints the first few differences.
pub fn same(what: &str, first: &Manifest, second: &Manifest) {
    assert!(first.entries.len() > 1, "{what}: there is something to compare");
    let differences = diff(first, second);
    let shown: Vec<_> =
        differences.iter().take(20).map(|one| shortened(&one.to_string())).collect();
    assert!(shown.is_empty(), "{what}: {} differences: {shown:#?}", differences.len());
}

/// Returns `text` without the middle, because some paths have thousands of bytes.
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
