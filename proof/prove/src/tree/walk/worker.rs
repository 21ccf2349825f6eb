//! One of the two processes: takes one action after the other and checks the result of each.

use super::super::check::Defect;
use super::super::store::{Interruption, LIMIT, parse_reports};
use super::alter::alter;
use super::child::WalkReport;
use super::injection::{Injection, swap};
use super::model::{Model, WORKERS};
use super::output::{Listed, Shown, VerbOutcome, refusal, written};
use super::shared::{TreeWalk, WalkEnd, WalkState};
use super::verbs::{CloneWay, Disturbance, NAMES, Name, NextAction, Verb};
use super::versions::manifest;
use crate::Result;
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use synconce_testkit::manifest::diff;
use synconce_testkit::patiently;
use synconce_testkit::process::run;

/// One of the two workers.
pub(super) struct Worker<'a> {
    walk: &'a TreeWalk<'a>,
    number: usize,
    random: fastrand::Rng,
    injection: Injection,
    control: PathBuf,
    point: PathBuf,
}

impl<'a> Worker<'a> {
    /// Returns a worker with its own directories.
    pub(super) fn new(
        walk: &'a TreeWalk<'a>,
        number: usize,
        seed: u64,
        injection: Injection,
    ) -> Result<Self> {
        let control = walk.store.control.join(format!("worker-{number}"));
        let point = control.join("point");
        fs::create_dir_all(&point)?;
        let random = fastrand::Rng::with_seed(seed);
        Ok(Self { walk, number, random, injection, control, point })
    }

    /// Walks until the time is over or something is found.
    pub(super) fn work(&mut self) -> Result<()> {
        let third = (self.walk.until - self.walk.began) / 3;
        // Import trees to work on.
        for name in NAMES.into_iter().skip(self.number).step_by(WORKERS) {
            self.verb(Verb::Import(name), CloneWay::Default, Disturbance::None)?;
        }
        while self.walk.continues() {
            let step = NextAction::random(&mut self.random);
            match step {
                NextAction::One { verb, way, disturbance } => {
                    self.verb(verb, way, disturbance)?;
                }
                NextAction::Mounted { tree, keep, seed, kills } => {
                    self.mounted(tree, keep, seed, kills)?;
                }
            }
            if self.injection == Injection::SwapContent
                && self.walk.began.elapsed() > third
                && let Some(name) = swap(&self.walk.store.path)?
            {
                self.undisturbed(Verb::Export(name))?;
            }
        }
        Ok(())
    }

    fn command(&self, verb: Verb, way: CloneWay) -> Result<Command> {
        let (source, out) = (self.walk.store.control.join("source"), self.control.join("out"));
        let mut command = self.walk.store.tool.tree(&self.walk.store.path, &self.control);
        command.args(verb.words(way, &source, &out, &self.point)?);
        Ok(command)
    }

