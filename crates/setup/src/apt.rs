//! apt and dpkg: puts a wrapper in the place of each program, which starts the real program in
//! a run. dpkg's diversions keep the wrappers when the packages are upgraded.
//!
//! The set-up has no journal. No file is edited: the real program gets a second name, by a hard
//! link, and an undo gives it its first name back. Each call finds the next steps from the files
//! and from dpkg's list of diversions. So the next set-up or undo continues after a crash between
//! any two steps.
//!
//! The wrapper is put in place before the diversion is made, and the diversion is removed before
//! the wrapper is. So while a program is diverted, the real program is at its second name. If a
//! program without a diversion has two names with different files, dpkg has upgraded the file at
//! the first name.

mod diversion;
mod program;
mod wrapper;

use crate::error::{Error, NotEdited};
use crate::host::Host;
use crate::undo::{self, Edits};
use program::{Copies, DIRECTORY, DivertedProgram, ProgramStep};
use rustix::fs::{Access, FlockOperation};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use synconce_durable::error::Context;
use synconce_durable::replace::{self, Rights};

/// The programs. Each is a run of its own unless another of them has started it.
const NAMES: [&str; 5] = ["dpkg", "apt-get", "apt", "aptitude", "tasksel"];
/// Those that are in packages of their own, which a system may get later.
const LATER: [&str; 2] = ["aptitude", "tasksel"];
/// The lock that dpkg holds while it changes packages.
const LOCK: &str = "/var/lib/dpkg/lock";

/// The steps of a set-up or of its undo.
#[derive(Debug)]
pub struct Plan {
    programs: Vec<(DivertedProgram, Vec<ProgramStep>)>,
    /// The programs that are not installed.
    pub missing: Vec<&'static str>,
}

/// What is changed for a program.
#[derive(Debug)]
pub struct ProgramChange {
    /// diverted, renewed, restored or removed.
    pub act: &'static str,
    /// The path of the program, outside of the system.
    pub path: PathBuf,
    /// The path of the real program while it is diverted.
    pub real: PathBuf,
    /// Where what was in the place of the program is kept, if synconce did not write it.
    pub saved: Option<PathBuf>,
}

impl Plan {
    /// Returns the programs that wrappers call, and that other users than root can change.
    pub fn changeable(&self, host: &Host) -> Vec<PathBuf> {
        let found = self.programs.iter().filter_map(|(program, _)| program.changeable.as_ref());
        let found: BTreeSet<_> = found.map(|path| host.real(path)).collect();
        found.into_iter().collect()
    }

    /// Returns the programs that were installed after the set-up, if nothing else is to be changed.
    pub fn new_programs(&self) -> Option<Vec<&'static str>> {
        let changed =
            || NAMES.into_iter().zip(&self.programs).filter(|(_, (_, it))| !it.is_empty());
        // Without a wrapper of dpkg or apt, a set-up was cut short.
        let is_whole =
            changed().all(|(name, (program, _))| LATER.contains(&name) && program.is_untouched());
        let new: Vec<_> = changed().map(|(name, _)| name).collect();
        (is_whole && !new.is_empty()).then_some(new)
    }

    /// Returns the changes; empty if everything is as it is wanted.
    pub fn changes(&self, host: &Host) -> Vec<ProgramChange> {
        let changed = self.programs.iter().filter(|(_, steps)| !steps.is_empty());
        let change = |(program, steps): &(DivertedProgram, Vec<ProgramStep>)| ProgramChange {
            act: match steps[..] {
                [ProgramStep::Wrap] | [ProgramStep::Save, ProgramStep::Wrap]
                    if program.has_old_wrapper() =>
                {
                    "renewed"
                }
                [.., ProgramStep::Wrap | ProgramStep::Divert] => "diverted",
                [.., ProgramStep::Unwrap] => "removed",
                _ => "restored",
            },
            path: host.real(&program.path),
            real: host.real(&program.real),
            saved: program.saved.clone().filter(|_| steps.contains(&ProgramStep::Save)),
        };
        changed.map(change).collect()
    }
}

/// Plans the set-up.
///
/// # Errors
/// There is no dpkg, or its wrapper alone; there is no synconce, or other users than root can
/// change it; another diversion or file is in the way.
pub fn plan(host: &Host) -> Result<Plan, Error> {
    plan_with(host, Copies::Replace)
}

/// Plans what is missing of a set-up by any copy of synconce.
///
/// # Errors
/// As for [`plan`].
pub fn plan_missing(host: &Host) -> Result<Plan, Error> {
    plan_with(host, Copies::Accept)
}

fn plan_with(host: &Host, copies: Copies) -> Result<Plan, Error> {
    let plan = read(host, |program| program.set_up(host, copies))?;
    if plan.missing.contains(&"dpkg") {
        if let Some((dpkg, _)) = plan.programs.first().filter(|(dpkg, _)| dpkg.has_wrapper()) {
            return Err(dpkg.gone(host));
        }
        let remedy = "name the root of a Debian system, by --root DIR";
        let fault = NotEdited::new("holds no dpkg", remedy);
        return Err(fault.in_file(&host.real(Path::new("/"))).into());
    }
    if plan.programs.iter().any(|(_, steps)| steps.contains(&ProgramStep::Wrap)) {
        host.check_synconce("apt")?;
    }
    Ok(plan)
}

