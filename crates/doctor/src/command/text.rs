//! The report of a command for a terminal.

use super::entries::{Client, CommandEnding};
use super::record::CommandRecord;
use super::tally::{Dropped, KEPT, Slowest, SyncGroup};
use super::waits::{NotCovered, Waits};
use super::{BuildSteps, CommandReport, Savings, StepWaits, causes};
use crate::finding::Finding;
use crate::text::{block, repeat};
use crate::units::{at_least, bytes, seconds};
use std::cmp::Reverse;
use std::fmt::Write;
use std::path::Path;
use synconce_durable::text::{printable, quote};

/// A saving below this, in seconds, is none: starting a command takes as long.
pub(crate) const WORTH: f64 = 0.1;
/// How many groups of a kind are shown.
const SHOWN: usize = 5;
/// Characters of the command of a step.
const STEP_WORDS: usize = 100;
/// What a run risks.
pub(crate) const RISK: &str = "a power cut during the run leaves files empty or old; `synconce \
                               status` then reports the run";

/// Returns the verdict: one sentence.
pub(super) fn verdict(
    record: &CommandRecord,
    waits: &Waits,
    savings: &Savings,
    not_covered: &[NotCovered],
    build: Option<&BuildSteps>,
    first: Option<&Finding>,
) -> String {
    let took = seconds(record.seconds());
    let name = printable(record.command.first().map_or("", String::as_str));
    // What saves most comes first.
    let first = first.filter(|it| causes::cost(it, record) > savings.at_least);
    let cause = first.map_or_else(String::new, |Finding { name, seconds: cost, cause, .. }| {
        let cost = cost.map(|cost| format!(" costs at least {} of {took}", at_least(cost)));
        format!("{name}{}; ", cost.unwrap_or_else(|| format!(": {cause}")))
    });
    let name = format!("{name}: {cause}");
    let unseen = unseen_steps(record);
    let end = if record.ended.is_none() { "; the record has no end" } else { "" };
    let cut = format!("{unseen}{end}");
    let is_longer = |build: &&BuildSteps| build.waits.covered > waits.covered;
    if let Some(build) = build.filter(|build| waits.calls == 0 || is_longer(build)) {
        return format!("{name}{}{cut}", of_steps(build, record.seconds()));
    }
    let is_unseen = build.is_none() && record.unseen_steps.is_none();
    let daemon = doctor_of(record).filter(|_| is_unseen);
    let daemon = daemon.map(|line| format!("; the work of its daemon is not seen: `{line}`"));
    if waits.calls == 0 {
        if let Some(daemon) = daemon {
            return format!("{name}no sync was waited for in {took}{daemon}{cut}");
        }
        let rest = match untimed(not_covered, &took) {
            Some(rest) => rest,
            None if !unseen.is_empty() => format!("no sync was waited for in {took}"),
            None => format!("no sync was waited for in {took}; `synconce run` saves nothing"),
        };
        return format!("{name}{rest}{cut}");
    }
    let counted = format!(
        "{name}{} waited for, {} of {took}",
        if waits.calls == 1 {
            "1 sync was".to_owned()
        } else {
            format!("{} syncs were", whole(waits.calls))
        },
        seconds(waits.covered)
    );
    let saved = match (saved(savings), daemon) {
        (Some(saved), _) => saved,
        // A client may sync a file of its own.
        (None, Some(daemon)) => daemon,
        (None, None) if !unseen.is_empty() => String::new(),
        (None, None) => "; `synconce run` saves nothing worth it".to_owned(),
    };
    format!("{counted}{saved}{cut}")
}

/// Returns what is said about calls without a time in a command that took the time `took`.
fn untimed(not_covered: &[NotCovered], took: &str) -> Option<String> {
    if let Some(held) = not_covered.iter().find(|kind| kind.is_held) {
        let what = held.what;
        return Some(format!(
            "no sync was timed in {took}; not timed, but held by `synconce run`: {what}"
        ));
    }
    let what = not_covered.first()?.what;
    Some(format!("no sync was waited for in {took}; not timed: {what}"))
}

