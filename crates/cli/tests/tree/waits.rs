//! Verbs that wait for the other end of a pipe: a signal ends them.

use crate::site::Site;
use crate::verbs::{NEEDS, with_base};
use libtest_mimic::Trial;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::ioctl_fionread;
use rustix::pipe::{PIPE_BUF, fcntl_setpipe_size};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use synconce_testkit::harness::{Place, StartedCommand, binary, eventually, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_signal_ends_an_import_that_waits_for_its_first_bytes, &NEEDS),
        trial(a_signal_ends_an_import_that_waits_within_its_input, &NEEDS),
        trial(an_import_takes_its_input_in_pieces, &NEEDS),
        trial(a_signal_ends_an_export_whose_reader_does_not_read, &NEEDS),
        trial(a_signal_ends_a_report_whose_reader_does_not_read, &NEEDS),
    ]
}

const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// Makes a FIFO, and a store with the tree `base`; `whole.tar` and `whole.tar.gz` have its content.
fn with_archives(place: &Place) -> Site<'_> {
    let site = with_base(place);
    mknodat(CWD, place.path("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let export = verb(&site, "export base");
    let exported = place.sh(&format!("{export} >whole.tar && gzip -k whole.tar"));
    assert!(exported.status.success(), "{exported:?}");
    site
}

/// Returns the words of a verb for a shell.
fn verb(site: &Site<'_>, words: &str) -> String {
    format!("'{}' tree --store '{}' {words}", binary(), site.store().display())
}

/// Starts a verb; a signal reaches no shell around it.
fn start(site: &Site<'_>, words: &str) -> StartedCommand {
    site.place.start(&format!("exec {}", verb(site, words)))
}

/// Opens the FIFO at both ends: neither end waits for a process.
fn open_both_ends(place: &Place) -> File {
    File::options().read(true).write(true).open(place.path("pipe")).unwrap()
}

fn is_empty(pipe: &File) -> bool {
    ioctl_fionread(pipe).unwrap() == 0
}

fn sessions(store: &Path) -> usize {
    fs::read_dir(store.join("sessions")).unwrap().count()
}

/// Sends `signal` to a verb that waits, and expects its end.
fn is_ended_by(signal: Signal, waiting: &StartedCommand, site: &Site<'_>, what: &str) {
    waiting.signal(signal).unwrap();
    assert_eq!(waiting.end().signal(), Some(signal.as_raw()), "{what}: {}", waiting.text());
    assert_eq!(sessions(&site.store()), 0, "{what}");
}

fn a_signal_ends_an_import_that_waits_for_its_first_bytes(place: &Place) {
    let site = with_archives(place);
    for signal in SIGNALS {
        // A FIFO without a writer, and standard input whose writer writes nothing.
        for words in ["import new pipe", "import new - <>pipe", "import new /dev/stdin <>pipe"] {
            let import = start(&site, words);
            eventually("the import has begun", || sessions(&site.store()) > 0);
            is_ended_by(signal, &import, &site, words);
        }
    }
    site.well(&["fsck"]);
}

fn a_signal_ends_an_import_that_waits_within_its_input(place: &Place) {
    let site = with_archives(place);
    // After all of it, the input may go on.
    let parts = [("whole.tar", 20_000), ("whole.tar.gz", 20_000), ("whole.tar.gz", usize::MAX)];
    for (archive, part) in parts {
        let bytes = fs::read(place.path(archive)).unwrap();
        let bytes = &bytes[..part.min(bytes.len())];
        for (signal, words) in SIGNALS.into_iter().zip(["pipe", "- <pipe", "- <pipe"]) {
            let what = format!("{words}, {} bytes of {archive}", bytes.len());
            let mut pipe = open_both_ends(place);
            let import = start(&site, &format!("import new {words}"));
            pipe.write_all(bytes).unwrap();
            eventually("all is read", || is_empty(&pipe));
            is_ended_by(signal, &import, &site, &what);
        }
    }
    site.well(&["fsck"]);
}

fn an_import_takes_its_input_in_pieces(place: &Place) {
    let site = with_archives(place);
    for archive in ["whole.tar", "whole.tar.gz"] {
        let bytes = fs::read(place.path(archive)).unwrap();
        for words in ["pipe", "- <pipe"] {
            let import = start(&site, &format!("import new {words}"));
            if words == "pipe" {
                eventually("the import has begun", || sessions(&site.store()) > 0);
            }
            let mut pipe = open_both_ends(place);
            for piece in [&bytes[..3], &bytes[3..700], &bytes[700..20_000], &bytes[20_000..]] {
                pipe.write_all(piece).unwrap();
                eventually("the piece is read", || is_empty(&pipe));
            }
            drop(pipe);
            assert!(import.end().success(), "{archive}, {words}: {}", import.text());
            assert_eq!(site.diff("base", "new").len(), 0, "{archive}, {words}");
            site.remove("new");
        }
    }
}

fn a_signal_ends_an_export_whose_reader_does_not_read(place: &Place) {
    let site = with_archives(place);
    for signal in SIGNALS {
        let pipe = open_both_ends(place);
        let export = start(&site, "export base - >pipe");
        eventually("the pipe is full", || ioctl_fionread(&pipe).unwrap() == 1 << 16);
        is_ended_by(signal, &export, &site, "export");
    }
}

fn a_signal_ends_a_report_whose_reader_does_not_read(place: &Place) {
    let site = with_archives(place);
    site.clone_of("base", "clone");
    // Long paths: a report of ten is more than a pipe of one page takes.
    let above = "a".repeat(250);
    let names: Vec<_> = (0..20).map(|number| format!("{number:0200}")).collect();
    site.sh("clone", &format!("mkdir /data/{above}; cd /data/{above}; mkdir {}", names.join(" ")));
    are_ended_by_signals(&site, &["diff clone >pipe", "diff --json clone >pipe"]);
    site.well(&["commit", "clone"]);
    for name in names {
        let directory = site.newest_layer("clone").join("data").join(&above).join(name);
        fs::write(directory.join("new"), "").unwrap();
    }
    are_ended_by_signals(
        &site,
        &[
            "verify clone 2>pipe",
            "verify --json clone 2>/dev/null >pipe",
            "verify --json=pipe clone 2>/dev/null",
        ],
    );
}

/// Expects that each signal ends each verb, whose output is a pipe that is full.
fn are_ended_by_signals(site: &Site<'_>, verbs: &[&str]) {
    for words in verbs {
        for signal in SIGNALS {
            let pipe = open_both_ends(site.place);
            fcntl_setpipe_size(&pipe, PIPE_BUF).unwrap();
            let started = start(site, words);
            // A line is written whole or not at all.
            eventually("the pipe is full", || {
                ioctl_fionread(&pipe).unwrap() + 800 > PIPE_BUF as u64
            });
            is_ended_by(signal, &started, site, words);
        }
    }
}