/// Plans the undo of a set-up, or of what a set-up or an undo that was cut short has left.
///
/// # Errors
/// A file that synconce did not write is in the place of a wrapper, if `edits` are refused.
pub fn plan_undo(host: &Host, edits: Edits) -> Result<Plan, Error> {
    read(host, |program| program.undo(host, edits))
}

fn read(
    host: &Host,
    steps: impl Fn(&DivertedProgram) -> Result<Vec<ProgramStep>, Error>,
) -> Result<Plan, Error> {
    let mut plan = Plan { programs: Vec::new(), missing: Vec::new() };
    for name in NAMES {
        let program = DivertedProgram::read(name, host)?;
        plan.missing.extend(program.is_missing().then_some(name));
        let steps = steps(&program)?;
        plan.programs.push((program, steps));
    }
    Ok(plan)
}

/// Sets up, and returns what was done. What a failed first set-up has changed is undone.
///
/// # Errors
/// As for [`plan`]; dpkg or another set-up is at work; the act that failed, and the path.
pub fn set_up(host: &Host) -> Result<Plan, Error> {
    // Before the plan: another set-up or undo would make it untrue.
    let _lock = lock(host)?;
    let plan = plan(host)?;
    let is_first = plan.programs.iter().all(|(it, _)| it.is_untouched() || it.is_missing());
    match carry_out(&plan, host) {
        Ok(()) => Ok(plan),
        Err(error) => {
            if is_first {
                // What remains after an error here, the next undo takes away.
                let _ = plan_undo(host, Edits::Refuse).and_then(|undo| take_away(&undo, host));
            }
            Err(error)
        }
    }
}

/// Undoes a set-up, and returns what was done.
///
/// # Errors
/// As for [`plan_undo`]; dpkg or another set-up is at work; the act that failed, and the path. The
/// next undo continues.
pub fn undo(host: &Host, edits: Edits) -> Result<Plan, Error> {
    let _lock = lock(host)?;
    let plan = plan_undo(host, edits)?;
    for (program, _) in plan.programs.iter().filter(|(_, steps)| !steps.is_empty()) {
        check_writable(&host.real(&program.path))?;
    }
    take_away(&plan, host)?;
    Ok(plan)
}

/// Checks that the directory of `path` is not on a read-only file system. dpkg's list, which an
/// undo changes first, may be on another one.
fn check_writable(path: &Path) -> Result<(), Error> {
    let directory = path.parent().unwrap_or(path);
    Ok(rustix::fs::access(directory, Access::WRITE_OK).on("cannot write to", directory)?)
}

fn take_away(plan: &Plan, host: &Host) -> Result<(), Error> {
    carry_out(plan, host)?;
    let directory = Path::new(DIRECTORY);
    for directory in [Some(directory), directory.parent()].into_iter().flatten() {
        replace::remove_directory_if_empty(&host.real(&host.resolve(directory)?))?;
    }
    Ok(())
}

fn carry_out(plan: &Plan, host: &Host) -> Result<(), Error> {
    for (program, steps) in &plan.programs {
        replace::remove_unfinished(&host.real(&program.path))?;
        for step in steps {
            take(*step, program, host)?;
        }
    }
    Ok(())
}

fn take(step: ProgramStep, program: &DivertedProgram, host: &Host) -> Result<(), Error> {
    let DivertedProgram { path, real, saved, .. } = program;
    let (at_path, at_real) = (host.real(path), host.real(real));
    match step {
        ProgramStep::Save => {
            if let Some(saved) = saved {
                replace::make_directories_above(saved)?;
                undo::save(&host.look(path)?, saved)?;
            }
        }
        ProgramStep::Link => {
            replace::make_directories_above(&at_real)?;
            replace::hard_link(&at_path, &at_real)?;
        }
        ProgramStep::Wrap => {
            let text = wrapper::text(real, host.synconce());
            let rights = Rights { mode: 0o755, ..Rights::common() };
            replace::write(&at_path, text.as_bytes(), rights)?;
        }
        ProgramStep::Divert => diversion::add(path, real, host)?,
        ProgramStep::Undivert => diversion::remove(path, host)?,
        ProgramStep::Restore => replace::rename(&at_real, &at_path)?,
        ProgramStep::Unwrap => replace::remove(&at_path)?,
        ProgramStep::Drop => replace::remove(&at_real)?,
    }
    Ok(())
}

/// Takes the lock of dpkg, so that dpkg replaces no program meanwhile. A maintainer script runs
/// while dpkg holds the lock, and dpkg replaces no file then.
fn lock(host: &Host) -> Result<Option<File>, Error> {
    if std::env::var_os("DPKG_MAINTSCRIPT_PACKAGE").is_some() {
        return Ok(None);
    }
    let path = host.real(&host.resolve(Path::new(LOCK))?);
    let lock = match File::options().read(true).write(true).open(&path) {
        // dpkg has never run there.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.on("cannot open", &path)?,
    };
    match rustix::fs::fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::ACCESS | Errno::AGAIN) => {
            let fault = NotEdited::new(
                "is locked: dpkg or another set-up is at work",
                "wait for its end, and try again",
            );
            Err(fault.in_file(&path).into())
        }
        other => Ok(other.on("cannot lock", &path).map(|()| Some(lock))?),
    }
}
