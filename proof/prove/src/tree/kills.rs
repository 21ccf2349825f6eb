//! Kills every verb at random moments, on a disk that stays up.

mod trigger;

pub(crate) use self::trigger::Trigger;
use self::trigger::{Attempt, wait_until_unused};
use super::check::{TreeMoment, check};
use super::fixture;
use super::recording::{control, store_on};
use super::script::{Effect, ScriptVerb, StoreState, Trees, step};
use super::store::{Interruption, LIMIT, Store};
use crate::Result;
use crate::campaign::{Campaign, Findings};
use crate::config::DiskKind;
use crate::tool::Tool;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use synconce_testkit::manifest::Manifest;
use synconce_testkit::patiently;
use synconce_testkit::process::Group;

const SIZE: u64 = 768 << 20;
/// How long an edit takes in a run that will be killed.
const SPREAD: u64 = 25;
/// Kills that come too late are repeated: up to this many attempts for each requested kill.
const TRIES: usize = 4;

/// Assumed duration of a verb until one attempt has missed it.
const SPAN: Duration = Duration::from_millis(100);

/// A verb that is killed, and the steps before it.
struct KillScenario {
    name: &'static str,
    set_up: Vec<ScriptVerb>,
    killed: ScriptVerb,
    /// Adds an unreferenced layer, as a crash leaves it.
    garbage: bool,
    /// Set for verbs of a mount, which outlives its command.
    mount: Option<MountFate>,
}

/// What is done with the mount that the killed verb concerns.
#[derive(Clone, Copy)]
struct MountFate {
    /// The edit that is made in the mount before the kill.
    edit: Option<u64>,
    /// How the user ends the mount afterwards. The command fails if the mount no longer
    /// exists.
    end: &'static str,
}

/// How often to kill, beginning with the scenario of the number `first`.
#[derive(Clone, Copy)]
pub(super) struct KillCampaign {
    pub count: usize,
    pub first: usize,
}

fn scenarios(control: &Path) -> Vec<KillScenario> {
    use Effect::{
        Becomes, Clones, Commits, CommitsAs, Discards, Imports, Nothing, Protects, Removes,
        Renames, Reverts, Runs, Squashes,
    };
    let source = control.join("source");
    let clone = || step("clone base work", Clones("base", "work"));
    let run = |number| ScriptVerb::run("run work", number, SPREAD, Runs("work", number));
    let commit = || step("commit work", Commits("work"));
    let clean =
        |name, set_up, killed| KillScenario { name, set_up, killed, garbage: false, mount: None };
    let becomes = |text, new| ScriptVerb::run(text, 3, SPREAD, Becomes("work", new, 3));
    let import_words = format!("import work {}", source.display());
    let export_words = format!("export base {}", control.join("out").display());
    vec![
        clean("import", vec![], step(&import_words, Imports("work"))),
        clean("clone", vec![], clone()),
        clean("run", vec![clone()], run(1)),
        clean("run again", vec![clone(), run(1)], run(2)),
        clean("commit", vec![clone(), run(1)], commit()),
        clean(
            "commit --as",
            vec![clone(), run(1)],
            step("commit work --as new", CommitsAs("work", "new")),
        ),
        clean("run --commit", vec![clone()], becomes("run --from work --commit new", "new")),
        clean("next generation", vec![clone()], becomes("run --from work --commit work", "work")),
        clean(
            "run --discard",
            vec![],
            ScriptVerb::run("run --from base --discard", 4, SPREAD, Discards("base")),
        ),
        clean("squash", vec![clone(), run(1), commit()], step("squash work", Squashes("work"))),
        clean(
            "remove --wait",
            vec![clone(), run(1), commit()],
            step("remove work --wait", Removes("work")),
        ),
        clean("remove", vec![clone(), run(1), commit()], step("remove work", Removes("work"))),
        clean(
            "remove --force",
            vec![clone(), run(1)],
            step("remove --force work", Removes("work")),
        ),
        clean("discard", vec![clone(), run(1)], step("discard work", Reverts("work"))),
        clean("rename", vec![clone()], step("rename work new", Renames("work", "new"))),
        clean("protect", vec![clone()], step("protect work", Protects("work"))),
        KillScenario {
            name: "gc",
            set_up: vec![clone()],
            killed: step("gc --wait", Nothing),
            garbage: true,
            mount: None,
        },
        clean("verify", vec![], step("verify --content --accept base", Nothing)),
        clean("export", vec![], step(&export_words, Nothing)),
    ]
}

/// Returns all scenarios. Their order decides which of them a few kills reach.
fn all_scenarios(control: &Path) -> Vec<KillScenario> {
    let mut scenarios = scenarios(control);
    scenarios.extend(scenarios_of_generations());
    scenarios.extend(scenarios_of_mounts(control));
    scenarios
}