/// Returns what a run saves, if that is worth it.
fn saved(savings: &Savings) -> Option<String> {
    let Savings { at_least: least, about, .. } = *savings;
    if least >= WORTH {
        let (least, about) = (at_least(least), seconds(about));
        Some(format!("; `synconce run` saves at least {least}, about {about}"))
    } else {
        (about >= WORTH).then(|| format!("; `synconce run` may save {}", seconds(about)))
    }
}

/// Returns why no steps of builds were seen, for the end of the verdict.
fn unseen_steps(record: &CommandRecord) -> String {
    match &record.unseen_steps {
        Some(why) => format!("; build steps are not seen: {why}"),
        None if misses_steps(record) => "; no build step was seen".to_owned(),
        None => String::new(),
    }
}

/// Whether a command that has no client was said to build, and no step was seen.
fn misses_steps(record: &CommandRecord) -> bool {
    let has_client = asks_builder(&record.command) || daemon_of(record).is_some();
    record.watches_steps && record.steps.is_empty() && !has_client
}

/// Returns the command line that measures the work of the daemon of [`daemon_of`]: the steps of a
/// build by a script, or else the daemon's disk.
fn doctor_of(record: &CommandRecord) -> Option<String> {
    let flag = daemon_of(record)?;
    let builds = record.clients.iter().any(|client| client.builds);
    // A report that has watched for steps in vain would see none again.
    if !builds || record.watches_steps || flag == CONTAINERD {
        return Some(format!("synconce doctor {flag}"));
    }
    let words: Vec<_> = record.command.iter().map(|word| quote(Path::new(word))).collect();
    Some(format!("synconce doctor {flag} -- {}", words.join(" ")))
}

/// The flag of doctor that takes no command.
const CONTAINERD: &str = "--containerd";

/// Returns the flag of doctor for the daemon that the command asks to do the work, itself or by a
/// client that was found among its processes.
fn daemon_of(record: &CommandRecord) -> Option<&'static str> {
    let of_client = |Client { program, builds }: &Client| {
        let verb = if *builds { "build" } else { "" };
        asked_daemon(&[program.clone(), verb.to_owned()])
    };
    asked_daemon(&record.command).or_else(|| record.clients.iter().find_map(of_client))
}

/// Whether `command` is a client of a builder, by its first words: then steps of builds may be its
/// work.
pub fn asks_builder(command: &[String]) -> bool {
    asked_daemon(command).is_some() || is_daemonless(command)
}

/// Whether `command` is a build by Podman or Buildah, by its first words.
pub fn builds_without_daemon(command: &[String]) -> bool {
    is_daemonless(command) && command.iter().any(|word| word == "build" || word == "bud")
}

fn is_daemonless(command: &[String]) -> bool {
    command.iter().take(2).any(|word| {
        let name = Path::new(word).file_name().and_then(|name| name.to_str());
        matches!(name, Some("podman" | "buildah"))
    })
}

/// Returns the flag of doctor for the daemon that `command` asks to do the work, if a word of the
/// command is the name of such a client, perhaps behind `sudo`.
pub(super) fn asked_daemon(command: &[String]) -> Option<&'static str> {
    let names = command.iter().filter_map(|word| Path::new(word).file_name()?.to_str());
    let builds = command.iter().any(|word| word == "build");
    names.take(2).find_map(|name| match name {
        "docker" | "docker-buildx" | "docker-compose" => Some("--docker"),
        "buildctl" => Some("--buildkit"),
        // A client of containerd that has images built by BuildKit.
        "nerdctl" if builds => Some("--buildkit"),
        "ctr" | "nerdctl" => Some(CONTAINERD),
        _ => None,
    })
}

/// Returns the lines of `report`.
pub(super) fn render(report: &CommandReport, again: &str) -> String {
    let waits = &report.waits;
    let mut text = format!("{}\n", report.verdict);
    if waits.calls == 0
        && report.not_covered.is_empty()
        && report.findings.is_empty()
        && report.build.is_none()
    {
        let _ = writeln!(text, "{}", ended(report));
        return text;
    }
    // A write to a string cannot fail.
    let _ = writeln!(text, "\n{}", ended(report));
    if waits.calls > 0 {
        for (name, words) in totals(waits, &report.savings) {
            let _ = writeln!(text, "  {name:<13}{words}");
        }
        by_group(&mut text, waits);
    }
    not_timed(&mut text, &report.not_covered, "`synconce run` takes the sync away");
    if let Some(build) = &report.build {
        steps(&mut text, build);
    }
    programs(&mut text, report);
    if saves(report) {
        let _ = writeln!(text, "  do           {again}");
        let _ = writeln!(text, "  risk         {RISK}");
    }
    for (at, finding) in (1..).zip(&report.findings) {
        block(&mut text, at, finding);
    }
    repeat(&mut text, &report.verdict);
    text
}

