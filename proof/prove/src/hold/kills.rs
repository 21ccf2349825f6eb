//! Kills every verb at random moments, on a disk that stays up.

use super::database::{Database, DatabaseState};
use super::fixture::{HoldFixture, failed, waited};
use super::judge::{misplaced, put_back};
use crate::Result;
use crate::campaign::{BrokenPromise, Findings};
use crate::config::{DiskKind, MarkerPlace};
use crate::tool::Tool;
use crate::tree::Trigger;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};
use synconce_testkit::patiently;
use synconce_testkit::process::Group;

const SIZE: u64 = 384 << 20;
const LIMIT: Duration = Duration::from_secs(60);
/// Assumed duration of a verb until one attempt has missed it.
const SPAN: Duration = Duration::from_millis(60);
/// Kills that come too late are repeated: up to this many attempts for each requested kill.
const TRIES: usize = 4;
/// The verbs that are killed in turn.
const VERBS: [&str; 7] = ["start", "stop", "recover", "run", "settle", "start", "restore"];
/// Calls at which a verb is killed, and the largest n for the nth call.
const CALLS: [(&str, u64); 14] = [
    ("openat", 60),
    ("fsync", 8),
    ("renameat2", 4),
    ("linkat", 2),
    ("fsconfig", 30),
    ("move_mount", 3),
    ("umount2", 3),
    ("unlinkat", 14),
    ("mkdir", 12),
    ("flock", 4),
    ("clone", 1),
    ("read", 40),
    ("write", 8),
    ("syncfs", 3),
];

/// Kills until `count` kills came in time.
pub(super) fn kill(disk: DiskKind, tool: &Tool, count: usize, seed: u64) -> Result<Findings> {
    let fixture = HoldFixture::new(tool, MarkerPlace::Same)?;
    let rig = disk.rig(SIZE).at(fixture.disk()).up()?;
    fixture.make_directories()?;
    fixture.write(1, 2)?;
    let random = fastrand::Rng::with_seed(seed);
    let mut kills = Kills { fixture: &fixture, random, spans: BTreeMap::new() };
    let began = Instant::now();
    let mut findings = Findings::default();
    for round in 0..count * TRIES {
        let verb = VERBS[round % VERBS.len()];
        let done = kills.round(verb).map_err(|error| format!("{verb}, round {round}: {error}"))?;
        findings.cuts += usize::from(done.in_time);
        if let Some((kind, detail)) = done.fault {
            findings.note(kind, || format!("round {round}, {verb}, {}: {detail}", done.trigger));
            break;
        }
        if findings.cuts == count {
            break;
        }
    }
    findings.millis = began.elapsed().as_millis() as u64;
    fixture.release()?;
    rig.down()?;
    Ok(findings)
}

/// What a round found.
struct Done {
    in_time: bool,
    trigger: String,
    fault: Option<BrokenPromise>,
}

struct Kills<'a> {
    fixture: &'a HoldFixture,
    random: fastrand::Rng,
    /// Duration of each verb without a kill.
    spans: BTreeMap<&'static str, Duration>,
}