/// Returns the scenarios of older generations.
fn scenarios_of_generations() -> Vec<KillScenario> {
    use Effect::{Clones, Keeps, Removes, Restores, Runs};
    let clean =
        |name, set_up, killed| KillScenario { name, set_up, killed, garbage: false, mount: None };
    let changed = || {
        let run = ScriptVerb::run("run work", 1, SPREAD, Runs("work", 1));
        vec![step("clone base work", Clones("base", "work")), run]
    };
    let keep = || step("commit work --keep 1", Keeps("work", "work@1"));
    let restore = || step("restore work@1", Restores("work@1", "work@2"));
    let after = |steps: Vec<ScriptVerb>| [changed(), steps].concat();
    let removal = step("remove work@2", Removes("work@2"));
    vec![
        clean("commit --keep", changed(), keep()),
        clean("restore", after(vec![keep()]), restore()),
        clean("remove a generation", after(vec![keep(), restore()]), removal),
    ]
}

/// Returns the scenarios of mounts, which outlive their commands until the user ends them.
fn scenarios_of_mounts(control: &Path) -> Vec<KillScenario> {
    use Effect::{Clones, Nothing, Runs};
    let at = point(control);
    let mount = |options: &str| step(&format!("mount work {}{options}", at.display()), Nothing);
    let clone = || step("clone base work", Clones("base", "work"));
    let mounted = |name, set_up, killed, edit, end| {
        let mount = Some(MountFate { edit, end });
        KillScenario { name, set_up, killed, garbage: false, mount }
    };
    let (keep, discard) = ("umount work", "umount work --discard");
    let before = || vec![clone(), mount("")];
    vec![
        mounted("mount", vec![clone()], mount(""), None, discard),
        mounted("mount --read-only", vec![clone()], mount(" --read-only"), None, keep),
        mounted("umount", before(), step(keep, Runs("work", 5)), Some(5), keep),
        mounted("umount --discard", before(), step(discard, Nothing), Some(6), discard),
    ]
}

/// Returns where trees are mounted.
fn point(control: &Path) -> PathBuf {
    control.join("point")
}

/// Kills until enough kills came in time; with a mutant stops at the first finding.
pub(super) fn kill(
    disk: DiskKind,
    strategy: Option<&'static str>,
    tool: &Tool,
    KillCampaign { count, first }: KillCampaign,
    seed: u64,
) -> Result<Findings> {
    let campaign = Campaign::new(tool, count, seed);
    let control = control()?;
    fs::create_dir(point(control.path()))?;
    let rig = disk.rig(SIZE).up()?;
    let path = store_on(rig.path());
    let store =
        Store { tool, path, control: control.path().to_owned(), times: false, is_random: false };
    let mut kills = Kills::new(store, strategy, seed)?;
    let began = Instant::now();
    let mut findings = Findings::default();
    let scenarios = all_scenarios(control.path());
    for round in 0..count * TRIES {
        let scenario = &scenarios[(first + round) % scenarios.len()];
        let in_time = kills.round(scenario, round, &mut findings);
        let in_time =
            in_time.map_err(|error| format!("{}, round {round}: {error}", scenario.name))?;
        findings.cuts += usize::from(in_time);
        if findings.cuts == count || campaign.is_over(&findings) {
            break;
        }
    }
    findings.millis = began.elapsed().as_millis() as u64;
    // The rig is busy if a mount of the file system is left in any namespace.
    if let Err(error) = rig.down() {
        findings.note("mounted", || format!("the end: {error}"));
    }
    Ok(findings)
}

/// The store in which one verb after the other is killed, and its expected contents.
struct Kills<'a> {
    store: Store<'a>,
    strategy: Option<&'static str>,
    random: fastrand::Rng,
    /// The tree that each sequence of edits makes of the base.
    known: BTreeMap<Vec<u64>, Arc<Manifest>>,
    /// Duration of each verb without a kill.
    spans: BTreeMap<&'static str, Duration>,
}

impl<'a> Kills<'a> {
    fn new(store: Store<'a>, strategy: Option<&'static str>, seed: u64) -> Result<Self> {
        let random = fastrand::Rng::with_seed(seed);
        let (known, spans) = (BTreeMap::new(), BTreeMap::new());
        let mut kills = Self { store, strategy, random, known, spans };
        kills.renew("store")?;
        Ok(kills)
    }

    /// Continues with a new store of this name.
    fn renew(&mut self, name: &str) -> Result<()> {
        self.store.path.set_file_name(name);
        self.perform(&step("init", Effect::Makes))?;
        self.perform(&ScriptVerb::import("base", &self.store.control.join("source")))
    }

    fn by(&self, step: &ScriptVerb) -> ScriptVerb {
        match self.strategy {
            Some(strategy) => step.clone().by(strategy),
            None => step.clone(),
        }
    }

    fn perform(&self, step: &ScriptVerb) -> Result<()> {
        self.store.perform(&self.by(step))
    }

