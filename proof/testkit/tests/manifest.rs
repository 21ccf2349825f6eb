//! A manifest contains every difference that a program could observe, and no other.
//!
//! Needs root, for owners and device nodes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, XattrFlags, lsetxattr, makedev, mknodat};
use synconce_testkit::manifest::{FileKind, Manifest, ManifestOptions, diff};
use tempfile::TempDir;

/// Makes a tree with every kind of entry.
fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::create_dir_all(root.join("etc/deep")).unwrap();
    fs::write(root.join("etc/passwd"), "root").unwrap();
    fs::write(root.join("etc/empty"), "").unwrap();
    fs::hard_link(root.join("etc/passwd"), root.join("etc/deep/same")).unwrap();
    symlink("passwd", root.join("etc/link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    mknodat(CWD, root.join("null"), FileType::CharacterDevice, Mode::from(0o666), makedev(1, 3))
        .unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    drop(UnixListener::bind(root.join("socket")).unwrap());
    lsetxattr(root.join("etc/passwd"), "trusted.synconce", b"a\xff", XattrFlags::empty()).unwrap();
    chown(root.join("etc/passwd"), Some(7), Some(8)).unwrap();
    dir
}

/// Returns the differences after a change to one of two equal trees, as text.
fn after(change: impl Fn(&Path)) -> Vec<String> {
    let (first, second) = (tree(), tree());
    change(second.path());
    let differences = diff(&Manifest::read(&first).unwrap(), &Manifest::read(&second).unwrap());
    differences.iter().map(ToString::to_string).collect()
}

#[test]
fn equal_trees_are_identical_though_made_at_different_times() {
    assert_eq!(after(|_| ()), [""; 0]);
}

#[test]
fn every_kind_is_distinguished_and_special_files_are_not_read() {
    let tree = tree();
    let manifest = Manifest::read(&tree).unwrap();
    let kind = |path: &str| manifest.entries[path].kind;
    assert_eq!(
        [kind("."), kind("etc/deep"), kind("etc/passwd")],
        [FileKind::Directory, FileKind::Directory, FileKind::File]
    );
    assert_eq!(
        [kind("null"), kind("fifo"), kind("socket")],
        [FileKind::CharDevice, FileKind::Fifo, FileKind::Socket]
    );
    assert_eq!(kind("dangling"), FileKind::Symlink);
    assert_eq!(manifest.entries["null"].rdev, Some((1, 3)));
    let file = &manifest.entries["etc/passwd"];
    assert_eq!((file.uid, file.gid, file.size), (7, 8, Some(4)));
    assert_eq!(file.xattrs["trusted.synconce"], r"a\xff");
    assert_eq!(file.links.as_deref(), Some("etc/deep/same"));
    let sha256_of_root = "4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2";
    assert_eq!(file.sha256.as_deref(), Some(sha256_of_root));
    assert!(manifest.entries.values().all(|entry| entry.unreadable.is_none()));
}

#[test]
fn different_content_of_the_same_length_is_found() {
    let shown = after(|root| fs::write(root.join("etc/passwd"), "toor").unwrap());
    assert_eq!(shown.len(), 2, "{shown:?}"); // by both of its names
    assert!(shown.iter().all(|line| line.contains("content")), "{shown:?}");
}

#[test]
fn an_emptied_file_is_named_with_its_size() {
    let shown = after(|root| fs::write(root.join("etc/passwd"), "").unwrap());
    assert!(shown.contains(&"etc/passwd: size 4 against 0".to_owned()), "{shown:?}");
}

#[test]
fn modes_with_set_id_bits_and_owners_are_compared() {
    let shown = after(|root| {
        fs::set_permissions(root.join("etc/empty"), fs::Permissions::from_mode(0o4755)).unwrap();
        chown(root.join("etc/deep"), Some(1), None).unwrap();
        std::os::unix::fs::lchown(root.join("dangling"), Some(2), None).unwrap();
    });
    let expected = [
        "dangling: owner 0:0 against 2:0",
        "etc/deep: owner 0:0 against 1:0",
        "etc/empty: mode 0644 against 4755",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_copy_in_place_of_a_hard_link_is_a_difference() {
    let shown = after(|root| {
        fs::rename(root.join("etc/deep/same"), root.join("etc/deep/old")).unwrap();
        fs::copy(root.join("etc/deep/old"), root.join("etc/deep/same")).unwrap();
        chown(root.join("etc/deep/same"), Some(7), Some(8)).unwrap();
        lsetxattr(root.join("etc/deep/same"), "trusted.synconce", b"a\xff", XattrFlags::empty())
            .unwrap();
        fs::remove_file(root.join("etc/deep/old")).unwrap();
    });
    assert!(
        shown.contains(&"etc/passwd: hard link of etc/deep/same against nothing".to_owned()),
        "{shown:?}"
    );
}

#[test]
fn targets_attributes_devices_and_kinds_are_compared() {
    let shown = after(|root| {
        fs::remove_file(root.join("dangling")).unwrap();
        symlink("/elsewhere", root.join("dangling")).unwrap();
        lsetxattr(root.join("etc/empty"), "user.new", b"1", XattrFlags::empty()).unwrap();
        fs::remove_file(root.join("null")).unwrap();
        mknodat(
            CWD,
            root.join("null"),
            FileType::CharacterDevice,
            Mode::from(0o666),
            makedev(1, 5),
        )
        .unwrap();
        fs::remove_file(root.join("fifo")).unwrap();
        fs::create_dir(root.join("fifo")).unwrap();
    });
    let expected = [
        "dangling: link target /nowhere against /elsewhere",
        "etc/empty: attribute user.new nothing against 1",
        "fifo: kind named pipe against directory",
        "null: device number 1:3 against 1:5",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn missing_and_added_paths_are_named() {
    let shown = after(|root| fs::rename(root.join("etc/empty"), root.join("etc/renamed")).unwrap());
    assert_eq!(shown, ["etc/empty: only in the first", "etc/renamed: only in the second"]);
}

#[test]
fn times_are_compared_only_if_both_have_them() {
    let (first, second) = (tree(), tree());
    let file = fs::File::options().write(true).open(second.path().join("etc/empty")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let timed =
        |tree: &TempDir| Manifest::with(tree, &ManifestOptions::default().mtimes()).unwrap();
    let shown: Vec<String> =
        diff(&timed(&first), &timed(&second)).iter().map(ToString::to_string).collect();
    assert!(shown.iter().any(|line| line.starts_with("etc/empty: time of change")), "{shown:?}");
    assert!(diff(&timed(&first), &Manifest::read(&second).unwrap()).is_empty());
}

#[test]
fn ignored_paths_are_left_out_with_all_below_them() {
    let tree = tree();
    let options = ManifestOptions::default().ignore("etc/d*").unwrap().ignore("**/passwd").unwrap();
    let manifest = Manifest::with(&tree, &options).unwrap();
    assert!(!manifest.entries.contains_key("etc/deep/same"));
    assert!(!manifest.entries.contains_key("etc/passwd"));
    assert!(manifest.entries.contains_key("etc/link"));
    let later = Manifest::read(&tree).unwrap().without_ignored(&options);
    assert!(later.entries.keys().eq(manifest.entries.keys()));
    assert!(ManifestOptions::default().ignore("[").is_err());
}

#[test]
fn names_that_are_not_text_survive_json() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"a\xff\n")), "").unwrap();
    let manifest = Manifest::read(&dir).unwrap();
    assert!(manifest.entries.contains_key(r"a\xff\n"), "{manifest:?}");
    let json = serde_json::to_string(&manifest).unwrap();
    assert_eq!(serde_json::from_str::<Manifest>(&json).unwrap(), manifest);
}

#[test]
fn a_path_longer_than_the_kernel_takes_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let name = "d".repeat(250);
    let script =
        format!("for i in $(seq 20); do mkdir {name} && cd -P {name}; done; echo deep > file");
    assert!(Command::new("sh").args(["-c", &script]).current_dir(&dir).status().unwrap().success());
    let manifest = Manifest::read(&dir).unwrap();
    let file =
        manifest.entries.iter().find(|(path, _)| path.ends_with("/file")).expect("it is found");
    assert!(file.0.len() > 5000);
    assert_eq!(file.1.size, Some(5));
    assert_eq!(file.1.unreadable, None);
}

#[test]
fn mounts_are_named_and_not_entered() {
    let tree = tree();
    let script = "mount -t tmpfs none etc/deep && echo > etc/deep/hidden && exec \"$0\" of .";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_manifest")])
        .current_dir(&tree);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let manifest: Manifest = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(manifest.entries["etc/deep"].kind, FileKind::Mount);
    assert!(!manifest.entries.contains_key("etc/deep/hidden"));
}

#[test]
fn the_exit_codes_of_the_program_are_those_of_diff() {
    let (first, second) = (tree(), tree());
    let run = |arguments: &[&Path]| {
        let output = Command::new(env!("CARGO_BIN_EXE_manifest"))
            .arg("diff")
            .args(arguments)
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run(&[first.path(), second.path()]), (0, String::new()));
    fs::remove_file(second.path().join("fifo")).unwrap();
    assert_eq!(run(&[first.path(), second.path()]), (1, "fifo: only in the first\n".to_owned()));
    let ignoring = [first.path(), second.path(), Path::new("--ignore"), Path::new("fifo")];
    assert_eq!(run(&ignoring), (0, String::new()));
    assert_eq!(run(&[first.path(), Path::new("/no/such")]).0, 2);
}
