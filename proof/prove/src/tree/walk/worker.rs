//! One of the two processes: takes one action after the other and checks the result of each.

use super::super::judge::Fault;
use super::super::store::{LIMIT, Store, said};
use super::alter::alter;
use super::leash::Report;
use super::messages::{Counts, Messages};
use super::model::{Model, WORKERS};
use super::sabotage::{Sabotage, swap};
use super::said::{Listed, Outcome, Shown, refusal, written};
use super::verbs::{NAMES, Name, Step, Treatment, Verb};
use super::versions::manifest;
use crate::Result;
use crate::cuts::Findings;
use rustix::mount::{UnmountFlags, unmount};
use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use synconce_testkit::manifest::diff;
use synconce_testkit::patiently;
use synconce_testkit::process::run;

/// Number of recent commands that are printed with a finding.
const TOLD: usize = 40;

/// State shared by both workers.
pub(super) struct Walk<'a> {
    store: &'a Store<'a>,
    until: Instant,
    /// On a busy machine the walk continues until enough kills have hit or, as the control,
    /// until something is found; but not after this instant.
    latest: Instant,
    until_found: bool,
    began: Instant,
    shared: Mutex<Shared>,
}

struct Shared {
    ended: Ended,
    findings: Findings,
    counts: Counts,
    told: VecDeque<String>,
}

/// What both workers have left for the final check.
pub(super) struct Ended {
    pub model: Model,
    pub messages: Messages,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        store: &'a Store<'a>,
        model: Model,
        until: Instant,
        until_found: bool,
    ) -> Self {
        let ended = Ended { model, messages: Messages::default() };
        let (findings, counts) = (Findings::default(), Counts::default());
        let shared = Shared { ended, findings, counts, told: VecDeque::new() };
        let latest = until + patiently(Duration::from_secs(120));
        let (began, shared) = (Instant::now(), Mutex::new(shared));
        Self { store, until, latest, until_found, began, shared }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn goes_on(&self) -> bool {
        let (now, findings) = (Instant::now(), &self.shared().findings);
        let is_enough = !self.until_found && findings.cuts >= ENOUGH;
        findings.broken() == 0 && (now < self.until || !is_enough && now < self.latest)
    }

    /// Returns the results of the walk.
    pub(super) fn ended(self) -> Result<(Ended, Findings, Counts)> {
        let Shared { ended, findings, counts, .. } =
            self.shared.into_inner().map_err(|_| "a worker panicked")?;
        Ok((ended, findings, counts))
    }
}

impl Shared {
    fn tell(&mut self, line: String) {
        if self.told.len() == TOLD {
            self.told.pop_front();
        }
        self.told.push_back(line);
    }

    fn note(&mut self, (kind, detail): Fault) {
        let told = self.told.iter().map(|line| format!("\n    {line}")).collect::<String>();
        self.findings.note(kind, || format!("{detail}; before:{told}"));
    }
}

/// Minimum number of kills in a walk.
const ENOUGH: usize = 3;

/// One of the two workers.
pub(super) struct Worker<'a> {
    walk: &'a Walk<'a>,
    number: usize,
    random: fastrand::Rng,
    sabotage: Sabotage,
    control: PathBuf,
    point: PathBuf,
}

impl<'a> Worker<'a> {
    /// Returns a worker with its own directories.
    pub(super) fn new(
        walk: &'a Walk<'a>,
        number: usize,
        seed: u64,
        sabotage: Sabotage,
    ) -> Result<Self> {
        let control = walk.store.control.join(format!("worker-{number}"));
        let point = control.join("point");
        fs::create_dir_all(&point)?;
        let random = fastrand::Rng::with_seed(seed);
        Ok(Self { walk, number, random, sabotage, control, point })
    }

    /// Walks until the time is over or something is found.
    pub(super) fn work(&mut self) -> Result<()> {
        let third = (self.walk.until - self.walk.began) / 3;
        // Import trees to work on.
        for name in NAMES.into_iter().skip(self.number).step_by(WORKERS) {
            self.verb(Verb::Import(name), false, Treatment::Nothing)?;
        }
        while self.walk.goes_on() {
            let step = Step::random(&mut self.random);
            match step {
                Step::One { verb, by_copy, treatment } => {
                    self.verb(verb, by_copy, treatment)?;
                }
                Step::Mounted { tree, keep, seed, kills } => {
                    self.mounted(tree, keep, seed, kills)?;
                }
            }
            if self.sabotage == Sabotage::Swap
                && self.walk.began.elapsed() > third
                && let Some(name) = swap(&self.walk.store.path)?
            {
                self.one(Verb::Export(name), false, Treatment::Nothing)?;
            }
        }
        Ok(())
    }

