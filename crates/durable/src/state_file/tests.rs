//! Tests of files with a temporary name, which file systems without O_TMPFILE need, and of the
//! kinds of files that are opened.

use super::*;
use rustix::fs::{CWD, mknodat};
use std::fs;
use std::sync::Barrier;
use std::thread;

fn part(text: &str) -> StatePart {
    let mode = Mode::RUSR | Mode::WUSR;
    StatePart { name: "file".to_owned(), text: text.as_bytes().to_vec(), mode }
}

fn write(directory: &OwnedFd, text: &str) -> io::Result<Unnamed> {
    Unnamed::with_temporary_name(directory, &part(text))
}

#[test]
fn a_file_of_a_killed_writer_is_replaced_and_one_of_a_living_writer_is_not() {
    let place = tempfile::tempdir().unwrap();
    let directory = open_directory(place.path()).unwrap();
    let temporary = place.path().join(".file.new");
    // A killed writer had no time to remove the file. Its lock has gone.
    fs::write(&temporary, "half").unwrap();
    let new = write(&directory, "whole").unwrap();
    // The writer lives.
    let refused = write(&directory, "other").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    new.give_name(&directory, &directory, "file").unwrap();
    assert_eq!(fs::read_to_string(place.path().join("file")).unwrap(), "whole");
    assert!(!temporary.exists());
}

/// After this error the registry takes another name (`point_to`). In a directory with the sticky
/// bit any file of another user can stand at the name.
#[test]
fn a_temporary_name_that_is_taken_by_anything_else_is_said_to_exist() {
    let place = tempfile::tempdir().unwrap();
    let directory = open_directory(place.path()).unwrap();
    let temporary = place.path().join(".file.new");
    fs::create_dir(&temporary).unwrap();
    assert_eq!(write(&directory, "x").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    fs::remove_dir(&temporary).unwrap();
    std::os::unix::fs::symlink("/nowhere", &temporary).unwrap();
    assert_eq!(write(&directory, "x").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn writers_at_the_same_time_never_name_a_file_of_another() {
    let place = tempfile::tempdir().unwrap();
    let (rounds, writers) = (300, 4);
    let barrier = Barrier::new(writers);
    let named = |number: usize| {
        let directory = open_directory(place.path()).unwrap();
        let mut count = 0;
        for round in 0..rounds {
            barrier.wait();
            if number == 0 {
                // Fails while a writer has a file of that name.
                let _ = File::create_new(place.path().join(".file.new"));
            }
            let name = format!("{round}-{number}");
            if let Ok(new) = write(&directory, &name)
                && new.give_name(&directory, &directory, &name).is_ok()
            {
                count += 1;
            }
        }
        count
    };
    let total: usize = thread::scope(|scope| {
        let all: Vec<_> = (0..writers)
            .map(|number| {
                let named = &named;
                scope.spawn(move || named(number))
            })
            .collect();
        all.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    let entries = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap());
    let mut found = 0;
    for entry in entries.filter(|entry| entry.file_name() != ".file.new") {
        let text = fs::read_to_string(entry.path()).unwrap();
        assert_eq!(text, entry.file_name().to_str().unwrap());
        found += 1;
    }
    assert!(found == total && total >= rounds / 2, "{found} {total}");
}

#[test]
fn only_a_regular_file_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let (file, fifo) = (directory.path().join("file"), directory.path().join("fifo"));
    fs::write(&file, "x").unwrap();
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(content(&open(&file).unwrap()).unwrap(), b"x");
    for (path, errno) in [(fifo.as_path(), Errno::NODEV), (Path::new("/dev/null"), Errno::NODEV)] {
        assert_eq!(open(path).err(), Some(errno), "{}", path.display());
    }
    assert_eq!(open(directory.path()).err(), Some(Errno::ISDIR));
}
