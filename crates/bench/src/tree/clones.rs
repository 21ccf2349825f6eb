//! The life of a clone: created, changed by a small build, and removed.

use super::build_script::SCRIPT;
use super::commands::{BASE, ours, sync, tree, variant};
use crate::command::words;
use crate::scenario::{Need, Promise, SamplePart, Variant};

/// The parts of a clone's life; each is followed by its sync.
pub(super) const CLONE: &str = "clone";
pub(super) const WRITE: &str = "write";
pub(super) const REMOVE: &str = "remove";
/// The part for the background work after a removal has returned, waited for.
pub(super) const EMPTY: &str = "empty";
/// The part for the copy of a whole tree.
pub(super) const COPY: &str = "copy";
/// The part for a session in one command.
pub(super) const SESSION: &str = "session";

/// The part for the whole removal: until it returned, plus its end in the background.
const REMOVED: &str = "remove + empty";

/// The variants with standard tools, and cowbuilder.
const HARD_LINKS: &str = "clone/cp-al";
const WHOLE: &str = "clone/cp-a";
const REFLINK: &str = "clone/cp-reflink";
const SNAPSHOT: &str = "clone/btrfs-snapshot";

pub(super) const COWDANCER: &str = "clone/cowdancer";
pub(super) const COWBUILDER: &str = "session/cowbuilder";

/// The baseline of the sessions.
const BY_HAND: &str = "session/cp-al";

/// cowbuilder's own command that lists in a clone the files shared with another tree.
const SHARED: &str = "find . -xdev -path ./home -prune -o \\( \\( -type l -o -type f \\) \
    -a -links +1 -print0 \\) | xargs -0 stat --format '%d %i '";

/// Whether a root contains what cowbuilder needs inside.
const HAS_COWDANCER: &str = "command -v cow-shell cowdancer-ilistcreate xargs stat && exit\n\
    echo 'cowdancer is not installed in the root'; exit 1";

/// A session of cp, chroot and rm in one sh script.
const SESSION_BY_HAND: &str = "cp -al -- \"$1\" \"$2\" && chroot \"$2\" /bin/sh \"$3\"\n\
    status=$?\nrm -rf -- \"$2\"\nexit $status";

/// cpz reads devices and fifos to their end, which never comes.
const NO_DEVICES: &str = "found=$(find \"$1\" -type b -o -type c -o -type p | head -n 1)\n\
    [ -z \"$found\" ] || { echo \"cpz would read $found to its end\"; exit 1; }";

/// Returns all variants of a clone's life; the baseline first.
pub(super) fn variants(program: &str) -> Vec<Variant> {
    let mut all = rivals();
    let ways =
        [("overlay", HARD_LINKS), ("snapshot", SNAPSHOT), ("reflink", REFLINK), ("copy", WHOLE)];
    all.extend(ways.map(|(strategy, against)| own(program, strategy, against)));
    all
}

fn rivals() -> Vec<Variant> {
    let rm = || words(&["rm", "-rf", "--", "{clone}"]);
    let cp = |flags: &[&str]| {
        [words(&["cp"]), words(flags), words(&["--", "{base}", "{clone}"])].concat()
    };
    let subvolume = |rest: &[&str]| [words(&["btrfs", "subvolume"]), words(rest)].concat();
    let probe = words(&["cp", "--reflink=always", "{base}/synconce-bench/build.sh", "{clone}"]);
    let snapshot = subvolume(&["snapshot", "{subvolume}", "{clone}"]);
    let mut by_snapshot = lifecycle(
        SNAPSHOT,
        "a snapshot of a subvolume",
        snapshot.clone(),
        subvolume(&["delete", "{clone}"]),
    );
    // Only this sync wakes the thread that empties deleted subvolumes (BTRFS_IOC_SYNC); after
    // any other sync the thread sleeps for up to 30 s.
    by_snapshot.commands.pop();
    by_snapshot.commands.push(words(&["btrfs", "filesystem", "sync", "{work}"]));
    by_snapshot.commands.push(subvolume(&["sync", "{work}"]));
    by_snapshot.parts.push(EMPTY.to_owned());
    vec![
        lifecycle(HARD_LINKS, "hard links: the base is written with the clone", cp(&["-al"]), rm()),
        lifecycle(WHOLE, "a whole copy", cp(&["-a"]), rm()),
        Variant {
            trial: Some(probe),
            ..lifecycle(
                REFLINK,
                "a whole copy that shares its data",
                cp(&["-a", "--reflink=always"]),
                rm(),
            )
        },
        Variant {
            needs: vec![Need::new("btrfs", "btrfs-progs")],
            trial: Some(snapshot),
            ..by_snapshot
        },
        fuc("clone/cpz", "a whole copy without owners, times and attributes", &["cpz"]),
        fuc("clone/cpz-l", "hard links", &["cpz", "-l"]),
        cowdancer(),
    ]
}

/// Returns the commands of one variant that is entered by chroot(8).
fn lifecycle(name: &str, about: &str, clone: Vec<String>, remove: Vec<String>) -> Variant {
    let write = words(&["chroot", "{clone}", "/bin/sh", SCRIPT]);
    let steps = vec![
        (CLONE, clone),
        ("clone sync", sync()),
        (WRITE, write),
        ("write sync", sync()),
        (REMOVE, remove),
        ("remove sync", sync()),
    ];
    Variant { promise: Promise::Durable, ..variant(name, about, HARD_LINKS, steps) }
}

