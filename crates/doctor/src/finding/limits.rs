//! Findings about limits of control groups.

use super::cause::{Action, Finding, WORTH};
use super::disk::{USUAL_BANDWIDTH, WRITTEN};
use super::facts::{Facts, INSTALL, INSTALL_SYNCS};
use crate::cgroup::{Limit, LimitKind};
use crate::units::bytes;
use synconce_durable::text::quote;

/// The workload of figures about CPU limits, in seconds of work on each CPU.
const WORK: f64 = 10.0;

/// Returns the finding that `limit` slows a workload down.
pub(super) fn finding(limit: &Limit, facts: &Facts<'_>) -> Option<Finding> {
    let value = limit.value.max(1e-6);
    let cpus = facts.host.cpus as f64;
    let (name, seconds, workload, cause) = match limit.kind {
        LimitKind::Cpus => {
            let wanted = if value < 1.0 { 1.0 } else { cpus };
            let workload = if value < 1.0 {
                "10 s of work on one CPU".to_owned()
            } else {
                format!("10 s of work on {cpus} CPUs")
            };
            let cause = format!("a control group allows {value} CPUs");
            ("cpu-limit", WORK * wanted / value - WORK, workload, cause)
        }
        LimitKind::WrittenBytesPerSecond => {
            let seconds = WRITTEN / value - WRITTEN / USUAL_BANDWIDTH;
            let cause = format!("a control group allows {} a second", bytes(value));
            ("io-limit-bytes", seconds, "1 GB of writes".to_owned(), cause)
        }
        LimitKind::WritesPerSecond => {
            // An fsync of an append is at least a write of data and one of the journal.
            let seconds = 2.0 * INSTALL_SYNCS / value;
            let cause = format!("a control group allows {value} writes a second");
            ("io-limit-writes", seconds, INSTALL.to_owned(), cause)
        }
        LimitKind::MemoryBytes => return None,
    };
    let write = |text: &str| format!("echo '{text}' >{}", quote(&limit.file));
    (seconds >= WORTH).then(|| Finding {
        name,
        seconds: Some(seconds),
        workload: Some(workload),
        cause,
        evidence: format!("{} has {}", limit.file.display(), limit.restore),
        remedy: Action::Command(write(&limit.lift)),
        undo: Action::Command(write(&limit.restore)),
        risk: "needs root; in a container, use docker update outside; other groups get less"
            .to_owned(),
    })
}
