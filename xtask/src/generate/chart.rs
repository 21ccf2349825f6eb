//! The chart of README.md, drawn from what scripts/table has measured.

use serde_json::Value;
use std::io;
use synconce::text::whole;
use synconce_chart::{Bar, BarChart, NoteKind};

/// Pixels.
const WIDTH: u32 = 840;
const FONT: &str = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', \
                    Arial, sans-serif";

/// Returns the chart of `result` as files: one for a light background, one for a dark one.
pub fn themes(result: &[u8]) -> io::Result<[(&'static str, String); 2]> {
    let result: Value = serde_json::from_slice(result)?;
    let chart = drawn(&result).ok_or_else(|| io::Error::other("install.json lacks a field"))?;
    // text, soft text, bar, own bar, good, bad
    let light = ["#1f2328", "#59636e", "#afb8c1", "#1f883d", "#1a7f37", "#cf222e"];
    let dark = ["#f0f6fc", "#9198a1", "#59636e", "#2ea043", "#3fb950", "#ff7b72"];
    Ok([
        ("install-light.svg", chart.file(WIDTH, &style(light))),
        ("install-dark.svg", chart.file(WIDTH, &style(dark))),
    ])
}

fn style([text, soft, bar, ours, good, bad]: [&str; 6]) -> String {
    format!(
        "text{{font:14px {FONT};fill:{text}}}.title{{font-size:17px;font-weight:600}}\
         .head{{font-size:12px;fill:{soft}}}.bar{{fill:{bar}}}.ours{{fill:{ours}}}\
         .good{{fill:{good}}}.bad{{fill:{bad}}}.bold{{font-weight:600}}"
    )
}

/// Returns the chart; `None` if a field is missing.
fn drawn(result: &Value) -> Option<BarChart> {
    let fsync = result["fsync"].as_str()?.replace("ms", " ms");
    let bars = result["variants"].as_array()?.iter().map(bar);
    Some(BarChart {
        title: format!(
            "apt-get install of {} packages on a disk with an fsync of {fsync}",
            result["count"].as_u64()?
        )
        .into(),
        heads: Some((
            format!("time in seconds, median of {}", result["rounds"].as_u64()?).into(),
            "files lost if the power is cut at exit 0".into(),
        )),
        bars: bars.collect::<Option<_>>()?,
    })
}

/// Returns the time of a variant as a bar, with the files that a power cut loses.
fn bar(variant: &Value) -> Option<Bar> {
    let mut times: Vec<f64> = variant["ms"].as_array()?.iter().filter_map(Value::as_f64).collect();
    times.sort_by(f64::total_cmp);
    let middle = times.len().checked_sub(1)?;
    let seconds = f64::midpoint(times[middle / 2], times[middle.div_ceil(2)]) / 1e3;
    let (lost, files) = (variant["lost"].as_u64()?, variant["files"].as_u64()?);
    Some(Bar {
        name: variant["shown"].as_str()?.into(),
        value: seconds,
        shown: format!("{seconds:.1} s").into(),
        note: format!("{} of {}", whole(lost), whole(files)).into(),
        kind: if lost == 0 { NoteKind::Good } else { NoteKind::Bad },
        is_marked: variant["name"] == "synconce",
        ..Bar::default()
    })
}
