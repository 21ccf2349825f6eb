//! A sparse file of 1 TiB in a tree: no command reads its holes.

use crate::concurrent::text;
use crate::roots;
use crate::site::{Site, for_each_strategy};
use crate::verbs::NEEDS;
use libtest_mimic::Trial;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use synconce_testkit::harness::trials_on;
use synconce_testkit::harness::{Place, StartedCommand};
use synconce_testkit::rig::FsKind;

pub fn trials() -> Vec<Trial> {
    trials_on(&FsKind::ALL, no_command_reads_the_holes_of_a_file, &NEEDS)
}

fn no_command_reads_the_holes_of_a_file(place: &Place, kind: FsKind) {
    for_each_strategy(place, kind, 1 << 30, |site| no_holes(place, site));
}

const SIZE: u64 = 1 << 40;
/// More bytes than all data of the tree, with its records.
const MOST: u64 = 64 << 20;

fn no_holes(place: &Place, site: &Site<'_>) {
    let _ = fs::remove_dir_all(place.path("source"));
    let source = roots::small(place, "source");
    let file = File::create(source.join("data/sparse")).unwrap();
    file.set_len(SIZE).unwrap();
    file.write_all_at(b"middle", SIZE / 2).unwrap();
    let (to, by) = (site.fresh("exported"), ["--strategy", site.strategy()]);
    let does = |code: i32, words: &[&str]| {
        let started = StartedCommand::new(&mut site.tree(words));
        assert_eq!(started.end().code(), Some(code), "{words:?}: {}", started.text());
        let read = bytes_read(started.pid());
        assert!(read < MOST, "{words:?} has read {read} bytes");
        started.stdout().unwrap()
    };
    does(0, &["import", "a", text(&source), by[0], by[1]]);
    does(0, &["import", "b", text(&source), by[0], by[1]]);
    assert_eq!(does(0, &["diff", "a", "b"]), "");
    does(0, &["clone", "a", "c"]);
    let script = "printf x | dd of=/data/sparse bs=1 seek=1000000000000 conv=notrunc 2>/dev/null";
    does(0, &["run", "c", "--", "/bin/sh", "-ec", script]);
    assert_eq!(does(1, &["diff", "b", "c"]), "C data/sparse\n");
    does(0, &["commit", "c"]);
    does(0, &["squash", "c"]);
    assert_eq!(does(1, &["diff", "b", "c"]), "C data/sparse\n");
    does(0, &["verify", "c"]);
    does(0, &["fsck"]);
    does(0, &["export", "c", text(&to)]);
    assert_eq!(fs::metadata(to.join("data/sparse")).unwrap().len(), SIZE);
    does(0, &["export", "c"]);
}

/// Returns how many bytes an ended process and its children read by system calls.
fn bytes_read(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}
