//! The prepared base: a tar of a minimal Debian root with downloaded packages, from which
//! scenarios start.

mod apt;
mod build_dir;

use self::apt::AptSource;
use self::build_dir::BuildDir;
use crate::command::{show, words};
use crate::launcher::Launcher;
use crate::mounts::ChrootMounts;
use crate::scenario::Need;
use crate::{Error, files};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Part of the key; increment it whenever the preparation changes.
const LAYOUT: &str = "2";

/// A package that the base has in addition to the suite's minimum.
const EXTRA: &str = "eatmydata";

/// Programs of the base whose versions matter.
const VERSIONED: [&str; 4] = ["apt", "dpkg", "libc6", EXTRA];

/// apt's configuration in the base. Packages are kept after an install; a hook of container
/// images would delete them. Recommended packages are left out, as in most image builds: 55
/// packages instead of 123 for the default ones.
const APT_CONFIGURATION: &str = "APT::Keep-Downloaded-Packages \"true\";\n\
                                 Acquire::Languages \"none\";\n\
                                 APT::Install-Recommends \"false\";\n";

/// Exit code 101 forbids the start of services (Debian's policy-rc.d).
const POLICY: &str = "#!/bin/sh\nexit 101\n";

/// What a base has of its packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseContent {
    /// The packages are downloaded.
    Downloaded,
    /// The packages are installed.
    Installed,
    /// The packages are installed, and every package of the base is downloaded once more.
    Upgradable,
}

/// The content of a base, and where it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseOptions {
    /// The packages that scenarios install, or that are in the base.
    pub packages: Vec<String>,
    /// What the base has of the packages.
    pub content: BaseContent,
    /// The Debian suite.
    pub suite: String,
    /// A mirror to use instead of the host's own apt sources.
    pub mirror: Option<String>,
    /// Where the prepared base is kept.
    pub cache: PathBuf,
}

/// The options, with the apt sources that they select on this host.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    options: BaseOptions,
    sources: Vec<AptSource>,
}

impl Recipe {
    /// Selects the apt sources.
    ///
    /// # Errors
    /// An architecture is unknown; or no mirror is named, and the host has no source of that suite.
    pub(crate) fn new(options: &BaseOptions) -> Result<Self, Error> {
        apt::refuse_unknown_architectures(&options.packages)?;
        let sources = match &options.mirror {
            Some(mirror) => vec![AptSource::new(mirror, &options.suite)],
            None => apt::host_sources(Path::new("/etc/apt"), &options.suite)?,
        };
        Ok(Self { options: options.clone(), sources })
    }

    /// Returns the Debian suite.
    pub(crate) fn suite(&self) -> &str {
        &self.options.suite
    }

    fn key(&self, configuration: &str) -> String {
        let mut digest = Sha256::new();
        for part in [
            LAYOUT,
            EXTRA,
            std::env::consts::ARCH,
            &self.options.suite,
            &self.options.packages.join(" "),
            &apt::render(&self.sources),
            configuration,
        ] {
            digest.update(part);
            digest.update([0]);
        }
        if self.options.content == BaseContent::Installed {
            digest.update("installed");
        }
        let bytes = digest.finalize();
        bytes.iter().take(8).map(|b| format!("{b:02x}")).collect()
    }
}

/// Returns `$XDG_CACHE_HOME/synconce`, or /var/cache/synconce.
pub fn default_cache() -> PathBuf {
    std::env::var_os("XDG_CACHE_HOME")
        .filter(|home| !home.is_empty())
        .map_or_else(|| PathBuf::from("/var/cache"), PathBuf::from)
        .join("synconce")
}

/// A base on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Base {
    /// The tar, uncompressed.
    pub(crate) tar: PathBuf,
    /// Versions of the programs in it.
    pub(crate) versions: BTreeMap<String, String>,
    /// Downloaded packages in it.
    pub(crate) archives: usize,
}

impl Base {
    /// Returns the base from the cache, and makes it first if it is missing.
    pub(crate) fn obtain(recipe: &Recipe, launcher: &Launcher) -> Result<Self, Error> {
        let configuration = apt::host_configuration(launcher)?;
        let key = recipe.key(&configuration);
        let kind = match recipe.options.content {
            BaseContent::Downloaded => "install",
            BaseContent::Installed => "tree",
            BaseContent::Upgradable => "upgrade",
        };
        let tar = recipe.options.cache.join(format!("{kind}-{key}.tar"));
        let note = tar.with_extension("json");
        let kept = || read_note(&note).filter(|base| base.tar == tar && tar.is_file());
        if let Some(base) = kept() {
            return Ok(base);
        }
        files::create_dir(&recipe.options.cache)?;
        let _lock = lock_cache(&recipe.options.cache, launcher)?;
        if let Some(base) = kept() {
            return Ok(base);
        }
        let dir = BuildDir::new(&recipe.options.cache)?;
        let root = dir.root();
        bootstrap(&root, recipe, launcher)?;
        let versions = add_packages(&root, recipe, &configuration, launcher)?;
        let base = Self { archives: count_archives(&root), versions, tar };
        base.store(&root, &note, launcher)?;
        Ok(base)
    }

