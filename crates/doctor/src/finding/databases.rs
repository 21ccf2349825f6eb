//! Findings about the databases of an engine.

use super::cause::{Action, Finding, NO_UNDO, WORTH};
use super::engine::IMPORTS_OF;
use crate::engine::{BoltDatabase, ContainerEngine};
use crate::measure::Measured;
use crate::units::{at_least, bytes, micros, whole};
use synconce_durable::text::quote;

/// The workload of figures about the databases of BuildKit in dockerd.
const BUILDS: &str = "10 builds of one COPY and one RUN";
const COUNT: f64 = 10.0;
/// The syncs of these databases in such a build, rounded down: two for each transaction.
const SYNCS: f64 = 130.0;
/// From this number of transactions on, dockerd has been used with BuildKit.
const USED: u64 = 100;

/// Returns the finding that each transaction waits for two syncs of `each` microseconds.
pub(super) fn slow_transactions(engine: &ContainerEngine, each: Option<f64>) -> Option<Finding> {
    let is_held = engine.databases.as_ref().is_some_and(|databases| databases.is_in_force);
    // The number of syncs of a build is known for dockerd only.
    if engine.name != "docker" || !engine.can_be_set_up() || is_held {
        return None;
    }
    let made: u64 = engine.synced_databases().map(|database| database.transactions).sum();
    let each = each?;
    let seconds = COUNT * SYNCS * each / 1e6;
    (seconds >= WORTH && made >= USED).then(|| Finding {
        name: "slow-transactions",
        seconds: Some(seconds),
        workload: Some(BUILDS.to_owned()),
        cause: format!(
            "each build syncs the databases of BuildKit 130 times, and most take at least {}",
            at_least(each / 1e6)
        ),
        evidence: format!(
            "a transaction syncs twice, and these databases have had {} transactions",
            whole(made as f64)
        ),
        remedy: Action::command("synconce setup docker --hold"),
        undo: Action::command("synconce setup docker --hold --undo"),
        risk: "after a crash the build cache starts empty: builds run all their steps again"
            .to_owned(),
    })
}

/// Returns the finding that each transaction writes a long list of free pages.
pub(super) fn large_freelist(engine: &ContainerEngine, measured: &Measured) -> Option<Finding> {
    let (database, count) = engine.costliest_free_list()?;
    let transaction = measured.transaction?;
    let list = transaction.free_list?;
    let scaled = transaction
        .scaled_from
        .map_or_else(String::new, |sample| format!(", scaled from {}", bytes(sample as f64)));
    let page = measured.overwrite?;
    let name = database.name();
    let workload = if engine.name == "containerd" { IMPORTS_OF } else { BUILDS };
    let seconds = count * (list.quarter - page.quarter) / 1e6;
    let BoltDatabase { path, free_pages, free_list_bytes, .. } = database;
    (seconds >= WORTH).then(|| Finding {
        name: "large-freelist",
        seconds: Some(seconds),
        workload: Some(workload.to_owned()),
        cause: format!(
            "each transaction of {name} also writes its list of {} free pages, {}",
            whole(free_pages.unwrap_or(0) as f64),
            bytes(free_list_bytes.unwrap_or(0) as f64)
        ),
        evidence: format!(
            "{} has {}; a sync of as many bytes as the list takes {} here{scaled}, and of a page {}",
            path.display(),
            bytes(database.bytes as f64),
            micros(list.quarter),
            micros(page.quarter)
        ),
        remedy: Action::Command(compaction(engine, database)),
        undo: Action::words(NO_UNDO),
        risk: match engine.name {
            "docker" => "the stop ends builds, and containers unless live-restore is on",
            "containerd" => {
                "the stop ends builds; until the start no container starts and no image is pulled"
            }
            _ => "the stop ends builds",
        }
        .to_owned(),
    })
}

/// Returns the command that stops the daemon, copies the database without its free pages, replaces
/// the file and starts the daemon. If the copy fails, the file stays; the daemon is started in any
/// case. After `trap :` a Ctrl-C ends the running command and not the shell, so the shell still
/// starts the daemon.
fn compaction(engine: &ContainerEngine, database: &BoltDatabase) -> String {
    let (stop, start) = match engine.name {
        "docker" => ("docker.socket docker.service", "docker.service"),
        name => (name, name),
    };
    let systemctl = if engine.is_rootless { "systemctl --user" } else { "systemctl" };
    let file = quote(&database.path);
    let new = quote(&database.path.with_extension("db.new"));
    format!(
        "command -v bbolt && (trap : HUP INT TERM; {systemctl} stop {stop} && \
         bbolt compact -o {new} {file} && mv {new} {file} || rm -f {new}; {systemctl} start {start})"
    )
}
