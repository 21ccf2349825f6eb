//! The words of a command line: `run` without `--`, the shell of a tree, JSON on every verb,
//! and dry runs.

use crate::site::Site;
use crate::verbs::{NEEDS, names, set, with_base};
use libtest_mimic::Trial;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use synconce_testkit::harness::{Need, Place, Terminal, binary, eventually, trial};

pub fn trials() -> Vec<Trial> {
    let terminal = [NEEDS[0], Need::Program("bash", "bash")];
    vec![
        trial(a_command_needs_no_dashes_before_it, &NEEDS),
        trial(options_may_stand_before_and_after_the_name, &NEEDS),
        trial(a_run_without_a_tree_is_refused, &NEEDS),
        trial(an_unmount_of_what_is_not_mounted_says_what_was_looked_for, &NEEDS),
        trial(without_a_command_the_shell_of_the_user_or_of_the_tree_runs, &NEEDS),
        trial(a_shell_in_a_tree_has_job_control, &terminal),
        trial(every_verb_prints_json, &NEEDS),
        trial(an_export_names_what_was_meant, &NEEDS),
        trial(an_output_that_is_full_or_closed_is_an_error, &NEEDS),
        trial(statistics_of_a_run_in_a_tree_go_to_their_file, &NEEDS),
        trial(dry_runs_change_nothing, &NEEDS),
        trial(taken_and_missing_names_are_said_in_words, &NEEDS),
        trial(a_table_has_fewer_columns_and_whole_names_on_a_narrow_terminal, &NEEDS),
        trial(a_list_whose_reader_has_ended_ends_quietly, &NEEDS),
    ]
}

fn a_command_needs_no_dashes_before_it(place: &Place) {
    let site = with_base(place);
    site.well(&["clone", "base", "work"]);
    let echo = ["sh", "-c", "echo \"$@\"", "sh", "-x", "--", "--stats"];
    for run in [&["run", "work"][..], &["run", "work", "--"], &["run", "--from", "base"]] {
        let ended = site.well(&[run, &echo].concat());
        assert_eq!(ended.stdout, "-x -- --stats\n", "{run:?}: {ended:?}");
    }
    let code = site.ends(&["run", "--from", "base", "sh", "-c", "exit 7"]);
    assert_eq!(code.status.code(), Some(7), "{code:?}");
}

fn options_may_stand_before_and_after_the_name(place: &Place) {
    let site = with_base(place);
    site.well(&["clone", "base", "work"]);
    for words in [
        &["run", "--user", "1000", "work", "id", "-u"][..],
        &["run", "work", "--user", "1000", "id", "-u"],
        &["run", "work", "--user=1000", "--", "id", "-u"],
        &["run", "--user", "1000", "--", "work", "id", "-u"],
        &["run", "--user", "1000", "--from", "base", "id", "-u"],
    ] {
        assert_eq!(site.well(words).stdout, "1000\n", "{words:?}");
    }
    let both = site.ends(&["run", "work", "--from", "base", "id"]);
    assert_eq!(both.status.code(), Some(125), "{both:?}");
    assert!(both.stderr.contains("cannot be used with '--from <BASE>'"), "{both:?}");
}

fn a_run_without_a_tree_is_refused(place: &Place) {
    let site = with_base(place);
    for (words, why) in [
        (&["run"][..], "name a clone, or a base with --from"),
        (&["run", "--"], "name a clone, or a base with --from"),
        (&["run", "./x", "true"], "is no name of a tree"),
    ] {
        let ended = site.ends(words);
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        let usage = "Usage: synconce tree run [OPTIONS] <NAME> [COMMAND]...\n";
        assert!(ended.stderr.contains(why) && ended.stderr.contains(usage), "{ended:?}");
    }
}

fn an_unmount_of_what_is_not_mounted_says_what_was_looked_for(place: &Place) {
    let site = with_base(place);
    let path = place.text("");
    let there = "no tree of this store is mounted there\n";
    for (what, why) in [
        (&path[..], there.to_owned()),
        ("base", format!("no mounted tree has this name, and {there}")),
    ] {
        let ended = site.ends(&["umount", what]);
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        assert_eq!(ended.stderr, format!("synconce: cannot unmount {what}: {why}"));
    }
}

/// Runs `tree WORDS` with `SHELL=shell` and `input` as standard input; returns the exit code.
fn with_input(site: &Site<'_>, words: &[&str], shell: &str, input: &str) -> Option<i32> {
    let mut command = site.tree(words);
    let mut child = command.env("SHELL", shell).stdin(Stdio::piped()).spawn().unwrap();
    // A shell that reads nothing closes its end.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait().unwrap().code()
}