impl Kills<'_> {
    /// Brings the hold into the state in which `verb` has something to do, kills the verb, and
    /// goes back to a hold that is off.
    fn round(&mut self, verb: &'static str) -> Result<Done> {
        let fixture = self.fixture;
        let mut known = self.counts()?;
        if verb == "settle" {
            known = vec![0; known.len()];
        }
        if ["stop", "recover", "settle", "restore"].contains(&verb) {
            fixture.must("start")?;
        }
        if ["recover", "settle", "restore"].contains(&verb) {
            fixture.crash()?;
        }
        let before = fixture.content()?;
        if verb == "settle" || verb == "restore" {
            // The daemon writes its files anew.
            ["recover", "start"].into_iter().try_for_each(|verb| fixture.must(verb))?;
            fixture.write(1, 1)?;
            fixture.must("stop")?;
        }
        let mut command = fixture.command(verb);
        if verb == "run" {
            let [first, ..] = fixture.databases() else { return Err("no database".into()) };
            command.arg("--").args(first.write_words(known[0] + 1, known[0] + 3)?);
        }
        let span = self.spans.get(verb).copied().unwrap_or(SPAN);
        let trigger = Trigger::random_of(&CALLS, &mut self.random, span);
        let in_time = self.strike(verb, trigger, command)?;
        let fault = match verb {
            "recover" => self.recovered(&before)?,
            "settle" => self.all(&["settle"])?,
            "restore" => self.restored(&before)?,
            _ => None,
        };
        let fault = fault.map_or_else(|| self.off(&known), |fault| Ok(Some(fault)))?;
        Ok(Done { in_time, trigger: format!("{trigger:?}"), fault })
    }

    /// Runs the command, kills it, and waits until no process but a guard is left. Returns
    /// whether the kill came before the end.
    fn strike(&mut self, verb: &'static str, trigger: Trigger, command: Command) -> Result<bool> {
        let began = Instant::now();
        let group = Group::spawn(&mut trigger.traced(command))?;
        trigger.fire(&group);
        let ended = group.wait(patiently(LIMIT))?;
        let in_time = trigger.took_effect(ended);
        if !in_time {
            self.spans.insert(verb, began.elapsed());
        }
        // Ends a daemon that `run` has left.
        drop(group);
        let has_ended = || self.fixture.processes().iter().all(|one| one.is_guard);
        if waited(has_ended) {
            Ok(in_time)
        } else {
            Err(format!("still running: {:?}", self.fixture.processes()).into())
        }
    }

    /// Runs verbs that have to succeed.
    fn all(&self, verbs: &[&str]) -> Result<Option<BrokenPromise>> {
        for verb in verbs {
            let finished = self.fixture.verb(verb)?;
            if !finished.status.success() {
                let detail = format!("{verbs:?}: {}", failed(verb, &finished));
                return Ok(Some(("not usable", detail)));
            }
        }
        Ok(None)
    }

    /// Finishes a recovery that was killed: everything is set aside, and is put back.
    fn recovered(&self, before: &super::fixture::HeldContent) -> Result<Option<BrokenPromise>> {
        if let Some(fault) = self.all(&["recover"])? {
            return Ok(Some(fault));
        }
        if let Some(detail) = misplaced(self.fixture, before)? {
            return Ok(Some(("not set aside", detail)));
        }
        put_back(self.fixture, before)
    }

    /// Finishes a restore that was killed, by the next restore or as the daemon's unit does:
    /// nothing is there but the files as they were set aside.
    fn restored(&mut self, before: &super::fixture::HeldContent) -> Result<Option<BrokenPromise>> {
        let after_a_boot = self.random.bool();
        let verbs: &[&str] = if after_a_boot { &["recover", "restore"] } else { &["restore"] };
        if let Some(fault) = self.all(verbs)? {
            return Ok(Some(fault));
        }
        if self.fixture.content()? != *before {
            return Ok(Some(("put back wrong", format!("{verbs:?}: the content differs"))));
        }
        self.fixture.touch()?;
        self.all(&["settle"])
    }

    /// Ends the hold in one of the ways in which a user would; the databases are whole then.
    fn off(&mut self, known: &[usize]) -> Result<Option<BrokenPromise>> {
        let ways: [&[&str]; 4] = [
            &["recover", "start", "stop"],
            &["stop"],
            &["start", "stop"],
            &["recover", "stop", "start", "stop"],
        ];
        let way = ways[self.random.usize(..ways.len())];
        if let Some(fault) = self.all(way)? {
            return Ok(Some(fault));
        }
        let mut left = self.fixture.leftovers()?;
        if self.fixture.marker_path().exists() {
            left.push("the marker".to_owned());
        }
        if !left.is_empty() {
            return Ok(Some(("left over", format!("{way:?}: {}", left.join("; ")))));
        }
        // After a wipe there is none.
        self.fixture.make_directories()?;
        for (database, known) in self.fixture.databases().iter().zip(known) {
            match database.state()? {
                DatabaseState::Whole(count) if count >= *known => {
                    database.write(count + 1, count + 1)?;
                }
                other => return Ok(Some(("damaged", format!("{database}: {other:?}")))),
            }
        }
        Ok(None)
    }

    /// Returns the number of transactions in each database.
    fn counts(&self) -> Result<Vec<usize>> {
        let count = |database: &Database| match database.state()? {
            DatabaseState::Whole(count) => Ok(count),
            other => Err(format!("{database}: {other:?}").into()),
        };
        self.fixture.databases().iter().map(count).collect()
    }
}
