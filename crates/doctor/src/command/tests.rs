//! Reports of records that were made up.

use super::*;
use serde_json::{Value, json};
use std::io::{Read, Seek, Write};

/// Returns a record of syncs that begin at multiples of `step` and take `wait`, microseconds.
fn record(step: u64, wait: u64, bytes: impl Fn(u64) -> u64, looks: (u64, u64)) -> String {
    let mut text = "{\"record\":1,\"command\":[\"make\"]}\n".to_owned();
    for at in 0..100 {
        let (nanoseconds, bytes) = (wait * 1000 + bytes(at), bytes(at));
        text += &format!(
            "{{\"call\":\"fsync\",\"at\":{},\"thread\":1,\"program\":\"cc\",\"file\":\"/a/{at}\",\
             \"bytes\":{bytes},\"wait\":{nanoseconds},\"would\":\"hold\"}}\n",
            at * step
        );
    }
    let (looks, alone) = looks;
    text + &format!(
        "{{\"end\":{{\"Exited\":0}},\"at\":2000000,\"looks\":{looks},\"alone\":{alone},\
         \"lost\":{}}}\n",
        alone * 1000
    )
}

fn examined(text: &str) -> CommandReport {
    examine_record(text.as_bytes(), &[]).unwrap()
}

#[test]
fn waits_one_after_the_other_add_up_and_waits_at_the_same_time_do_not() {
    let apart = examined(&record(10_000, 8_000, |_| 4096, (500, 500)));
    assert!((apart.waits.covered - 0.8).abs() < 1e-3, "{apart:#?}");
    let together = examined(&record(1_000, 8_000, |_| 4096, (500, 500)));
    assert!((together.waits.seconds - 0.8).abs() < 1e-3, "{together:#?}");
    assert!((together.waits.covered - 0.107).abs() < 1e-3, "{together:#?}");
}

#[test]
fn the_least_saving_is_below_the_likely_one_and_falls_with_fewer_samples() {
    let many = examined(&record(10_000, 8_000, |_| 4096, (500, 400))).savings;
    let few = examined(&record(10_000, 8_000, |_| 4096, (10, 8))).savings;
    assert!(few.at_least < many.at_least && many.at_least < many.about, "{few:?} {many:?}");
    assert!((many.critical - 0.64).abs() < 1e-3 && many.about < many.critical, "{many:?}");
    let none = examined(&record(10_000, 8_000, |_| 4096, (0, 0))).savings;
    assert_eq!((none.at_least, none.about), (0.0, 0.0));
}

#[test]
fn the_commit_takes_the_longer_the_more_the_bytes_of_a_sync_cost() {
    // A nanosecond a byte, as `record` makes it: 100 MB take 0.1 s.
    let known = examined(&record(10_000, 8_000, |at| (at % 2) * 2_000_000, (500, 500))).savings;
    assert!((known.commit - 0.1 - 0.003 - 0.03).abs() < 0.02, "{known:?}");
    // All syncs had the same number of bytes: 200 MB a second are assumed.
    let same = examined(&record(10_000, 8_000, |_| 2_000_000, (500, 500))).savings;
    assert!((same.commit - 1.0).abs() < 0.1, "{same:?}");
}

#[test]
fn a_report_begins_with_the_verdict_and_names_what_to_do() {
    let report = examined(&record(10_000, 8_000, |_| 4096, (500, 500)));
    let text = report.text("synconce run -- make");
    let lines: Vec<_> = text.lines().collect();
    let verdicts = lines.iter().filter(|line| **line == report.verdict).count();
    assert_eq!((lines[0], verdicts), (report.verdict.as_str(), 1), "it fits a screen: {text}");
    assert!(lines[0].starts_with("make: 100 syncs were waited for, 800"), "{text}");
    assert!(lines[0].contains("; `synconce run` saves at least "), "{text}");
    assert!(text.contains("\n  do           synconce run -- make\n"), "{text}");
    assert!(text.contains("  /a\n"), "{text}");
}

