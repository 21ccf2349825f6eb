//! Stores are made or refused, and records are replaced.

use crate::check::fsck;
use crate::gc::gc;
use crate::import::{ImportReport, import};
use crate::init::init;
use crate::layer::layers;
use crate::overlay::Features;
use crate::record::{FORMAT, Layer, LayerContent, Purpose, Session, TreeName, TreeRecord};
use crate::recover::recover;
use crate::store::{DIRECTORIES, LAYERS, Opened, Store};
use crate::strategy::Strategy;
use crate::trash::has_trash;
use crate::unneeded::drop_unreferenced;
use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use synconce_durable::error::Error;
use synconce_fs::Progress;

/// Content without whiteouts.
pub(crate) struct Plain;

impl ImportReport for Plain {
    fn has_whiteouts(&self) -> bool {
        false
    }
}

fn name(text: &str) -> TreeName {
    text.parse().expect("a good name")
}

fn record(of: &str, generation: u64, layers: &[&str]) -> TreeRecord {
    let layer = |id: &&str| Layer { id: (*id).to_owned(), content: LayerContent::Whole };
    TreeRecord {
        format: FORMAT,
        name: name(of),
        generation,
        layers: layers.iter().map(layer).collect(),
        strategy: Strategy::Copy,
        reason: String::new(),
        parent: None,
        made: 1,
        protected: false,
        keep: 0,
        kept: Vec::new(),
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = init(directory.path()).expect("a store");
    (directory, store)
}

#[test]
fn a_store_is_made_once_and_only_where_nothing_else_is() {
    let (directory, _) = store();
    init(directory.path()).expect("one that is there stays");
    let other = tempfile::tempdir().expect("a directory");
    let kind = |result: Result<Store, Error>| result.expect_err("it is refused").io().kind();
    assert_eq!(kind(Store::open(other.path())), ErrorKind::NotFound);
    fs::write(other.path().join("mine"), "x").expect("a file");
    assert_eq!(kind(init(other.path())), ErrorKind::DirectoryNotEmpty);
    assert_eq!(fs::read_dir(other.path()).expect("it can be read").count(), 1);
}

#[test]
fn a_making_that_was_cut_short_is_taken_up_again() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join(LAYERS)).expect("a directory");
    fs::write(directory.path().join(".store.json.synconce-new"), "{").expect("a file");
    init(directory.path()).expect("a store");
}

#[test]
fn nobody_else_can_enter_what_is_in_a_store() {
    let (directory, _) = store();
    for one in DIRECTORIES {
        let metadata = fs::metadata(directory.path().join(one)).expect("it is there");
        assert_eq!(metadata.mode() & 0o777, 0o700, "{one}");
    }
}

#[test]
fn a_record_is_replaced_and_a_broken_one_is_named_and_not_passed_over() {
    let (directory, store) = store();
    store.write(&record("a", 1, &["x"])).expect("it is written");
    store.write(&record("a", 2, &["y"])).expect("it is replaced");
    assert_eq!(store.record(&name("a")).expect("it is read"), Some(record("a", 2, &["y"])));
    fs::write(directory.path().join("trees/b.json"), "{").expect("a file");
    let (records, broken) = store.records().expect("they are read");
    assert_eq!(records.len(), 1);
    assert!(broken[0].to_string().contains("b.json"), "{}", broken[0]);
    assert!(drop_unreferenced(&store, &["z".to_owned()]).is_err(), "b may need it");
}

#[test]
fn an_open_tree_whose_record_cannot_be_read_keeps_its_changes_and_no_other_tree_from_use() {
    let (directory, store) = store();
    let one = record("a", 1, &["x"]);
    for id in ["x", "new"] {
        fs::create_dir_all(store.content(id)).expect("a layer");
    }
    store.write(&one).expect("it is written");
    store.write(&record("b", 1, &["x"])).expect("it is written");
    let changed = record("a", 1, &["x", "new"]).layers;
    let began = store.boot_epoch().expect("there is one");
    store.note_open(&one, changed.clone(), &began).expect("it is noted");
    // Leftovers make the recovery due.
    let leftovers = ["sessions/.cut", "sessions/one"].map(|name| directory.path().join(name));
    for path in &leftovers {
        fs::create_dir(path).expect("a directory");
    }
    let path = directory.path().join("trees/a.json");
    let text = fs::read(&path).expect("the record");
    fs::write(&path, "{").expect("damage");
    for _ in 0..2 {
        assert!(recover(&store).expect("b can be used").lost.is_empty());
    }
    assert!(leftovers.iter().all(|path| !path.exists()));
    fs::write(&path, text).expect("the record is repaired");
    assert_eq!(store.opened(&one).expect("it is read"), Opened::Yes(changed));
}

