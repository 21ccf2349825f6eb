use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn names(directory: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_file_that_is_there_is_not_created_over_and_nothing_is_left_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    fs::write(&path, "old").unwrap();
    let error = create(&path, b"new", Rights::common()).unwrap_err().to_string();
    assert!(error.starts_with("cannot create ") && error.ends_with(": File exists"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(directory.path()), ["a"]);
}

#[test]
fn a_file_that_is_not_there_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    assert!(
        replace(&path, b"new").unwrap_err().to_string().ends_with(": No such file or directory")
    );
    assert!(names(directory.path()).is_empty());
}

#[test]
fn what_a_crash_left_is_written_over_or_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    let left = directory.path().join(".a.synconce-new");
    fs::write(&left, "half").unwrap();
    create(&path, b"new", Rights::common()).unwrap();
    assert_eq!(names(directory.path()), ["a"]);
    fs::write(&left, "half").unwrap();
    replace(&path, b"newer").unwrap();
    assert_eq!(
        (names(directory.path()), fs::read(&path).unwrap()),
        (vec!["a".into()], b"newer".into())
    );
    fs::write(&left, "half").unwrap();
    remove_unfinished(&path).unwrap();
    assert_eq!(names(directory.path()), ["a"]);
}

#[test]
fn the_mode_is_what_was_said_or_what_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    create(&path, b"", Rights { mode: 0o666, ..Rights::common() }).unwrap();
    assert_eq!(mode(&path), 0o666, "whatever the umask is");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).unwrap();
    replace(&path, b"new").unwrap();
    assert_eq!(mode(&path), 0o4755);
}

#[test]
fn extended_attributes_and_capabilities_stay() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    fs::write(&path, "old").unwrap();
    // CAP_NET_RAW, permitted and effective, in version 2 (linux/capability.h).
    let capability: Vec<u8> =
        [0x0200_0001, 1 << 13, 0, 0, 0_u32].iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut attributes = vec![("user.synconce", &b"value"[..])];
    if rustix::process::geteuid().is_root() {
        attributes.push(("security.capability", &capability));
    }
    for (name, value) in &attributes {
        rustix::fs::setxattr(&path, *name, value, XattrFlags::empty()).unwrap();
    }
    replace(&path, b"new").unwrap();
    for (name, value) in attributes {
        let mut found = [0; 64];
        let length = rustix::fs::getxattr(&path, name, &mut found).unwrap();
        assert_eq!(&found[..length], value, "{name}");
    }
}

#[test]
fn directories_are_made_one_by_one_and_removed_only_when_empty() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/c");
    let missing = missing_above(&path);
    assert_eq!(missing, [directory.path().join("a"), directory.path().join("a/b")]);
    for missing in &missing {
        make_directory(missing).unwrap();
        make_directory(missing).unwrap();
        assert_eq!(mode(missing), 0o755);
    }
    link(Path::new("/nowhere"), &path).unwrap();
    remove_directory_if_empty(&missing[1]).unwrap();
    assert_eq!(fs::read_link(&path).unwrap(), Path::new("/nowhere"));
    remove(&path).unwrap();
    remove(&path).unwrap();
    for missing in missing.iter().rev() {
        remove_directory_if_empty(missing).unwrap();
        remove_directory_if_empty(missing).unwrap();
    }
    assert!(names(directory.path()).is_empty());
}
