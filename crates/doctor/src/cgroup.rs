//! Limits of the control groups of this process (cgroups(7)), versions 1 and 2.

use crate::place::ExaminedPlace;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use synconce_durable::text;
use synconce_probe::mounts::{self, Mount};

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// CPUs, as a fraction.
    Cpus,
    /// Bytes of memory, the page cache included.
    MemoryBytes,
    /// Bytes written to the device of the place in a second.
    WrittenBytesPerSecond,
    /// Writes to the device of the place in a second.
    WritesPerSecond,
}

/// The tightest limit of its kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// What is limited.
    pub kind: LimitKind,
    /// The value, in the unit of the kind.
    pub value: f64,
    /// The file that sets it.
    #[serde(serialize_with = "text::path")]
    pub file: PathBuf,
    /// What is written to the file to lift the limit.
    pub lift: String,
    /// What is written to the file to set the limit again.
    pub restore: String,
}

/// A value above this one is no limit: version 1 writes LONG_MAX, rounded to pages.
const UNLIMITED_MEMORY: f64 = (1_u64 << 60) as f64;

/// Returns the limits that apply to this process, each kind once. Groups above the root of a
/// container are invisible, and so are their limits.
pub(crate) fn limits(place: &ExaminedPlace) -> Vec<Limit> {
    let (Ok(groups), Ok(mounts)) = (fs::read_to_string("/proc/self/cgroup"), mounts::read("self"))
    else {
        return Vec::new();
    };
    let mut devices: Vec<String> = place.numbers.iter().map(ToString::to_string).collect();
    // Limits name whole disks.
    devices.extend(place.devices.iter().filter_map(|device| {
        let number = fs::read_to_string(format!("/sys/class/block/{}/dev", device.name)).ok()?;
        Some(number.trim().to_owned())
    }));
    let mut tightest: Vec<Limit> = Vec::new();
    for directory in directories(&groups, &mounts) {
        for limit in limits_in(&directory, &devices) {
            match tightest.iter_mut().find(|known| known.kind == limit.kind) {
                Some(known) if known.value <= limit.value => {}
                Some(known) => *known = limit,
                None => tightest.push(limit),
            }
        }
    }
    tightest
}

/// Returns the directories of the groups of this process, and of all groups above them, as far
/// as mounts show them.
fn directories(groups: &str, mounts: &[Mount]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let shows = |mount: &&Mount| match controllers {
            "" => mount.type_name == "cgroup2",
            names => mount.type_name == "cgroup" && names.split(',').all(|it| mount.has_option(it)),
        };
        let Some(mount) = mounts.iter().find(shows) else { continue };
        // A mount in a container can begin at the group of the container.
        let below = Path::new(group).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let directory = mount.point.join(below);
        let above = directory.ancestors().take_while(|above| above.starts_with(&mount.point));
        found.extend(above.map(Path::to_path_buf));
    }
    found
}

fn limits_in(directory: &Path, devices: &[String]) -> Vec<Limit> {
    let mut found = Vec::new();
    let mut add = |kind, name: &str, parse: &dyn Fn(&str) -> Option<Parsed>| {
        let file = directory.join(name);
        let parsed = fs::read_to_string(&file).ok().and_then(|text| parse(text.trim()));
        found.extend(parsed.map(|(value, lift, restore)| Limit {
            kind,
            value,
            file,
            lift,
            restore,
        }));
    };
    let whole = |text: &str, value: Option<f64>, lift: &str| {
        value.map(|value| (value, lift.to_owned(), text.to_owned()))
    };
    add(LimitKind::Cpus, "cpu.max", &|text| whole(text, cpus_of_max(text), "max"));
    add(LimitKind::Cpus, "cpu.cfs_quota_us", &|quota| {
        let period = fs::read_to_string(directory.join("cpu.cfs_period_us")).ok()?;
        whole(quota, cpus_of_max(&format!("{quota} {}", period.trim())), "-1")
    });
    let memory = |text: &str| number(text).filter(|bytes| *bytes < UNLIMITED_MEMORY);
    add(LimitKind::MemoryBytes, "memory.max", &|text| whole(text, memory(text), "max"));
    add(LimitKind::MemoryBytes, "memory.limit_in_bytes", &|text| whole(text, memory(text), "-1"));
    for (kind, key, throttle) in [
        (LimitKind::WrittenBytesPerSecond, "wbps", "blkio.throttle.write_bps_device"),
        (LimitKind::WritesPerSecond, "wiops", "blkio.throttle.write_iops_device"),
    ] {
        add(kind, "io.max", &|text| of_device(text, devices, key));
        add(kind, throttle, &|text| of_device(text, devices, ""));
    }
    found
}

