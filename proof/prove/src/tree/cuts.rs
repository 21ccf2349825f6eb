//! Chooses where a recorded script is cut, and checks what is found at each cut.

use super::check::{TreeMoment, check, is_silent};
use super::recording::{END, RecordedScript, START, control, mark, store_on};
use super::script::{Effect, StoreState};
use super::store::{Interruption, Store};
use crate::Result;
use crate::campaign::{Campaign, Findings};
use crate::cuts::{CutPoint, cut_at, mount, random_survivors};
use crate::recording::place;
use std::collections::BTreeMap;
use synconce_testkit::rig::Log;

/// Paths at the end and after the end of a verb from which cuts are chosen more often,
/// because steps follow each other quickly there.
const NEAR: usize = 30;

/// Cuts `recorded`; if `verb` is given, only in the step with these words.
pub(super) fn cut(
    recorded: &RecordedScript,
    verb: Option<&str>,
    campaign: Campaign,
) -> Result<Findings> {
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
    let is_wanted = |index: usize| {
        let step = recorded.steps.get(index).map(|step| step.name());
        verb.is_none_or(|verb| step.is_some_and(|name| name == verb))
    };
    let wanted: Vec<_> = (0..marks.len()).filter(|index| is_wanted(*index)).collect();
    let places = choose(&log, &marks, &wanted, campaign);
    campaign.at_each(places.into_iter().enumerate(), |findings, (index, place)| {
        let moment = moment(recorded, &marks, place.disk);
        replay.cut(cut_at(place, place.disk))?;
        let done = marks.iter().filter(|at| **at <= place.disk).count().saturating_sub(1);
        let verb = recorded.steps.get(done).map_or("nothing".to_owned(), |step| step.name());
        let seen = match mount(|| replay.mount()) {
            Err(error) => Err(error.to_string()),
            Ok(mounted) => {
                let seen = match store.inspect(Interruption::PowerCut, index as u64) {
                    // If the disk kept what must not survive, reading fails with errors.
                    Err(error) => Some(("unreadable", error.to_string())),
                    Ok(seen) => {
                        findings.silent += usize::from(is_silent(&moment, &seen));
                        check(&moment, &seen)
                    }
                };
                mounted.unmount()?;
                Ok(seen)
            }
        };
        let is_promised = moment.before != &StoreState::default();
        findings.add(seen, is_promised, || format!("in `{verb}` at {place:?}"));
        Ok(())
    })
}

/// Returns the places of the start and of the end of every verb.
fn marks(recorded: &RecordedScript, log: &Log) -> Result<Vec<usize>> {
    let names = std::iter::once(START.to_owned()).chain((0..recorded.steps.len()).map(mark));
    names.map(|name| place(log, &name)).collect()
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

/// Chooses cuts of `verbs` in ascending order. Every verb gets about as many; if there are fewer
/// cuts than verbs, every part of the script does. Half of the cuts are anywhere in the verb, a
/// quarter before its return and a quarter right after its start.
fn choose(log: &Log, marks: &[usize], verbs: &[usize], campaign: Campaign) -> Vec<CutPoint> {
    let Campaign { count, seed, .. } = campaign;
    let mut random = fastrand::Rng::with_seed(seed);
    let end = log.mark(END).unwrap_or(log.len());
    let all: Vec<usize> = log.places(marks[0], end).collect();
    let count_of_verbs = verbs.len();
    let mut chosen = Vec::new();
    for index in 0..count {
        let first = index * count_of_verbs / count;
        let verb = verbs[random.usize(first..((index + 1) * count_of_verbs).div_ceil(count))];
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
