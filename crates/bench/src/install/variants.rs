//! The variants as data.
//!
//! All of them end in the same `env -i ... apt-get install` inside the root; the words before
//! it are the tool under test and nothing else.

use crate::scenario::{Need, Promise, Variant};
use std::path::Path;

/// The baseline: apt without any tool.
pub(super) const PLAIN: &str = "plain";

/// The only variant whose tool mounts /proc and /dev in the root by itself.
pub(super) const FURNISHES_ITSELF: &str = "nspawn-suppress-sync";

/// The only variant with a second command inside the measured time.
const SYNCED_AFTER: &str = "eatmydata-sync";

const CHROOT: [&str; 2] = ["chroot", "{root}"];

/// The payload's whole environment: the same under a tool that passes its own environment on
/// and under one that does not.
const ENVIRONMENT: [&str; 4] = [
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LC_ALL=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
];

/// systemd-nspawn, with everything disabled that it adds to a chroot and that can be disabled:
/// no machine registration, no own cgroup (which also makes it run without a system bus and
/// under mixed hierarchies), no pty.
const NSPAWN: [&str; 13] = [
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

/// One way to run the payload: what differs between the variants.
struct Way {
    name: &'static str,
    about: &'static str,
    promise: Promise,
    /// The words before the payload.
    before: Vec<String>,
    preload: bool,
    /// Options of apt-get.
    options: &'static [&'static str],
}

/// Returns all variants, the baseline first.
pub(super) fn all(synconce: &Path, packages: &[String]) -> Vec<Variant> {
    let rivals = rivals().into_iter().map(|way| way.variant(packages));
    rivals.chain(ours(synconce, packages)).collect()
}

fn rivals() -> [Way; 5] {
    let plain = || Way {
        name: PLAIN,
        about: "dpkg with its own syncs",
        promise: Promise::OwnSyncs,
        before: CHROOT.map(str::to_owned).to_vec(),
        preload: false,
        options: &[],
    };
    [
        plain(),
        Way {
            name: "force-unsafe-io",
            about: "dpkg with force-unsafe-io",
            promise: Promise::Nothing,
            options: &["-o", "DPkg::Options::=--force-unsafe-io"],
            ..plain()
        },
        Way {
            name: "eatmydata",
            about: "syncs dropped by a preload",
            promise: Promise::Nothing,
            preload: true,
            ..plain()
        },
        Way {
            name: SYNCED_AFTER,
            about: "the same, then sync -f inside the time",
            promise: Promise::Durable,
            preload: true,
            ..plain()
        },
        Way {
            name: FURNISHES_ITSELF,
            about: "syncs dropped by systemd-nspawn's filter",
            promise: Promise::Nothing,
            before: NSPAWN.map(str::to_owned).to_vec(),
            ..plain()
        },
    ]
}

fn ours(synconce: &Path, packages: &[String]) -> Vec<Variant> {
    let program = synconce.display().to_string();
    // Only the disk of the root, like the rival's sync -f: a commit of other disks would
    // measure other work of this machine.
    let ways: [(_, _, _, &[&str]); 4] = [
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
    let make = |(name, about, promise, flags): (_, _, _, &[&str])| {
        let before = [&[program.as_str(), "run"], flags, &["--"], &CHROOT].concat();
        let way = Way {
            name,
            about,
            promise,
            before: before.into_iter().map(str::to_owned).collect(),
            preload: false,
            options: &[],
        };
        Variant { needs: vec![Need::new(&program, "synconce")], ..way.variant(packages) }
    };
    ways.into_iter().map(make).collect()
}

impl Way {
    fn variant(self, packages: &[String]) -> Variant {
        let mut command = self.before.clone();
        command.extend(payload(self.preload, self.options, packages));
        let mut variant = Variant {
            about: self.about.to_owned(),
            promise: self.promise,
            against: PLAIN.to_owned(),
            ..Variant::new(self.name, command)
        };
        if self.name == SYNCED_AFTER {
            let sync = ["sync", "-f", "{root}"].map(str::to_owned);
            variant.commands.push(sync.to_vec());
        }
        if self.name == FURNISHES_ITSELF {
            variant.needs = vec![Need::new("systemd-nspawn", "systemd-container")];
            let mut trial = self.before;
            trial.push("/bin/true".to_owned());
            variant.trial = Some(trial);
        }
        variant
    }
}

fn payload(preload: bool, options: &[&str], packages: &[String]) -> Vec<String> {
    let mut command = vec!["/usr/bin/env", "-i"];
    command.extend(ENVIRONMENT);
    if preload {
        // The variable that the eatmydata script sets, without the time to start the script.
        command.push("LD_PRELOAD=libeatmydata.so");
    }
    command.extend(["apt-get", "install", "-y", "--no-download"]);
    command.extend(options);
    let words = command.into_iter().map(str::to_owned);
    words.chain(packages.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variants() -> Vec<Variant> {
        all(Path::new("/opt/synconce"), &["hello".to_owned()])
    }

    #[test]
    fn every_variant_is_compared_with_plain_and_plain_comes_first() {
        let all = variants();
        assert!(all[0].is_baseline());
        assert!(all.iter().all(|v| v.against == PLAIN));
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

    #[test]
    fn only_variants_that_sync_at_the_end_promise_durability() {
        let durable: Vec<String> = variants()
            .into_iter()
            .filter(|v| v.promise == Promise::Durable)
            .map(|v| v.name)
            .collect();
        assert_eq!(durable, ["eatmydata-sync", "synconce", "synconce-sealed"]);
    }

    #[test]
    fn ours_differ_in_their_flags_alone() {
        let sealed = variants().pop().expect("there are variants");
        assert_eq!(
            sealed.commands[0][..7],
            ["/opt/synconce", "run", "--sealed", "--no-commit", "--", "chroot", "{root}"]
        );
        assert_eq!(sealed.needs, [Need::new("/opt/synconce", "synconce")]);
    }
}