#[test]
fn an_interrupted_session_is_reported_beside_a_record_that_cannot_be_read() {
    let (directory, store) = store();
    store.write(&record("a", 1, &["committed"])).expect("it is written");
    fs::write(directory.path().join("trees/damaged.json"), "{").expect("damage");
    for id in ["committed", "frozen", "copied"] {
        let note = Session {
            format: FORMAT,
            tree: None,
            from: id.to_owned(),
            generation: None,
            layers: Vec::new(),
            strategy: Strategy::Copy,
            features: Features::default(),
            purpose: Purpose::Run,
            pid: 1,
            began: 1,
            boot_epoch: store.boot_epoch().expect("there is one"),
        };
        let path = directory.path().join("sessions").join(id);
        fs::create_dir(&path).expect("a session");
        let text = serde_json::to_vec(&note).expect("a note");
        fs::write(path.join("session.json"), text).expect("a note");
        if id != "copied" {
            fs::create_dir(store.layer(id)).expect("a layer");
        }
    }
    let interrupted = recover(&store).expect("it is recovered").interrupted;
    let mut from: Vec<_> = interrupted.into_iter().map(|one| one.from).collect();
    from.sort();
    assert_eq!(from, ["copied", "frozen"]);
    // The damaged tree may need it.
    assert!(store.layer("frozen").exists());
}

#[test]
fn a_layer_that_nobody_refers_to_goes_to_the_trash_and_others_stay() {
    let (_directory, store) = store();
    let [kept, dropped] = ["a", "d"].map(|digit| digit.repeat(16));
    for id in [&kept, &dropped] {
        fs::create_dir(store.layer(id)).expect("a directory");
    }
    store.write(&record("a", 1, &[&kept])).expect("it is written");
    let dropped = gc(&store).expect("it is swept").layers;
    assert_eq!(dropped, 1);
    assert_eq!(layers(&store).expect("they are read"), (vec![kept], Vec::new()));
    assert!(has_trash(&store).expect("it is read"));
}

