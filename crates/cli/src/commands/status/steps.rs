//! The held build steps of engines, after the runs.

use super::Shown;
use crate::text::{printable, whole};
use std::time::{Duration, SystemTime};
use synconce_oci::held_steps::HeldSteps;

/// Returns the steps with the fields of a run.
pub(super) fn shown(steps: HeldSteps) -> Shown {
    Shown {
        id: steps.engine.to_owned(),
        state: "counted",
        owner: rustix::process::geteuid().as_raw(),
        steps: Some(steps),
        ..Shown::default()
    }
}

/// In seconds since 1970.
const YEAR_10_000: u64 = 253_402_300_800;

/// Returns a line for each engine.
pub(super) fn render(steps: &[HeldSteps]) -> String {
    let render = |steps: &HeldSteps| {
        let noun = if steps.count == 1 { "build step" } else { "build steps" };
        let count = whole(steps.count);
        let mut line = format!("{}: {count} {noun} held since the boot", steps.engine);
        if steps.volatile > 0 {
            line += &format!(", {} with a volatile root", whole(steps.volatile));
        }
        if steps.as_mounted > 0 {
            let why = steps.as_mounted_reason.iter().map(|why| format!(" (last reason: {why})"));
            let why: String = why.collect();
            line += &format!(", {} with the root as mounted{why}", whole(steps.as_mounted));
        }
        if let Some(last) = &steps.last {
            // A later time has no text in humantime, which would panic.
            let time = Some(last.time).filter(|time| *time < YEAR_10_000);
            let time = time.map(|time| SystemTime::UNIX_EPOCH + Duration::from_secs(time));
            let time = time.map(|time| humantime::format_rfc3339_seconds(time).to_string());
            let image = last.image.as_ref().map(|image| format!(" from {image}"));
            line +=
                &format!(", the last {}{}", time.unwrap_or_default(), image.unwrap_or_default());
        }
        printable(&line) + "\n"
    };
    steps.iter().map(render).collect()
}