    /// Writes the tar under a temporary name first, so that an incomplete base is never used;
    /// the note is written last.
    fn store(&self, root: &Path, note: &Path, launcher: &Launcher) -> Result<(), Error> {
        let part = self.tar.with_extension("part");
        let (tar, from) = (show(&part), show(root));
        let pack = ["tar", "-c", "--numeric-owner", "--xattrs", "-f", &tar, "-C", &from, "."];
        launcher.run_helper("pack the base", &pack)?;
        fs::File::open(&part).and_then(|file| file.sync_all()).map_err(Error::io("sync", &part))?;
        fs::rename(&part, &self.tar).map_err(Error::io("rename", &part))?;
        let text = serde_json::to_string_pretty(self)
            .map_err(Error::io::<serde_json::Error>("encode", note))?;
        files::write(note, text)
    }

    /// Unpacks the base into a new directory.
    pub(crate) fn unpack(&self, root: &Path, launcher: &Launcher) -> Result<(), Error> {
        files::create_dir(root)?;
        let (tar, to) = (show(&self.tar), show(root));
        let flags = ["--numeric-owner", "--xattrs", "--xattrs-include=*"];
        let command = [&["tar", "-xp"][..], &flags, &["-f", &tar, "-C", &to]].concat();
        launcher.run_helper("unpack the base", &command)
    }

    /// Returns one line for the report.
    pub(crate) fn summary(&self) -> String {
        let versions = self.versions.iter();
        let versions: Vec<String> = versions.map(|(k, v)| format!("{k} {v}")).collect();
        format!("base: {} packages downloaded; {}", self.archives, versions.join(", "))
    }
}

/// Locks the cache, so that another benchmark neither makes the same base at the same time nor
/// writes into this base. The kernel releases the lock when the process ends in any way.
fn lock_cache(cache: &Path, launcher: &Launcher) -> Result<fs::File, Error> {
    let dir = fs::File::open(cache).map_err(Error::io("open", cache))?;
    loop {
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(dir),
            Err(Errno::WOULDBLOCK) => launcher.pause(Duration::from_millis(100))?,
            Err(errno) => return Err(Error::io("lock", cache)(errno)),
        }
    }
}

fn read_note(note: &Path) -> Option<Base> {
    serde_json::from_slice(&fs::read(note).ok()?).ok()
}

fn bootstrap(root: &Path, recipe: &Recipe, launcher: &Launcher) -> Result<(), Error> {
    let (suite, target) = (&recipe.options.suite, show(root));
    let sources = &recipe.sources;
    // Temporary files of an interrupted debootstrap are removed with the directory.
    let scratch = format!("TMPDIR={}", show(root.parent().unwrap_or(root)));
    let command: Vec<String>;
    if Need::new("mmdebstrap", "").is_met() {
        let list = root.with_extension("sources");
        files::write(&list, apt::render(sources))?;
        let before = ["env", &scratch, "mmdebstrap", "--mode=root", "--variant=apt"];
        command = words(&[&before[..], &[suite, &target, &show(&list)]].concat());
    } else if Need::new("debootstrap", "").is_met() {
        let main = sources.iter().find(|s| s.has_suite(suite));
        let uri = main.map_or("", AptSource::uri);
        let before = ["env", &scratch, "debootstrap", "--variant=minbase"];
        command = words(&[&before[..], &[suite, &target, uri]].concat());
    } else {
        return Err(Error::Unsuitable {
            what: "this host".to_owned(),
            reason:
                "neither mmdebstrap nor debootstrap is installed; the package mmdebstrap brings one"
                    .to_owned(),
        });
    }
    launcher.run_helper("make the base", &command)
}

