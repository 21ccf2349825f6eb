//! `synconce doctor --support-bundle FILE`

use crate::commands::error::CommandError;
use crate::commands::status;
use crate::text::printable_json;
use serde::Serialize;
use std::env::consts::ARCH;
use synconce_doctor::{Host, InstalledProgram, SetUp, installed_programs, redacted};
use synconce_durable::standard_paths;
use synconce_setup::{Engine, is_set_up};

/// The version of the format.
const VERSION: u32 = 1;

/// What a maintainer needs to help, before [`redacted`] takes names out.
#[derive(Serialize)]
struct SupportBundle<'a, R, S> {
    bundle: u32,
    /// The version of synconce, and the time.
    made: &'a str,
    host: Host,
    architecture: &'static str,
    is_root: bool,
    programs: Vec<InstalledProgram>,
    set_ups: Vec<FoundSetUp>,
    status: FoundStatus<S>,
    report: &'a R,
}

/// What `status --json` prints, or why it prints nothing.
#[derive(Serialize)]
#[serde(untagged)]
enum FoundStatus<S> {
    Rows(S),
    Error { error: String },
}

/// A set-up that was made on this machine.
#[derive(Serialize)]
struct FoundSetUp {
    /// The words after `synconce setup`.
    engine: &'static str,
    #[serde(flatten)]
    found: SetUp,
}

/// Returns the text of the bundle about `report`. `made` is the version of synconce and the time.
///
/// # Errors
/// The report cannot be written as JSON.
pub(super) fn text(report: &impl Serialize, made: &str) -> Result<String, CommandError> {
    let state = standard_paths::system();
    let set_ups = Engine::ALL.into_iter().filter(|engine| is_set_up(*engine, &state));
    let bundle = SupportBundle {
        bundle: VERSION,
        made,
        host: Host::read(),
        architecture: ARCH,
        is_root: rustix::process::geteuid().is_root(),
        programs: installed_programs(),
        set_ups: set_ups
            .map(|engine| FoundSetUp {
                engine: engine.command(),
                found: super::engine::check(engine, None),
            })
            .collect(),
        status: match status::rows() {
            Ok(rows) => FoundStatus::Rows(rows),
            Err(error) => FoundStatus::Error { error: error.lines.join("; ") },
        },
        report,
    };
    let json = redacted(&bundle).and_then(|bundle| serde_json::to_string_pretty(&bundle));
    let json = json.map_err(|error| format!("cannot write JSON: {error}"))?;
    Ok(printable_json(&json) + "\n")
}
