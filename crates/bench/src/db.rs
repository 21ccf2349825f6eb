//! Scenario `db`: small transactions of databases, each of which waits for the disk.
//!
//! Every engine runs one program that puts one key in each transaction, measures the puts by
//! its own clock, checks what it wrote, and prints the nanoseconds of a put. Start and end of
//! a hold or run are outside that time, and are in the time of the whole command. The
//! programs are embedded as source and are compiled on the host.

mod engines;
mod fixture;

use crate::Error;
use crate::command::{show, words};
use crate::harness::{Common, Harness};
use crate::report::BenchReport;
use crate::scenario::{Measure, Need, Promise, Scenario, Tool, Variant};
use crate::speeds::{self, Rates};
use engines::{DatabaseEngine, ENGINES};
use fixture::DatabaseFixture;
use std::path::{Path, PathBuf};

/// What to measure, where and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseOptions {
    /// The work directory, the variants and the rounds.
    pub common: Common,
    /// Transactions per sample, at least 1.
    pub transactions: u64,
    /// etcd: a program, looked up in PATH unless it has a slash.
    pub etcd: PathBuf,
    /// The program that measures redb (the example `redb` of this crate). Without it, the
    /// scenario has no variants of redb.
    pub redb: Option<PathBuf>,
}

/// A way to run an engine's program.
struct EngineWay {
    name: &'static str,
    about: &'static str,
    promise: Promise,
    /// The mode of the engine's program.
    mode: &'static str,
    /// The words before the program; [`fixture::DatabaseFixture`] fills the placeholders.
    before: &'static [&'static str],
}

/// The name of the way with which all others are compared.
const BASELINE: &str = "no-sync";
/// The name of the way without any help.
const PLAIN: &str = "plain";

const WAYS: [EngineWay; 6] = [
    EngineWay {
        name: BASELINE,
        about: "the engine's own option to leave out syncs",
        promise: Promise::Nothing,
        mode: "no-sync",
        before: &[],
    },
    EngineWay {
        name: PLAIN,
        about: "every transaction is synced",
        promise: Promise::OwnSyncs,
        mode: "sync",
        before: &[],
    },
    EngineWay {
        name: "hold",
        about: "the database is a held file or directory",
        promise: Promise::Durable,
        mode: "sync",
        before: &["{synconce}", "hold", "run", "{hold}", "--"],
    },
    EngineWay {
        name: "supervised",
        about: "synconce run",
        promise: Promise::Durable,
        mode: "sync",
        before: &["{synconce}", "run", "--commit-only", "{dir}", "--"],
    },
    EngineWay {
        name: "rule",
        about: "synconce run, with a rule for the database",
        promise: Promise::Durable,
        mode: "sync",
        before: &["{synconce}", "run", "--only", "{held}", "--commit-only", "{dir}", "--"],
    },
    EngineWay {
        name: "sealed",
        about: "synconce run --sealed",
        promise: Promise::Durable,
        mode: "sync",
        before: &["{synconce}", "run", "--sealed", "--commit-only", "{dir}", "--"],
    },
];

/// Runs the scenario and returns its report.
///
/// # Errors
/// The work directory is not on a disk, an engine's program cannot be compiled or fails, a
/// variant fails, or an interrupt arrives. The logs of a failure stay in place, and the error
/// names them.
pub fn measure(options: &DatabaseOptions, synconce: &Path) -> Result<BenchReport, Error> {
    let harness =
        Harness { scenario: "db", disk: true, mounts: true, spared: true, ..Harness::default() };
    let scenario = |synconce: &Path| Ok(scenario(options, synconce));
    let mut report = harness.measure(&options.common, synconce, scenario)?;
    let measured: Vec<_> = report.results.iter().map(|result| &result.measured).collect();
    let findings =
        speeds::compare(&measured, &[BASELINE, PLAIN], Rates::Shown, report.settings.seed);
    report.findings.extend(findings);
    Ok(report)
}

fn scenario(options: &DatabaseOptions, synconce: &Path) -> Scenario {
    let mut tools = Tool::with_synconce(synconce, &["cc"]);
    tools.push(Tool::new("etcd", &show(&options.etcd)));
    tools.push(Tool { name: "go".to_owned(), command: words(&["go", "version"]) });
    let package = ["dpkg-query", "--show", "golang-github-coreos-bbolt-dev"];
    tools.push(Tool { name: "bbolt".to_owned(), command: words(&package) });
    Scenario {
        name: "db".to_owned(),
        about: format!("time of a transaction that puts one key, of {}", options.transactions),
        variants: variants(options),
        tools,
        steps: Box::new(DatabaseFixture::new(options, synconce)),
    }
}

fn variants(options: &DatabaseOptions) -> Vec<Variant> {
    let engines = ENGINES.iter().filter(|it| it.name != "redb" || options.redb.is_some());
    let with_engines = engines.flat_map(|engine| WAYS.iter().map(move |way| (engine, way)));
    with_engines.map(|(engine, way)| variant(engine, way, options)).collect()
}

fn variant(engine: &DatabaseEngine, way: &EngineWay, options: &DatabaseOptions) -> Variant {
    let before = words(way.before);
    let program = words(&[way.mode, "{base}", "{transactions}"]);
    let own = vec![format!("{{{}}}", engine.name)];
    // The program of etcd is the client, and starts the server.
    let command = if engine.has_server {
        [own, program, before.clone(), words(&["{server}"])].concat()
    } else {
        [before.clone(), own, program].concat()
    };
    let mut needs: Vec<Need> = engine.needs.iter().map(engines::Needed::need).collect();
    match engine.name {
        "etcd" => needs.push(Need::new(&show(&options.etcd), "etcd-server")),
        "redb" => needs.extend(options.redb.iter().map(|it| Need::new(&show(it), "no package"))),
        _ => {}
    }
    // Shows why a way does not work here: no root, no such option, no such kind of file.
    let trial = if way.before.is_empty() {
        (engine.has_server && way.name == BASELINE)
            .then(|| words(&["{server}", "--unsafe-no-fsync", "--version"]))
    } else {
        Some([before, words(&["true"])].concat())
    };
    Variant {
        about: format!("{}, {}", engine.about, way.about),
        parts: words(&["whole command"]),
        needs,
        trial,
        promise: way.promise,
        measure: Measure::Printed,
        against: format!("{}/{BASELINE}", engine.name),
        ..Variant::new(&format!("{}/{}", engine.name, way.name), command)
    }
}
