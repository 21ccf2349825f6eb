//! The same as metrics, in Prometheus' text format, for a collector that reads files.

use super::Shown;
use crate::commands::hold::HoldReport;
use synconce_oci::held_steps::HeldSteps;
use synconce_run::RunCounts;

const RUNS: [&str; 4] = ["in-flight", "committing", "serving", "interrupted"];
const HOLDS: [&str; 4] = ["held", "incomplete", "failed", "interrupted"];

/// The counters of build steps since the boot: name, help, value.
type Counter = (&'static str, &'static str, fn(&HeldSteps) -> u64);
const COUNTERS: [Counter; 3] = [
    (
        "synconce_build_steps_held_total",
        "Build steps whose syncs were held, since the boot.",
        |steps| steps.count,
    ),
    (
        "synconce_build_steps_volatile_total",
        "Build steps whose root was made volatile, held or not, since the boot.",
        |steps| steps.volatile,
    ),
    (
        "synconce_build_steps_as_mounted_total",
        "Build steps whose root could not be made volatile, held or not, since the boot.",
        |steps| steps.as_mounted,
    ),
];

/// Returns the metrics. A state without runs or holds is there with 0, so that an alert sees its
/// change.
pub(super) fn text(
    runs: &[Shown],
    holds: &[HoldReport],
    steps: &[HeldSteps],
    counts: RunCounts,
) -> String {
    let mut text = head("synconce_runs", "Runs, by their state.", "gauge");
    for state in RUNS {
        let count = runs.iter().filter(|run| run.counts && run.state == state).count();
        text += &format!("synconce_runs{{state=\"{state}\"}} {count}\n");
    }
    let name = "synconce_runs_ended_total";
    text += &head(name, "Runs whose command has ended, since the boot.", "counter");
    text += &format!("{name} {}\n", counts.runs);
    let name = "synconce_commits_total";
    text += &head(name, "Commits of these runs, by their result.", "counter");
    for (result, count) in [("durable", counts.durable_commits), ("failed", counts.failed_commits)]
    {
        text += &format!("{name}{{result=\"{result}\"}} {count}\n");
    }
    text += &head("synconce_holds", "Holds of daemons' files, by their state.", "gauge");
    for state in HOLDS {
        let count = holds.iter().filter(|hold| hold.status.state.word() == state).count();
        text += &format!("synconce_holds{{state=\"{state}\"}} {count}\n");
    }
    if steps.is_empty() {
        return text;
    }
    for (name, help, count) in COUNTERS {
        text += &head(name, help, "counter");
        for steps in steps {
            text += &format!("{name}{{engine=\"{}\"}} {}\n", steps.engine, count(steps));
        }
    }
    let name = "synconce_last_build_step_timestamp_seconds";
    text += &head(
        name,
        "When the last build step began that was held, or whose root was made volatile.",
        "gauge",
    );
    for HeldSteps { engine, last, .. } in steps {
        let time =
            last.as_ref().map(|last| format!("{name}{{engine=\"{engine}\"}} {}\n", last.time));
        text += &time.unwrap_or_default();
    }
    text
}

fn head(name: &str, help: &str, kind: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}
