//! What the manual pages say besides the arguments: exit status, files, environment, examples
//! and other pages.

/// A term and its meaning.
pub type Term = (&'static str, &'static str);

/// The sections of a page that follow its options. An empty section is left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sections {
    /// Exit codes.
    pub exit_status: &'static [Term],
    /// Paths.
    pub files: &'static [Term],
    /// Variables.
    pub environment: &'static [Term],
    /// A command line, and what it does.
    pub examples: &'static [Term],
    /// Other pages, each with its section of the manual.
    pub see_also: &'static [Term],
}

/// Returns the sections of the page `name`, such as `synconce-run`. A scenario of `bench` and a
/// verb of `tree` without sections of its own has those of its command.
pub fn sections(name: &str) -> Sections {
    match name {
        "synconce" => SYNCONCE,
        "synconce-run" => RUN,
        "synconce-commit" => COMMIT,
        "synconce-real" => REAL,
        "synconce-status" => STATUS,
        "synconce-setup" => SETUP,
        "synconce-doctor" => DOCTOR,
        "synconce-oci" => OCI,
        "synconce-hold" => Sections { examples: HOLD_EXAMPLES, see_also: HOLD_PAGES, ..HOLD },
        "synconce-hold-run" => Sections { exit_status: COMMANDS, ..HOLD },
        "synconce-hold-status" => Sections { exit_status: HOLD_STATUS, ..HOLD },
        name if name.starts_with("synconce-hold-") => HOLD,
        "synconce-tree" => Sections { examples: TREE_EXAMPLES, see_also: TREE_PAGES, ..TREE },
        "synconce-tree-run" => Sections { exit_status: TREE_RUN, examples: RUN_IN, ..TREE },
        "synconce-tree-diff" => Sections { exit_status: DIFF, ..TREE },
        "synconce-tree-verify" | "synconce-tree-fsck" => Sections { exit_status: CHECKED, ..TREE },
        name if name.starts_with("synconce-tree-") => TREE,
        name if name.starts_with("synconce-bench") => BENCH,
        _ => panic!("no sections for the page {name}"),
    }
}

const OK_OR_FAILED: &[Term] =
    &[("0", "Success."), ("125", "synconce failed, or the command line is wrong.")];

const COMMANDS: &[Term] = &[
    ("COMMAND's own", "COMMAND ran, and all data that the commit covers are durable."),
    ("125", "synconce failed: the set-up, the marker or the commit."),
    ("126", "COMMAND cannot be executed."),
    ("127", "COMMAND is not found."),
    ("a signal", "COMMAND was ended by that signal; synconce ends by the same signal."),
];

const PLACES: &[Term] = &[
    ("/var/lib/synconce/runs", "Markers of root's runs."),
    ("~/.local/state/synconce/runs", "Markers of a user's runs (or below $XDG_STATE_HOME)."),
    ("DIR/var/lib/synconce/runs", "Second markers, of runs with --root DIR."),
    (
        "/run/synconce, $XDG_RUNTIME_DIR/synconce",
        "Descriptions of runs in flight; syncs that failed.",
    ),
    ("/var/lib/synconce/directories", "The registry of state directories, for root's status."),
];

const VARIABLES: &[Term] = &[
    ("SYNCONCE_STATE_DIR", "Replaces the directory of markers."),
    ("SYNCONCE_RUNTIME_DIR", "Replaces the directory of descriptions of runs in flight."),
    ("SYNCONCE_REGISTRY_DIR", "Replaces the registry of state directories."),
];

const SYNCONCE: Sections = Sections {
    exit_status: COMMANDS,
    files: PLACES,
    environment: VARIABLES,
    examples: &[
        ("synconce run -- apt-get install -y build-essential", "Install packages with one sync."),
        ("synconce status", "Show interrupted runs, and what to do about each."),
        ("synconce help tree run", "Print the help of a command."),
    ],
    see_also: &[
        ("synconce-run", "1"),
        ("synconce-status", "1"),
        ("synconce-hold", "1"),
        ("synconce-tree", "1"),
        ("synconce-setup", "1"),
        ("synconce-oci", "1"),
        ("synconce-doctor", "1"),
        ("synconce-bench", "1"),
        ("eatmydata", "1"),
        ("fsync", "2"),
        ("syncfs", "2"),
    ],
};

