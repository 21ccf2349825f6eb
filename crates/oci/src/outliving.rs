//! Finds data that a build step can write to and that outlives the step: volumes and directories of
//! the host, cache mounts, and block devices. The engine stores no such data with the image.

use crate::bundle::{BundleMount, Facts};
use crate::classify::CallContext;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use synconce_probe::filesystem::stores_nothing;
use synconce_probe::mounts::Mount;

impl CallContext<'_> {
    /// Returns a path with such data. Of a directory that Buildah has bound below the bundle, the
    /// path is relative to its file system.
    pub(crate) fn outliving(&self) -> Option<PathBuf> {
        let sources = self.facts.mounts.iter().filter_map(BundleMount::writable);
        sources
            .map(|source| self.bundle.join(source))
            .find_map(|source| self.outliving_of(&source))
            .or_else(|| self.bound_below())
            .or_else(|| self.mounted_below(&self.root()?))
            .or_else(|| self.mounted_disk())
            .or_else(|| self.block_device())
    }

    /// Returns the place of a disk below a source that is bound recursively, and read-only at its
    /// top.
    fn bound_below(&self) -> Option<PathBuf> {
        let sources = self.facts.mounts.iter().filter_map(BundleMount::bound_below);
        let sources = sources.map(|source| resolved(&self.bundle.join(source)));
        sources.filter(|source| !self.is_kernels(source)).find_map(|path| self.mounted_below(&path))
    }

    /// Returns where the container mounts a disk itself.
    fn mounted_disk(&self) -> Option<PathBuf> {
        let disk = self.facts.mounts.iter().find(|mount| mount.is_disk());
        disk.map(|mount| mount.destination.clone())
    }

    /// Whether `source` is of proc or sysfs. Below these are more interfaces of the kernel, such as
    /// binfmt_misc.
    fn is_kernels(&self, source: &Path) -> bool {
        let covering = covering(source, self.mounts);
        covering.is_some_and(|mount| matches!(&*mount.type_name, "proc" | "sysfs"))
    }

    /// Returns a block device of the container. BuildKit gives loop devices to each step with
    /// `--security=insecure`.
    fn block_device(&self) -> Option<PathBuf> {
        let is_asked_for =
            |path: &&PathBuf| self.is_buildah() || !path.to_string_lossy().starts_with("/dev/loop");
        self.facts.block_devices.iter().find(is_asked_for).cloned()
    }

    /// Returns whether the container is a build step that can write to data that outlives it.
    pub(crate) fn writes_outliving(&self) -> bool {
        self.build().is_some() && self.outliving().is_some()
    }

    /// Returns the root of the container.
    fn root(&self) -> Option<PathBuf> {
        let root = &self.facts.root.path;
        (!root.as_os_str().is_empty()).then(|| resolved(&self.bundle.join(root)))
    }

    /// Returns a path with outliving data in the source of a mount.
    fn outliving_of(&self, source: &Path) -> Option<PathBuf> {
        // A link of the host can lead anywhere, as /proc/PID/root does.
        let source = resolved(source);
        let kind = source.metadata().map(|found| found.file_type()).ok();
        if kind.is_some_and(|kind| kind.is_block_device()) {
            return Some(source);
        }
        if kind.is_some_and(|it| it.is_socket() || it.is_char_device() || it.is_fifo()) {
            return None;
        }
        let covering = covering(&source, self.mounts);
        let is_stored = covering.is_none_or(|mount| !stores_nothing(&mount.type_name));
        // Buildah first mounts a source below the bundle, and then mounts it from there.
        let behind = covering.filter(|mount| mount.point.starts_with(self.bundle));
        let path = behind.map_or_else(|| source.clone(), |mount| in_file_system(mount, &source));
        let is_of_bundle = behind.is_none() && source.starts_with(self.bundle);
        if is_stored && !is_of_bundle && !self.is_of_buildah(&path) {
            return Some(path);
        }
        if self.is_kernels(&source) { None } else { self.mounted_below(&source) }
    }

    /// Returns the place of a disk that is mounted below `path`: engines bind the mounts below a
    /// source, too.
    fn mounted_below(&self, path: &Path) -> Option<PathBuf> {
        let is_below = |mount: &&Mount| mount.point != path && mount.point.starts_with(path);
        let is_stored = |mount: &&Mount| mount.writable && !stores_nothing(&mount.type_name);
        let found = self.mounts.iter().filter(is_below).find(is_stored);
        found.map(|mount| mount.point.clone())
    }

    /// Returns whether `path` is a file that Buildah or containers/storage has made for the step:
    /// in the bundle, or in `<driver>-containers/<ID>`. Directories of users have other names.
    fn is_of_buildah(&self, path: &Path) -> bool {
        let parts: Vec<_> = path.iter().collect();
        let is_id = |name: &OsStr| {
            name.len() == 64 && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit)
        };
        let is_storage = |pair: &[&OsStr]| {
            pair[0].as_encoded_bytes().ends_with(b"-containers") && is_id(pair[1])
        };
        self.is_buildah()
            && (parts.iter().any(|part| Some(*part) == self.bundle.file_name())
                || parts.windows(2).any(is_storage))
    }
}

