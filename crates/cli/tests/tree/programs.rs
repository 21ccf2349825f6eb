//! Programs that depend on details of the file system, each in a clone by each strategy and in
//! a plain copy of the same root: the results and the output must be equal.

mod scripts;

use self::scripts::{APT, BOOTSTRAP, BUILDAH, DPKG, GIT, MAKE, PODMAN, RPM, RSYNC, TAR};
use crate::roots;
use crate::site::{Site, for_each_strategy, limit, same, times};
use libtest_mimic::Trial;
use std::fs;
use std::path::Path;
use synconce_testkit::harness::Place;
use synconce_testkit::harness::{Need, debian, named_trials_on};
use synconce_testkit::manifest::{Manifest, ManifestOptions};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::{FsKind, Rig};

const BUSYBOX: Need = Need::File("/bin/busybox", "busybox-static");
const MMDEBSTRAP: Need = Need::Program("mmdebstrap", "mmdebstrap");

pub fn trials() -> Vec<Trial> {
    let programs: [(&str, TestedProgram, &[Need]); 10] = [
        ("git", GIT, &[Need::Program("git", "git"), BUSYBOX]),
        ("rsync", RSYNC, &[Need::Program("rsync", "rsync"), BUSYBOX]),
        ("tar", TAR, &[Need::Program("tar", "tar"), BUSYBOX]),
        (
            "make",
            MAKE,
            &[Need::Program("make", "make"), Need::Program("cc", "gcc libc6-dev"), BUSYBOX],
        ),
        ("rpm", RPM, &[Need::Program("rpm", "rpm"), Need::Program("rpmbuild", "rpm"), BUSYBOX]),
        (
            "dpkg",
            DPKG,
            &[Need::Program("dpkg", "dpkg"), Need::Program("dpkg-deb", "dpkg"), BUSYBOX],
        ),
        ("apt", APT, &[MMDEBSTRAP, Need::Program("dpkg-deb", "dpkg")]),
        ("mmdebstrap_inside", BOOTSTRAP, &[MMDEBSTRAP, BUSYBOX]),
        ("buildah_inside", BUILDAH, &[Need::Program("buildah", "buildah"), BUSYBOX]),
        ("podman_inside", PODMAN, &[Need::Program("podman", "podman"), BUSYBOX]),
    ];
    let on_each = |(name, program, needs): (_, TestedProgram, &[Need])| {
        let test = move |place: &Place, kind| compare(place, kind, &program);
        named_trials_on(&format!("programs::{name}::on"), &FsKind::ALL, test, needs)
    };
    programs.into_iter().flat_map(on_each).collect()
}

/// A program: its root, its scripts, and what is not compared.
#[derive(Clone, Copy)]
pub struct TestedProgram {
    root: ProgramRoot,
    /// Scripts in the root: the first prepares the base, the second runs in the clone. `/mnt`
    /// is the host's directory `shared` in both.
    prepare: &'static str,
    script: &'static str,
    /// Paths, as globs, that differ from run to run.
    ignored: &'static [&'static str],
}

/// The root of a program.
#[derive(Clone, Copy, PartialEq)]
pub enum ProgramRoot {
    /// A small root, with the programs of the host bound into it.
    Small,
    /// A minimal Debian.
    Debian,
}

/// Directories of the host that are bound into a small root, read-only.
const HOSTS: [&str; 7] = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/etc/alternatives"];

const ENVIRONMENT: &str = "export LC_ALL=C.UTF-8 HOME=/root TMPDIR=/tmp PATH=/usr/local/sbin:\
                           /usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin DEBIAN_FRONTEND=noninteractive\n\
                           unset XDG_RUNTIME_DIR; umask 022; cd /data\n";

/// Returns those of [`HOSTS`] that exist on this host.
fn hosts() -> impl Iterator<Item = &'static str> {
    HOSTS.into_iter().filter(|path| Path::new(path).is_dir())
}