fn fuc(name: &str, about: &str, copy: &[&str]) -> Variant {
    let clone = [words(copy), words(&["{base}", "{clone}"])].concat();
    Variant {
        needs: vec![Need::new("cpz", "fuc"), Need::new("rmz", "fuc")],
        trial: Some(words(&["sh", "-c", NO_DEVICES, "sh", "{base}"])),
        ..lifecycle(name, about, clone, words(&["rmz", "{clone}"]))
    }
}

/// Returns the steps of cowbuilder: hard links, a list of them, and a library that breaks
/// them.
fn cowdancer() -> Variant {
    let list = "cp -al -- \"$1\" \"$2\" && exec chroot \"$2\" cowdancer-ilistcreate /.ilist \"$3\"";
    let clone = words(&["sh", "-c", list, "sh", "{base}", "{clone}", SHARED]);
    let cycle = lifecycle(
        COWDANCER,
        "hard links that a library breaks",
        clone,
        words(&["rm", "-rf", "--", "{clone}"]),
    );
    let mut commands = cycle.commands.clone();
    let environment =
        ["chroot", "{clone}", "env", "COWDANCER_ILISTFILE=/.ilist", "COWDANCER_REUSE=yes"];
    commands[2] = [words(&environment), words(&["cow-shell", "/bin/sh", SCRIPT])].concat();
    Variant {
        commands,
        trial: Some(words(&["chroot", "{base}", "/bin/sh", "-c", HAS_COWDANCER])),
        ..cycle
    }
}

/// Returns the variant of synconce with one strategy.
fn own(program: &str, strategy: &str, against: &str) -> Variant {
    let make = ["clone", "--strategy", strategy, BASE, "{name}"];
    let steps = vec![
        (CLONE, tree(program, &make)),
        ("clone sync", sync()),
        (WRITE, tree(program, &["run", "{name}", "--", "/bin/sh", SCRIPT])),
        // Makes the tree durable; this includes the sync of the file system.
        ("write sync", tree(program, &["commit", "{name}"])),
        (REMOVE, tree(program, &["remove", "{name}"])),
        (EMPTY, tree(program, &["gc", "--wait"])),
        ("remove sync", sync()),
    ];
    let about = format!("ours by {strategy}; sync after the write is its commit");
    let name = format!("clone/synconce-{strategy}");
    let made = Variant { promise: Promise::Durable, ..variant(&name, &about, against, steps) };
    ours(program, Some(strategy), made)
}

/// Returns the sessions in one command: cloned, changed and discarded.
pub(super) fn sessions(program: &str) -> Vec<Variant> {
    let session = |name: &str, about: &str, command: Vec<String>| {
        variant(name, about, BY_HAND, vec![(SESSION, command), ("sync", sync())])
    };
    let by_hand = words(&["sh", "-c", SESSION_BY_HAND, "sh", "{base}", "{clone}", SCRIPT]);
    let cowbuilder = [
        "cowbuilder",
        "--execute",
        "--configfile",
        "{work}/pbuilderrc",
        "--basepath",
        "{base}",
        "--buildplace",
        "{clone}",
        "--",
        "{base}/synconce-bench/build.sh",
    ];
    let cowbuilder = words(&cowbuilder);
    let discard = ["run", "--from", BASE, "--discard", "--", "/bin/sh", SCRIPT];
    let mut mine = session("session/synconce", "tree run --discard", tree(program, &discard));
    mine.commands.insert(1, tree(program, &["gc", "--wait"]));
    mine.parts.insert(1, EMPTY.to_owned());
    vec![
        session(BY_HAND, "cp -al, chroot, rm -rf", by_hand),
        Variant {
            needs: vec![Need::new("cowbuilder", "cowbuilder")],
            trial: Some(cowbuilder.clone()),
            ..session(COWBUILDER, "cowbuilder --execute", cowbuilder)
        },
        ours(program, None, mine),
    ]
}

/// Adds the removal as a whole to its parts.
pub(super) fn with_removal(mut timed: Vec<SamplePart>) -> Vec<SamplePart> {
    let of = |name: &str| timed.iter().find(|part| part.name == name).map(|part| part.ms);
    if let Some(removed) = of(REMOVE) {
        let ms = removed + of(EMPTY).unwrap_or(0.0);
        timed.push(SamplePart::new(REMOVED, ms));
    }
    timed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_is_shown_as_a_whole_beside_its_return() {
        let timed = vec![
            SamplePart::new("clone", 1.0),
            SamplePart::new("remove", 2.0),
            SamplePart::new("empty", 30.0),
        ];
        let all = with_removal(timed.clone());
        assert_eq!(all[..3], timed);
        assert_eq!(all[3], SamplePart::new("remove + empty", 32.0));
        assert_eq!(
            with_removal(vec![SamplePart::new("remove", 5.0)])[1].ms.to_bits(),
            5f64.to_bits()
        );
        assert_eq!(
            with_removal(vec![SamplePart::new("mount", 5.0)]),
            [SamplePart::new("mount", 5.0)]
        );
    }
}