    /// Returns the base after these edits, made in a plain directory.
    fn edited(&mut self, edits: &[u64]) -> Result<Arc<Manifest>> {
        if let Some(known) = self.known.get(edits) {
            return Ok(Arc::clone(known));
        }
        let place = self.store.control.join("reference");
        fixture::copy(&self.store.control.join("source"), &place)?;
        for number in edits {
            fixture::edit(&place, *number, Duration::ZERO)?;
        }
        let manifest = Arc::new(Manifest::read(&place)?);
        fs::remove_dir_all(&place)?;
        self.known.insert(edits.to_vec(), Arc::clone(&manifest));
        Ok(manifest)
    }

    /// Returns the states before and after the last of the steps.
    fn states(&mut self, scenario: &KillScenario) -> Result<[StoreState; 2]> {
        let base = self.edited(&[])?;
        let mut state = StoreState { store: true, ..StoreState::default() };
        state.durable = Trees::from([("base".to_owned(), base)]);
        state.protected.insert("base".to_owned());
        let mut edits: Vec<u64> = Vec::new();
        let mut before = state.clone();
        for step in scenario.set_up.iter().chain([&scenario.killed]) {
            before = state.clone();
            if let Effect::Runs(_, number) | Effect::Becomes(_, _, number) = step.effect {
                edits.push(number);
            }
            let content = step.effect.changes().map(|_| self.edited(&edits)).transpose()?;
            state = state.after(step, content);
        }
        // After the kill the user ends the mount with `end`, so only the state after is allowed.
        if scenario.mount.is_some() {
            before = state.clone();
        }
        Ok([before, state])
    }

    /// Kills the verb of the scenario once and checks; returns whether the kill came in time.
    fn round(
        &mut self,
        scenario: &KillScenario,
        round: usize,
        findings: &mut Findings,
    ) -> Result<bool> {
        let [before, after] = self.states(scenario)?;
        for step in &scenario.set_up {
            self.perform(step)?;
        }
        if let Some(number) = scenario.mount.and_then(|mount| mount.edit) {
            fixture::edit(&point(&self.store.control), number, Duration::ZERO)?;
        }
        if scenario.garbage {
            let layer = self.store.path.join(format!("layers/{round:016x}"));
            fs::create_dir(&layer)?;
            fixture::copy(&self.store.control.join("source"), &layer.join("tree"))?;
        }
        let words = self.by(&scenario.killed).words;
        let span = self.spans.get(scenario.name).copied().unwrap_or(SPAN);
        let trigger = Trigger::random(&mut self.random, span);
        let began = Instant::now();
        let Attempt { in_time, fault } = self.attempt(&trigger, &words, scenario.mount)?;
        if !in_time {
            self.spans.insert(scenario.name, began.elapsed());
        }
        let seen = self.store.inspect(Interruption::Kill, round as u64)?;
        // Of two records one may be written and the other not; each of the two trees is whole
        // then.
        let mut between = after.clone();
        if let Effect::CommitsAs(name, _) = scenario.killed.effect {
            between.open.extend(
                before
                    .open
                    .get_key_value(name)
                    .map(|(name, tree)| (name.clone(), Arc::clone(tree))),
            );
        }
        let moment = TreeMoment {
            by: Interruption::Kill,
            before: &before,
            after: &after,
            interrupted: scenario.killed.effect,
            accepted: BTreeMap::new(),
        };
        let partial = TreeMoment { before: &between, ..moment.clone() };
        let found = check(&moment, &seen).filter(|_| check(&partial, &seen).is_some());
        if let Some((kind, detail)) = fault.or(found) {
            findings.note(kind, || format!("{} by {trigger:?}: {detail}", scenario.name));
            // Use a new store: the same defect would be found again and again.
            self.renew(&format!("store-{round}"))?;
            return Ok(in_time);
        }
        for tree in seen.listed.iter().filter(|tree| tree.name != "base") {
            self.perform(&step(&format!("remove --force {} --wait", tree.name), Effect::Nothing))?;
        }
        let out = self.store.control.join("out");
        if out.exists() {
            fs::remove_dir_all(out)?;
        }
        Ok(in_time)
    }

    /// Starts the verb and kills it; then ends its mount, if there is one.
    fn attempt(
        &self,
        trigger: &Trigger,
        words: &[String],
        mount: Option<MountFate>,
    ) -> Result<Attempt> {
        let mut command = trigger.traced(self.store.command(words));
        let group = Group::spawn(&mut command)?;
        trigger.fire(&group);
        let ended = group.wait(patiently(LIMIT))?;
        let in_time = trigger.took_effect(ended);
        if ended.is_none() {
            let error = format!("{words:?} still runs: {}", group.stderr()?);
            return Ok(Attempt { in_time, fault: Some(("still running", error)) });
        }
        if let Some(MountFate { end, .. }) = mount {
            self.store.verb(end)?;
        }
        let fault =
            wait_until_unused(&self.store.path).map(|processes| ("still running", processes));
        Ok(Attempt { in_time, fault })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_kills_on_each_of_three_disks_reach_each_verb() {
        // `cargo xtask prove --quick` makes ten kills on each of three disks.
        assert!(all_scenarios(Path::new("/")).len() <= 3 * 10);
    }
}