fn without_a_command_the_shell_of_the_user_or_of_the_tree_runs(place: &Place) {
    let site = with_base(place);
    site.well(&["clone", "base", "work"]);
    // Debian's bash shows this variable in its prompt.
    let made = "echo $0 $debian_chroot >/data/shell; exit 7\n";
    for run in [&["run", "work"][..], &["run", "--from", "base"]] {
        assert_eq!(with_input(&site, run, "/none", made), Some(7), "{run:?}");
        assert_eq!(with_input(&site, run, "bin/sh", made), Some(7), "{run:?}");
        assert_eq!(with_input(&site, run, "/bin/false", made), Some(1), "{run:?}");
    }
    assert_eq!(site.well(&["run", "work", "cat", "/data/shell"]).stdout, "/bin/sh work\n");
    let set = ["run", "work", "--setenv", "debian_chroot=mine"];
    assert_eq!(with_input(&site, &set, "/none", made), Some(7));
    assert_eq!(site.well(&["run", "work", "cat", "/data/shell"]).stdout, "/bin/sh mine\n");
}

fn a_shell_in_a_tree_has_job_control(place: &Place) {
    let site = with_base(place);
    site.well(&["clone", "base", "work"]);
    let mut terminal = Terminal::shell(place);
    terminal.line(&format!(
        "SHELL=/none $SYNCONCE tree --store {} run work --setenv 'PS1=tree> '",
        site.store().display()
    ));
    terminal.expect("tree> ");
    terminal.write("test -e /data/file && echo in''side\n");
    terminal.expect("inside\r\n");
    terminal.write("sh -c 'trap \"echo on\" CONT; echo job; while :; do sleep 1; done'\n");
    terminal.expect("\njob\r\n");
    terminal.write("\u{1a}");
    terminal.expect("Stopped");
    terminal.write("fg\n");
    terminal.expect("\non\r\n");
    terminal.write("\u{3}");
    terminal.write("echo code $?\n");
    terminal.expect("\ncode 130\r\n");
    terminal.write("exit 5\n");
    assert_eq!(terminal.code(), "5");
    terminal.line("exit 0");
    assert!(terminal.end().success());
}

/// Runs `tree WORDS --json`; returns the JSON.
fn json(site: &Site<'_>, words: &[&str]) -> Value {
    let ended = site.ends(&[words, &["--json"]].concat());
    serde_json::from_str(&ended.stdout).unwrap_or_else(|why| panic!("{words:?}: {why}: {ended:?}"))
}

fn every_verb_prints_json(place: &Place) {
    let site = with_base(place);
    let fresh = |name| site.fresh(name).into_os_string().into_string().unwrap();
    let (store, to, point) = (fresh("store"), fresh("to"), fresh("point"));
    fs::create_dir(&point).unwrap();
    let source = place.text("source");
    assert_eq!(json(&site, &["init", &store])["store"], store[..]);
    assert_eq!(json(&site, &["import", "second", &source])["generation"], 1);
    assert_eq!(json(&site, &["clone", "base", "work"])["base"], "base");
    assert!(json(&site, &["clone", "base"])["name"].as_str().unwrap().starts_with("base-"));
    let mounted = json(&site, &["mount", "work", &point]);
    assert_eq!((&mounted["tree"], &mounted["mount_point"]), (&"work".into(), &point[..].into()));
    fs::write(format!("{point}/data/new"), "new").unwrap();
    assert_eq!(json(&site, &["umount", &point])["kept"], true);
    assert_eq!(json(&site, &["commit", "work"])["generation"], 2);
    let changes = json(&site, &["diff", "base", "work"]);
    assert!(changes.to_string().contains("data/new"), "{changes}");
    assert_eq!(json(&site, &["export", "work", &to])["directory"], to[..]);
    assert_eq!(json(&site, &["squash", "work"])["name"], "work");
    assert_eq!(json(&site, &["verify", "work"]), Value::Array(Vec::new()));
    assert_eq!(json(&site, &["fsck"]), Value::Array(Vec::new()));
    let listed = json(&site, &["list"]);
    let made = listed[0]["made"].as_str().unwrap();
    assert!(made.len() == 20 && made.ends_with('Z'), "{made}");
    let removed = json(&site, &["remove", "second", "none"]);
    assert_eq!(removed["removed"], serde_json::json!(["second"]));
    assert_eq!(removed["failed"][0]["name"], "none");
    assert!(json(&site, &["gc", "--wait"])["entries"].is_u64());

    let mixed = site.ends(&["export", "work", "--json"]);
    assert_eq!((mixed.status.code(), &mixed.stdout[..]), (Some(125), ""), "{mixed:?}");
    let report = place.text("export.json");
    let tar = site.tree(&["export", "work", &format!("--json={report}")]).output().unwrap();
    assert!(tar.status.success() && tar.stdout.len() > 1024);
    let report: Value = serde_json::from_str(&place.read("export.json")).unwrap();
    assert!(report["entries"].as_u64() > Some(20), "{report}");
}

