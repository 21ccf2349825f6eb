//! Pages of reports that were made up.

use super::*;
use crate::command::{CommandReport, examine_record};
use crate::context::{Amount, BuildContext, ContextPart};
use crate::finding::tests::{disk, host, place};
use crate::measure::{Layers, Measured};
use crate::not_measured::NotMeasured;
use crate::report::PlaceReport;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A name with markup, quotes, control characters, letters that turn text, and another's line.
const HOSTILE: &str = "</td></script><script>alert(1)</script><img src=http://evil/ onerror='x'>\
                       \"'&amp;\u{1b}[2J\u{202e}\n2. slow";

/// Asserts that each tag of `page` is closed in its order, and that no hostile name made one.
fn assert_sound(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("the kind of the document");
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').expect("the end of a tag");
        rest = after;
        let name = tag.split([' ', '\n']).next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{rest:.200}");
        } else if name == "style" || name == "script" {
            let end = format!("</{name}>");
            rest = rest.split_once(end.as_str()).expect("its end").1;
        } else if name != "meta" && !tag.ends_with('/') {
            open.push(name);
        }
        let known = !["img", "iframe", "link", "object"].contains(&name);
        assert!(known && !tag.contains(" on") && !tag.contains(" style="), "{tag}");
    }
    assert_eq!(open, [""; 0]);
    assert_eq!(page.matches("<script").count(), 1);
    assert!(!page.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')));
    // Only the name of SVG is an address, and it is not loaded.
    let addresses = page.matches("://").count() - page.matches("=http://evil/ ").count();
    assert_eq!(addresses, page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
}

/// Returns the report of a command that made `syncs` syncs, each in a directory of its own.
fn command(syncs: usize, name: &str) -> CommandReport {
    let text = |text: String| serde_json::to_string(&text).unwrap();
    let mut record = format!("{{\"record\":1,\"command\":[\"make\",{}]}}\n", text(name.into()));
    for at in 0..syncs {
        let (file, program) = (text(format!("/{at}{name}/file")), text(name.to_owned()));
        record += &format!(
            "{{\"call\":\"fsync\",\"at\":{},\"program\":{program},\"file\":{file},\
             \"bytes\":1,\"wait\":8000000,\"would\":\"hold\"}}\n",
            at * 10_000
        );
    }
    record += "{\"end\":{\"Exited\":0},\"at\":90000000,\"looks\":9,\"alone\":9,\"lost\":9000}\n";
    examine_record(record.as_bytes(), &[]).unwrap()
}

fn layers() -> Layers {
    let times = disk(8_000.0).fsync.expect("a figure of the disk");
    Layers { file: times, directory: times, volatile: times, unmount: 1.0, random: None }
}

fn report(name: &str) -> PlaceReport {
    let finding = Finding {
        name: "slow-sync",
        seconds: Some(43.2),
        workload: Some("an install".to_owned()),
        cause: name.to_owned(),
        evidence: name.to_owned(),
        remedy: Action::command(name),
        undo: Action::words("not needed: no setting is changed"),
        risk: name.to_owned(),
    };
    let mut place = place();
    place.path = PathBuf::from(OsString::from_vec([name.as_bytes(), b"\xff\xfe"].concat()));
    PlaceReport {
        verdict: format!("{name}: slow-sync"),
        engine: None,
        place,
        host: host("6.18.4"),
        limits: Vec::new(),
        in_force: Vec::new(),
        measured: Measured { layers: Some(layers()), ..disk(8_000.0) },
        not_measured: vec![NotMeasured::new("random writes", name)],
        findings: vec![finding],
        ignored: vec!["vfs"],
    }
}

#[test]
fn hostile_names_are_shown_and_are_no_markup() {
    let context = BuildContext {
        directory: HOSTILE.into(),
        ignore_file: None,
        sent: Amount { entries: 1, bytes: 2 },
        ignored: Amount::default(),
        symbolic_links: 0,
        holes: 0,
        largest: vec![part(HOSTILE), part("other")],
        largest_files: vec![part(HOSTILE)],
        could_be_ignored: vec![part(HOSTILE)],
        unreadable: vec![HOSTILE.into()],
        sending: None,
    };
    let again = format!("synconce run -- '{HOSTILE}'");
    for page in [
        report(HOSTILE).page(HOSTILE),
        command(300, HOSTILE).page(&again, HOSTILE),
        context.page(HOSTILE),
    ] {
        assert_sound(&page);
        let shown = "&#60;/script&#62;&#60;script&#62;alert(1)";
        assert!(page.matches(shown).count() > 3, "{page}");
        assert!(page.contains("\\u{1b}[2J\\u{202e}\\n2. slow"), "{page}");
    }
}

fn part(path: &str) -> ContextPart {
    ContextPart { path: path.into(), amount: Amount { entries: 1, bytes: 7 } }
}

#[test]
fn a_page_begins_with_the_verdict_and_has_findings_figures_and_what_is_missing() {
    let page = report("/srv").page("synconce 1");
    let mut rest = page.as_str();
    for shown in [
        "<p class=\"verdict\">/srv: slow-sync</p>",
        "1. slow-sync <span class=\"price\">at least 43 s of an install</span>",
        "<dt>do</dt>\n<dd><code class=\"command\">/srv</code></dd>",
        "<dt>undo</dt>\n<dd>not needed: no setting is changed</dd>",
        "<svg ",
        "copy-up: a file of lower layers",
        "copy-up: a directory of lower layers",
        "<td class=\"number\" data-number=\"16000\">16.0 ms</td>",
        "<dt>random writes</dt>",
        "<dd>left out by --ignore</dd>",
        "<dd>ext4 on /dev/vdb, 50 % used, rw</dd>",
        "Made by synconce 1.",
    ] {
        let Some((_, after)) = rest.split_once(shown) else { panic!("{shown}: {page}") };
        rest = after;
    }
    let page = command(300, "cc").page("synconce run -- make cc", "synconce 1");
    for shown in [
        "<code class=\"command\">synconce run -- make cc</code>",
        "<figcaption>Time of the command</figcaption>",
        "<caption>By program</caption>",
        "<caption>The longest waits</caption>",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
}

#[test]
fn a_page_does_not_grow_with_the_syncs_the_groups_or_the_command_line() {
    let few = command(150, "cc").page("synconce run -- make", "synconce 1");
    let many = command(1_900, "cc").page("synconce run -- make", "synconce 1");
    assert!(many.len() < few.len() + 1_000, "{} {}", few.len(), many.len());
    assert!(many.contains("1850 more are not shown here: --json has all."), "{many}");
    let long = "x".repeat(1_000_000);
    let mut report = command(20, "cc");
    report.command.push(long.clone());
    let page = report.page(&format!("synconce run -- make {long}"), "synconce 1");
    assert!(page.len() < 60_000, "{}", page.len());
    assert!(page.contains(">synconce run -- COMMAND<"), "{page:.3000}");
}

#[test]
fn the_policy_of_a_page_allows_its_own_style_and_script_only() {
    let nonces: Vec<_> = (0..2)
        .map(|_| {
            let page = report("/srv").page("synconce 1");
            let policy = page.split_once("content=\"default-src 'none'; ").expect("a policy").1;
            let nonce = policy.split_once("'nonce-").unwrap().1.split_once('\'').unwrap().0;
            assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2, "{page}");
            assert_eq!(page.matches(&format!("'nonce-{nonce}'")).count(), 2, "{page}");
            nonce.to_owned()
        })
        .collect();
    assert_ne!(nonces[0], nonces[1]);
}

/// Returns the page about a build of three steps, of which the last is not seen.
fn build_page() -> String {
    let mut record = "{\"record\":1,\"command\":[\"docker\",\"build\",\".\"]}\n".to_owned();
    for (step, more) in [(1, ""), (2, ""), (3, ",\"unseen\":\"another listener\"")] {
        record += &format!(
            "{{\"step\":{step},\"at\":0,\"engine\":\"docker\",\"command\":\"do {step}\"{more}}}\n"
        );
    }
    for (step, wait) in [(1, ",\"wait\":8000000"), (2, ",\"wait\":9000000"), (2, "")] {
        let call = if wait.is_empty() { "io_uring_setup" } else { "fsync" };
        record += &format!(
            "{{\"call\":\"{call}\",\"at\":1,\"program\":\"dpkg\",\"would\":\"hold\",\"step\":{step}{wait}}}\n"
        );
    }
    record += "{\"end\":{\"Exited\":0},\"at\":90000000,\"looks\":0,\"alone\":0,\"lost\":0}\n";
    examine_record(record.as_bytes(), &[]).unwrap().page("synconce run", "synconce 1")
}

#[test]
fn steps_of_a_build_are_sorted_as_the_head_of_their_table_says() {
    let page = build_page();
    assert_sound(&page);
    let mut rest = page.split_once("<caption>Each step</caption>").expect("the table").1;
    for shown in [
        "aria-sort=\"descending\">waits</th>",
        "<td>do 2</td>",
        "<td>do 1</td>",
        // Nothing was counted.
        "<td>do 3</td>\n<td></td>\n<td></td>\n",
        "<td>another listener</td>",
    ] {
        let Some((_, after)) = rest.split_once(shown) else { panic!("{shown}: {page}") };
        rest = after;
    }
    for shown in
        ["None was held.", "<figcaption>Waits by step</figcaption>", "<td>does not wait</td>"]
    {
        assert!(page.contains(shown), "{shown}: {page}");
    }
}

#[test]
fn a_column_in_which_no_row_has_anything_is_left_out() {
    let page = build_page();
    for (name, is_shown) in [("not seen", true), ("image", false), ("first file", false)] {
        assert_eq!(page.contains(&format!(">{name}</th>")), is_shown, "{name}: {page}");
    }
}