const RUN: Sections = Sections {
    exit_status: COMMANDS,
    files: PLACES,
    environment: &[
        ("SYNCONCE_RUN", "Set for COMMAND: the ID of the run."),
        VARIABLES[0],
        VARIABLES[1],
        VARIABLES[2],
    ],
    examples: &[
        ("synconce run -- apt-get install -y build-essential", "Install packages with one sync."),
        (
            "synconce run --root /target -- mmdebstrap bookworm /target",
            "Make a system, and keep a second marker in it.",
        ),
        (
            "synconce run --commit-all -- tar -xf archive.tar",
            "Sync once after a command without syncs.",
        ),
        ("synconce run -v -- make check", "Print the calls, the commit and the wall time."),
        ("synconce run --json=/dev/fd/3 -- make check 3>stats.json", "Keep the statistics apart."),
    ],
    see_also: &[
        ("synconce-status", "1"),
        ("synconce-tree-run", "1"),
        ("eatmydata", "1"),
        ("fsync", "2"),
        ("seccomp", "2"),
    ],
};

const COMMIT: Sections = Sections {
    exit_status: &[
        ("0", "Everything is durable that the run had written on what it commits."),
        ("125", "Something is not durable, or there is no such run."),
    ],
    files: PLACES,
    environment: VARIABLES,
    examples: &[
        ("synconce commit", "Commit the run that this shell is in, or your only run in flight."),
        ("synconce commit --json=/dev/fd/3 3>report.json", "Keep the result of each file system."),
    ],
    see_also: &[("synconce-run", "1"), ("synconce-real", "1"), ("synconce-status", "1")],
};

const REAL: Sections = Sections {
    exit_status: COMMANDS,
    files: &[],
    environment: &[],
    examples: &[(
        "synconce real -- grub-install /dev/sda",
        "Install a boot loader with real syncs, inside a run.",
    )],
    see_also: &[("synconce-run", "1"), ("synconce-commit", "1"), ("fsync", "2")],
};

const STATUS: Sections = Sections {
    exit_status: &[
        ("0", "No run is in flight or interrupted."),
        ("3", "Runs are in flight, and none was interrupted."),
        ("4", "A run or a hold was interrupted, or a hold has failed."),
        ("125", "status could not read a directory, --mend refused, or the command line is wrong."),
        ("other", "With --mend: the exit code of the command that failed."),
    ],
    files: PLACES,
    environment: VARIABLES,
    examples: &[
        ("synconce status --root /mnt", "Also look at a system that is mounted at /mnt."),
        ("synconce status --clear 20261122T16", "Clear a run by the first characters of its ID."),
        ("synconce status --mend 20261122T16 -n", "Print what would install all packages again."),
        ("synconce status -q || echo look", "Check in a script."),
        ("synconce status --format prometheus", "Print metrics for node exporter."),
    ],
    see_also: &[("synconce-run", "1")],
};