#[test]
fn a_name_with_a_line_break_takes_one_line_and_a_sync_of_no_bytes_is_not_counted() {
    let call = |bytes: u64| {
        examined(&format!(
            "{{\"record\":1,\"command\":[\"s\\nh\",\"-c\",\"a\\nb\"]}}\n\
             {{\"call\":\"fsync\",\"at\":1,\"thread\":1,\"program\":\"c\\nc\",\"file\":\"/d\\nd/f\\nf\",\
             \"bytes\":{bytes},\"wait\":2000,\"would\":\"hold\"}}\n\
             {{\"end\":{{\"Exited\":0}},\"at\":9,\"looks\":0,\"alone\":0,\"lost\":0}}\n"
        ))
    };
    let text = call(0).text("x");
    for line in [
        "s\\nh: 1 sync",
        "s\\nh -c a\\nb: exit",
        "us  c\\nc\n",
        "  /d\\nd\n",
        "/f\\nf, 0 B by c\\nc ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("to write"), "{text}");
    assert!(call(9).text("x").contains("; 1 sync had 9 B to write\n"), "{text}");
}

/// A command that syncs once in each of `directories` directories, and once in `/slow`, which
/// takes longest.
fn of_many_directories(directories: u64) -> String {
    let call = |at: u64, file: &str, wait: u64| {
        format!(
            "{{\"call\":\"fsync\",\"at\":{at},\"program\":\"cc\",\"file\":\"{file}\",\"bytes\":{},\
             \"wait\":{wait},\"would\":\"hold\"}}\n",
            at % 7
        )
    };
    let mut text = "{\"record\":1,\"command\":[\"make\"]}\n".to_owned();
    text += &call(0, "/slow/file", 9_000_000_000);
    for at in 0..directories {
        text += &call(10_000_000 + at * 100, &format!("/{at}/file"), 50_000 + at);
    }
    let end = "{\"end\":{\"Exited\":0},\"at\":20000000,\"looks\":9,\"alone\":9,\"lost\":9000}\n";
    text + end
}

/// Returns the sums of the record `text`, as [`RecordSums`] writes them.
fn sums(text: &str) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    let mut sums = RecordSums::to(file.try_clone().unwrap());
    // In parts that do not end with a line.
    for part in text.as_bytes().chunks(1_000) {
        sums.write_all(part).unwrap();
    }
    sums.flush().unwrap();
    let mut written = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut written).unwrap();
    written
}

#[test]
fn sums_give_the_report_of_the_record_and_do_not_grow_with_it() {
    let text = record(10_000, 8_000, |at| at * 100, (500, 400));
    let report = |text: &[u8]| serde_json::to_value(examine_record(text, &[]).unwrap()).unwrap();
    assert_eq!(report(&sums(&text)), report(text.as_bytes()));
    let (few, many) = (sums(&of_many_directories(3_000)), sums(&of_many_directories(9_000)));
    assert!(many.len() < 2 * few.len() && many.len() < 1_000_000, "{} {}", few.len(), many.len());
}

#[test]
fn groups_that_were_dropped_are_said_and_the_sums_stay_whole() {
    let report = examined(&of_many_directories(9_000));
    let waits = &report.waits;
    assert_eq!((waits.calls, waits.by_directory[0].name.as_str()), (9_001, "/slow"));
    assert_eq!(waits.dropped_programs, None);
    let dropped = waits.dropped_directories.unwrap();
    let kept: u64 = waits.by_directory.iter().map(|group| group.calls).sum();
    assert_eq!(kept + dropped.calls, 9_001);
    let spans = 9.0 + 9_000.0 * 50e-6 + 0.040_5;
    assert!((waits.covered - spans).abs() < 1e-3 && (waits.seconds - spans).abs() < 1e-3);
    let text = report.text("x");
    let line = text.lines().find(|line| line.starts_with("  dropped ")).unwrap();
    assert!(line.contains("syncs, ") && line.ends_with(": there are more than 2,000 directories"));
    let few = examined(&of_many_directories(1_000));
    assert_eq!(few.waits.dropped_directories, None);
    assert!(!few.text("x").contains("dropped") && !compare(&few, &few).verdict.contains("dropped"));
    assert!(compare(&few, &report).verdict.ends_with("; groups with short waits were dropped"));
}

