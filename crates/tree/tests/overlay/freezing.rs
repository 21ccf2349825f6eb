//! A frozen layer shows the same as the clone that it was made from.

use crate::support::{
    AttachedOverlay, all_opened, borrowed, directory, frozen_is_the_same, isolated, on_every_disk,
    opened, path_of, sh,
};
use std::collections::HashSet;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use synconce_tree::overlay::{self, Features, XattrNamespace};

const WHOLE: &str = "mkdir -p a b c/deep p/q && echo old >a/x && ln a/x b/y && ln a/x c/deep/z && \
     ln -s target a/s && ln -P a/s b/s && mknod a/fifo p && ln a/fifo c/fifo && \
     echo alone >p/q/alone && echo m >p/meta && ln p/meta p/q/meta";

fn whole(place: &Path) -> PathBuf {
    let whole = directory(place.join("whole"));
    sh(&whole, WHOLE);
    whole
}

/// Returns the inodes and contents of the names in the read-only stack.
fn looked_at(stack: &[PathBuf], names: &[&str]) -> HashSet<(u64, String)> {
    let lowers = all_opened(stack);
    let mount = overlay::read_only(&borrowed(&lowers), XattrNamespace::Trusted).expect("a stack");
    let look = |name: &&str| {
        let path = path_of(&mount).join(name);
        let content = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        (fs::metadata(path).unwrap().ino(), content)
    };
    names.iter().map(look).collect()
}

fn one(stack: &[PathBuf], names: &[&str], content: &str) {
    let seen = looked_at(stack, names);
    assert!(seen.len() == 1 && seen.iter().all(|(_, text)| text == content), "{names:?}: {seen:?}");
}

fn after(script: &str, check: impl Fn(&[PathBuf])) {
    on_every_disk(|_, place| {
        let stack = frozen_is_the_same(place, "s", &[whole(place)], script);
        check(&stack);
    });
}

#[test]
fn without_the_freeze_the_other_names_would_be_the_old_file() {
    isolated(|| {
        on_every_disk(|_, place| {
            let whole = whole(place);
            let session = AttachedOverlay::begin(
                place,
                "s",
                std::slice::from_ref(&whole),
                Features::PRIVILEGED,
            );
            sh(&session.root, "echo new >a/x");
            let upper = session.upper.clone();
            session.unmount();
            let seen = looked_at(&[upper, whole], &["a/x", "b/y", "c/deep/z"]);
            assert_eq!(seen.len(), 2, "the kernel keeps them together now: {seen:?}");
        });
    });
}

#[test]
fn every_name_of_a_file_that_was_written_to_by_one_is_the_new_file() {
    isolated(|| {
        after("echo new >a/x", |stack| {
            one(stack, &["a/x", "b/y", "c/deep/z"], "new\n");
            let links = fs::metadata(stack[0].join("a/x")).unwrap().nlink();
            assert_eq!(links, 3, "the index's own link is gone with the work directory");
        });
    });
}

#[test]
fn names_below_a_renamed_directory_are_linked() {
    isolated(|| {
        after("mv c moved && echo new >a/x && mv moved/deep deep", |stack| {
            one(stack, &["a/x", "b/y", "deep/z"], "new\n");
        });
    });
}

#[test]
fn symbolic_links_and_pipes_with_several_names_are_linked() {
    isolated(|| {
        let script = "chown -h 7:8 a/s && chmod 600 a/fifo && touch -h -d @5.25 b/s";
        after(script, |stack| {
            let owners = ["a/s", "b/s"].map(|name| {
                let data = fs::symlink_metadata(stack[0].join(name)).unwrap();
                (data.uid(), data.ino())
            });
            assert!(owners[0] == owners[1] && owners[0].0 == 7, "{owners:?}");
        });
    });
}

#[test]
fn the_names_left_of_a_file_whose_used_name_was_deleted_are_the_new_file() {
    isolated(|| {
        after("echo new >a/x && rm a/x", |stack| one(stack, &["b/y", "c/deep/z"], "new\n"));
    });
}

