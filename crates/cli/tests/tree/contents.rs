//! `verify --content`: what the disk has of the files of a tree.

mod accepted;

use crate::roots;
use crate::site::{Site, limit, on_all};
use crate::verbs::{NEEDS, waiting};
use libtest_mimic::Trial;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use synconce_testkit::harness::{Need, Place, StartedCommand, trial};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::{Fault, FsKind, Rig};

const TRACED: [Need; 2] = [NEEDS[0], Need::Program("strace", "strace")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(a_content_that_changes_on_the_disk_is_named, &on_all(&NEEDS)),
        trial(accepted::a_content_that_was_changed_is_accepted_with_its_checksum, &NEEDS),
        trial(accepted::files_that_came_and_went_are_accepted_with_their_checksums, &NEEDS),
        trial(accepted::what_is_accepted_was_read_once, &TRACED),
        trial(a_content_that_only_memory_has_is_named, &NEEDS),
        trial(a_content_that_the_disk_cannot_read_is_named, &NEEDS),
        trial(a_disk_with_sectors_of_4096_bytes_is_read, &on_all(&TRACED)),
        trial(a_read_past_the_page_cache_that_is_refused_is_made_through_it, &TRACED),
        trial(a_damaged_list_of_checksums_says_what_a_new_one_has, &NEEDS),
        trial(a_store_that_cannot_be_written_to_names_its_mount, &NEEDS),
        trial(a_store_that_turns_read_only_during_a_run_names_its_mount, &NEEDS),
        trial(commands_at_the_same_time_take_the_same_checksums, &NEEDS),
    ]
}

const TAKEN: &str = "synconce: checksums taken of 2 layers: the next call compares them\n";
const FROZEN: &str = "synconce: the layers of tree are as they were frozen\n";

/// Makes a site below `disk` with the tree `tree` of two layers. `/data/content` is in the upper
/// one.
fn site<'a>(place: &'a Place, disk: impl AsRef<Path>) -> Site<'a> {
    let source = place.path("source");
    let source = if source.exists() { source } else { roots::small(place, "source") };
    let site = Site::new(place, disk.as_ref(), Some("overlay"));
    site.import("base", &source);
    site.clone_of("base", "tree");
    site
}

/// Writes 64 KiB to `/data/content` of the tree, and two files with names to be escaped.
fn write(site: &Site<'_>) {
    let script = r"yes 'these bytes are right' | head -c 65536 >/data/content
        echo 1 >'/data/a\b'; echo 2 >/data/'a
        b'";
    site.sh("tree", script);
}

/// Returns the file of the upper layer.
fn content(site: &Site<'_>) -> PathBuf {
    let layers = fs::read_dir(site.store().join("layers")).unwrap();
    let mut files = layers.map(|layer| layer.unwrap().path().join("tree/data/content"));
    files.find(|path| path.exists()).unwrap()
}

