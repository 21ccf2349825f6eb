//! Where control groups can be made: below the groups of this process (cgroups(7)).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use synconce_durable::error::{Context, Error};
use synconce_probe::mounts::{self, Mount};

/// A version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CgroupVersion {
    One,
    Two,
}

/// A control group in which others are made, for some controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParentGroup {
    pub version: CgroupVersion,
    pub parent: PathBuf,
    pub controllers: Vec<&'static str>,
    /// The groups of this process below `parent`, whose limits do not apply in a group there.
    pub left: Vec<PathBuf>,
}

/// Returns the places for the controllers `wanted`: one place for each hierarchy of version 1, and
/// one for all controllers of version 2.
///
/// # Errors
/// A controller is missing, or no group passes it on to the groups in it.
pub(super) fn places(wanted: &[&'static str]) -> Result<Vec<ParentGroup>, Error> {
    let path = Path::new("/proc/self/cgroup");
    let groups = fs::read_to_string(path).on("cannot read", path)?;
    let mounts = mounts::read("self").on("cannot read", Path::new("/proc/self/mountinfo"))?;
    places_among(wanted, &groups, &mounts)
}

/// Like [`places`], with the content of `/proc/self/cgroup` and the mounts.
pub(super) fn places_among(
    wanted: &[&'static str],
    groups: &str,
    mounts: &[Mount],
) -> Result<Vec<ParentGroup>, Error> {
    let (mut places, mut unified) = (Vec::<ParentGroup>::new(), Vec::new());
    for controller in wanted {
        let Some(parent) = of_version_1(controller, groups, mounts) else {
            unified.push(*controller);
            continue;
        };
        // A hierarchy can have several controllers, and is mounted once (`cpu,cpuacct`).
        match places.iter_mut().find(|place| place.parent == parent) {
            Some(place) => place.controllers.push(controller),
            None => {
                let (controllers, left) = (vec![*controller], Vec::new());
                places.push(ParentGroup { version: CgroupVersion::One, parent, controllers, left });
            }
        }
    }
    if !unified.is_empty() {
        let (parent, left) = of_version_2(&unified, groups, mounts).ok_or_else(|| {
            let why = "no control group of this process passes it on to other groups";
            Error::new("cannot limit", Path::new(&unified.join(", ")), io::Error::other(why))
        })?;
        places.push(ParentGroup {
            version: CgroupVersion::Two,
            parent,
            controllers: unified,
            left,
        });
    }
    Ok(places)
}

/// Returns the group of this process in the hierarchy of version 1 that has `controller`.
fn of_version_1(controller: &str, groups: &str, mounts: &[Mount]) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(group)
    })?;
    let shows = |mount: &&Mount| mount.type_name == "cgroup" && mount.has_option(controller);
    below(mounts.iter().find(shows)?, group)
}

/// Returns the first group that passes all of `wanted` on to the groups in it: the group of this
/// process, or the nearest one above. Also returns the groups below that one which lead to this
/// process. A group with processes passes nothing on (Documentation/admin-guide/cgroup-v2.rst, "No
/// Internal Process Constraint").
pub(super) fn of_version_2(
    wanted: &[&str],
    groups: &str,
    mounts: &[Mount],
) -> Option<(PathBuf, Vec<PathBuf>)> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mounts.iter().find(|mount| mount.type_name == "cgroup2")?;
    let mut left = Vec::new();
    for above in below(mount, group)?.ancestors().take_while(|it| it.starts_with(&mount.point)) {
        if wanted.iter().all(|wanted| passes_on(above, wanted)) {
            return Some((above.to_owned(), left));
        }
        left.push(above.to_owned());
    }
    None
}

/// Returns whether the group of version 2 passes `controller` on to the groups in it.
pub(super) fn passes_on(group: &Path, controller: &str) -> bool {
    let text = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    text.split_whitespace().any(|name| name == controller)
}

/// Returns the directory of `group`. A mount in a container can begin at the container's group.
fn below(mount: &Mount, group: &str) -> Option<PathBuf> {
    let below = Path::new(group).strip_prefix(&mount.root).ok()?;
    Some(mount.point.join(below))
}