#[test]
fn the_last_name_left_is_the_new_file() {
    isolated(|| {
        after("echo new >a/x && rm a/x c/deep/z", |stack| one(stack, &["b/y"], "new\n"));
    });
}

#[test]
fn new_names_of_an_old_file_are_one_with_the_old_ones() {
    isolated(|| {
        after("ln b/y new && echo new >new && rm c/deep/z && ln a/x c/deep/z", |stack| {
            one(stack, &["a/x", "b/y", "c/deep/z", "new"], "new\n");
        });
    });
}

#[test]
fn files_whose_content_is_still_below_keep_it() {
    isolated(|| {
        let script = "chmod 640 p/meta && chown 3:4 p/q/alone && mv p/q/alone p/renamed && \
                      mv p P && ln P/renamed linked && setfattr -n user.k -v v linked";
        after(script, |stack| {
            one(stack, &["P/meta", "P/q/meta"], "m\n");
            one(stack, &["P/renamed", "linked"], "alone\n");
        });
    });
}

#[test]
fn a_stack_of_many_generations_shows_what_each_showed() {
    isolated(|| {
        let scripts = [
            "echo one >a/x && mv c C && chmod 600 p/meta",
            "rm -r C && mkdir C && echo two >C/new && mv p/q Q && ln b/y C/y",
            "echo three >C/y && mv Q p/q && rm -r b && mkdir b && chmod 666 p/meta",
            "mv p a/p && rm a/s && ln -s elsewhere a/s && echo four >b/four && ln b/four b/five",
            "echo five >b/five && mv b C/b && truncate -s 1 a/p/q/meta && touch -d @1.25 a/p",
            "rm -rf a && mkdir a && mv C/b/five a/five && setfattr -n user.x -v y .",
        ];
        on_every_disk(|_, place| {
            let mut stack = vec![whole(place)];
            for (generation, script) in scripts.iter().enumerate() {
                let name = format!("g{generation}");
                stack = frozen_is_the_same(place, &name, &stack, script);
            }
            one(&stack, &["C/b/four", "a/five"], "five\n");
        });
    });
}

#[test]
fn a_freeze_without_hard_links_looks_at_nothing() {
    isolated(|| {
        on_every_disk(|_, place| {
            let session = AttachedOverlay::begin(place, "s", &[whole(place)], Features::PRIVILEGED);
            sh(&session.root, "echo new >p/q/alone && mkdir new");
            let [upper, work] = [&session.upper, &session.work].map(|path| opened(path));
            let frozen = overlay::freeze(session.mount.as_fd(), upper.as_fd(), work.as_fd());
            assert_eq!(frozen.expect("a frozen layer"), overlay::Frozen::default());
            session.unmount();
        });
    });
}

#[test]
fn a_tree_deeper_than_a_path_can_be_long_is_frozen() {
    isolated(|| {
        on_every_disk(|_, place| {
            let whole = directory(place.join("whole"));
            let name = "d".repeat(200);
            // Longer than PATH_MAX, and deeper than the limit of open descriptors.
            deepen(&whole, &name);
            let session = AttachedOverlay::begin(
                place,
                "s",
                std::slice::from_ref(&whole),
                Features::PRIVILEGED,
            );
            sh(&session.root, "echo new >top");
            let [upper, work] = [&session.upper, &session.work].map(|path| opened(path));
            let frozen = overlay::freeze(session.mount.as_fd(), upper.as_fd(), work.as_fd());
            assert_eq!(frozen.expect("a frozen layer").names, 2);
            session.unmount();
        });
    });
}

/// Makes 1,500 nested directories, and at the bottom a link to `top`.
fn deepen(whole: &Path, name: &str) {
    use rustix::fs::{AtFlags, Mode, OFlags, linkat, mkdirat, openat};
    fs::write(whole.join("top"), "old").unwrap();
    let top = opened(whole);
    let mut current = opened(whole);
    for _ in 0..1500 {
        mkdirat(&current, name, Mode::from_raw_mode(0o755)).unwrap();
        current = openat(&current, name, OFlags::PATH, Mode::empty()).unwrap();
    }
    linkat(&top, "top", &current, "bottom", AtFlags::empty()).unwrap();
}
