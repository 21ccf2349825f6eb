//! Causes beside the waits for syncs, and waits for syncs of documentation: findings with the least
//! seconds that a remedy saves. Pure: the record in, findings out.

use super::entries::{Emulated, TriggerRuns};
use super::record::CommandRecord;
use super::spread::wilson;
use crate::finding::{Action, Finding, NO_UNDO};
use crate::units::{floor, seconds, whole};
use std::path::Path;

/// Findings below this number of seconds, or this part of the command's time, are left out.
const WORTH: f64 = 0.1;
const PART: f64 = 0.02;
const WORKLOAD: &str = "this command";

/// Returns the findings, the most costly first.
pub(super) fn derive(record: &CommandRecord) -> Vec<Finding> {
    let all = [man_db(record), repeated(record), unread(record), emulated(record)];
    let is_worth = |it: &Finding| cost(it, record) >= WORTH.max(PART * record.seconds());
    let mut found: Vec<_> = all.into_iter().flatten().filter(is_worth).collect();
    found.sort_by(|one, other| cost(other, record).total_cmp(&cost(one, record)));
    found
}

/// Returns what `finding` costs, in seconds. A finding without seconds costs the emulated share of
/// the command's time.
pub(super) fn cost(finding: &Finding, record: &CommandRecord) -> f64 {
    let share = || most_emulated(record).map_or(0.0, |it| it.share().1);
    finding.seconds.unwrap_or_else(|| share() * record.seconds())
}

/// Returns `seconds`, at most those of the command: several dpkg at once add up to more.
fn within(record: &CommandRecord, seconds: f64) -> Option<f64> {
    Some(seconds.min(record.seconds()))
}

const MAN_DB: &str = "man-db";

fn man_db(record: &CommandRecord) -> Option<Finding> {
    let trigger = record.triggers.iter().find(|it| it.package == MAN_DB)?;
    let set = |value: bool| {
        format!("echo man-db man-db/auto-update boolean {value} | debconf-set-selections")
    };
    Some(Finding {
        name: "man-db-trigger",
        seconds: within(record, trigger.seconds()),
        workload: Some(WORKLOAD.to_owned()),
        cause: "after each install, man-db updates its index of manual pages".to_owned(),
        evidence: format!("the trigger of man-db ran {}", took(trigger)),
        remedy: Action::Command(format!("{}; rm -f /var/lib/man-db/auto-update", set(false))),
        undo: Action::Command(format!(
            "{}; touch /var/lib/man-db/auto-update; mandb -pq",
            set(true)
        )),
        risk: "needs root; man -k, apropos and whatis do not find new pages; man PAGE does"
            .to_owned(),
    })
}

/// Whether the command is one call of a program that installs packages, perhaps behind others
/// such as `sudo`. Then its repeated triggers are not those of several calls: apt itself calls
/// dpkg several times.
fn is_one_install(record: &CommandRecord) -> bool {
    let mut names = record.command.iter().filter_map(|word| Path::new(word).file_name());
    names.any(|name| INSTALLERS.iter().any(|installer| name == *installer))
}

const INSTALLERS: [&str; 4] = ["apt", "apt-get", "aptitude", "dpkg"];

/// Returns the finding that dpkg has handled triggers again. The longest run of each remains.
fn repeated(record: &CommandRecord) -> Option<Finding> {
    if is_one_install(record) {
        return None;
    }
    let is_again = |it: &&TriggerRuns| it.runs > 1 && it.package != MAN_DB;
    let again: Vec<_> = record.triggers.iter().filter(is_again).collect();
    let most = again.iter().max_by_key(|it| it.micros)?;
    let saved: f64 = again.iter().map(|it| it.seconds() - it.longest as f64 / 1e6).sum();
    let others = match again.len() - 1 {
        0 => String::new(),
        count => format!("; {count} more ran again, too"),
    };
    Some(Finding {
        name: "repeated-triggers",
        seconds: within(record, saved),
        workload: Some(WORKLOAD.to_owned()),
        cause: "each call of apt-get or dpkg rebuilds the same caches again".to_owned(),
        evidence: format!("the trigger of {} ran {}{others}", most.package, took(most)),
        remedy: Action::words("install all packages by one apt-get install"),
        undo: Action::words(NO_UNDO),
        risk: "none".to_owned(),
    })
}

fn took(trigger: &TriggerRuns) -> String {
    let times = match trigger.runs {
        1 => "once".to_owned(),
        runs => format!("{} times", whole(runs as f64)),
    };
    format!("{times}, for {}", seconds(trigger.seconds()))
}

/// Returns the finding that dpkg waits for syncs of files that a build or a server does not read.
fn unread(record: &CommandRecord) -> Option<Finding> {
    let syncs = &record.tally.unread;
    // Only these waits are known to be gone: nothing else ran meanwhile.
    let (_, least, _) = wilson(record.alone, record.looks);
    // Waits of several dpkg at the same time do not add up.
    let waits = syncs.seconds.min(record.tally.held.covered.seconds());
    let calls = whole(syncs.calls as f64);
    (syncs.calls > 0).then(|| Finding {
        name: "unread-files",
        seconds: Some(waits * least),
        workload: Some(WORKLOAD.to_owned()),
        cause: "dpkg unpacks documentation, manual pages and translations, and syncs each file"
            .to_owned(),
        evidence: format!("{calls} syncs of such files, {} of waits", seconds(syncs.seconds)),
        // The directories of manual pages stay: scripts of packages make links in these. A file of
        // this name is not overwritten (noclobber).
        remedy: Action::Command(format!(
            "(set -C; printf 'path-%s*\\n' {} 'include=/usr/share/doc/*/copyright' >{EXCLUDE})",
            EXCLUDED.map(|name| format!("'exclude=/usr/share/{name}/'")).join(" ")
        )),
        undo: Action::words(format!(
            "rm {EXCLUDE}; then apt-get install --reinstall the packages whose files are wanted"
        )),
        risk: "needs root; no documentation and no translations; dpkg --verify names the missing \
               files"
            .to_owned(),
    })
}

const EXCLUDE: &str = "/etc/dpkg/dpkg.cfg.d/unread";
const EXCLUDED: [&str; 4] = ["doc", "info", "locale", "man/*"];
fn most_emulated(record: &CommandRecord) -> Option<&Emulated> {
    record.emulated.iter().max_by_key(|it| it.looks)
}

fn emulated(record: &CommandRecord) -> Option<Finding> {
    let most = most_emulated(record)?;
    let (share, least) = most.share();
    let looks = whole(most.of as f64);
    Some(Finding {
        name: "emulated",
        seconds: None,
        workload: None,
        cause: format!("{} does at least {:.0} % of the work", most.by, floor(100.0 * least, 1.0)),
        evidence: format!("{:.0} % of {looks} samples of running programs", 100.0 * share),
        remedy: Action::words(
            "build on a machine of that architecture, or compile for it on this one: \
             FROM --platform=$BUILDPLATFORM",
        ),
        undo: Action::words(NO_UNDO),
        risk: "none".to_owned(),
    })
}