/// A limit, and what lifts and restores it.
type Parsed = (f64, String, String);

/// Parses `200000 100000`, a quota and its period; `max` and -1 are no quota.
fn cpus_of_max(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period) = (number(quota)?, number(period)?);
    (period > 0.0).then_some(quota / period)
}

/// Returns the value of `key` for one of `devices` in the lines `MAJOR:MINOR key=value...`;
/// version 1 has the value alone.
fn of_device(text: &str, devices: &[String], key: &str) -> Option<Parsed> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (device, values) = lines.find(|(device, _)| devices.iter().any(|ours| ours == device))?;
    if key.is_empty() {
        let value = number(values.trim())?;
        return Some((value, format!("{device} 0"), format!("{device} {value}")));
    }
    let of_key = |pair: &str| number(pair.strip_prefix(key)?.strip_prefix('=')?);
    let value = values.split(' ').find_map(of_key)?;
    Some((value, format!("{device} {key}=max"), format!("{device} {key}={value}")))
}

fn number(text: &str) -> Option<f64> {
    text.parse::<u64>().ok().map(|value| value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_fractions_of_cpus() {
        assert_eq!(cpus_of_max("50000 100000"), Some(0.5));
        assert_eq!(cpus_of_max("max 100000"), None);
        assert_eq!(cpus_of_max("-1 100000\n"), None);
    }

    #[test]
    fn limits_of_other_devices_do_not_count() {
        let ours = ["7:1".to_owned()];
        let max =
            "8:0 rbps=max wbps=1 riops=max wiops=2\n7:1 rbps=max wbps=1024 riops=max wiops=max\n";
        let words =
            |value, lift: &str, restore: &str| Some((value, lift.to_owned(), restore.to_owned()));
        let expected = words(1024.0, "7:1 wbps=max", "7:1 wbps=1024");
        assert_eq!(of_device(max, &ours, "wbps"), expected);
        assert_eq!(of_device(max, &ours, "wiops"), None);
        assert_eq!(of_device("8:0 1\n7:1 77", &ours, ""), words(77.0, "7:1 0", "7:1 77"));
        assert_eq!(of_device("8:0 1\n", &ours, ""), None);
    }

    #[test]
    fn the_groups_above_count_as_far_as_the_mounts_show_them() {
        let mounts = mounts::parse(
            "30 29 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             31 29 0:27 /docker/1 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
        );
        let groups = "3:memory:/a\n2:cpu,cpuacct:/docker/1/b\n0::/a/b\n";
        let expected = [
            "/sys/fs/cgroup/cpu/b",
            "/sys/fs/cgroup/cpu",
            "/sys/fs/cgroup/unified/a/b",
            "/sys/fs/cgroup/unified/a",
            "/sys/fs/cgroup/unified",
        ];
        let found = directories(groups, &mounts);
        assert_eq!(found.iter().map(|path| path.to_str().unwrap()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_files_of_version_2_are_read_and_max_is_no_limit() {
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        write("cpu.max", "max 100000\n");
        write("memory.max", "max\n");
        write("io.max", "");
        let devices = ["254:0".to_owned()];
        assert_eq!(limits_in(group.path(), &devices), []);
        write("cpu.max", "20000 100000\n");
        write("memory.max", "536870912\n");
        write("io.max", "254:0 rbps=max wbps=1048576 riops=max wiops=120\n");
        let found = limits_in(group.path(), &devices);
        let shown: Vec<_> =
            found.iter().map(|it| (it.kind, it.value, &it.lift[..], &it.restore[..])).collect();
        let expected = [
            (LimitKind::Cpus, 0.2, "max", "20000 100000"),
            (LimitKind::MemoryBytes, 536_870_912.0, "max", "536870912"),
            (LimitKind::WrittenBytesPerSecond, 1_048_576.0, "254:0 wbps=max", "254:0 wbps=1048576"),
            (LimitKind::WritesPerSecond, 120.0, "254:0 wiops=max", "254:0 wiops=120"),
        ];
        assert_eq!(shown, expected);
    }
}