    fn command(&self, verb: Verb, by_copy: bool) -> Result<Command> {
        let (source, out) = (self.walk.store.control.join("source"), self.control.join("out"));
        let mut command = self.walk.store.tool.tree(&self.walk.store.path, &self.control);
        command.args(verb.words(by_copy, &source, &out, &self.point)?);
        Ok(command)
    }

    /// Runs a command of the tool under `prove leash`.
    fn on_a_leash(&self, command: &Command, treatment: Treatment, span: u64) -> Result<Report> {
        let mut leash = Command::new(std::env::current_exe()?);
        leash.arg("leash").arg("--span").arg(span.to_string());
        match treatment {
            Treatment::Nothing => {}
            Treatment::Killed(seed) => drop(leash.arg("--kill").arg(seed.to_string())),
            Treatment::Slowed => drop(leash.arg("--slow")),
        }
        leash.arg("--").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            leash.env(name, value.unwrap_or_default());
        }
        let finished = run(&mut leash, patiently(LIMIT * 3))?;
        serde_json::from_str(&finished.stdout)
            .map_err(|error| format!("the leash: {error}: {finished:?}").into())
    }

    /// Runs `verb` and updates the model; returns whether the verb succeeded, or `None` after
    /// a kill. A kill is followed by commands that read its result.
    fn verb(&mut self, verb: Verb, by_copy: bool, treatment: Treatment) -> Result<Option<bool>> {
        let done = self.one(verb, by_copy, treatment)?;
        if done.is_none() && self.walk.shared().findings.broken() == 0 {
            self.one(Verb::List, false, Treatment::Nothing)?;
            for name in verb.changes() {
                self.one(Verb::Export(name), false, Treatment::Nothing)?;
            }
        }
        Ok(done)
    }

    /// Like [`Self::verb`], but without the commands after a kill.
    fn one(&mut self, verb: Verb, by_copy: bool, treatment: Treatment) -> Result<Option<bool>> {
        let out = self.control.join("out");
        let began = self.walk.began.elapsed();
        {
            let mut shared = self.walk.shared();
            shared.ended.model.begin(self.number, verb);
            if let Some(name) = verb.reported().filter(|_| treatment != Treatment::Nothing) {
                *shared.ended.messages.may.entry(name.to_owned()).or_default() += 1;
            }
        }
        let command = self.command(verb, by_copy)?;
        let report = self.on_a_leash(&command, treatment, verb.span())?;
        let shown = self.shown(verb, &report);
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        if let Verb::Look(_) = verb {
            self.end_look()?;
        }
        let mut shared = self.walk.shared();
        let outcome = match (shown?, refusal(verb, &report)) {
            (Some(shown), _) => Some(Outcome::Done(shown)),
            (None, Some(refusal)) => Some(Outcome::Refused(refusal)),
            (None, None) => report.killed.is_some().then_some(Outcome::Killed),
        };
        let line = format!(
            "{:7.3} to {:7.3} s, worker {}: {verb:?}{}: {}, {}{}",
            began.as_secs_f64(),
            self.walk.began.elapsed().as_secs_f64(),
            self.number,
            if by_copy { ", by copy" } else { "" },
            report.code.map_or_else(|| "killed".to_owned(), |code| format!("exit code {code}")),
            report.killed.as_deref().unwrap_or("not hit"),
            report.stderr.lines().map(|line| format!("; {line}")).collect::<String>(),
        );
        shared.tell(line);
        let fault = self.judge(&mut shared, verb, treatment, &report, outcome.as_ref())?;
        if let Some(fault) = fault {
            shared.note(fault);
        }
        Ok(match outcome {
            Some(Outcome::Done(_)) => Some(true),
            Some(Outcome::Refused(_)) => Some(false),
            Some(Outcome::Killed) | None => None,
        })
    }

    /// Returns what a successful command has shown.
    fn shown(&self, verb: Verb, report: &Report) -> Result<Option<Shown>> {
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
            _ => Shown::Nothing,
        }))
    }

    fn judge(
        &self,
        shared: &mut Shared,
        verb: Verb,
        treatment: Treatment,
        report: &Report,
        outcome: Option<&Outcome>,
    ) -> Result<Option<Fault>> {
        let Shared { ended: Ended { model, messages }, counts, findings, .. } = shared;
        match outcome {
            Some(Outcome::Done(_)) => counts.done += 1,
            Some(Outcome::Refused(_)) => counts.refused += 1,
            Some(Outcome::Killed) => {
                counts.killed += 1;
                findings.cuts += 1;
                // The killed command may have been about to report the sessions that it had
                // thrown away.
                messages.must.clear();
            }
            None => {}
        }
        let fault = messages.heard(&said(&report.stderr));
        let killed = matches!(outcome, Some(Outcome::Killed));
        if let Some(name) = verb.reported().filter(|_| treatment != Treatment::Nothing) {
            if killed && self.is_cut_short(report.pid) {
                *messages.must.entry(name.to_owned()).or_default() += 1;
            }
            if !killed {
                let may = messages.may.entry(name.to_owned()).or_default();
                *may -= 1;
                if *may < 0 {
                    let what = "was said to have been interrupted, and ended well";
                    return Ok(Some(("false alarm", format!("{name} {what}"))));
                }
            }
        }
        if fault.is_some() {
            return Ok(fault);
        }
        if let Some(who) = &report.runs_on {
            return Ok(Some(("runs on", format!("{verb:?}: {who}"))));
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
        let kind = if matches!(outcome, Outcome::Refused(_)) { "false refusal" } else { "wrong" };
        let found = unexplained(model, outcome);
        Ok(Some((kind, format!("{verb:?}: {found} in none of {}", worlds.join(" or ")))))
    }

    /// Whether a session of process `pid` was cut short and is still there.
    fn is_cut_short(&self, pid: u32) -> bool {
        let sessions = fs::read_dir(self.walk.store.path.join("sessions")).into_iter();
        sessions.flatten().flatten().any(|entry| {
            let is_named = !entry.file_name().as_encoded_bytes().starts_with(b".");
            let text = fs::read(entry.path().join("session.json")).unwrap_or_default();
            let note = serde_json::from_slice::<serde_json::Value>(&text).unwrap_or_default();
            // Once this file exists, the mount outlives its command.
            let is_mount = entry.path().join("device").exists();
            is_named && note["pid"] == pid && !is_mount
        })
    }

    /// Mounts `tree`, changes the mount, and ends the mount.
    fn mounted(
        &mut self,
        tree: Name,
        keep: bool,
        seed: u64,
        kills: [Option<u64>; 2],
    ) -> Result<()> {
        let mounted = self.one(Verb::Mount(tree), false, kills[0].into())?;
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
        let mut ended = self.one(umount, false, kills[1].into())?;
        let was_killed = mounted.is_none() || ended.is_none();
        while ended.is_none() && self.walk.shared().findings.broken() == 0 {
            ended = self.one(umount, false, Treatment::Nothing)?;
        }
        if self.is_mounted()? {
            let fault = ("mounted", format!("{tree} at {}", self.point.display()));
            self.walk.shared().note(fault);
            unmount(&self.point, UnmountFlags::DETACH)?;
        } else if was_killed && self.walk.shared().findings.broken() == 0 {
            self.one(Verb::List, false, Treatment::Nothing)?;
            self.one(Verb::Export(tree), false, Treatment::Nothing)?;
        }
        Ok(())
    }

    fn is_mounted(&self) -> Result<bool> {
        let above = fs::metadata(&self.control)?.dev();
        Ok(fs::metadata(&self.point)?.dev() != above)
    }

    /// Ends a mount that was only read; a kill may have left only its session.
    fn end_look(&self) -> Result<()> {
        let mut umount = self.walk.store.tool.tree(&self.walk.store.path, &self.control);
        let finished = run(umount.arg("umount").arg(&self.point), patiently(LIMIT))?;
        let mut shared = self.walk.shared();
        if let Some(fault) = shared.ended.messages.heard(&said(&finished.stderr)) {
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
fn unexplained(model: &Model, outcome: &Outcome) -> String {
    let Outcome::Done(Shown::Content(found)) = outcome else { return format!("{outcome:?}") };
    let nearest = model.versions.all().map(|(version, known)| (diff(known, found), version));
    let (nearest, version) = nearest.min_by_key(|(all, _)| all.len()).unwrap_or_default();
    let shown: Vec<String> = nearest.iter().take(5).map(ToString::to_string).collect();
    let (count, shown) = (nearest.len(), shown.join("; "));
    format!("a content with {count} differences from version {version} ({shown}) is")
}