fn an_export_names_what_was_meant(place: &Place) {
    let site = with_base(place);
    let archive = place.text("base.tar");
    let store = site.store().display().to_string();
    let hint = format!("hint: synconce tree --store {store} export base >{archive}\n");
    site.refused(125, &["export", "base", &archive], &["the name of an archive", &hint]);
    assert!(!std::path::Path::new(&archive).exists());
    fs::create_dir(&archive).unwrap();
    site.well(&["export", "base", &archive]);
    let point = place.text("no point");
    let hint = format!("hint: mkdir -p -- '{point}'\n");
    site.refused(125, &["mount", "base", &point], &["cannot mount on ", &hint]);
    let far = place.text("a b/c/root");
    let hint = format!("hint: mkdir -p -- '{}'\n", place.text("a b/c"));
    site.refused(125, &["export", "base", &far], &["cannot create ", &hint]);
    assert!(!place.path("a b").exists());
    let archives = [&["export", "base"][..], &["export", "base", "-"]];
    let [first, second] = archives.map(|words| site.tree(words).output().unwrap().stdout);
    assert!(first.len() > 1024 && first == second, "- is standard output");
}

fn an_output_that_is_full_or_closed_is_an_error(place: &Place) {
    let site = with_base(place);
    let (store, outputs) = (site.store(), [">/dev/full", ">&-"]);
    for (output, why) in outputs.iter().zip(["No space left on device", "Bad file descriptor"]) {
        for words in ["export base", "list", "log base"] {
            let tree = format!("'{}' tree --store '{}' {words}", binary(), store.display());
            let ended = place.sh(&format!("exec {tree} {output}"));
            assert_eq!(ended.status.code(), Some(125), "{words} {output}: {ended:?}");
            // Without a hint: the store is not full.
            assert!(ended.stderr.starts_with("synconce: cannot write "), "{words}: {ended:?}");
            assert!(ended.stderr.ends_with(&format!(": {why}\n")), "{words}: {ended:?}");
            assert_eq!(ended.stderr.lines().count(), 1, "{words}: {ended:?}");
        }
    }
}

fn statistics_of_a_run_in_a_tree_go_to_their_file(place: &Place) {
    let site = with_base(place);
    let file = format!("--json={}", place.text("stats.json"));
    let run = ["run", "--from", "base", &file, "sh", "-c", "sync /data/file; echo err >&2"];
    let ended = site.well(&run);
    assert_eq!((&ended.stdout[..], &ended.stderr[..]), ("", "err\n"), "{ended:?}");
    let stats: Value = serde_json::from_str(&place.read("stats.json")).unwrap();
    assert!(stats["wall_micros"].as_u64() > Some(0), "{stats}");
    assert_eq!(stats["outcome"], "not-asked", "{stats}");
    let table = site.well(&["run", "--from", "base", "-v", "sync"]);
    assert!(table.stderr.contains("\nwall time "), "{table:?}");
}

fn dry_runs_change_nothing(place: &Place) {
    let site = with_base(place);
    site.well(&["clone", "base", "work"]);
    let removed = site.well(&["remove", "-n", "work", "base"]);
    let wanted = "work would be removed and free 0 B\nbase would be removed and free 0 B\n";
    assert_eq!(removed.stdout, wanted, "the layer is in use by the other tree: {removed:?}");
    assert_eq!(json(&site, &["remove", "--dry-run", "work"])[0]["frees"], 0);
    assert_eq!(names(&site), set(&["base", "work"]));
    site.refused(125, &["remove", "-n", "work", "none"], &["none: no such tree"]);
    let clean = site.well(&["gc", "-n"]);
    assert!(clean.stdout.starts_with("0 unneeded layers would be removed\n"), "{clean:?}");
    // What a command left that was cut short is shown, and stays for the next command.
    let run = site.tree(&["run", "work", "sh", "-c", "echo ready; sleep 1000"]);
    cut_short(run);
    // The processes of the run end soon after synconce.
    eventually("the session is shown", || {
        let shown = site.well(&["gc", "-n"]);
        assert_eq!(shown.stderr, "");
        shown.stdout.starts_with("a run in work, begun 20")
    });
    let reported = site.well(&["list"]);
    assert!(
        reported.stderr.contains("was interrupted; its changes are thrown away"),
        "{reported:?}"
    );
}

