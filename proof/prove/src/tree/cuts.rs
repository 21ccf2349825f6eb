//! Chooses where a recorded script is cut, and checks what is found at each cut.

use super::check::{TreeMoment, check, is_silent};
use super::recording::{END, RecordedScript, START, control, mark, store_on};
use super::script::{Effect, StoreState};
use super::store::{Interruption, Store};
use crate::Result;
use crate::cuts::{CutPoint, Findings, cut_at, mount, random_survivors};
use std::collections::BTreeMap;
use std::time::Instant;
use synconce_testkit::rig::Log;

/// Paths at the end and after the end of a verb from which cuts are chosen more often,
/// because steps follow each other quickly there.
const NEAR: usize = 30;

/// Cuts `recorded` at `count` places; with `until_broken` stops at the first finding.
pub(super) fn cut(
    recorded: &RecordedScript,
    count: usize,
    seed: u64,
    until_broken: bool,
) -> Result<Findings> {
    let began = Instant::now();
    let log = recorded.disk.log()?;
    let marks = marks(recorded, &log)?;
    let replay = recorded.disk.replay().up()?;
    let control = control()?;
    let store = Store {
        tool: &recorded.tool,
        path: store_on(replay.path()),
        control: control.path().to_owned(),
        times: true,
        is_random: false,
    };
    let mut findings = Findings::default();
    for (index, place) in choose(&log, &marks, count, seed).into_iter().enumerate() {
        let moment = moment(recorded, &marks, place.disk);
        replay.cut(cut_at(place, place.disk))?;
        let mounted = mount(|| replay.mount());
        let done = marks.iter().filter(|at| **at <= place.disk).count().saturating_sub(1);
        let verb = recorded.steps.get(done).map_or("nothing".to_owned(), |step| step.name());
        let at = || format!("in `{verb}` at {place:?}");
        findings.cuts += 1;
        match mounted {
            Err(error) if moment.before == &StoreState::default() => {
                findings.refuse(|| format!("{}: {error}", at()));
            }
            Err(error) => findings.note("unmountable", || format!("{}: {error}", at())),
            Ok(mounted) => {
                match store.inspect(Interruption::PowerCut, index as u64) {
                    // If the disk kept what must not survive, reading fails with errors.
                    Err(error) => findings.note("unreadable", || format!("{}: {error}", at())),
                    Ok(seen) => {
                        findings.silent += usize::from(is_silent(&moment, &seen));
                        if let Some((kind, detail)) = check(&moment, &seen) {
                            findings.note(kind, || format!("{}: {detail}", at()));
                        }
                    }
                }
                mounted.unmount()?;
            }
        }
        if until_broken && findings.broken() > 0 {
            break;
        }
    }
    findings.millis = began.elapsed().as_millis() as u64;
    Ok(findings)
}

/// Returns the places of the start and of the end of every verb.
fn marks(recorded: &RecordedScript, log: &Log) -> Result<Vec<usize>> {
    let names = std::iter::once(START.to_owned()).chain((0..recorded.steps.len()).map(mark));
    let place = |name: String| log.mark(&name).ok_or_else(|| format!("the mark {name} is missing"));
    Ok(names.map(place).collect::<std::result::Result<_, _>>()?)
}

/// Returns the states that are allowed at a place.
fn moment<'a>(recorded: &'a RecordedScript, marks: &[usize], place: usize) -> TreeMoment<'a> {
    let done = marks.iter().filter(|mark| **mark <= place).count().saturating_sub(1);
    let mut accepted: BTreeMap<String, usize> = BTreeMap::new();
    for step in &recorded.steps[..done] {
        if let Some((name, true)) = step.effect.session() {
            *accepted.entry(name.to_owned()).or_default() += 1;
        }
    }
    TreeMoment {
        by: Interruption::PowerCut,
        before: &recorded.states[done],
        after: recorded.states.get(done + 1).unwrap_or(&recorded.states[done]),
        interrupted: recorded.steps.get(done).map_or(Effect::Nothing, |step| step.effect),
        accepted,
    }
}

/// Chooses cuts in ascending order. Every verb gets about as many: half of them anywhere in
/// the verb, a quarter before its return and a quarter right after its start.
fn choose(log: &Log, marks: &[usize], count: usize, seed: u64) -> Vec<CutPoint> {
    let mut random = fastrand::Rng::with_seed(seed);
    let end = log.mark(END).unwrap_or(log.len());
    let all: Vec<usize> = log.places(marks[0], end).collect();
    let verbs = marks.len();
    let mut chosen = Vec::new();
    for index in 0..count {
        let verb = (index + random.usize(..verbs)) % verbs;
        let from = all.partition_point(|place| *place < marks[verb]);
        let to = marks.get(verb + 1).map_or(all.len(), |to| all.partition_point(|at| at < to));
        let range = match random.u8(..4) {
            0 | 1 => from..to,
            2 => from.max(to.saturating_sub(NEAR))..to,
            _ => from..to.min(from + NEAR),
        };
        if range.is_empty() {
            continue;
        }
        let (survivors, granularity) = random_survivors(&mut random);
        chosen.push(CutPoint { disk: all[random.usize(range)], other: 0, survivors, granularity });
    }
    chosen.sort_by_key(|place| place.disk);
    chosen
}