const SETUP: Sections = Sections {
    exit_status: &[
        ("0", "Success. With --check: the engine is set up."),
        ("1", "With --check: the set-up would change a file, or does not work."),
        ("125", "synconce failed, or the command line is wrong."),
    ],
    files: &[
        ("/etc/docker/daemon.json", "Of Docker."),
        ("/etc/systemd/system/docker.service.d", "Of Docker's BuildKit."),
        ("/etc/containers/containers.conf.d", "Of Podman and Buildah."),
        ("/etc/buildkit/buildkitd.toml", "Of BuildKit."),
        ("/etc/containerd/config.toml", "Of containerd."),
        ("/etc/synconce/hold.d", "Descriptions of holds, of --hold."),
        ("/etc/systemd/system/synconce-hold-ENGINE.service", "The unit that starts a hold."),
        ("/etc/systemd/system/UNIT.d/50-synconce-hold.conf", "What has UNIT require the hold."),
        ("/var/lib/synconce/setup", "The journal by which --undo restores every file."),
    ],
    environment: &[],
    examples: &[
        ("synconce setup podman -n", "Show what would be changed."),
        ("synconce setup podman", "Change it."),
        ("synconce setup podman --undo", "Put every byte back."),
        ("synconce setup containerd --hold", "Hold the syncs of containerd's databases."),
        ("synconce setup containerd --hold --check || echo no", "Check in a script."),
    ],
    see_also: &[("synconce-oci", "1")],
};

const DOCTOR: Sections = Sections {
    exit_status: &[
        ("0", "The report is printed, with or without findings."),
        (
            "1",
            "With --fail-on: a finding costs, or a run of COMMAND saves, at least that many seconds.",
        ),
        (
            "the command's own",
            "COMMAND was run. 126 if it cannot be executed, 127 if it is not found.",
        ),
        ("125", "PATH or COMMAND cannot be measured, or the command line is wrong."),
        (
            "a signal",
            "A signal ended the measurement, whose temporary files are removed, or COMMAND.",
        ),
    ],
    files: &[(
        "PATH/.synconce-doctor-*",
        "Temporary files. They stay only after a kill -9 or a crash; remove them then.",
    )],
    environment: &[],
    examples: &[
        ("synconce doctor /var/lib/docker", "Measure where Docker builds images."),
        ("synconce doctor --full --json=report.json .", "Keep all figures."),
        ("synconce doctor --context .", "Show what an image build sends, and what it need not."),
        ("synconce doctor --context . --docker", "Say what sending it to dockerd costs, too."),
        ("synconce doctor -o record -- make test", "Say how long the tests wait for syncs."),
        ("synconce doctor --read record", "Report on them again."),
        ("synconce doctor --fail-on 30 || echo slow", "Check the disk of a CI runner."),
    ],
    see_also: &[("synconce-run", "1"), ("synconce-bench", "1"), ("fsync", "2"), ("cgroups", "7")],
};

const OCI: Sections = Sections {
    exit_status: &[
        ("the runtime's own", "The real runtime was executed."),
        (
            "125",
            "No container was started: a file cannot be read, or the runtime is refused. Or the \
             layer of a step could not be synced.",
        ),
    ],
    files: &[(
        "/etc/synconce/oci.toml",
        "The real runtime, rules that say what is held, and how the root of a step is mounted.",
    )],
    environment: &[],
    examples: &[(
        "synconce-oci --explain /run/containerd/io.containerd.runtime.v2.task/default/ID",
        "Print what would be done with a container, and why.",
    )],
    see_also: &[("synconce-setup", "1"), ("runc", "8"), ("crun", "1")],
};

const TREE: Sections = Sections {
    exit_status: OK_OR_FAILED,
    files: &[
        ("/var/lib/synconce/trees", "Root's store."),
        ("~/.local/share/synconce/trees", "A user's store (or below $XDG_DATA_HOME)."),
    ],
    environment: &[("SYNCONCE_TREES", "Names the store; --store has precedence.")],
    examples: &[],
    see_also: &[("synconce-tree", "1"), ("synconce-run", "1")],
};

const TREE_EXAMPLES: &[Term] = &[
    ("synconce tree import bookworm bookworm.tar", "Make a tree from an archive."),
    ("synconce tree clone bookworm work", "Clone it."),
    ("synconce tree run work apt-get update", "Change the clone."),
    ("synconce tree commit work", "Make the changes durable."),
    ("synconce tree remove -n work", "Show what a removal would free."),
];

const TREE_PAGES: &[Term] = &[
    ("synconce", "1"),
    ("synconce-run", "1"),
    ("synconce-tree-import", "1"),
    ("synconce-tree-run", "1"),
    ("synconce-tree-commit", "1"),
];