fn a_content_that_changes_on_the_disk_is_named(place: &Place) {
    for kind in FsKind::ALL {
        let point = place.path(kind.name());
        fs::create_dir(&point).unwrap();
        let rig = Rig::builder().fs(kind).size(512 << 20).at(point).up().unwrap();
        let site = site(place, rig.path());
        write(&site);
        site.well(&["commit", "tree"]);
        assert_eq!(site.well(&["verify", "--content", "tree"]).stderr, format!("{FROZEN}{TAKEN}"));
        assert_eq!(site.well(&["verify", "--content", "tree"]).stderr, FROZEN);
        let content = content(&site);
        let mut check = Command::new("sha256sum");
        check.args(["--check", "--strict", "--quiet", "../sha256sums"]);
        let layer = content.ancestors().nth(2).unwrap();
        let checked = process::run(check.current_dir(layer), limit()).unwrap();
        assert!(checked.status.success(), "{checked:?}");

        rig.unmount().unwrap();
        replace_on(&rig, b"these bytes are right", b"these bytes are wrong");
        rig.mount().unwrap();
        assert_eq!(site.well(&["verify", "tree"]).stderr, FROZEN);
        let why = match kind {
            // btrfs has a checksum of its own.
            FsKind::Btrfs => format!("cannot read {}: Input/output error", content.display()),
            _ => format!("{} has other content than its checksum says", content.display()),
        };
        let found = site.ends(&["verify", "--content", "tree"]);
        let hint = if kind == FsKind::Btrfs { String::new() } else { hint(&site) };
        let wanted = format!("synconce: {why}\n{hint}");
        assert_eq!((found.status.code(), found.stderr), (Some(1), wanted));
        let found = site.ends(&["verify", "--content", "--json", "tree"]).stdout;
        assert!(found.contains(r#""path": "data/content""#), "{found}");
        drop(site);
        rig.down().unwrap();
    }
}

/// Returns the hint after another content was found.
fn hint(site: &Site<'_>) -> String {
    let store = site.store().display().to_string();
    format!(
        "synconce: hint: `synconce tree --store {store} verify --content --accept tree` takes the \
         content as it is, if it is right\n"
    )
}

/// Replaces the bytes `from` at the beginning of a block of the disk of `rig`, which is not
/// mounted.
fn replace_on(rig: &Rig, from: &[u8], to: &[u8]) {
    let disk = OpenOptions::new().read(true).write(true).open(rig.device()).unwrap();
    let mut blocks = vec![0; 1 << 20];
    let (mut at, mut found) = (0, 0);
    loop {
        let length = disk.read_at(&mut blocks, at).unwrap();
        if length == 0 {
            break;
        }
        for (number, block) in (0..).zip(blocks[..length].chunks(4096)) {
            if block.starts_with(from) {
                disk.write_all_at(to, at + number * 4096).unwrap();
                found += 1;
            }
        }
        at += length as u64;
    }
    assert!(found > 0, "the content is not on the disk");
    disk.sync_all().unwrap();
}

/// Another program gets the error of the lost write, so that the commit cannot know of it.
fn a_content_that_only_memory_has_is_named(place: &Place) {
    let rig = Rig::builder().size(64 << 20).passthrough(false).up().unwrap();
    let site = site(place, rig.path());
    rig.disk().fail(Fault::writes().holding("these bytes are right")).unwrap();
    write(&site);
    rustix::fs::syncfs(File::open(rig.path()).unwrap()).expect_err("the writes are lost");
    rig.disk().recover().unwrap();
    site.well(&["commit", "tree"]);
    let content = content(&site);
    assert!(fs::read_to_string(&content).unwrap().starts_with("these bytes are right"));
    for said in [TAKEN, ""] {
        let found = site.ends(&["verify", "--content", "tree"]);
        let Finished { status, stderr, .. } = &found;
        assert_eq!(status.code(), Some(1), "{found:?}");
        assert!(stderr.contains(content.to_str().unwrap()) && stderr.ends_with(said), "{found:?}");
    }
    // The first read of ext4 has the error of the write.
    let said = site.ends(&["verify", "--content", "tree"]).stderr;
    assert!(said.contains("has other content than its checksum says"), "{said}");
    drop(site);
    rig.down().unwrap();
}

fn a_content_that_the_disk_cannot_read_is_named(place: &Place) {
    let rig = Rig::builder().size(64 << 20).passthrough(false).up().unwrap();
    let site = site(place, rig.path());
    write(&site);
    site.well(&["commit", "tree"]);
    let content = content(&site);
    let fail = || {
        // What is not content is in memory by then.
        site.well(&["verify", "tree"]);
        rig.disk().fail(Fault::reads()).unwrap();
    };
    site.well(&["verify", "--content", "tree"]);
    fail();
    let found = site.ends(&["verify", "--content", "tree"]);
    let why = format!("cannot read {}: Input/output error", content.display());
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(found.stderr.contains(&why), "{found:?}");
    assert!(!found.stderr.contains("hint: "), "{found:?}");
    let refused = site.ends(&["verify", "--content", "--accept", "tree"]);
    let last = refused.stderr.lines().last().unwrap_or_default();
    let has_words =
        last.starts_with("synconce: cannot accept ") && last.ends_with("Input/output error");
    assert!(refused.status.code() == Some(125) && has_words, "{refused:?}");
    rig.disk().recover().unwrap();
    site.well(&["verify", "--content", "tree"]);
    // No checksums of half a layer are kept.
    let list = content.ancestors().nth(3).unwrap().join("sha256sums");
    fs::remove_file(&list).unwrap();
    let file = File::open(&content).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    drop(file);
    fail();
    let found = site.ends(&["verify", "--content", "tree"]);
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(found.stderr.contains(&why), "{found:?}");
    assert!(!list.exists());
    rig.disk().recover().unwrap();
    site.well(&["verify", "--content", "tree"]);
    assert!(list.exists());
    drop(site);
    rig.down().unwrap();
}

/// The ends of the files are within a sector.
fn a_disk_with_sectors_of_4096_bytes_is_read(place: &Place) {
    for kind in ["ext4", "xfs", "btrfs"] {
        let force = if kind == "ext4" { "-F" } else { "-f" };
        // The unmount detaches the device, also by the end of the test.
        let made = place.bare(&[
            "sh",
            "-ec",
            &format!(
                "mkdir {kind}; truncate -s 512M {kind}.image
                 loop=$(losetup --find --show --sector-size 4096 {kind}.image)
                 trap 'losetup --detach $loop' EXIT
                 mkfs.{kind} -q {force} $loop; mount $loop {kind}"
            ),
        ]);
        assert!(made.status.success(), "{made:?}");
        let site = Site::new(place, &place.path(kind), Some("overlay"));
        site.import("tree", &roots::small(place, &format!("{kind}-source")));
        site.well(&["verify", "--content", "tree"]);
        let trace = verify_traced(&site, &["-e", "trace=read,fcntl"]);
        assert!(trace.contains("O_DIRECT"), "{kind}: {trace}");
        assert!(trace.contains("= 65536\n") && !trace.contains("EINVAL"), "{kind}: {trace}");
        drop(site);
        let unmounted = place.bare(&["umount", kind]);
        assert!(unmounted.status.success(), "{unmounted:?}");
    }
}

/// As by a disk with larger sectors.
fn a_read_past_the_page_cache_that_is_refused_is_made_through_it(place: &Place) {
    let site = Site::plain(place);
    site.import("tree", &roots::small(place, "source"));
    site.well(&["verify", "--content", "tree"]);
    let layer = fs::read_dir(site.store().join("layers")).unwrap().next().unwrap().unwrap();
    let file = layer.path().join("tree/data/file").display().to_string();
    let refuse = "inject=read:error=EINVAL:when=1";
    let trace = verify_traced(&site, &["-e", "trace=read", "-e", refuse, "-P", &file]);
    assert!(trace.contains("(INJECTED)") && trace.contains("= 65536\n"), "{trace}");
}

/// Runs `verify --content` of `tree`, which finds all as it was, and returns what strace(1) wrote.
fn verify_traced(site: &Site<'_>, options: &[&str]) -> String {
    let verify = site.tree(&["verify", "--content", "tree"]);
    let mut strace = site.place.command("strace");
    strace.args(["-f", "-o", "trace"]).args(options);
    strace.arg(verify.get_program()).args(verify.get_args());
    let verified = process::run(&mut strace, limit()).unwrap();
    assert_eq!((verified.status.code(), verified.stderr.as_str()), (Some(0), FROZEN));
    site.place.read("trace")
}

fn a_damaged_list_of_checksums_says_what_a_new_one_has(place: &Place) {
    let source = roots::small(place, "source");
    let site = Site::plain(place);
    site.import("base", &source);
    site.well(&["verify", "--content", "base"]);
    let layer = fs::read_dir(site.store().join("layers")).unwrap().next().unwrap().unwrap();
    let list = layer.path().join("sha256sums");
    fs::write(&list, "none\n").unwrap();
    let found = site.ends(&["verify", "--content", "base"]);
    let path = list.display();
    let said = format!(
        "synconce: cannot use {path}: it is no list of checksums\nsynconce: hint: `rm {path}`, then \
         verify again: the new checksums are of the content by then, with what is wrong in it\n"
    );
    assert_eq!((found.status.code(), found.stderr), (Some(125), said));
    fs::write(&list, "").unwrap();
    let found = site.ends(&["verify", "--content", "base"]);
    let is_named = found.stderr.contains("/tree/data/file has no checksum\n");
    assert!(found.status.code() == Some(1) && is_named, "{found:?}");
}

fn a_store_that_cannot_be_written_to_names_its_mount(place: &Place) {
    let source = roots::small(place, "source");
    let site = Site::plain(place);
    site.import("base", &source);
    let store = site.store();
    let store = store.to_str().unwrap();
    let other = place.text("other");
    fs::create_dir(&other).unwrap();
    for at in [store, &other] {
        for words in [&["mount", "--bind", at, at][..], &["mount", "-o", "remount,bind,ro", at]] {
            assert!(place.bare(words).status.success(), "{words:?}");
        }
    }
    let said = format!(
        "synconce: cannot open {store}/lock: Read-only file system\nsynconce: hint: \
         `findmnt -T {store}` shows the mount; list, log, diff, export, fsck, and verify without \
         --content work without writes\n"
    );
    for words in [&["verify", "--content", "base"][..], &["clone", "base", "new"]] {
        let refused = site.ends(words);
        assert_eq!((refused.status.code(), refused.stderr), (Some(125), said.clone()), "{words:?}");
    }
    for words in ["list", "log base", "diff base base", "export base to", "fsck", "verify base"] {
        site.well(&words.split(' ').collect::<Vec<_>>());
    }
    let again = site.ends(&["init", store]);
    let said = said.replace("cannot open", "cannot write to").replace("/lock: ", ": ");
    assert_eq!((again.status.code(), again.stderr), (Some(125), said));
    // What cannot be written to is no store.
    let to = format!("{other}/new");
    let refused = site.ends(&["init", &to]);
    let said = format!("synconce: cannot create {to}: Read-only file system\n");
    assert_eq!((refused.status.code(), refused.stderr), (Some(125), said));
}

/// As after an error of the disk, which ext4 answers by a read-only mount.
fn a_store_that_turns_read_only_during_a_run_names_its_mount(place: &Place) {
    let source = roots::small(place, "source");
    for words in [&["--from", "base", "--commit", "new"][..], &["work"]] {
        let rig = Rig::builder().size(64 << 20).up().unwrap();
        let site = Site::new(place, rig.path(), None);
        site.import("base", &source);
        site.clone_of("base", "work");
        let run = waiting(&site, words, "true");
        let abort = ["mount", "-o", "remount,abort", rig.path().to_str().unwrap()];
        assert!(place.bare(&abort).status.success());
        place.write("talk/go", "");
        assert_eq!(run.end().code(), Some(125), "{words:?}: {}", run.text());
        let hint = format!("\nsynconce: hint: `findmnt -T {}` shows", site.store().display());
        for said in [": Read-only file system\n", &hint] {
            assert!(run.text().contains(said), "{words:?}: {}", run.text());
        }
        // On the same disk, and outside the store.
        let to = site.fresh("exported");
        let refused = site.ends(&["export", "base", to.to_str().unwrap()]);
        let said = format!("synconce: cannot create {}: Read-only file system\n", to.display());
        assert_eq!((refused.status.code(), refused.stderr), (Some(125), said));
        drop(site);
        rig.down().unwrap();
    }
}

fn commands_at_the_same_time_take_the_same_checksums(place: &Place) {
    let source = roots::small(place, "source");
    let site = Site::plain(place);
    site.import("base", &source);
    let start = || StartedCommand::new(&mut site.tree(&["verify", "--content", "base"]));
    for _ in 0..5 {
        for command in [start(), start(), start(), start()] {
            assert!(command.end().success(), "{}", command.text());
        }
        for layer in fs::read_dir(site.store().join("layers")).unwrap() {
            fs::remove_file(layer.unwrap().path().join("sha256sums")).unwrap();
        }
    }
}
