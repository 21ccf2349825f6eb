//! Tests that are ignored if a program that they need is missing.

use super::{Place, isolated, isolated_as};
use crate::rig::FsKind;
use libtest_mimic::{Failed, Trial};
use rustix::fs::{Access, access};
use std::any::type_name;
use std::io::Write;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use synconce_probe::version::numbers;
use synconce_sys::overlay::kernel_is_at_least;
use synconce_sys::search;

/// A requirement of a test.
#[derive(Clone, Copy)]
pub enum Need {
    /// A program in the PATH, and the packages that contain it.
    Program(&'static str, &'static str),
    /// A program whose `--version` names this major version or a later one.
    Since(&'static str, u32),
    /// A program whose `--version` names a version before this one, major and minor, and what this
    /// version no longer does.
    Before(&'static str, (u32, u32), &'static str),
    /// A path, and the packages that contain it.
    File(&'static str, &'static str),
    /// A module of CPython's own tests.
    PythonTest(&'static str),
    /// A path below the directory that `scripts/programs` has fetched and built.
    Upstream(&'static str),
    /// A program that `scripts/engines` has built.
    Engine(&'static str),
    /// A version of Linux, major and minor, and what came with it.
    Linux(u32, u32, &'static str),
    /// One of these capabilities, a set of bits of linux/capability.h, and their names.
    OneCapabilityOf(u64, &'static str),
    /// A file system that this process can mount, as options of mount(8).
    Mount(&'static [&'static str]),
    /// These controllers of control groups, below /sys/fs/cgroup, which this process may change.
    Controllers(&'static [&'static str]),
    /// A network beyond this machine, from which packages are downloaded.
    Network,
}

/// Returns the version, major and minor, that `name --version` prints first.
fn version(name: &str) -> Option<(u32, u32)> {
    let printed = Command::new(name).arg("--version").output().ok()?;
    numbers(&String::from_utf8_lossy(&printed.stdout))
}

/// Returns the effective capabilities of this process (proc_pid_status(5)).
fn capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
}

/// Whether a writable hierarchy of cgroups, of version 1 or 2, has the controller `name`.
fn has_controller(name: &str) -> bool {
    let top = Path::new("/sys/fs/cgroup");
    let unified = std::fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
    let is_unified = unified.split_whitespace().any(|it| it == name);
    let hierarchy = if is_unified { top.to_owned() } else { top.join(name) };
    access(&hierarchy, Access::WRITE_OK).is_ok()
}

/// Whether the kernel has a route to another machine. No packet is sent (udp(7)).
fn has_route() -> bool {
    // Addresses for documentation, which no machine has (RFC 5737, RFC 3849).
    [("0.0.0.0:0", "192.0.2.1:80"), ("[::]:0", "[2001:db8::1]:80")]
        .into_iter()
        .any(|(from, to)| UdpSocket::bind(from).and_then(|socket| socket.connect(to)).is_ok())
}

/// Tries a mount in a mount namespace that ends with it.
fn can_mount(options: &[&str]) -> bool {
    let mut tried = Command::new("unshare");
    tried.args(["--mount", "mount"]).args(options).args(["none", "/proc"]).stderr(Stdio::null());
    tried.status().is_ok_and(|status| status.success())
}

impl Need {
    /// Returns the requirement of a test on a disk of `kind`.
    pub const fn disk(kind: FsKind) -> Self {
        Self::Program(kind.mkfs(), kind.package())
    }

    /// Returns why the requirement is missing, with the remedy.
    fn missing(self) -> Option<String> {
        match self {
            Self::Program(name, packages) => {
                search::find(name).is_none().then(|| format!("no {name}; install {packages}"))
            }
            Self::Since(name, major) => (version(name) < Some((major, 0)))
                .then(|| format!("{name} is older than {major}; put a later one first in PATH")),
            Self::Before(name, (major, minor), change) => (version(name) >= Some((major, minor)))
                .then(|| format!("{name} is {major}.{minor} or later: {change}")),
            Self::File(path, packages) => {
                (!Path::new(path).exists()).then(|| format!("no {path}; install {packages}"))
            }
            Self::PythonTest(name) => python_with(name)
                .is_none()
                .then(|| format!("no python3 has test.{name}; install libpython3.11-testsuite, or of your version")),
            Self::Upstream(name) => {
                upstream(name).is_none().then(|| format!("no {name}; run scripts/programs"))
            }
            Self::Engine(name) => {
                engine(name).is_none().then(|| format!("no {name}; run scripts/engines"))
            }
            Self::Linux(major, minor, what) => (!kernel_is_at_least(major, minor))
                .then(|| format!("Linux has no {what} before {major}.{minor}")),
            Self::OneCapabilityOf(set, names) => (capabilities() & set == 0)
                .then(|| format!("this process has none of {names}; run it outside of a container")),
            Self::Mount(options) => (!can_mount(options)).then(|| {
                let options = options.join(" ");
                format!("mount {options} fails; run it as root, with a kernel that has this")
            }),
            Self::Network => (!has_route())
                .then(|| "no route to another machine; connect this one to a network".to_owned()),
            Self::Controllers(names) => {
                let missing: Vec<_> = names.iter().filter(|name| !has_controller(name)).collect();
                (!missing.is_empty()).then(|| {
                    format!("no control groups of {missing:?} in /sys/fs/cgroup; mount them writable")
                })
            }
        }
    }
}

/// Returns `test` as a trial with the name of its function.
pub fn trial<T: Fn(&Place) + Copy + Send + 'static>(test: T, needs: &[Need]) -> Trial {
    let name = type_name::<T>().split_once("::").map_or("", |(_, rest)| rest);
    named_trial(name, needs, move || isolated(test))
}

/// Returns `test` as the trial `name`. Where a need is missing, the trial is ignored. With
/// `--include-ignored` the trial then fails, and says what is missing.
pub fn named_trial(name: &str, needs: &[Need], test: impl FnOnce() + Send + 'static) -> Trial {
    let missing = missing_of(name, needs);
    let is_ignored = !missing.is_empty();
    let run = move || {
        if is_ignored {
            return Err(Failed::from(missing.join("; ")));
        }
        test();
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(is_ignored)
}

/// Whether one of `needs` is missing. Prints that the test `name` is skipped then.
pub fn is_skipped(name: &str, needs: &[Need]) -> bool {
    !missing_of(name, needs).is_empty()
}

/// Returns what is missing of `needs`. Prints that the test `name` is skipped if anything is.
fn missing_of(name: &str, needs: &[Need]) -> Vec<String> {
    let missing: Vec<_> = needs.iter().filter_map(|need| need.missing()).collect();
    if !missing.is_empty() {
        // The harness of Rust's tests shows what `eprintln` prints for a failed test only.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {}", missing.join("; "));
    }
    missing
}

/// Returns `test` as a trial on a disk of each of `kinds`, with the name of its function and of the
/// kind: `are_kept_on_xfs`.
pub fn trials_on<T: Fn(&Place, FsKind) + Copy + Send + 'static>(
    kinds: &[FsKind],
    test: T,
    needs: &[Need],
) -> Vec<Trial> {
    let name = type_name::<T>().split_once("::").map_or("", |(_, rest)| rest);
    named_trials_on(&format!("{name}_on"), kinds, test, needs)
}

/// Like [`trials_on`], with `name` before the name of the kind.
pub fn named_trials_on(
    name: &str,
    kinds: &[FsKind],
    test: impl Fn(&Place, FsKind) + Copy + Send + 'static,
    needs: &[Need],
) -> Vec<Trial> {
    let on = |kind: &FsKind| {
        let (kind, name) = (*kind, format!("{name}_{kind}"));
        let needs = [needs, &[Need::disk(kind)]].concat();
        let run = name.clone();
        named_trial(&name, &needs, move || isolated_as(&run, |place| test(place, kind)))
    };
    kinds.iter().map(on).collect()
}

/// Returns the python that has the module `name` of CPython's tests. Debian's comes before a
/// python from another source.
pub fn python_with(name: &str) -> Option<&'static str> {
    let has = |python: &&str| {
        let find = format!("import importlib.util as u; exit(not u.find_spec('test.{name}'))");
        let found = Command::new(python).args(["-c", &find]).stderr(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    ["/usr/bin/python3", "python3"].into_iter().find(has)
}

/// Returns the programs of the newest installed PostgreSQL.
pub fn postgresql() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("checked before").flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|version| version.path()).max_by_key(number);
    newest.expect("a version").join("bin")
}

/// Returns the path `name` below the directory of `scripts/programs`.
pub fn upstream(name: &str) -> Option<PathBuf> {
    below("SYNCONCE_UPSTREAM", name)
}

/// Returns the program `name` that `scripts/engines` has built.
pub fn engine(name: &str) -> Option<PathBuf> {
    below("SYNCONCE_ENGINES", name)
}

fn below(variable: &str, name: &str) -> Option<PathBuf> {
    let path = Path::new(&std::env::var_os(variable)?).join(name);
    path.exists().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::Need;
    use synconce_sys::namespace::UnshareFlags;

    #[test]
    fn a_file_system_that_the_kernel_does_not_have_is_missing() {
        let missing = Need::Mount(&["-t", "none-such"]).missing();
        assert!(missing.unwrap().starts_with("mount -t none-such fails; "));
    }

    #[test]
    fn a_controller_that_no_kernel_has_is_missing() {
        let missing = Need::Controllers(&["none-such"]).missing();
        assert!(missing.unwrap().starts_with("no control groups of [\"none-such\"] in /sys"));
    }

    #[test]
    fn a_network_namespace_of_its_own_has_no_route() {
        let missing = || {
            // The namespace of this thread alone.
            let moved = synconce_sys::namespace::unshare(UnshareFlags::NEWNET);
            moved.map(|()| Need::Network.missing())
        };
        match std::thread::spawn(missing).join().unwrap() {
            Ok(missing) => assert!(missing.unwrap().starts_with("no route to another machine; ")),
            Err(error) => eprintln!("SKIPPED: no network namespace can be made: {error}"),
        }
    }

    #[test]
    fn a_program_is_missing_from_the_version_on_that_changed_it() {
        let of_cargo = |from| Need::Before("cargo", from, "changed").missing();
        assert_eq!(of_cargo((99, 0)), None);
        assert_eq!(of_cargo((1, 2)).as_deref(), Some("cargo is 1.2 or later: changed"));
    }
}