/// Starts `run`, waits for the first line of its command, and kills synconce and the rest.
fn cut_short(mut run: Command) {
    let run = run.stdout(Stdio::piped()).process_group(0);
    let mut child = run.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

fn taken_and_missing_names_are_said_in_words(place: &Place) {
    let site = with_base(place);
    site.well(&["clone", "base", "work"]);
    let store = site.store().display().to_string();
    for verb in [&["clone", "none", "new"][..], &["verify", "--accept", "none"]] {
        let wanted = format!(
            "synconce: cannot find the tree none: no such tree\n\
             synconce: hint: `synconce tree --store {store} list` lists the trees\n"
        );
        assert_eq!(site.ends(verb).stderr, wanted, "{verb:?}");
    }
    let near = site.ends(&["run", "--from", "bsae", "true"]);
    assert!(near.stderr.ends_with(" list` lists the trees; there is base\n"), "{near:?}");
    let taken = site.ends(&["clone", "base", "work"]);
    let wanted = "synconce: cannot clone to work: a tree of this name already exists\n";
    assert_eq!(taken.stderr, wanted);
    let imported = site.ends(&["import", "base", &place.text("source")]);
    let (source, on) = (place.text("source"), format!("synconce tree --store {store}"));
    let wanted = format!(
        "synconce: cannot make the tree base: a tree of this name already exists\n\
         synconce: hint: to replace it: `{on} remove base`, then repeat; to keep it: \
         `{on} import NEW {source}`\n"
    );
    assert_eq!(imported.stderr, wanted);
}

/// As `synconce tree diff A B | head` does.
fn a_list_whose_reader_has_ended_ends_quietly(place: &Place) {
    let site = with_base(place);
    site.well(&["clone", "base", "work"]);
    site.well(&["run", "work", "sh", "-c", "for n in 1 2 3; do echo >/new-$n; done"]);
    for verb in [&["diff", "base", "work"][..], &["list"], &["list", "--json"], &["export", "base"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = site.tree(verb).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGPIPE), "{verb:?} {ended:?}");
        assert!(ended.stderr.is_empty(), "{verb:?} {ended:?}");
    }
}

fn a_table_has_fewer_columns_and_whole_names_on_a_narrow_terminal(place: &Place) {
    let site = with_base(place);
    let name = "build-of-the-package-hello";
    site.well(&["clone", "base", name]);
    let trees = json(&site, &["list"]);
    let made = trees.as_array().unwrap().iter().map(|tree| tree["made"].as_str().unwrap());
    // They differ if a tree was made before midnight.
    let made: BTreeSet<_> = made.map(|time| time[..10].to_owned()).collect();
    let heads = |lines: &str| {
        let head = lines.lines().find(|line| line.starts_with("NAME")).unwrap_or_default();
        head.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let whole = "NAME STATE GENERATION STRATEGY OWN SHARED MADE PARENT";
    assert_eq!(heads(&site.well(&["list"]).stdout), whole);
    let mut terminal = Terminal::shell(place);
    for (columns, verb, wanted, dates) in [
        (120, "list", whole, 2),
        (80, "list", "NAME STATE GEN OWN SHARED MADE PARENT", 2),
        (60, "list", "NAME STATE MADE PARENT", 2),
        (40, "list", "NAME STATE", 0),
        (80, "log build-of-the-package-hello", "NAME MADE OWN SHARED LAYERS", 1),
        (52, "log build-of-the-package-hello", "NAME MADE", 1),
    ] {
        let store = site.store();
        let line = format!("COLUMNS={columns} $SYNCONCE tree --store {} {verb}", store.display());
        terminal.line(&line);
        let lines = terminal.prompt();
        assert_eq!(heads(&lines), wanted, "{columns} {verb}: {lines}");
        let table = lines.lines().skip_while(|line| !line.starts_with("NAME"));
        let table: Vec<_> = table.take_while(|line| line.contains("  ")).collect();
        assert!(table.iter().all(|line| line.trim_end().chars().count() <= columns), "{lines}");
        assert!(table.iter().any(|line| line.starts_with(name)), "{lines}");
        let shown: usize = made.iter().map(|date| table.concat().matches(&date[..]).count()).sum();
        assert_eq!(shown, dates, "{columns} {verb}: {lines}");
    }
    terminal.line("exit 0");
    assert!(terminal.end().success());
}