/// Makes the root for `program`, before its scripts run.
fn root_of(place: &Place, program: &TestedProgram) -> std::path::PathBuf {
    let root = place.path("source");
    match program.root {
        ProgramRoot::Debian => roots::unpack(&debian::base(), &root),
        ProgramRoot::Small => {
            roots::small(place, "source");
            fs::remove_dir_all(root.join("bin")).unwrap();
            for directory in hosts().chain(["/var/lib", "/var/tmp", "/run", "/etc/containers"]) {
                fs::create_dir_all(root.join(&directory[1..])).unwrap();
            }
            let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
            fs::write(root.join("etc/containers/policy.json"), policy).unwrap();
            fs::set_permissions(
                root.join("tmp"),
                std::os::unix::fs::PermissionsExt::from_mode(0o1777),
            )
            .unwrap();
        }
    }
    for directory in ["mnt", "data"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    root
}

/// Returns the binds of a root, as `FROM TO MODE`.
fn binds(place: &Place, program: &TestedProgram) -> Vec<(String, String, &'static str)> {
    let mut binds = vec![(place.text("shared"), "/mnt".to_owned(), "rw")];
    if program.root == ProgramRoot::Small {
        binds.extend(hosts().map(|path| (path.to_owned(), path.to_owned(), "ro")));
    }
    binds
}

/// Runs `script` in the directory `root` by plain chroot(8).
fn in_a_chroot(place: &Place, program: &TestedProgram, root: &Path, script: &str) -> Finished {
    // Some programs require the root to be a mount.
    let mut words = "set -e; r=$1; mount --rbind $r $r; cd $r; mount -t proc proc $r/proc; mount --rbind /dev $r/dev; \
                     mount --rbind /sys $r/sys; "
        .to_owned();
    for (from, to, mode) in binds(place, program) {
        words += &format!("mount --bind {from} $r{to}; mount -o remount,bind,{mode} $r{to}; ");
    }
    words += "exec chroot $r /bin/sh -ec \"$2\"";
    let mut command = place.command("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
    command.args(["sh", "-c", &words, "sh"]).arg(root).arg(format!("{ENVIRONMENT}{script}"));
    process::run(&mut command, limit()).unwrap()
}

/// Runs `script` in the tree `name` of `site`.
fn in_a_clone(site: &Site<'_>, program: &TestedProgram, name: &str, script: &str) -> Finished {
    let binds = binds(site.place, program);
    let binds: Vec<_> =
        binds.iter().map(|(from, to, mode)| format!("{from}:{to}{}", mode_of(mode))).collect();
    let mut words = vec!["run", name];
    binds.iter().for_each(|bind| words.extend(["--bind", bind]));
    let script = format!("{ENVIRONMENT}{script}");
    words.extend(["--", "/bin/sh", "-ec", &script]);
    site.ends(&words)
}

fn mode_of(mode: &str) -> &'static str {
    if mode == "ro" { ":ro" } else { "" }
}

/// Returns the manifest without the paths that `program` ignores.
fn comparable(program: &TestedProgram, manifest: Manifest) -> Manifest {
    let options = program.ignored.iter().fold(ManifestOptions::default(), |options, glob| {
        options.ignore(glob).expect("a glob of ours")
    });
    let mut manifest = manifest.without_ignored(&options);
    // The two runs are at different times.
    manifest.entries.values_mut().for_each(|entry| entry.mtime = None);
    manifest
}

fn assert_well(what: &str, finished: &Finished) {
    assert!(finished.status.success(), "{what}: {finished:?}");
}

/// Runs `program` in a plain copy and in a clone by each strategy. Takes long for a whole Debian
/// (apt, mmdebstrap) and for containers: the real program runs up to five times.
fn compare(place: &Place, kind: FsKind, program: &TestedProgram) {
    // Thousands of files are removed and made beside the store, too. An ext4 without a journal,
    // which the machine may have, takes long for a new file after many were removed.
    let beside = (program.root == ProgramRoot::Debian)
        .then(|| Rig::builder().size(4 << 30).at(place.path("")).up().unwrap());
    let shared = place.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::copy("/bin/busybox", shared.join("busybox")).ok();
    for version in ["1", "2"] {
        let repository = shared.join(version);
        if program.script.contains("synconce-made") {
            roots::package(place, &repository, "synconce-made", version);
        }
    }
    let source = root_of(place, program);
    if !program.prepare.is_empty() {
        assert_well("the base", &in_a_chroot(place, program, &source, program.prepare));
    }
    let base = times(&source);
    let plain = place.path("plain");
    let copied = place.bare(&["cp", "-a", source.to_str().unwrap(), plain.to_str().unwrap()]);
    assert_well("a copy", &copied);
    let wanted = in_a_chroot(place, program, &plain, program.script);
    assert_well("in a plain root", &wanted);
    let left = comparable(program, times(&plain));
    for_each_strategy(place, kind, 4 << 30, |site| {
        let how = site.strategy();
        site.import("base", &source);
        let before = site.layers();
        site.clone_of("base", "clone");
        let done = in_a_clone(site, program, "clone", program.script);
        assert_well(how, &done);
        assert_eq!(done.stdout, wanted.stdout, "{how}: {}", done.stderr);
        same(&format!("what it left, {how}"), &left, &comparable(program, site.content("clone")));
        site.well(&["commit", "clone"]);
        site.well(&["squash", "clone"]);
        same(&format!("kept, {how}"), &left, &comparable(program, site.exported("clone")));
        site.assert_unchanged("the program", "base", &before);
        same(&format!("the base, {how}"), &base, &site.content("base"));
        for name in ["clone", "base"] {
            site.remove(name);
        }
        site.well(&["gc", "--wait"]);
    });
    beside.map_or(Ok(()), Rig::down).unwrap();
}
