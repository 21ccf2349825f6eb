//! A record in the formats of other programs.

use super::entries::RecordedCall;
use super::record;
use crate::error::Error;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::BufRead;
use synconce_durable::text::is_obeyed;

/// A format for the calls of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFormat {
    /// The Trace Event Format, which Perfetto and Chrome's `about:tracing` read: JSON with a bar
    /// for each wait, by process and thread.
    Trace,
    /// Folded stacks, which flamegraph.pl, inferno and speedscope read: a line for each stack of
    /// programs and call, with the sum of its waits in microseconds.
    Stacks,
}

/// Returns the calls of `record` in `format`. A last line that was cut is ignored.
///
/// # Errors
/// The record cannot be read, or is none.
pub fn export_record(record: impl BufRead, format: RecordFormat) -> Result<String, Error> {
    let calls = record::calls(record)?;
    match format {
        RecordFormat::Trace => {
            let events = calls.map(|call| Ok(event(&call?).to_string()));
            let events: Vec<_> = events.collect::<Result<_, Error>>()?;
            Ok(format!("[\n{}\n]\n", events.join(",\n")))
        }
        RecordFormat::Stacks => {
            let mut waits = BTreeMap::<String, u64>::new();
            for call in calls {
                let call = call?;
                *waits.entry(stack(&call)).or_default() += call.wait.unwrap_or(0);
            }
            let waits = waits.into_iter().filter(|(_, wait)| *wait > 0);
            Ok(waits.map(|(stack, wait)| format!("{stack} {}\n", wait.div_ceil(1000))).collect())
        }
    }
}

fn event(call: &RecordedCall) -> Value {
    let mut event = json!({
        "name": call.call,
        "cat": "sync",
        "ts": call.at,
        "pid": call.process,
        "tid": call.thread,
        "args": {
            "program": call.program,
            "ancestry": call.ancestry,
            "file": call.file,
            "bytes": call.bytes,
            "errno": call.errno,
            "step": call.step,
        },
    });
    match call.wait {
        // A complete event.
        Some(wait) => {
            event["ph"] = "X".into();
            event["dur"] = (wait as f64 / 1e3).into();
        }
        // An instant event of the thread.
        None => {
            event["ph"] = "i".into();
            event["s"] = "t".into();
        }
    }
    event
}

/// Returns the names from the command, or from the step of a build, down to the call.
fn stack(call: &RecordedCall) -> String {
    let step = call.step.map(|number| format!("step {number}"));
    let programs = call.ancestry.iter().rev().chain([&call.program, &call.call]);
    step.iter().chain(programs).map(|name| frame(name)).collect::<Vec<_>>().join(";")
}

/// Returns the name of a program without what ends a frame or a line.
fn frame(name: &str) -> String {
    if name.is_empty() {
        return "(unknown)".to_owned();
    }
    let plain = |c: char| if c == ';' || c.is_whitespace() || is_obeyed(c) { '_' } else { c };
    name.chars().map(plain).collect()
}
