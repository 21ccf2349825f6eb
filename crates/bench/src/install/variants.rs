//! The variants as data.
//!
//! All of them end in the same `env -i ... apt-get install` inside the root; the words before
//! it are the tool under test and nothing else.

use crate::command::{show, words};
use crate::scenario::{Need, Promise, Variant};
use std::path::Path;

/// The baseline: apt without any tool.
pub(super) const PLAIN: &str = "plain";

/// The only variant whose tool mounts /proc and /dev in the root by itself.
pub(super) const NSPAWN: &str = "nspawn-suppress-sync";

const CHROOT: [&str; 2] = ["chroot", "{root}"];

/// The whole environment of apt-get. So it does not depend on whether a tool passes its own
/// environment on.
const ENVIRONMENT: [&str; 4] = [
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LC_ALL=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
];

/// systemd-nspawn, as close to chroot(8) as its options allow: without registration of the machine,
/// a cgroup of its own, and a pty. Without the cgroup it also runs without a system bus and under
/// mixed hierarchies.
const NSPAWN_COMMAND: [&str; 13] = [
    "systemd-nspawn",
    "--quiet",
    "--suppress-sync=yes",
    "--register=no",
    "--keep-unit",
    "--as-pid2",
    "--console=pipe",
    "--resolv-conf=off",
    "--timezone=off",
    "--link-journal=no",
    "--machine=synconce-bench",
    "-D",
    "{root}",
];

/// The variant that diverts programs of the root to wrappers, which set the preload, as
/// eatmydata-udeb does in the Debian installer.
pub(super) const DIVERTS: &str = "eatmydata-diverts";

/// `synconce setup apt` in the root.
pub(super) const SETUP: &str = "synconce-setup";

/// The variable that the script `eatmydata` sets; starting the script would take time.
const PRELOAD: [&str; 1] = ["LD_PRELOAD=libeatmydata.so"];

/// The variants of synconce: name, difference, promise of exit code 0, flags of `synconce run`.
/// Only the disk of the root is committed, as by `sync -f` of the rivals: a commit of other disks
/// would add the other work of this machine to the time.
const OURS: [(&str, &str, Promise, &[&str]); 4] = [
    ("synconce", "held, one commit", Promise::Durable, &["--commit-only", "{root}"]),
    ("synconce-no-commit", "held, no commit", Promise::Nothing, &["--no-commit"]),
    (
        "synconce-sealed",
        "held in the kernel, one commit",
        Promise::Durable,
        &["--sealed", "--commit-only", "{root}"],
    ),
    (
        "synconce-sealed-no-commit",
        "held in the kernel, no commit",
        Promise::Nothing,
        &["--sealed", "--no-commit"],
    ),
];

/// Returns all variants, the baseline first.
pub(super) fn all(synconce: &Path, packages: &[String]) -> Vec<Variant> {
    let variant = |name: &str, about: &str, promise, command: Vec<String>| Variant {
        about: about.to_owned(),
        promise,
        against: PLAIN.to_owned(),
        ..Variant::new(name, command)
    };
    let install = |preload: &[&str], options: &[&str]| {
        let before = ["/usr/bin/env", "-i"];
        let apt = ["apt-get", "install", "-y", "--no-download"];
        let words = words(&[&before[..], &ENVIRONMENT, preload, &apt, options].concat());
        [words, packages.to_vec()].concat()
    };
    let chroot =
        |preload: &[&str], options: &[&str]| [words(&CHROOT), install(preload, options)].concat();
    let unsafe_io = chroot(&[], &["-o", "DPkg::Options::=--force-unsafe-io"]);
    let synced = |name: &str, about: &str, preload: &[&str]| {
        let mut variant = variant(name, about, Promise::Durable, chroot(preload, &[]));
        variant.commands.push(words(&["sync", "-f", "{root}"]));
        variant
    };
    let nspawn = words(&NSPAWN_COMMAND);
    let about = "syncs dropped by systemd-nspawn's filter";
    let command = [nspawn.clone(), install(&[], &[])].concat();
    let rivals = [
        variant(PLAIN, "dpkg with its own syncs", Promise::OwnSyncs, chroot(&[], &[])),
        variant("force-unsafe-io", "dpkg with force-unsafe-io", Promise::Nothing, unsafe_io),
        variant("eatmydata", "syncs dropped by a preload", Promise::Nothing, chroot(&PRELOAD, &[])),
        synced("eatmydata-sync", "the same, then sync -f inside the time", &PRELOAD),
        synced(DIVERTS, "the same by diverted programs", &[]),
        Variant {
            needs: vec![Need::new("systemd-nspawn", "systemd-container")],
            trial: Some([nspawn, words(&["/bin/true"])].concat()),
            ..variant(NSPAWN, about, Promise::Nothing, command)
        },
    ];
    let ours = OURS.map(|(name, about, promise, flags)| {
        variant(name, about, promise, chroot(&[], &[])).held(&show(synconce), flags)
    });
    let setup = Variant {
        needs: vec![Need::new(&show(synconce), "synconce")],
        ..variant(SETUP, "held by `setup apt`, one commit", Promise::Durable, chroot(&[], &[]))
    };
    rivals.into_iter().chain(ours).chain([setup]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variants() -> Vec<Variant> {
        all(Path::new("/opt/synconce"), &["hello".to_owned()])
    }

    #[test]
    fn every_variant_runs_the_same_apt_through_the_same_env() {
        for variant in variants() {
            let words = &variant.commands[0];
            let start = words.iter().position(|w| w == "/usr/bin/env");
            let inner = &words[start.expect("env is there")..];
            let kept: Vec<&str> = inner
                .iter()
                .map(String::as_str)
                .filter(|w| !w.starts_with("LD_PRELOAD=") && !w.contains("unsafe-io") && *w != "-o")
                .collect();
            let mut expected = vec!["/usr/bin/env", "-i"];
            expected.extend(ENVIRONMENT);
            expected.extend(["apt-get", "install", "-y", "--no-download", "hello"]);
            assert_eq!(kept, expected, "{}", variant.name);
        }
    }
}
