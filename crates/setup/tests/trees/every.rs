//! Properties that hold for every engine, on every kind of file.

use super::support::{RUNTIME, TestSystem, refusal, there_and_back};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use synconce_setup::Engine;
use synconce_setup::undo::Edits;

const STOCK_CONTAINERD: &str = include_str!("../fixtures/containerd-stock.toml");
const STOCK_PODMAN: &str = include_str!("../fixtures/containers-stock.conf");
const COMMENTED_CONTAINERD: &str = include_str!("../fixtures/containerd-commented.toml");
const COMMENTED_BUILDKIT: &str = include_str!("../fixtures/buildkitd-commented.toml");
const LONG_DOCKER: &str = include_str!("../fixtures/daemon-long.json");

/// An engine, its file, and a version of it.
struct EngineCase {
    engine: Engine,
    path: &'static str,
    printed: &'static str,
    contents: &'static [&'static str],
    broken: &'static str,
}

const KINDS: [EngineCase; 4] = [
    EngineCase {
        engine: Engine::Docker,
        path: "/etc/docker/daemon.json",
        printed: "Docker version 20.10.24+dfsg1, build 5d6db84",
        contents: &["", "{}", " \n", "{\"log-driver\":\"journald\"}", LONG_DOCKER],
        broken: "{\n  \"debug\": true,\n  // no comments\n  \"x\": 1\n}\n",
    },
    EngineCase {
        engine: Engine::Buildkit,
        path: "/etc/buildkit/buildkitd.toml",
        printed: "",
        contents: &["", "debug = true", "# only this\n", COMMENTED_BUILDKIT],
        broken: "debug = true\n\n[worker.oci\n",
    },
    EngineCase {
        engine: Engine::Podman,
        path: "/etc/containers/containers.conf",
        printed: "",
        contents: &["", "[engine]\nruntime=\"runc\"", STOCK_PODMAN],
        broken: "[engine]\n\nruntime crun\n",
    },
    EngineCase {
        engine: Engine::Containerd,
        path: "/etc/containerd/config.toml",
        printed: "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3",
        contents: &["", "version = 2", STOCK_CONTAINERD, COMMENTED_CONTAINERD],
        broken: "version = 2\n\n[plugins\n",
    },
];

impl EngineCase {
    fn tree(&self) -> TestSystem {
        TestSystem::new()
            .program("/usr/bin/dockerd")
            .program("/usr/bin/crun")
            .program("/usr/bin/containerd")
    }
}

#[test]
fn a_set_up_without_a_file_goes_there_once_and_back_to_nothing() {
    for kind in KINDS {
        there_and_back(&kind.tree(), kind.engine, kind.printed);
    }
}

#[test]
fn a_set_up_of_any_file_goes_there_once_and_back_to_the_byte() {
    for kind in KINDS {
        for content in kind.contents {
            for content in [(*content).to_owned(), content.replace('\n', "\r\n")] {
                let tree = kind.tree().with(kind.path, &content).mode(kind.path, 0o640);
                there_and_back(&tree, kind.engine, kind.printed);
            }
        }
    }
}

#[test]
fn an_edit_adds_lines_and_takes_none_away() {
    for kind in KINDS {
        for content in kind.contents.iter().filter(|content| content.ends_with('\n')) {
            let tree = kind.tree().with(kind.path, content);
            tree.set_up(kind.engine, kind.printed).unwrap();
            let after = tree.read(kind.path);
            let mut left = after.lines();
            for line in content.lines().filter(|line| !line.trim().is_empty()) {
                // A member that is no longer the last gets a comma.
                let is_same = |other: &str| {
                    other.strip_suffix(',').unwrap_or(other) == line.trim_end_matches(',')
                };
                assert!(left.any(is_same), "{line:?} is gone from:\n{after}");
            }
        }
    }
}

#[test]
fn lines_that_end_in_carriage_returns_keep_them_and_so_do_new_ones() {
    for kind in KINDS.iter().filter(|kind| kind.engine != Engine::Podman) {
        let content = kind.contents.last().unwrap().replace('\n', "\r\n");
        let tree = kind.tree().with(kind.path, &content);
        tree.set_up(kind.engine, kind.printed).unwrap();
        let after = tree.read(kind.path);
        assert!(after.contains(RUNTIME), "{after}");
        assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{after}");
    }
}

#[test]
fn a_broken_file_is_refused_with_its_line_and_nothing_is_written() {
    for kind in KINDS {
        let tree = kind.tree().with(kind.path, kind.broken);
        let before = tree.snapshot();
        let printed = refusal(tree.set_up(kind.engine, kind.printed));
        assert!(printed.contains(kind.path) && printed.contains(", line 3: "), "{printed}");
        assert_eq!(before, tree.snapshot());
    }
}