fn by_group(text: &mut String, waits: &Waits) {
    groups(text, "by call", &waits.by_call);
    groups(text, "by program", &waits.by_program);
    groups(text, "by directory", &waits.by_directory);
    for (what, it) in
        [("programs", waits.dropped_programs), ("directories", waits.dropped_directories)]
    {
        if let Some(it) = it {
            let _ = writeln!(text, "  dropped      {}", dropped(what, it));
        }
    }
    for (at, slow) in waits.slowest.iter().take(SHOWN).enumerate() {
        let _ = writeln!(text, "  {:<13}{}", if at == 0 { "longest" } else { "" }, one(slow));
    }
}

/// Returns what the steps of a build waited for, in a command of `all` seconds.
fn of_steps(build: &BuildSteps, all: f64) -> String {
    let Waits { calls, covered, .. } = build.waits;
    let (count, took) = (build.seen(), seconds(all));
    let steps = if count == 1 { "1 build step".to_owned() } else { format!("{count} build steps") };
    let unseen = match build.steps.len() - count {
        0 => String::new(),
        others => format!("; {others} not seen"),
    };
    let syncs = match calls {
        0 => return format!("{steps} waited for no sync in {took}{unseen}"),
        1 => "1 sync".to_owned(),
        calls => format!("{} syncs", whole(calls)),
    };
    let verb = if calls == 1 { "was" } else { "were" };
    let waited = seconds(covered);
    format!(
        "{syncs} of {steps} {verb} waited for, {waited} of {took}; held steps do not wait{unseen}"
    )
}

/// Shows each step in the order of their beginnings, and the syncs of all.
fn steps(text: &mut String, build: &BuildSteps) {
    let _ = writeln!(
        text,
        "\nBuild steps of all builds: syncs, waits, time and command of each; none was held"
    );
    for step in &build.steps {
        let _ = writeln!(text, "  {}", of_step(step));
    }
    by_group(text, &build.waits);
    not_timed(text, &build.not_covered, "a held step does not wait for it");
    let _ = writeln!(text, "  not seen     {}", build.not_seen);
}

fn of_step(step: &StepWaits) -> String {
    let title = format!("step {}", step.number);
    let words: String = printable(step.words()).chars().take(STEP_WORDS).collect();
    if let Some(why) = &step.unseen {
        return format!("{title:<13}not seen: {}: {words}", printable(why));
    }
    let (calls, waited, took) = (whole(step.calls), seconds(step.waits), seconds(step.seconds));
    format!("{title:<13}{calls:>7} {waited:>8}  of {took:>8}  {words}")
}

/// Whether a run saves time, or may: by syncs that have no time.
fn saves(report: &CommandReport) -> bool {
    let is_untimed = || report.not_covered.iter().any(|kind| kind.is_held);
    report.savings.about >= WORTH || report.waits.calls == 0 && is_untimed()
}

/// Shows triggers, the longest first, and emulators.
fn programs(text: &mut String, report: &CommandReport) {
    let mut triggers: Vec<_> = report.triggers.iter().collect();
    triggers.sort_by_key(|trigger| Reverse(trigger.micros));
    for (at, trigger) in triggers.into_iter().take(SHOWN).enumerate() {
        let title = if at == 0 { "triggers" } else { "" };
        let (runs, took) = (whole(trigger.runs), seconds(trigger.seconds()));
        let _ = writeln!(text, "  {title:<13}{runs:>7} {took:>8}  {}", trigger.package);
    }
    for emulated in &report.emulated {
        let (share, _) = emulated.share();
        let (share, of, by) = (100.0 * share, whole(emulated.of), &emulated.by);
        let _ = writeln!(text, "  emulated     {share:.0} % of the work ({of} samples), by {by}");
    }
}