/// Returns `text` with `fields` in its last line.
fn with(text: &str, fields: &str) -> String {
    let last = text.trim_end().strip_suffix('}').unwrap();
    format!("{last},{fields}}}\n")
}

fn names(report: &CommandReport) -> Vec<&str> {
    report.findings.iter().map(|finding| finding.name).collect()
}

const MAN_DB: &str = r#"{"package":"man-db","runs":2,"micros":900000,"longest":500000}"#;
const FONTS: &str = r#"{"package":"fontconfig","runs":3,"micros":600000,"longest":250000}"#;

#[test]
fn a_cause_that_costs_more_than_the_syncs_comes_first_and_can_be_left_out() {
    let waits = record(10_000, 2_000, |_| 4096, (500, 500));
    let text = with(&waits, &format!("\"triggers\":[{FONTS},{MAN_DB}]"));
    let report = examined(&text);
    assert_eq!(names(&report), ["man-db-trigger", "repeated-triggers"]);
    let seconds: Vec<_> = report.findings.iter().filter_map(|it| it.seconds).collect();
    assert!((seconds[0] - 0.9).abs() < 1e-9 && (seconds[1] - 0.35).abs() < 1e-9, "{seconds:?}");
    let wanted =
        "make: man-db-trigger costs at least 900.0 ms of 2.0 s; 100 syncs were waited for, ";
    assert!(report.verdict.starts_with(wanted), "{}", report.verdict);
    assert!((report.most_seconds() - 0.9).abs() < 1e-9);
    let shown = report.text("x");
    assert!(shown.contains("\n1. man-db-trigger: at least 900.0 ms of this command\n"), "{shown}");
    assert!(shown.contains("\n  triggers           2 900.0 ms  man-db\n"), "{shown}");
    assert_eq!(shown.lines().next(), shown.lines().last(), "it is longer than a screen");
    let left = examine_record(text.as_bytes(), &["man-db-trigger".to_owned()]).unwrap();
    assert_eq!(names(&left), ["repeated-triggers"]);
    assert_eq!(left.ignored, ["man-db-trigger"]);
    // The syncs cost more.
    let waits = record(20_000, 15_000, |_| 4096, (500, 500));
    let report = examined(&with(&waits, &format!("\"triggers\":[{MAN_DB}]")));
    assert!(report.verdict.starts_with("make: 100 syncs "), "{}", report.verdict);
}