    /// Runs a command of the tool by `prove run-child`.
    fn run_as_child(
        &self,
        command: &Command,
        disturbance: Disturbance,
        span: u64,
    ) -> Result<WalkReport> {
        let mut child = Command::new(std::env::current_exe()?);
        child.arg("run-child").arg("--span").arg(span.to_string());
        match disturbance {
            Disturbance::None => {}
            Disturbance::Kill(seed) => drop(child.arg("--kill").arg(seed.to_string())),
            Disturbance::Slow => drop(child.arg("--slow")),
        }
        child.arg("--").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            child.env(name, value.unwrap_or_default());
        }
        let finished = run(&mut child, patiently(LIMIT * 3))?;
        serde_json::from_str(&finished.stdout)
            .map_err(|error| format!("run-child: {error}: {finished:?}").into())
    }

    /// Runs `verb` and updates the model; returns whether the verb succeeded, or `None` after
    /// a kill. A kill is followed by commands that read its result.
    fn verb(
        &mut self,
        verb: Verb,
        way: CloneWay,
        disturbance: Disturbance,
    ) -> Result<Option<bool>> {
        let done = self.one(verb, way, disturbance)?;
        if done.is_none() && self.walk.shared().findings.broken() == 0 {
            self.undisturbed(Verb::List)?;
            for name in verb.changes() {
                self.undisturbed(Verb::Export(name))?;
            }
        }
        Ok(done)
    }

    /// Like [`Self::verb`], with nothing that disturbs it.
    fn undisturbed(&mut self, verb: Verb) -> Result<Option<bool>> {
        self.one(verb, CloneWay::Default, Disturbance::None)
    }

    /// Like [`Self::verb`], but without the commands after a kill.
    fn one(&mut self, verb: Verb, way: CloneWay, disturbance: Disturbance) -> Result<Option<bool>> {
        let out = self.control.join("out");
        let began = self.walk.began.elapsed();
        {
            let mut shared = self.walk.shared();
            shared.ended.model.begin(self.number, verb);
            if let Some(name) = verb.reported().filter(|_| disturbance != Disturbance::None) {
                *shared.ended.messages.may.entry(name.to_owned()).or_default() += 1;
            }
        }
        let command = self.command(verb, way)?;
        let report = self.run_as_child(&command, disturbance, verb.span())?;
        let shown = self.shown(verb, &report);
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        if let Verb::Look(_) = verb {
            self.unmount_read_only()?;
        }
        let mut shared = self.walk.shared();
        let outcome = match (shown?, refusal(verb, &report)) {
            (Some(shown), _) => Some(VerbOutcome::Done(shown)),
            (None, Some(refusal)) => Some(VerbOutcome::Refused(refusal)),
            (None, None) => report.killed.is_some().then_some(VerbOutcome::Killed),
        };
        let line = format!(
            "{:7.3} to {:7.3} s, worker {}: {verb:?}{}: {}, {}{}",
            began.as_secs_f64(),
            self.walk.began.elapsed().as_secs_f64(),
            self.number,
            if way == CloneWay::Copy { ", by copy" } else { "" },
            report.code.map_or_else(|| "killed".to_owned(), |code| format!("exit code {code}")),
            report.killed.as_deref().unwrap_or("not killed"),
            report.stderr.lines().map(|line| format!("; {line}")).collect::<String>(),
        );
        shared.record(line);
        let fault = self.check(&mut shared, verb, disturbance, &report, outcome.as_ref())?;
        if let Some(fault) = fault {
            shared.note(fault);
        }
        Ok(match outcome {
            Some(VerbOutcome::Done(_)) => Some(true),
            Some(VerbOutcome::Refused(_)) => Some(false),
            Some(VerbOutcome::Killed) | None => None,
        })
    }

    /// Returns what a successful command has shown.
    fn shown(&self, verb: Verb, report: &WalkReport) -> Result<Option<Shown>> {
        let is_done = match verb {
            Verb::Diff(..) => matches!(report.code, Some(0 | 1)),
            _ => report.code == Some(0),
        };
        if !is_done {
            return Ok(None);
        }
        Ok(Some(match verb {
            Verb::Export(_) => Shown::Content(manifest(&self.control.join("out"))?),
            Verb::Look(_) => Shown::Content(manifest(&self.point)?),
            Verb::Diff(..) => Shown::Changes(written(&report.stdout)),
            Verb::List => Shown::Trees(serde_json::from_str::<Vec<Listed>>(&report.stdout)?),
            Verb::Squash(_) if report.stderr.contains("nothing to squash") => Shown::OneLayer,
            _ => Shown::Nothing,
        }))
    }

    fn check(
        &self,
        shared: &mut WalkState,
        verb: Verb,
        disturbance: Disturbance,
        report: &WalkReport,
        outcome: Option<&VerbOutcome>,
    ) -> Result<Option<Defect>> {
        let WalkState { ended: WalkEnd { model, messages }, counts, findings, .. } = shared;
        match outcome {
            Some(VerbOutcome::Done(_)) => counts.done += 1,
            Some(VerbOutcome::Refused(_)) => counts.refused += 1,
            Some(VerbOutcome::Killed) => {
                counts.killed += 1;
                findings.cuts += 1;
                // The killed command may have been about to report the sessions that it had
                // thrown away.
                messages.must.clear();
            }
            None => {}
        }
        let fault = messages.count(&parse_reports(&report.stderr));
        let killed = matches!(outcome, Some(VerbOutcome::Killed));
        if let Some(name) = verb.reported().filter(|_| disturbance != Disturbance::None) {
            if killed && self.is_cut_short(report.pid)? {
                *messages.must.entry(name.to_owned()).or_default() += 1;
            }
            if !killed {
                let may = messages.may.entry(name.to_owned()).or_default();
                *may -= 1;
                if *may < 0 {
                    let what = "was reported as interrupted, and ended well";
                    return Ok(Some(("false alarm", format!("{name} {what}"))));
                }
            }
        }
        if fault.is_some() {
            return Ok(fault);
        }
        if let Some(processes) = &report.still_running {
            return Ok(Some(("still running", format!("{verb:?}: {processes}"))));
        }
        let Some(outcome) = outcome else {
            let kind = match verb {
                Verb::Fsck | Verb::Verify(_) | Verb::Gc | Verb::List => "false alarm",
                _ => "failed",
            };
            return Ok(Some((kind, format!("{verb:?}: {}", report.stderr))));
        };
        if model.end(self.number, outcome)? {
            return Ok(None);
        }
        let worlds: Vec<String> =
            model.worlds().iter().take(4).map(|world| format!("{world:?}")).collect();
        let kind =
            if matches!(outcome, VerbOutcome::Refused(_)) { "false refusal" } else { "wrong" };
        let found = describe_mismatch(model, outcome);
        Ok(Some((kind, format!("{verb:?}: {found} in none of {}", worlds.join(" or ")))))
    }

    /// Whether a session of process `pid` was cut short and is still there.
    fn is_cut_short(&self, pid: u32) -> Result<bool> {
        let store = &self.walk.store;
        // Once the file `device` exists, the mount outlives its command.
        let is_mount = |id: &str| store.path.join("sessions").join(id).join("device").exists();
        let all = store.cut_short(Interruption::Kill)?;
        Ok(all.iter().any(|(id, note)| note["pid"] == pid && !is_mount(id)))
    }

    /// Mounts `tree`, changes the mount, and ends the mount.
    fn mounted(
        &mut self,
        tree: Name,
        keep: bool,
        seed: u64,
        kills: [Option<u64>; 2],
    ) -> Result<()> {
        let mounted = self.one(Verb::Mount(tree), CloneWay::Default, kills[0].into())?;
        let is_there = self.is_mounted()?;
        match mounted {
            Some(false) => return Ok(()),
            Some(true) if !is_there => {
                let fault = ("wrong", format!("the mount of {tree} is not there"));
                self.walk.shared().note(fault);
                return Ok(());
            }
            _ => {}
        }
        if is_there {
            alter(&self.point, seed, Duration::ZERO)?;
            self.walk.shared().ended.model.edited(self.number, tree, seed)?;
        }
        let umount = Verb::Umount { tree, keep: keep && is_there };
        let mut ended = self.one(umount, CloneWay::Default, kills[1].into())?;
        let was_killed = mounted.is_none() || ended.is_none();
        while ended.is_none() && self.walk.shared().findings.broken() == 0 {
            ended = self.undisturbed(umount)?;
        }
        if self.is_mounted()? {
            let fault = ("mounted", format!("{tree} at {}", self.point.display()));
            self.walk.shared().note(fault);
            unmount(&self.point, UnmountFlags::DETACH)?;
        } else if was_killed && self.walk.shared().findings.broken() == 0 {
            self.undisturbed(Verb::List)?;
            self.undisturbed(Verb::Export(tree))?;
        }
        Ok(())
    }

    fn is_mounted(&self) -> Result<bool> {
        let above = fs::metadata(&self.control)?.dev();
        Ok(fs::metadata(&self.point)?.dev() != above)
    }

    /// Ends a mount that was only read; a kill may have left only its session.
    fn unmount_read_only(&self) -> Result<()> {
        let mut umount = self.walk.store.tool.tree(&self.walk.store.path, &self.control);
        let finished = run(umount.arg("umount").arg(&self.point), patiently(LIMIT))?;
        let mut shared = self.walk.shared();
        if let Some(fault) = shared.ended.messages.count(&parse_reports(&finished.stderr)) {
            shared.note(fault);
        }
        if self.is_mounted()? {
            shared.note(("mounted", format!("{}: {finished:?}", self.point.display())));
            unmount(&self.point, UnmountFlags::DETACH)?;
        }
        Ok(())
    }
}

/// Describes a result that is in no case; for a content, with the differences from the nearest
/// one.
fn describe_mismatch(model: &Model, outcome: &VerbOutcome) -> String {
    let VerbOutcome::Done(Shown::Content(found)) = outcome else { return format!("{outcome:?}") };
    let nearest = model.versions.all().map(|(version, known)| (diff(known, found), version));
    let (nearest, version) = nearest.min_by_key(|(all, _)| all.len()).unwrap_or_default();
    let shown: Vec<String> = nearest.iter().take(5).map(ToString::to_string).collect();
    let (count, shown) = (nearest.len(), shown.join("; "));
    format!("a content with {count} differences from version {version} ({shown}) is")
}
