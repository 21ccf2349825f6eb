//! The machine: its kernel, its distribution, and the container around this process.

use serde::Serialize;
use std::fs;
use std::path::Path;

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Host {
    /// The release of the kernel.
    pub kernel: String,
    /// The CPUs that this process may use.
    pub cpus: usize,
    /// The distribution whose root directory this process has; `None` if no file names it.
    pub distribution: Option<Distribution>,
    /// What made the container around this process, or `unknown`; `None` outside of a container.
    pub container: Option<String>,
}

/// A distribution, by os-release(5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// `ID`.
    pub id: String,
    /// `VERSION_ID`; `None` of a distribution without versions.
    pub version: Option<String>,
}

/// The inode number of the first PID namespace (`PROC_PID_INIT_INO` of include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// Files that an engine or orchestrator makes in each container. A pod of CRI-O has two of them.
const SIGNS: [(&str, &str); 3] = [
    ("var/run/secrets/kubernetes.io", "kubernetes"),
    ("run/.containerenv", "podman"),
    (".dockerenv", "docker"),
];
/// The file in which systemd keeps the name of the container's manager.
const MANAGER: &str = "run/systemd/container";
/// The host name in a step of BuildKit. BuildKit makes none of the files of [`SIGNS`].
const BUILDKIT_HOST: &str = "buildkitsandbox";

impl Host {
    /// Asks the kernel, and reads files of the root directory.
    pub fn read() -> Self {
        let names = rustix::system::uname();
        // A machine that boots from a container image has the engine's file, too, so the PID
        // namespace decides.
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let is_contained =
            namespace != Path::new("") && namespace != Path::new(FIRST_PID_NAMESPACE);
        let root = Path::new("/");
        Self {
            kernel: names.release().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            distribution: Distribution::read(root),
            container: is_contained.then(|| manager(root, &names.nodename().to_string_lossy())),
        }
    }

    /// Returns the first two numbers of the kernel's release.
    pub(crate) fn version(&self) -> (u32, u32) {
        let digits = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse().unwrap_or(0)
        };
        let mut numbers = self.kernel.split('.').map(digits);
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }
}

impl Distribution {
    fn read(root: &Path) -> Option<Self> {
        let mut files = ["etc/os-release", "usr/lib/os-release"].into_iter();
        let text = files.find_map(|file| fs::read_to_string(root.join(file)).ok())?;
        let value = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.map(|value| value.trim_matches(['"', '\'']).to_owned())
        };
        Some(Self { id: value("ID")?, version: value("VERSION_ID") })
    }
}

/// Returns what made the container with the directory `root` and the host's name `host`.
fn manager(root: &Path, host: &str) -> String {
    let sign = SIGNS.into_iter().find(|(file, _)| root.join(file).exists());
    let by_name = (host == BUILDKIT_HOST).then_some("buildkit");
    let known = sign.map(|(_, name)| name).or(by_name).map(str::to_owned);
    let named = || Some(fs::read_to_string(root.join(MANAGER)).ok()?.trim().to_owned());
    known.or_else(named).unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_container_is_named_by_what_its_manager_leaves_in_it() {
        for (files, host, wanted) in [
            (&[(".dockerenv", "")][..], "h", "docker"),
            (&[("run/.containerenv", "")], "h", "podman"),
            (
                &[("run/.containerenv", ""), ("var/run/secrets/kubernetes.io/x", "")],
                "h",
                "kubernetes",
            ),
            (&[], "buildkitsandbox", "buildkit"),
            (&[("run/systemd/container", "lxc\n")], "h", "lxc"),
            (&[], "h", "unknown"),
        ] {
            assert_eq!(manager(root(files).path(), host), wanted, "{files:?}");
        }
    }

    #[test]
    fn a_distribution_is_read_with_and_without_quotes() {
        let read = |files: &[(&str, &str)]| Distribution::read(root(files).path());
        let alpine = "NAME=\"Alpine Linux\"\nID=alpine\nVERSION_ID=3.20.1\n";
        let rhel = "VERSION_ID=\"9.4\"\nID=\"rhel\"\nID_LIKE=\"fedora\"\n";
        let found = |id: &str, version: Option<&str>| {
            Some(Distribution { id: id.to_owned(), version: version.map(str::to_owned) })
        };
        assert_eq!(read(&[("usr/lib/os-release", alpine)]), found("alpine", Some("3.20.1")));
        assert_eq!(read(&[("etc/os-release", rhel)]), found("rhel", Some("9.4")));
        assert_eq!(read(&[("etc/os-release", "ID=arch\n")]), found("arch", None));
        assert_eq!(read(&[]), None);
    }
}