/// Configures apt in the root, and downloads or installs the packages.
fn add_packages(
    root: &Path,
    recipe: &Recipe,
    configuration: &str,
    launcher: &Launcher,
) -> Result<BTreeMap<String, String>, Error> {
    configure(root, recipe, configuration)?;
    let mut mounts = ChrootMounts::new(root)?;
    let apt = |purpose: &str, words: &[&str], packages: &[String]| {
        let root = show(root);
        // The root has no TMPDIR of the host.
        let before = ["chroot", &root, "/usr/bin/env", "--unset=TMPDIR"];
        let own = ["DEBIAN_FRONTEND=noninteractive", "apt-get", "-y"];
        let before = [&before[..], &own, words].concat();
        let packages = packages.iter().map(String::as_str);
        launcher.run_helper(purpose, &before.into_iter().chain(packages).collect::<Vec<_>>())
    };
    for package in &recipe.options.packages {
        if let Some(architecture) = apt::architecture(package) {
            let add = ["chroot", &show(root), "dpkg", "--add-architecture", architecture];
            launcher.run_helper("add an architecture", &add)?;
        }
    }
    apt("read the package lists", &["update"], &[])?;
    apt("install eatmydata in the base", &["install", EXTRA], &[])?;
    // The base's own packages are not measured.
    apt("empty the package cache", &["clean"], &[])?;
    let packages = &recipe.options.packages;
    if recipe.options.content == BaseContent::Downloaded {
        apt("download the packages", &["install", "--download-only"], packages)?;
    } else {
        // An incomplete base is never used, so nothing has to be durable.
        let hurried = ["install", "-o", "DPkg::Options::=--force-unsafe-io"];
        apt("install the packages", &hurried, packages)?;
        apt("empty the package cache", &["clean"], &[])?;
    }
    if recipe.options.content == BaseContent::Upgradable {
        let all: Vec<String> = versions(root, &[], launcher)?.into_keys().collect();
        apt("download all packages", &["install", "--reinstall", "--download-only"], &all)?;
    }
    let versions = versions(root, &VERSIONED, launcher)?;
    mounts.unmount()?;
    Ok(versions)
}

fn configure(root: &Path, recipe: &Recipe, configuration: &str) -> Result<(), Error> {
    let etc = root.join("etc/apt");
    let lists = etc.join("sources.list.d");
    fs::remove_dir_all(&lists)
        .and_then(|()| fs::create_dir(&lists))
        .map_err(Error::io("empty", &lists))?;
    let _ = fs::remove_file(etc.join("sources.list"));
    write_file(&lists.join("base.sources"), &apt::render(&recipe.sources), 0o644)?;
    let own = format!("{APT_CONFIGURATION}{configuration}");
    write_file(&etc.join("apt.conf.d/90base"), &own, 0o644)?;
    write_file(&root.join("usr/sbin/policy-rc.d"), POLICY, 0o755)?;
    for keyring in recipe.sources.iter().filter_map(AptSource::keyring) {
        let inside = root.join(keyring.strip_prefix("/").unwrap_or(&keyring));
        if !inside.exists() {
            let dir = inside.parent().unwrap_or(root);
            files::create_dir(dir)?;
            fs::copy(&keyring, &inside).map_err(Error::io("copy", &keyring))?;
        }
    }
    let resolver = root.join("etc/resolv.conf");
    let _ = fs::remove_file(&resolver);
    fs::copy("/etc/resolv.conf", &resolver)
        .map(|_| ())
        .map_err(Error::io("copy", "/etc/resolv.conf"))
}

fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    files::write(path, text)?;
    files::set_mode(path, mode)
}

/// Returns the versions of packages in the root; of all if `packages` is empty.
fn versions(
    root: &Path,
    packages: &[&str],
    launcher: &Launcher,
) -> Result<BTreeMap<String, String>, Error> {
    let log = launcher.log("versions");
    let root = show(root);
    let before = ["chroot", &root, "dpkg-query", "-W", "-f", "${Package} ${Version}\n"];
    let (_, text) = launcher.output(&[&before[..], packages].concat(), &log)?;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    Ok(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
}

fn count_archives(root: &Path) -> usize {
    fs::read_dir(root.join("var/cache/apt/archives")).map_or(0, |entries| {
        entries
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|e| e == "deb"))
            .count()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_of_other_packages_or_another_mirror_has_another_key() {
        let recipe = |mirror: &str, packages: &[&str]| {
            let options = BaseOptions {
                packages: packages.iter().map(|name| (*name).to_owned()).collect(),
                content: BaseContent::Downloaded,
                suite: "bookworm".to_owned(),
                mirror: Some(mirror.to_owned()),
                cache: default_cache(),
            };
            Recipe::new(&options).expect("a mirror is given")
        };
        let here = recipe("http://a.invalid", &["gcc", "make"]);
        let own = here.key("");
        assert_eq!(own, here.key(""));
        assert_ne!(own, recipe("http://a.invalid", &["gcc"]).key(""));
        assert_ne!(own, recipe("http://b.invalid", &["gcc", "make"]).key(""));
        assert_ne!(own, here.key("Acquire::Retries \"3\";\n"));
    }

    #[test]
    fn the_second_user_of_an_empty_cache_waits_for_the_first() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let launcher = Launcher::new().expect("signals can be watched");
        let first = lock_cache(dir.path(), &launcher).expect("it is free");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| lock_cache(dir.path(), &launcher).map(|_| ()));
            std::thread::sleep(Duration::from_millis(300));
            assert!(!second.is_finished());
            drop(first);
            second.join().expect("no panic").expect("the lock passes on");
        });
    }

    #[test]
    fn a_note_that_is_cut_short_is_no_base() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let note = dir.path().join("x.json");
        fs::write(&note, "{\"tar\": \"/x").expect("a file can be written");
        assert_eq!(read_note(&note), None);
    }
}