pub(crate) fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Returns the volumes of an image among the sources of writable mounts of a step of Buildah before
/// 1.37. Such a volume is in `<driver>-containers/<ID>/userdata`, and lasts as long as the working
/// container. Since then only a program that uses Buildah's library can ask for it
/// (`RunOptions.CompatBuiltinVolumes`).
pub(crate) fn volumes(bundle: &Path, facts: &Facts, mounts: &[Mount]) -> Vec<PathBuf> {
    let sources = facts.mounts.iter().filter_map(BundleMount::writable);
    let sources = sources.map(|source| resolved(&bundle.join(source)));
    let is_volume = |source: &PathBuf| {
        let path = covering(source, mounts).map(|mount| in_file_system(mount, source));
        path.is_some_and(|path| path.iter().any(|part| part == "buildah-volumes"))
    };
    sources.filter(is_volume).collect()
}

/// Returns `path`, which is on `mount`, relative to the file system.
fn in_file_system(mount: &Mount, path: &Path) -> PathBuf {
    match path.strip_prefix(&mount.point) {
        Ok(rest) if rest.as_os_str().is_empty() => mount.root.clone(),
        Ok(rest) => mount.root.join(rest),
        Err(_) => path.to_owned(),
    }
}

/// Returns the mount that `path` is on; `path` has no links. Looks from the root down, as the
/// kernel does: a mount whose mount point is covered is hidden.
pub(crate) fn covering<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let ids: HashSet<_> = mounts.iter().map(|mount| mount.id).collect();
    let is_top = |mount: &Mount| mount.parent == mount.id || !ids.contains(&mount.parent);
    let first = |is_wanted: &dyn Fn(&Mount) -> bool| {
        let found = mounts.iter().filter(|mount| is_wanted(mount));
        let above = found.filter(|mount| path.starts_with(&mount.point));
        above.min_by_key(|mount| mount.point.as_os_str().len())
    };
    let on = |above: &&Mount| first(&|mount| mount.parent == above.id && mount.id != above.id);
    std::iter::successors(first(&is_top), on).last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::ContainerRoot;
    use crate::config::Settings;
    use crate::invocation::Invocation;
    use std::ffi::OsString;
    use synconce_probe::mounts::parse;

    const BUNDLE: &str = "/tmp/buildah42";
    /// A disk at /srv, and what Buildah binds below its bundle.
    const MOUNTS: &str = "\
30 1 8:1 / / rw,relatime - ext4 /dev/sda rw\n\
31 30 8:2 / /srv rw,relatime - ext4 /dev/sdb rw\n\
32 30 0:5 / /dev rw - devtmpfs udev rw\n\
33 32 8:3 / /dev/disk rw - ext4 /dev/sdc rw\n\
34 30 0:6 / /proc rw - proc proc rw\n\
35 34 0:7 / /proc/sys/fs/binfmt_misc rw - binfmt_misc none rw\n\
40 30 8:1 /s/overlay/ab/merged /tmp/buildah42/mnt/rootfs rw - ext4 /dev/sda rw\n";

    fn mount(source: &str, options: &[&str]) -> BundleMount {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let source = Some(source.into());
        let destination = "/data".into();
        BundleMount { destination, source, options: Some(options), ..BundleMount::default() }
    }

    fn facts(mounts: Vec<BundleMount>) -> Facts {
        let root = ContainerRoot { path: "mnt/rootfs".into(), readonly: false };
        Facts { mounts, root, ..Facts::default() }
    }

    const BUILDAH: &str =
        "create --bundle /tmp/buildah42 --pid-file /tmp/buildah42/pid buildah-buildah42";

    /// Returns what outlives a step of Buildah with `facts`, in the namespace with [`MOUNTS`] and
    /// the mounts of `more`.
    fn outliving(facts: &Facts, more: &str) -> Option<String> {
        of_call(BUILDAH, BUNDLE, facts, more)
    }

    fn of_call(line: &str, bundle: &str, facts: &Facts, more: &str) -> Option<String> {
        let call = Invocation::parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let found = CallContext {
            call: &call,
            bundle: Path::new(bundle),
            directory: Path::new(bundle),
            facts,
            settings: &Settings::default(),
            mounts: &parse(&format!("{MOUNTS}{more}")),
        }
        .outliving();
        found.map(|path| path.display().to_string())
    }

    /// Returns the mount of a source that Buildah has bound below the bundle.
    fn bound(device: &str, root: &str) -> Option<String> {
        let at = "/tmp/buildah42/mnt/buildah-bind-target-1";
        let line = format!("41 30 {device} {root} {at} rw - ext4 /dev/sda rw\n");
        outliving(&facts(vec![mount(at, &["rbind", "rw"])]), &line)
    }

    #[test]
    fn directories_of_the_host_outlive_a_step_whatever_their_names() {
        for root in [
            "/srv/db",
            "/home/buildah/db",
            "/home/buildah2024/db",
            "/srv/web-containers/db",
            "/var/tmp/buildah-cache-0/ab12",
        ] {
            assert_eq!(bound("8:1", root).as_deref(), Some(root));
        }
        // The path in its file system: /srv/dev and /srv/proc of the host.
        for root in ["/", "/dev/project", "/proc/project", "/sys"] {
            assert_eq!(bound("8:2", root).as_deref(), Some(root));
        }
    }

    #[test]
    fn files_that_the_engine_made_for_the_step_end_with_it() {
        let files = format!("/s/overlay-containers/{}/userdata/hosts", "ab".repeat(32));
        assert_eq!(bound("8:1", &files), None);
        assert_eq!(bound("8:1", "/tmp/buildah42/run/.containerenv"), None);
        let of_bundle = mount("/tmp/buildah42/resolv.conf", &["rbind", "rw"]);
        assert_eq!(outliving(&facts(vec![of_bundle]), ""), None);
        assert_eq!(outliving(&facts(vec![mount("/dev/null", &["rbind", "rw"])]), ""), None);
        assert_eq!(outliving(&facts(Vec::new()), ""), None);
    }

    #[test]
    fn a_hidden_mount_covers_nothing() {
        let found = |more: &str, path: &str| {
            let mounts = parse(&format!("{MOUNTS}{more}"));
            covering(Path::new(path), &mounts).map(|mount| mount.id)
        };
        assert_eq!(found("", "/srv/db"), Some(31));
        assert_eq!(found("", "/home"), Some(30));
        let below = "50 31 8:4 / /srv/db rw - ext4 /dev/sdd rw\n";
        assert_eq!(found(below, "/srv/db/x"), Some(50));
        let over = format!("{below}51 31 0:9 / /srv rw - tmpfs a rw\n");
        assert_eq!(found(&over, "/srv/db/x"), Some(51), "the directory above is mounted over");
        // MOVE_MOUNT_BENEATH of move_mount(2): the newest mount is below another.
        let beneath = "52 31 0:9 / /srv rw - tmpfs a rw\n53 31 8:4 / /srv rw - ext4 a rw\n";
        let beneath = beneath.replacen("52 31", "52 53", 1);
        assert_eq!(found(&beneath, "/srv/db"), Some(52));
        // In a chroot the mount of the root is not listed.
        let chroot = parse("60 59 8:1 / /a/b rw - ext4 a rw\n61 59 0:9 / /a rw - tmpfs a rw\n");
        assert_eq!(covering(Path::new("/a/b/c"), &chroot).map(|mount| mount.id), Some(61));
        assert_eq!(covering(Path::new("/b"), &chroot), None);
    }

    #[test]
    fn a_volume_of_an_image_is_held_and_found_again() {
        let at = "/tmp/buildah42/mnt/buildah-bind-target-1";
        let bound = |root: &str, option: &str| {
            let line = format!("41 30 8:1 {root} {at} rw - ext4 /dev/sda rw\n");
            let facts = facts(vec![mount(at, &["rbind", option])]);
            let mounts = parse(&format!("{MOUNTS}{line}"));
            (outliving(&facts, &line), volumes(Path::new(BUNDLE), &facts, &mounts))
        };
        let data = format!("/s/overlay-containers/{}/userdata", "ab".repeat(32));
        let volume = format!("{data}/buildah-volumes/{}", "cd".repeat(32));
        assert_eq!(bound(&volume, "rw"), (None, vec![at.into()]));
        assert_eq!(bound(&volume, "ro"), (None, vec![]));
        assert_eq!(bound(&format!("{data}/hosts"), "rw"), (None, vec![]));
    }

    #[test]
    fn only_what_can_be_written_counts_and_the_last_option_decides() {
        let found = |options: &[&str]| outliving(&facts(vec![mount("/srv/db", options)]), "");
        let there = Some("/srv/db".to_owned());
        assert_eq!(found(&["rbind", "rw"]), there);
        assert_eq!(found(&["bind"]), there);
        assert_eq!(found(&["bind", "ro", "rw"]), there);
        assert_eq!(found(&["rbind", "ro"]), None);
        assert_eq!(found(&["rbind", "rro"]), None);
        assert_eq!(found(&["rbind", "rw", "ro"]), None);
        assert_eq!(found(&["rbind", "rro", "rw"]), None);
        assert_eq!(found(&["rbind", "ro", "rrw"]), there);
        assert_eq!(found(&["rbind", "rro", "rrw"]), there);
        assert_eq!(found(&["nosuid"]), None, "no bind mount");
    }

    #[test]
    fn the_upper_directory_of_an_overlay_is_written_to() {
        let overlay = |upper: &str| {
            let upper = format!("upperdir={upper}");
            let options = ["lowerdir=/srv/db", &upper, "workdir=/srv/work", "private"];
            outliving(&facts(vec![mount("overlay", &options)]), "")
        };
        assert_eq!(overlay("/srv/changes").as_deref(), Some("/srv/changes"));
        let thrown = format!("/s/overlay-containers/{}/userdata/overlay/1/upper", "ab".repeat(32));
        assert_eq!(overlay(&thrown), None);
    }

    #[test]
    fn disks_below_a_source_or_below_the_root_count() {
        let devices = facts(vec![mount("/dev", &["rbind", "rw"])]);
        assert_eq!(outliving(&devices, "").as_deref(), Some("/dev/disk"));
        assert_eq!(outliving(&facts(vec![mount("/proc", &["rbind"])]), ""), None);
        // `ro` is of the top alone.
        let top = |options: &[&str]| {
            outliving(&facts(vec![mount("/dev", &[&["rbind"], options].concat())]), "")
        };
        assert_eq!(top(&["ro"]).as_deref(), Some("/dev/disk"));
        assert_eq!(top(&["rro"]), None);
        assert_eq!(top(&["rro", "rrw"]).as_deref(), Some("/dev/disk"));
        let below = "42 40 8:2 /db /tmp/buildah42/mnt/rootfs/srv/db rw - ext4 /dev/sdb rw\n";
        let found = outliving(&facts(Vec::new()), below);
        assert_eq!(found.as_deref(), Some("/tmp/buildah42/mnt/rootfs/srv/db"));
        assert_eq!(outliving(&facts(Vec::new()), &below.replace(" rw - ext4", " ro - ext4")), None);
    }

    #[test]
    fn a_disk_that_the_container_mounts_outlives_a_step() {
        let found = |kind: &str, options: &[&str]| {
            let mount = BundleMount { r#type: Some(kind.to_owned()), ..mount("/dev/sdb", options) };
            outliving(&facts(vec![mount]), "")
        };
        assert_eq!(found("btrfs", &["subvolid=7"]).as_deref(), Some("/data"));
        assert_eq!(found("btrfs", &["subvolid=7", "ro"]), None);
        assert_eq!(found("btrfs", &["ro", "subvolid=7", "rw"]).as_deref(), Some("/data"));
        assert_eq!(found("btrfs", &["rw", "ro"]), None);
        assert_eq!(found("btrfs", &["rro"]).as_deref(), Some("/data"), "of bind mounts alone");
        for kind in ["proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2"] {
            assert_eq!(found(kind, &["nosuid"]), None, "{kind}");
        }
    }

    #[test]
    fn a_block_device_outlives_a_step() {
        let found = |line: &str, bundle: &str, device: &str| {
            let devices = Facts { block_devices: vec![device.into()], ..facts(Vec::new()) };
            of_call(line, bundle, &devices, "")
        };
        let insecure = "--log /r/executor/runc-log.json run --bundle /r/executor/x7 x7";
        for device in ["/dev/sdb", "/dev/loop0"] {
            assert_eq!(found(BUILDAH, BUNDLE, device).as_deref(), Some(device));
        }
        assert_eq!(found(insecure, "/r/executor/x7", "/dev/loop0"), None);
        assert_eq!(found(insecure, "/r/executor/x7", "/dev/sdb").as_deref(), Some("/dev/sdb"));
    }
}