#[test]
fn a_file_that_is_no_text_is_refused_with_its_line() {
    for kind in KINDS {
        let tree = kind.tree().with(kind.path, "");
        fs::write(tree.real(kind.path), b"# a\n# b\n# \xff\n").unwrap();
        let printed = refusal(tree.set_up(kind.engine, kind.printed));
        assert!(printed.contains("line 3: is not UTF-8"), "{printed}");
    }
}

#[test]
fn a_file_behind_a_link_is_edited_and_the_link_stays() {
    for kind in KINDS.iter().filter(|kind| kind.engine != Engine::Podman) {
        // Absolute and relative targets resolve below this root, never to the host's own
        // files.
        for target in ["/srv/config", "../../srv/config"] {
            let content = kind.contents.last().unwrap();
            let tree = kind.tree().with("/srv/config", content).link(target, kind.path);
            there_and_back(&tree, kind.engine, kind.printed);
            tree.set_up(kind.engine, kind.printed).unwrap();
            assert!(tree.read("/srv/config").contains(RUNTIME));
            assert!(fs::symlink_metadata(tree.real(kind.path)).unwrap().is_symlink());
        }
    }
}

#[test]
fn a_link_to_nothing_has_its_file_made_and_taken_away() {
    for kind in KINDS.iter().filter(|kind| kind.engine != Engine::Podman) {
        let tree = kind.tree().link("/srv/none/config", kind.path);
        there_and_back(&tree, kind.engine, kind.printed);
    }
}

#[test]
fn a_loop_of_links_is_an_error() {
    let tree = TestSystem::new().link("/etc/docker/daemon.json", "/etc/docker/daemon.json");
    let error = tree.set_up(Engine::Docker, "").unwrap_err().to_string();
    assert!(
        error.contains("cannot follow") && error.contains("Too many levels of symbolic links"),
        "{error}"
    );
}

#[test]
fn the_mode_and_owner_of_a_file_outlive_the_edit_and_the_undo() {
    let path = "/etc/docker/daemon.json";
    let tree = TestSystem::new().with(path, "{}\n").mode(path, 0o604);
    let owned = chown(tree.real(path), Some(1234), Some(2345)).is_ok();
    let before = tree.snapshot();
    tree.set_up(Engine::Docker, "").unwrap();
    let metadata = fs::metadata(tree.real(path)).unwrap();
    assert_eq!(metadata.mode() & 0o7777, 0o604);
    if owned {
        assert_eq!((metadata.uid(), metadata.gid()), (1234, 2345));
    }
    tree.undo(Engine::Docker, Edits::Refuse).unwrap();
    assert_eq!(before, tree.snapshot());
}

#[test]
fn extended_attributes_of_a_file_outlive_the_edit() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let path = "/etc/docker/daemon.json";
    let tree = TestSystem::new().with(path, "{}\n");
    let real = tree.real(path);
    if let Err(error) = setxattr(&real, "user.note", b"mine", XattrFlags::empty()) {
        println!("skipped: {} takes no attributes: {error}", real.display());
        return;
    }
    tree.set_up(Engine::Docker, "").unwrap();
    let mut value = [0_u8; 16];
    let length = getxattr(&real, "user.note", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"mine");
}

#[test]
fn without_synconce_oci_nothing_is_set_up() {
    for kind in KINDS {
        let tree = kind.tree();
        fs::remove_file(tree.real(RUNTIME)).unwrap();
        let printed = refusal(tree.set_up(kind.engine, kind.printed));
        assert!(printed.contains("synconce-oci: is no executable file"), "{printed}");
    }
}

#[test]
fn a_plan_writes_nothing() {
    for kind in KINDS {
        let tree = kind.tree().with(kind.path, kind.contents.last().unwrap());
        let before = tree.snapshot();
        assert!(!tree.plan(kind.engine, kind.printed).unwrap().changes.is_empty());
        assert_eq!(before, tree.snapshot());
    }
}

#[test]
fn engines_that_share_a_state_directory_are_undone_apart() {
    let tree = KINDS[0].tree();
    let before = tree.snapshot();
    let set_up = || {
        for kind in KINDS {
            tree.set_up(kind.engine, kind.printed).unwrap();
        }
    };
    let undo =
        |kind: &EngineCase| assert!(tree.undo(kind.engine, Edits::Refuse).unwrap().is_some());
    set_up();
    KINDS.iter().rev().for_each(undo);
    assert_eq!(before, tree.snapshot());
    set_up();
    KINDS.iter().for_each(undo);
    assert_eq!(before, tree.snapshot());
}