#[test]
fn no_layer_goes_while_the_note_of_a_session_is_of_another_version_or_cannot_be_read() {
    let (directory, store) = store();
    let (layer, session) = (store.layer("old"), directory.path().join("sessions/one"));
    let dropped = || drop_unreferenced(&store, &["old".to_owned()]);
    fs::create_dir_all(&layer).expect("a layer");
    fs::create_dir(&session).expect("a session");
    let note = session.join("session.json");
    fs::write(&note, r#"{"format": 9}"#).expect("a note of a later version");
    dropped().expect_err("its layers are not known");
    fs::remove_file(&note).expect("the note");
    // A read of a directory fails, like that of a bad sector.
    fs::create_dir(&note).expect("a note that cannot be read");
    dropped().expect_err("its layers are not known");
    fs::remove_dir(&note).expect("the note");
    fs::write(&note, r#"{"format""#).expect("a note that a crash cut");
    assert_eq!(dropped().expect("the session ended with the crash"), 1);
    assert!(!layer.exists());
}

#[test]
fn what_was_done_in_another_era_is_lost_and_to_another_generation_is_committed() {
    let (directory, store) = store();
    let began = store.boot_epoch().expect("there is one");
    let one = record("a", 1, &["x"]);
    fs::create_dir_all(store.content("x")).expect("a directory");
    store.write(&one).expect("it is written");
    store.note_open(&one, one.layers.clone(), &began).expect("it is noted");
    assert_eq!(store.opened(&one).expect("it is read"), Opened::Yes(one.layers.clone()));
    assert_eq!(store.opened(&record("a", 2, &["x"])).expect("it is read"), Opened::Stale);
    let path = directory.path().join("open/a.json");
    let text = fs::read_to_string(&path).expect("it is read");
    let boot = &began.boot;
    fs::write(&path, text.replace(boot, "another")).expect("it is written");
    assert_eq!(store.opened(&one).expect("it is read"), Opened::Lost);
    // ext4 leaves such a file after a power failure, when the content was not written yet.
    fs::write(&path, "").expect("it is written");
    assert_eq!(store.opened(&one).expect("it is read"), Opened::Lost);
    let recovered = recover(&store).expect("it recovers");
    assert_eq!(recovered.lost[0].tree, one.name);
    assert!(recovered.lost[0].missing.is_none());
    assert!(recover(&store).expect("it recovers").lost.is_empty(), "it is said once");
    store.note_open(&one, one.layers.clone(), &began).expect("it is noted");
    fs::remove_dir_all(store.layer("x")).expect("it is removed");
    let recovered = recover(&store).expect("it recovers");
    assert_eq!(recovered.lost[0].missing, Some(store.content("x")), "the machine did not stop");
}

#[test]
fn a_note_of_what_was_committed_or_removed_since_is_no_loss() {
    let (directory, store) = store();
    let began = store.boot_epoch().expect("there is one");
    let one = record("a", 1, &["x"]);
    fs::create_dir_all(store.content("x")).expect("a directory");
    for gone in [false, true] {
        store.write(&one).expect("it is written");
        store.note_open(&one, one.layers.clone(), &began).expect("it is noted");
        let path = directory.path().join("open/a.json");
        let note = fs::read(&path).expect("it is read");
        if gone {
            store.forget(&one.name).expect("it is removed");
        } else {
            store.write(&record("a", 2, &["x"])).expect("it is written");
        }
        fs::write(&path, note).expect("as a cut brings it back");
        assert!(recover(&store).expect("it recovers").lost.is_empty());
        assert!(!path.exists(), "it is not looked at again");
    }
}

#[test]
fn what_a_cut_commit_has_saved_as_another_tree_is_no_loss() {
    let (directory, store) = store();
    let began = store.boot_epoch().expect("there is one");
    let one = record("a", 1, &["x"]);
    let saved = record("b", 1, &["x", "y"]);
    for committed in [false, true] {
        store.write(&one).expect("it is written");
        store.note_open(&one, saved.layers.clone(), &began).expect("it is noted");
        let path = directory.path().join("open/a.json");
        let note = fs::read_to_string(&path).expect("it is read");
        let boot = &began.boot;
        fs::write(&path, note.replace(boot, "another")).expect("it is written");
        if committed {
            store.write(&saved).expect("it is written");
        }
        let lost = recover(&store).expect("it recovers").lost;
        assert_eq!(lost.len(), usize::from(!committed), "{lost:?}");
        assert!(!path.exists());
    }
}

#[test]
fn an_fsck_that_is_cancelled_takes_no_layer_for_damaged_and_keeps_what_it_found() {
    struct Cancelled;
    impl Progress for Cancelled {
        fn add(&self, _: u64, _: u64) {}
        fn cancelled(&self) -> bool {
            true
        }
    }
    let (directory, store) = store();
    let fill = |whole: BorrowedFd<'_>| {
        for entry in 0..200 {
            mkdirat(whole, entry.to_string(), Mode::RWXU).expect("a directory");
        }
        Ok(Plain)
    };
    import(&store, &name("a"), Some(Strategy::Copy), &(), fill).expect("imported");
    let mut faults = Vec::new();
    fsck(&store, &mut faults, &()).expect("it looks at all");
    assert!(faults.is_empty(), "{faults:?}");
    fs::write(directory.path().join("trees/0.json"), "no record").expect("written");
    let error = fsck(&store, &mut faults, &Cancelled).expect_err("it is cancelled");
    assert_eq!(error.io().raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
    assert_eq!(faults.len(), 1, "{faults:?}");
}

#[test]
fn a_record_or_note_that_a_kill_left_half_written_is_swept() {
    let (directory, store) = store();
    let left =
        ["trees/.a.json.synconce-new", "open/.a.json"].map(|name| directory.path().join(name));
    for path in &left {
        fs::write(path, "{").expect("a file");
    }
    gc(&store).expect("it is swept");
    assert!(left.iter().all(|path| !path.exists()));
}