#[test]
fn a_cause_that_costs_little_is_shown_and_is_no_finding() {
    let waits = record(10_000, 2_000, |_| 4096, (500, 500));
    let short = r#"{"package":"man-db","runs":1,"micros":90000,"longest":90000}"#;
    let little = r#"{"by":"qemu-arm","looks":1,"of":100}"#;
    let report = examined(&with(&waits, &format!(r#""triggers":[{short}],"emulated":[{little}]"#)));
    assert_eq!(names(&report), [""; 0]);
    assert!(report.text("x").contains("1  90.0 ms  man-db\n"), "{}", report.text("x"));
}

#[test]
fn an_emulator_has_a_share_and_no_seconds() {
    let nothing = "{\"record\":1,\"command\":[\"make\"]}\n\
        {\"end\":{\"Exited\":0},\"at\":2000000,\"looks\":0,\"alone\":0,\"lost\":0}\n";
    assert_eq!(examined(nothing).text("x").lines().count(), 2);
    let report = examined(&with(nothing, r#""emulated":[{"by":"qemu-arm","looks":80,"of":100}]"#));
    assert_eq!((names(&report), report.findings[0].seconds), (vec!["emulated"], None));
    let begin =
        "make: emulated: qemu-arm does at least 71 % of the work; no sync was waited for in ";
    assert!(report.verdict.starts_with(begin), "{}", report.verdict);
    assert_eq!(report.most_seconds(), 0.0);
}

#[test]
fn an_emulator_that_costs_less_than_the_syncs_is_not_in_the_verdict() {
    // 71 % of 2 s, or 5 %.
    let waits = record(10_000, 8_000, |_| 4096, (500, 500));
    for (looks, begin) in [(80, "make: emulated: "), (10, "make: 100 syncs were waited for")] {
        let fields = format!(r#""emulated":[{{"by":"qemu-arm","looks":{looks},"of":100}}]"#);
        let report = examined(&with(&waits, &fields));
        assert_eq!(names(&report), ["emulated"]);
        assert!(report.verdict.starts_with(begin), "{}", report.verdict);
    }
    // 20 % of 10 ms.
    let short = "{\"record\":1,\"command\":[\"make\"]}\n\
        {\"end\":{\"Exited\":0},\"at\":10000,\"looks\":0,\"alone\":0,\"lost\":0}\n";
    let report = examined(&with(short, r#""emulated":[{"by":"qemu-arm","looks":1,"of":1}]"#));
    assert_eq!(names(&report), [""; 0]);
}

#[test]
fn one_install_is_not_told_to_be_one() {
    let text =
        with(&record(10_000, 2_000, |_| 4096, (500, 500)), &format!("\"triggers\":[{FONTS}]"));
    let of = |command: &str| text.replace("[\"make\"]", command);
    for command in [r#"["/usr/bin/apt-get","install","x"]"#, r#"["sudo","A=b","apt","upgrade"]"#] {
        assert_eq!(names(&examined(&of(command))), [""; 0]);
    }
    let script = r#"["sh","-c","apt-get install a; apt-get install b"]"#;
    assert_eq!(names(&examined(&of(script))), ["repeated-triggers"]);
}

#[test]
fn what_several_dpkg_wait_for_at_once_does_not_add_up() {
    // 100 waits of 8 ms, within 107 ms.
    let waits = record(1_000, 8_000, |_| 4096, (500, 500));
    let waits = waits.replace("\"cc\"", "\"dpkg\"").replace("/a/", "/usr/share/doc/a/");
    let long = r#"{"package":"man-db","runs":9,"micros":9000000,"longest":1000000}"#;
    let report = examined(&with(&waits, &format!(r#""triggers":[{long}]"#)));
    assert_eq!(names(&report), ["man-db-trigger", "unread-files"]);
    let seconds: Vec<_> = report.findings.iter().filter_map(|it| it.seconds).collect();
    assert!(seconds[0] <= 2.0 && seconds[1] <= 0.107, "{seconds:?}");
}

#[test]
fn files_that_only_persons_read_are_told_from_licences_and_data() {
    for file in [
        "/usr/share/doc/a/README",
        "/srv/root/usr/share/man/de/man1/a.1.gz.dpkg-new",
        "/usr/share/locale/de/LC_MESSAGES/a.mo",
        "/usr/share/info/a.info",
    ] {
        assert!(tally::is_unread(file), "{file}");
    }
    for file in [
        "/usr/share/doc/a/copyright",
        "/usr/share/doc/a/copyright.dpkg-new",
        "/usr/bin/man",
        "/usr/share/zoneinfo/UTC",
        "/usr/share/doc",
        "/home/x/doc/y",
    ] {
        assert!(!tally::is_unread(file), "{file}");
    }
}

/// Two waits of one stack, a call without a time, and a name that would end a frame and a line.
const CALLS: &str = r#"{"record":1,"command":["make"]}
{"call":"fsync","at":5,"thread":8,"process":7,"program":"c c;","ancestry":["sh","make"],"file":"/a","bytes":9,"wait":2000500,"would":"hold"}
{"call":"fsync","at":9,"thread":8,"process":7,"program":"c c;","ancestry":["sh","make"],"wait":1000,"errno":5,"would":"hold"}
{"call":"openat","at":11,"thread":8,"process":7,"program":"cc","would":"hold"}
{"end":{"Exited":0},"at":20,"looks":0,"alone":0,"lost":0}
{"call":"fsync","at":30,"thread":8,"process":7,"program":"late","wait":1000,"would":"hold"}
"#;

fn exported(format: RecordFormat) -> String {
    export_record(CALLS.as_bytes(), format).unwrap()
}

#[test]
fn a_trace_has_a_bar_for_each_wait_of_the_command_and_a_mark_for_other_calls() {
    let events: Value = serde_json::from_str(&exported(RecordFormat::Trace)).unwrap();
    let events = events.as_array().unwrap();
    assert_eq!(events.len(), 3, "{events:#?}");
    let of = |at: usize| ["name", "ph", "ts", "dur", "pid", "tid"].map(|key| &events[at][key]);
    assert_eq!(json!(of(0)), json!(["fsync", "X", 5, 2000.5, 7, 8]));
    assert_eq!(events[0]["args"]["file"], "/a");
    assert_eq!(
        (&events[1]["args"]["errno"], &events[1]["args"]["file"]),
        (&json!(5), &Value::Null)
    );
    assert_eq!(json!(of(2)), json!(["openat", "i", 11, null, 7, 8]));
    assert_eq!(events[2]["s"], "t");
}

#[test]
fn stacks_are_the_sums_of_waits_from_the_command_down_to_the_call() {
    assert_eq!(exported(RecordFormat::Stacks), "make;sh;c_c_;fsync 2002\n");
}

#[test]
fn sums_and_other_text_have_no_calls_to_export() {
    for text in ["", "text\n", "{\"sums\":{}}\n"] {
        let exported = export_record(text.as_bytes(), RecordFormat::Trace);
        assert!(matches!(exported, Err(Error::NoRecord)), "{text:?}: {exported:?}");
    }
}

#[test]
fn a_comparison_has_what_changed_most_first_and_what_only_one_record_has() {
    let before = examined(&record(10_000, 8_000, |_| 4096, (500, 500)));
    let call = r#"{"call":"sync","at":5,"thread":8,"program":"ld","wait":3000000,"would":"hold"}"#;
    let now = examined(&format!("{{\"record\":1,\"command\":[\"make\"]}}\n{call}\n"));
    let compared = compare(&before, &now);
    let rows = compared.by_call.iter().map(|it| (it.name.as_str(), it.calls));
    assert_eq!(rows.collect::<Vec<_>>(), [("fsync", [100, 0]), ("sync", [0, 1])]);
    let wanted = "make: waits for syncs were 800.4 ms of 2.0 s before, and are 3.0 ms of 3.0 ms now; \
                  the record has no end";
    assert_eq!(compared.verdict, wanted);
    let text = compared.text();
    let line = text.lines().find(|line| line.contains("by program")).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words, ["by", "program", "100", "800.4", "ms", "0", "0", "us", "cc"]);
}

#[test]
fn a_record_that_was_cut_in_a_character_is_read_up_to_its_last_line() {
    let whole = record(10_000, 8_000, |_| 4096, (500, 500));
    let lines: Vec<_> = whole.lines().collect();
    let mut cut = lines[..41].join("\n").into_bytes();
    cut.extend(b"\n{\"call\":\"fsync\",\"at\":1,\"file\":\"/home/j\xc3");
    let report = examine_record(&*cut, &[]).unwrap();
    assert_eq!((report.waits.calls, report.ended), (40, None), "{report:#?}");
    let folded = export_record(&*cut, RecordFormat::Stacks).unwrap();
    assert_eq!(folded.lines().count(), 1, "{folded}");
    let other = examined(&whole.replace("make", "ninja"));
    let verdict = compare(&report, &other).verdict;
    assert!(verdict.ends_with("; the earlier record has no end; the commands differ"), "{verdict}");
}
