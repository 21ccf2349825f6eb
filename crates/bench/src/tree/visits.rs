//! Entering and leaving a clone, and mounting and unmounting one.

use super::commands::{BASE, ours, tree, variant};
use crate::command::words;
use crate::scenario::{Need, SamplePart, Variant};

/// The single command of a visit; its parts are [`ENTER`] and [`LEAVE`].
pub(super) const VISIT: &str = "visit";
/// From the start of the command to the clock value of the program inside.
const ENTER: &str = "enter";
/// From the clock value inside to the end of the command.
const LEAVE: &str = "leave";
/// The parts of a mount.
pub(super) const MOUNT: &str = "mount";
const UMOUNT: &str = "umount";

/// The program inside: prints the time in nanoseconds.
const CLOCK: [&str; 2] = ["/bin/date", "+%s%N"];

/// Prints the time before and after the command.
const CLOCKED: &str = "date +%s%N && \"$@\" && date +%s%N";

/// An overlay made with mount(8) and chroot(8), with the file systems that a program expects.
const BY_HAND: &str = "set -e\nmount -t overlay overlay -o \"$1\" \"$2\"\n\
    mount -t proc proc \"$2/proc\"\nmount -t sysfs sysfs \"$2/sys\"\nmount --rbind /dev \"$2/dev\"\n\
    chroot \"$2\" /bin/date +%s%N\numount -l \"$2/dev\"\numount \"$2/sys\" \"$2/proc\" \"$2\"";

const LAYERS: &str = "lowerdir={base},upperdir={upper},workdir={scratch}";

/// The baselines.
const CHROOT: &str = "enter/chroot";
const BY_MOUNT: &str = "mount/mount";

/// Returns all visits and mounts.
pub(super) fn variants(program: &str) -> Vec<Variant> {
    [visits(program), mounts(program)].concat()
}

fn visits(program: &str) -> Vec<Variant> {
    let visit = |name: &str, about: &str, inner: Vec<String>| {
        let command = [words(&["sh", "-c", CLOCKED, "sh"]), inner].concat();
        variant(name, about, CHROOT, vec![(VISIT, command)])
    };
    let clocked = |rest: &[&str]| [tree(program, rest), words(&["--"]), words(&CLOCK)].concat();
    vec![
        visit(
            CHROOT,
            "chroot(8) alone, into the base",
            [words(&["chroot", "{base}"]), words(&CLOCK)].concat(),
        ),
        Variant {
            trial: Some(mount("")),
            ..visit(
                "enter/mount",
                "overlay, proc, sys and dev by mount(8), chroot(8), umount(8)",
                words(&["sh", "-c", BY_HAND, "sh", LAYERS, "{point}"]),
            )
        },
        ours(
            program,
            None,
            visit("enter/synconce", "tree run, the result kept", clocked(&["run", "{name}"])),
        ),
        ours(
            program,
            None,
            visit(
                "enter/synconce-discard",
                "tree run --discard",
                clocked(&["run", "--from", BASE, "--discard"]),
            ),
        ),
    ]
}

fn mounts(program: &str) -> Vec<Variant> {
    let mounted = |name: &str, about: &str, mount: Vec<String>, umount: Vec<String>| {
        variant(name, about, BY_MOUNT, vec![(MOUNT, mount), (UMOUNT, umount)])
    };
    let umount = || words(&["umount", "{point}"]);
    let by_mount = |name: &str, about: &str, options: &str| Variant {
        needs: vec![Need::new("mount", "mount")],
        trial: Some(mount(options)),
        ..mounted(name, about, mount(options), umount())
    };
    let own = |name: &str, about: &str, flags: &[&str]| {
        let mount = tree(program, &[&["mount", "{name}", "{point}"], flags].concat());
        ours(program, None, mounted(name, about, mount, tree(program, &["umount", "{point}"])))
    };
    vec![
        by_mount(BY_MOUNT, "an overlay by mount(8)", ""),
        by_mount("mount/mount-volatile", "a volatile overlay by mount(8)", ",volatile"),
        own("mount/synconce", "tree mount", &[]),
        own("mount/synconce-read-only", "tree mount --read-only", &["--read-only"]),
    ]
}

fn mount(options: &str) -> Vec<String> {
    words(&["mount", "-t", "overlay", "overlay", "-o", &format!("{LAYERS}{options}"), "{point}"])
}

/// Returns the parts of a visit from three clock values in nanoseconds.
pub(super) fn parts(log: &str) -> Option<Vec<SamplePart>> {
    let numbers = log.lines().filter_map(|line| line.trim().parse::<u64>().ok());
    let [before, inside, after] = numbers.collect::<Vec<_>>().try_into().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "a visit is far below 2^52 ns")]
    let ms = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
    Some(vec![
        SamplePart::new(ENTER, ms(before, inside)),
        SamplePart::new(LEAVE, ms(inside, after)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_visit_are_told_by_its_three_clocks() {
        let log = "1700000000000000000\n1700000000004000000\na word\n1700000000005500000\n";
        assert_eq!(
            parts(log),
            Some(vec![SamplePart::new("enter", 4.0), SamplePart::new("leave", 1.5)])
        );
        assert_eq!(parts("1\n2\n"), None);
    }
}
