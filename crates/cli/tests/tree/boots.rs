//! Containers with a boot id of their own, such as those of systemd-nspawn and LXC: the kernel
//! keeps running when such a container is made anew.

use crate::roots;
use crate::site::{Site, limit};
use crate::verbs::NEEDS;
use libtest_mimic::Trial;
use std::fs;
use synconce_testkit::harness::{Need, Place, trial};
use synconce_testkit::process::{self, Finished};

const TRACED: [Need; 2] = [NEEDS[0], Need::Program("strace", "strace")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(changes_outlive_a_container_with_a_boot_id_of_its_own, &NEEDS),
        trial(a_container_with_a_boot_id_of_its_own_leaves_the_mounts_of_the_host, &NEEDS),
        trial(changes_are_lost_where_the_kernels_boot_id_cannot_be_read, &TRACED),
        trial(changes_outlive_a_kernels_boot_id_that_cannot_be_read_now, &TRACED),
    ]
}

/// Makes a site with the trees `base` and `tree`.
fn site(place: &Place) -> Site<'_> {
    let source = roots::small(place, "source");
    let site = Site::plain(place);
    site.import("base", &source);
    site.clone_of("base", "tree");
    site
}

/// Runs `tree WORDS` by the command `caller` in a new container with a boot id of its own.
fn in_container(site: &Site<'_>, caller: &[&str], words: &[&str]) -> Finished {
    let script = "cat /proc/sys/kernel/random/uuid >id
        mount --bind id /proc/sys/kernel/random/boot_id
        exec \"$@\"";
    let tree = site.tree(words);
    let mut unshare = site.place.command("unshare");
    unshare.args(["--mount", "sh", "-ec", script, "sh"]).args(caller);
    process::run(unshare.arg(tree.get_program()).args(tree.get_args()), limit()).unwrap()
}

/// Runs `tree --quiet WORDS` in a new container, and expects success without a word.
fn quietly(site: &Site<'_>, words: &[&str]) -> String {
    let finished = in_container(site, &[], &[&["--quiet"], words].concat());
    assert_eq!((finished.status.code(), finished.stderr.as_str()), (Some(0), ""), "{words:?}");
    finished.stdout
}

fn changes_outlive_a_container_with_a_boot_id_of_its_own(place: &Place) {
    let site = site(place);
    let write = |word: &str| format!("echo {word} >>/data/new");
    quietly(&site, &["run", "tree", "--", "/bin/sh", "-c", &write("one")]);
    quietly(&site, &["run", "tree", "--", "/bin/sh", "-c", &write("two")]);
    site.sh("tree", &write("three"));
    quietly(&site, &["commit", "tree"]);
    assert_eq!(site.from("tree", "cat /data/new"), "one\ntwo\nthree\n");
}

fn a_container_with_a_boot_id_of_its_own_leaves_the_mounts_of_the_host(place: &Place) {
    let site = site(place);
    let point = site.fresh("point");
    fs::create_dir(&point).unwrap();
    site.well(&["mount", "tree", point.to_str().unwrap()]);
    fs::write(point.join("data/new"), "one\n").unwrap();
    quietly(&site, &["list"]);
    fs::write(point.join("data/newer"), "two\n").unwrap();
    site.well(&["umount", "tree"]);
    assert_eq!(site.sh("tree", "cat /data/new /data/newer"), "one\ntwo\n");
}

/// The kernel refuses a procfs, or a filter of system calls kills its caller.
fn changes_are_lost_where_the_kernels_boot_id_cannot_be_read(place: &Place) {
    let site = site(place);
    let refusals = [("error=EPERM", "(INJECTED)"), ("signal=SIGSYS", "killed by SIGSYS +++")];
    for (refusal, traced) in refusals {
        site.sh("tree", "echo one >/data/new");
        let inject = format!("inject=fsopen:{refusal}");
        let strace = ["strace", "-f", "-qq", "-o", "calls", "-e", "trace=fsopen", "-e", &inject];
        let listed = in_container(&site, &strace, &["list"]);
        assert!(place.read("calls").contains(traced), "{refusal}: {listed:?}");
        let lost = "synconce: uncommitted changes to tree were lost when the machine stopped; tree is \
                    at its last commit\n";
        assert_eq!((listed.status.code(), listed.stderr.as_str()), (Some(0), lost), "{refusal}");
    }
}

/// The machine may have no memory, no descriptor or no process for a moment.
fn changes_outlive_a_kernels_boot_id_that_cannot_be_read_now(place: &Place) {
    let site = site(place);
    site.sh("tree", "echo one >/data/new");
    for failure in ["fsopen:error=ENOMEM", "fsopen:signal=SIGKILL", "pipe2:error=EMFILE:when=1"] {
        let call = failure.split(':').next().unwrap();
        let (trace, inject) = (format!("trace={call}"), format!("inject={failure}"));
        let strace = ["strace", "-f", "-qq", "-o", "calls", "-e", &trace, "-e", &inject];
        let listed = in_container(&site, &strace, &["list"]);
        assert_eq!(listed.status.code(), Some(125), "{failure}: {listed:?}");
        assert!(listed.stderr.contains("cannot read the kernel's boot id for "), "{listed:?}");
    }
    assert_eq!(site.sh("tree", "cat /data/new"), "one\n");
}