const TREE_RUN: &[Term] = &[
    ("COMMAND's own", "COMMAND ran."),
    ("124", "The time of --timeout was over, and the changes are thrown away."),
    ("125", "synconce failed, and the changes are thrown away; or the command line is wrong."),
    ("126", "COMMAND cannot be executed."),
    ("127", "COMMAND is not found in the tree."),
    ("a signal", "COMMAND was ended by that signal; synconce ends by the same signal."),
];

const RUN_IN: &[Term] = &[
    ("synconce tree run work", "Start a shell in the clone work."),
    ("synconce tree run work apt-get install -y gcc", "Run a command; its changes stay in work."),
    (
        "synconce tree run --from work --bind \"$PWD:/src\" make -C /src check",
        "Run in a clone that is thrown away.",
    ),
    (
        "synconce tree run --from bookworm --commit bookworm apt-get -y upgrade",
        "Make the next generation of a tree.",
    ),
];

const DIFF: &[Term] =
    &[("0", "The trees are the same."), ("1", "The trees differ."), ("125", "synconce failed.")];

const CHECKED: &[Term] =
    &[("0", "Nothing is wrong."), ("1", "Something is wrong."), ("125", "synconce failed.")];

const BENCH: Sections = Sections {
    exit_status: OK_OR_FAILED,
    files: &[],
    environment: &[],
    examples: &[
        ("synconce bench cost", "Measure what the tool itself costs."),
        ("synconce bench install --dir /srv/bench", "Measure an install on the disk of /srv."),
        ("synconce bench db --dir /srv/bench", "Measure transactions of databases there."),
    ],
    see_also: &[("synconce", "1"), ("synconce-run", "1")],
};

const HOLD: Sections = Sections {
    exit_status: OK_OR_FAILED,
    files: &[
        ("/etc/synconce/hold.d/NAME.toml", "What the hold NAME holds (synconce-hold(1))."),
        ("/var/lib/synconce/holds", "Markers of holds, and journals of what was set aside."),
        ("/run/synconce/holds", "Locks of holds, and their guards."),
        (".synconce-hold", "Beside held files: directories of the overlays."),
        (".synconce-aside-NAME-N", "Beside held files: what was set aside after a crash."),
    ],
    environment: &[VARIABLES[0], VARIABLES[1]],
    examples: &[],
    see_also: &[("synconce-hold", "1"), ("synconce-setup", "1"), ("synconce-status", "1")],
};

/// Returns the sections of the page `name` that are tables of docs/hold.md: their titles, and
/// the headings before the tables.
pub fn tables(name: &str) -> &'static [Term] {
    match name {
        "synconce-hold" => {
            &[("FIELDS OF THE FILE", "The file of a hold"), ("AFTER A CRASH", "After a crash")]
        }
        "synconce-hold-status" => &[("STATES", "States"), ("JSON", "JSON")],
        _ => &[],
    }
}

const HOLD_STATUS: &[Term] = &[
    ("0", "No hold is interrupted or has failed."),
    ("4", "A hold was interrupted, or has failed."),
    ("125", "synconce failed, or the command line is wrong."),
];

const HOLD_EXAMPLES: &[Term] = &[
    ("synconce hold start jobs", "Hold the files of /etc/synconce/hold.d/jobs.toml."),
    ("synconce hold run ./jobs.toml -- jobsd", "Run a daemon with its files held."),
    ("synconce hold recover jobs --wipe", "After a crash: start without the files."),
];

const HOLD_PAGES: &[Term] = &[
    ("synconce-hold-start", "1"),
    ("synconce-hold-stop", "1"),
    ("synconce-hold-status", "1"),
    ("synconce-hold-recover", "1"),
    ("synconce-hold-settle", "1"),
    ("synconce-hold-restore", "1"),
    ("synconce-hold-run", "1"),
    ("synconce-setup", "1"),
];
