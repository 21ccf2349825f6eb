//! From the paths of the command line to rules.

use super::pattern::{PatternPart, escaped, goes_up, split};
use super::places::MountFinder;
use super::{
    Candidate, Pattern, Rule, RuleError, RuleKind, RuleReason, Rules, below, checks, points_above,
};
use crate::call::paths::{self, FoundPath, Start};
use crate::options::RunOptions;
use crate::process::process_tree::proc_is_ours;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use synconce_probe::mounts::{self, DeviceId, Mount};

impl Rules {
    /// Returns the rules of `options`; `None` without any.
    ///
    /// # Errors
    /// The first rule that cannot be used.
    pub(crate) fn resolve(options: &RunOptions) -> Result<Option<Self>, RuleError> {
        if !options.has_rules() {
            return Ok(None);
        }
        let mounts = mounts::ours().unwrap_or_default();
        let typed = |kind, paths: &[PathBuf]| -> Result<Vec<Rule>, RuleError> {
            let rules = paths.iter().map(|path| {
                let refused = |reason| RuleError { kind, path: path.clone(), reason };
                rule(kind, path, &mounts).map_err(refused)
            });
            rules.collect()
        };
        let mut rules = typed(RuleKind::Only, &options.only)?;
        rules.extend(typed(RuleKind::Except, &options.except)?);
        checks::check(&rules)?;
        Ok(Some(Self { rules, places: MountFinder::watched() }))
    }
}

fn rule(kind: RuleKind, typed: &Path, mounts: &[Mount]) -> Result<Rule, RuleReason> {
    if !proc_is_ours() {
        return Err(RuleReason::ForeignProc);
    }
    if let Some(escaped) = escaped(typed) {
        return Err(RuleReason::Bracket(escaped));
    }
    let (before, wildcards) = split(typed);
    if goes_up(&wildcards) {
        return Err(RuleReason::GoesUp);
    }
    let found = found(&before, !wildcards.is_empty())?;
    let rest: Vec<PatternPart> =
        found.new_name.into_iter().map(PatternPart::Name).chain(wildcards).collect();
    let (device, place) = place(&found.file, &found.path, mounts)?;
    let own = Pattern::new(&place, &rest);
    let mut places = vec![(device, own.clone())];
    // Mounts below: their files are at other places, but below the rule all the same.
    for mount in mounts.iter().filter(|mount| mount.kind().is_held()) {
        let rests = below(device, &own, &points_above(mount, mounts));
        places.extend(rests.iter().map(|rest| (mount.device, rest.within(&mount.root))));
    }
    let on_disk = |device| mounts.iter().any(|it| it.device == device && it.kind().is_held());
    if !places.iter().any(|(device, _)| on_disk(*device)) {
        let own = mounts.iter().find(|mount| mount.device == device);
        return Err(RuleReason::NoDisk(own.map_or("unknown", |mount| &mount.type_name).to_owned()));
    }
    Ok(Rule { kind, typed: typed.to_owned(), visible: Pattern::new(&found.path, &rest), places })
}

/// What the part of a rule before its first wildcard leads to.
struct RuleBase {
    file: Stat,
    /// The kernel's path.
    path: PathBuf,
    /// The last name, if it does not exist yet; the rest describes its directory.
    new_name: Option<OsString>,
}

/// The mount and type of a file.
struct Stat {
    mount: u64,
    file_type: FileType,
    links: u32,
}

/// Follows `path`. Where a wildcard follows, `path` has to be a directory.
fn found(path: &Path, is_directory: bool) -> Result<RuleBase, RuleReason> {
    let start = Start::new(own_id(), CWD.as_raw_fd());
    let directory = if is_directory { path } else { path.parent().unwrap_or(path) };
    // A link that leads nowhere is there, too.
    let is_there = directory.as_os_str().is_empty() || directory.symlink_metadata().is_ok();
    let FoundPath { file, new_name } = paths::find(start, path).map_err(|errno| match errno {
        Errno::NOENT if !is_there => RuleReason::NoDirectory(directory.to_owned()),
        Errno::NOTDIR => RuleReason::NotADirectory(existing(directory)),
        other => RuleReason::Unreadable(other.raw_os_error()),
    })?;
    let unreadable = |errno: Errno| RuleReason::Unreadable(errno.raw_os_error());
    let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(&file, "", flags, mask).map_err(unreadable)?;
    let file_type = FileType::from_raw_mode(stat.stx_mode.into());
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let shown = rustix::fs::readlink(name, Vec::new()).map_err(unreadable)?;
    match file_type {
        FileType::Directory if is_directory && new_name.is_some() => {
            return Err(RuleReason::NoDirectory(directory.to_owned()));
        }
        FileType::Directory => {}
        _ if is_directory || new_name.is_some() => {
            return Err(RuleReason::NotADirectory(directory.to_owned()));
        }
        FileType::RegularFile => {}
        _ => return Err(RuleReason::NotAFile),
    }
    if new_name.is_some()
        && rustix::fs::fstatvfs(&file)
            .is_ok_and(|it| it.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    {
        return Err(RuleReason::ReadOnly);
    }
    Ok(RuleBase {
        file: Stat { mount: stat.stx_mnt_id, file_type, links: stat.stx_nlink },
        path: OsString::from_vec(shown.into_bytes()).into(),
        new_name,
    })
}

/// Returns the longest part of `path` that exists.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|above| above.exists()).unwrap_or(path).to_owned()
}

/// Returns the file system and the path in it of `file`, which the kernel shows at `path`.
fn place(file: &Stat, path: &Path, mounts: &[Mount]) -> Result<(DeviceId, PathBuf), RuleReason> {
    let mount = mounts.iter().find(|mount| mount.id == file.mount);
    if let Some(mount) = mount.filter(|mount| !mount.kind().is_held()) {
        // No decision needs the place, only the mounts below.
        let below = path.strip_prefix(&mount.point).unwrap_or(path);
        return Ok((mount.device, mount.root.join(below)));
    }
    let candidate = Candidate {
        thread: own_id(),
        mount: file.mount,
        unique: None,
        path,
        new_name: None,
        file_type: file.file_type,
        links: file.links,
    };
    let directory = match file.file_type {
        FileType::Directory => path,
        _ => path.parent().unwrap_or(path),
    };
    MountFinder::default()
        .place(&candidate)
        .ok_or_else(|| RuleReason::Unplaced(directory.to_owned()))
}

fn own_id() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().cast_unsigned()
}