/// Returns the words of the command, how it ended, and its time.
pub(crate) fn ended(report: &CommandReport) -> String {
    let how = match report.ended {
        Some(CommandEnding::Exited(code)) => format!("exit code {code}"),
        Some(CommandEnding::Killed(signal)) => format!("ended by signal {signal}"),
        Some(CommandEnding::Unknown) | None => "end unknown".to_owned(),
    };
    format!("{}: {how}, {}", printable(&report.command.join(" ")), seconds(report.seconds))
}

/// Returns names and words of the lines about all syncs together.
pub(crate) fn totals(waits: &Waits, savings: &Savings) -> [(&'static str, String); 3] {
    let failed =
        if waits.failed > 0 { format!(", {} failed", waits.failed) } else { String::new() };
    let written = match (waits.bytes, waits.bytes_known_of) {
        (0, _) => String::new(),
        (size, 1) => format!("; 1 sync had {} to write", bytes(size as f64)),
        (size, count) => format!("; {} syncs had {} to write", whole(count), bytes(size as f64)),
    };
    let syncs = format!(
        "{}{failed}, {} of waits in all{written}",
        whole(waits.calls),
        seconds(waits.seconds)
    );
    let critical = format!(
        "{} +/- {} while nothing else of the command could run ({} samples)",
        seconds(savings.critical),
        seconds(savings.critical_error),
        whole(savings.samples)
    );
    let commit = format!("{} at the end of a run", seconds(savings.commit));
    [("syncs", syncs), ("critical", critical), ("commit", commit)]
}

/// Returns the name of a group, for a reader.
pub(crate) fn group_name(group: &SyncGroup) -> &str {
    if group.name.is_empty() { "(unknown)" } else { &group.name }
}

fn groups(text: &mut String, title: &str, groups: &[SyncGroup]) {
    for (at, group) in groups.iter().take(SHOWN).enumerate() {
        let title = if at == 0 { title } else { "" };
        let calls = whole(group.calls);
        let name = printable(group_name(group));
        let _ = writeln!(
            text,
            "  {title:<13}{calls:>7} {:>8}  p50 {:>8}  p99 {:>8}  {name}",
            seconds(group.seconds),
            seconds(group.median),
            seconds(group.p99),
        );
    }
    if groups.len() > SHOWN {
        let rest = &groups[SHOWN..];
        let calls = whole(rest.iter().map(|group| group.calls).sum());
        let waited = seconds(rest.iter().map(|group| group.seconds).sum());
        let others =
            if rest.len() == 1 { "1 other".to_owned() } else { format!("{} others", rest.len()) };
        let _ = writeln!(text, "  {:<13}{calls:>7} {waited:>8}  {others}", "");
    }
}

/// Returns that `what` with short waits are missing from the groups.
pub(crate) fn dropped(what: &str, dropped: Dropped) -> String {
    let (calls, waited) = (whole(dropped.calls), seconds(dropped.seconds));
    let most = whole(2 * KEPT as u64);
    format!("{calls} syncs, {waited}, are in the sums only: there are more than {most} {what}")
}

fn one(slow: &Slowest) -> String {
    let file = slow.file.as_deref().unwrap_or("(no file)");
    let written = slow.bytes.map_or_else(String::new, |count| format!(", {}", bytes(count as f64)));
    format!(
        "{} {} {}{written} by {} (pid {})",
        seconds(slow.seconds),
        slow.call,
        printable(file),
        printable(&slow.line()),
        slow.process
    )
}

/// Adds a line for each kind of call that is not timed. `held` says what a hold does with such a
/// call.
fn not_timed(text: &mut String, kinds: &[NotCovered], held: &str) {
    for kind in kinds {
        let file = kind.file.as_ref().map_or_else(String::new, |file| format!(", {file}"));
        let held = if kind.is_held { format!("; {held}") } else { String::new() };
        let by = printable(&format!("{}{file}", kind.program));
        let calls = whole(kind.calls);
        let _ = writeln!(text, "  not timed    {}: {calls} {} by {by}{held}", kind.what, kind.call);
    }
}

pub(super) fn whole(value: u64) -> String {
    crate::units::whole(value as f64)
}
