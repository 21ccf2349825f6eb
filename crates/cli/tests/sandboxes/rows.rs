//! The sandboxes, and what a run does in each.

use synconce_testkit::harness::Need;

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub enum ExpectedRun {
    /// Holds every call, and prints nothing.
    Held,
    /// Holds every call except the opens with `O_SYNC`, whose syncs are real, and prints nothing.
    HeldButOpens,
    /// Holds every call except the open by openat2(2), whose sync is real, and prints nothing.
    HeldButOpenat2,
    /// Holds every call except the opens. The caller cannot be examined, and so the commit covers
    /// every disk.
    Unseen,
    /// Holds every call, and prints this notice.
    HeldWith(&'static str),
    /// Ends with 125 before the command starts, with these words in its messages.
    Refused(&'static str),
}

/// A sandbox.
pub struct SandboxRow {
    pub name: &'static str,
    /// A script of sh that makes the sandbox, and executes its arguments there. It runs as root
    /// in a mount namespace of its own, in the directory of the test, `$PLACE`.
    pub sandbox: &'static str,
    pub expected: ExpectedRun,
    /// What starts the writer, below synconce.
    pub writer: &'static [&'static str],
    pub needs: &'static [Need],
}

const fn row(name: &'static str, sandbox: &'static str, expected: ExpectedRun) -> SandboxRow {
    SandboxRow { name, sandbox, expected, writer: &[], needs: &[] }
}

const fn filtered(name: &'static str, sandbox: &'static str, expected: ExpectedRun) -> SandboxRow {
    SandboxRow { needs: &FILTER, ..row(name, sandbox, expected) }
}

const fn landlocked(
    name: &'static str,
    sandbox: &'static str,
    expected: ExpectedRun,
) -> SandboxRow {
    SandboxRow { needs: &LANDLOCK, ..row(name, sandbox, expected) }
}

const FILTER: [Need; 1] = [Need::Program("systemd-analyze", "systemd")];
const RUNC: [Need; 2] = [FILTER[0], Need::Program("runc", "runc")];
const LANDLOCK: [Need; 1] = [Need::Linux(5, 13, "landlock_create_ruleset(2)")];
const BWRAP: [Need; 1] = [Need::Program("bwrap", "bubblewrap")];
const AS_NOBODY: [&str; 6] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"];

use ExpectedRun::{Held, HeldButOpenat2, HeldButOpens, HeldWith, Refused, Unseen};

pub const ROWS: &[SandboxRow] = &[
    row("no sandbox", r#"exec "$@""#, Held),
    // Settings of systemd (systemd.exec(5)), made by hand.
    row("ProcSubset=pid", r#"mount -t proc -o subset=pid proc /proc; exec "$@""#, Held),
    row(
        "ProtectProc=invisible",
        r#"mount -t proc -o hidepid=2 proc /proc; exec $NOBODY "$@""#,
        Held,
    ),
    row(
        "ProtectProc=noaccess",
        r#"mount -t proc -o hidepid=1 proc /proc; exec $NOBODY "$@""#,
        Held,
    ),
    row(
        "ProtectProc=ptraceable",
        r#"mount -t proc -o hidepid=4 proc /proc; exec $NOBODY "$@""#,
        Held,
    ),
    row("ProtectSystem=strict", r#"strict; exec "$@""#, Held),
    row("PrivateTmp", r#"mount -t tmpfs tmp /tmp; mount -t tmpfs tmp /var/tmp; exec "$@""#, Held),
    row(
        "DynamicUser",
        r#"strict; exec setpriv --reuid=61234 --regid=61234 --clear-groups --no-new-privs \
            env HOME=/ "$@""#,
        Held,
    ),
    filtered("RestrictNamespaces", r#"filter deny EPERM unshare setns -- "$@""#, Held),
    filtered("LockPersonality", r#"filter deny EPERM personality -- "$@""#, Held),
    filtered("RestrictRealtime", r#"filter deny EPERM sched_setscheduler -- "$@""#, Held),
    filtered("RestrictSUIDSGID", r#"filter deny EPERM mknod mknodat fchmodat2 -- "$@""#, Held),
    filtered(
        "SystemCallFilter=~@sync",
        // The writer itself is killed there.
        r#"[ "$1" = "$BINARY" ] || exec "$@"; filter deny kill @sync -- "$@""#,
        Refused("SystemCallFilter= without ~@sync"),
    ),
    filtered(
        "SystemCallFilter=~@sync, with an error number",
        r#"[ "$1" = "$BINARY" ] || exec "$@"; filter deny EPERM @sync -- "$@""#,
        Refused("a unit of systemd allows it by SystemCallFilter="),
    ),
    filtered(
        "SystemCallFilter=@system-service",
        r#"filter allow EPERM @system-service -- "$@""#,
        Refused("SystemCallFilter=seccomp"),
    ),
    filtered(
        "SystemCallFilter=@system-service, which kills",
        r#"filter allow kill @system-service -- "$@""#,
        Refused("SystemCallFilter=seccomp"),
    ),
    filtered(
        "SystemCallFilter=@system-service seccomp",
        r#"filter allow EPERM @system-service seccomp -- "$@""#,
        HeldButOpens,
    ),
    filtered(
        "SystemCallFilter=@system-service @debug seccomp",
        r#"filter allow EPERM @system-service @debug seccomp -- "$@""#,
        Held,
    ),
    row("NoNewPrivileges", r#"exec setpriv --no-new-privs -- "$@""#, Held),
    SandboxRow {
        needs: &[Need::Linux(6, 3, "PR_SET_MDWE")],
        ..row(
            "MemoryDenyWriteExecute",
            r#"exec perl -e 'my %number = split " ", $ENV{NUMBERS};
                syscall($number{prctl}, 65, 1, 0, 0, 0) && die $!; exec @ARGV' "$@""#,
            Held,
        )
    },
    row("PrivateUsers", r#"exec unshare --user --map-root-user "$@""#, Held),
    row("PrivateUsers, not root", r#"exec $NOBODY unshare --user --map-current-user "$@""#, Held),
    row("PrivateNetwork, PrivateIPC", r#"exec unshare --net --ipc --uts "$@""#, Held),
    row("PrivateDevices", r#"devices; exec "$@""#, Held),
    row("ProtectKernelTunables", r#"read_only /proc/sys; read_only /sys; exec "$@""#, Held),
    row("CapabilityBoundingSet=", r#"exec setpriv --bounding-set=-all -- "$@""#, Held),
    row("InaccessiblePaths=/sys", r#"mount -t tmpfs -o mode=0 sys /sys; exec "$@""#, Held),
    row(
        "InaccessiblePaths=/sys, ProcSubset=pid",
        r#"mount -t tmpfs -o mode=0 sys /sys; mount -t proc -o subset=pid proc /proc; exec "$@""#,
        Held,
    ),
    row(
        "InaccessiblePaths=/proc",
        r#"mount -t tmpfs -o mode=0 proc /proc; exec "$@""#,
        Refused("/proc"),
    ),
    row(
        "no /proc",
        r#"while umount -l /proc 2>/dev/null; do :; done; exec "$@""#,
        Refused("mount -t proc proc /proc"),
    ),
    row("/proc of another pid namespace", r#"exec unshare --pid --fork --kill-child "$@""#, Unseen),
    row(
        "InaccessiblePaths=/run",
        r#"mount -t tmpfs -o mode=0 run "$PLACE/runtime"; exec "$@""#,
        Held,
    ),
    row(
        "all is read-only",
        r#"strict; read_only "$PLACE/state"; exec "$@""#,
        Refused("SYNCONCE_STATE_DIR"),
    ),
    row(
        "the state directory is read-only",
        r#"mount --bind "$PLACE/state" "$PLACE/state"; read_only "$PLACE/state"; exec "$@""#,
        Refused("the marker needs a writable disk; SYNCONCE_STATE_DIR names another directory"),
    ),
    row(
        "the state directory is of another user",
        r#"chmod 755 "$PLACE/state"; exec $NOBODY "$@""#,
        Refused("the marker needs a writable disk; SYNCONCE_STATE_DIR names another directory"),
    ),
    row(
        "the disk of the state directory is full",
        r#"mount -t tmpfs -o size=4k state "$PLACE/state"
        cat /dev/zero >"$PLACE/state/full" 2>/dev/null || true; exec "$@""#,
        Refused("free some space there, or name another directory by SYNCONCE_STATE_DIR"),
    ),
    row(
        "the state directory is in memory",
        r#"mount -t tmpfs state "$PLACE/state"; exec "$@""#,
        HeldWith("the marker is in memory"),
    ),
    row(
        "no state directory",
        r#"exec env -u SYNCONCE_STATE_DIR -u HOME -u XDG_STATE_HOME $NOBODY "$@""#,
        Refused("SYNCONCE_STATE_DIR names a directory for the marker"),
    ),
    row("LimitNOFILE=8", r#"exec prlimit --nofile=8 "$@""#, Refused("ulimit -n")),
    row("LimitNPROC=1", r#"exec $NOBODY prlimit --nproc=1 "$@""#, Refused("ulimit -u")),
    row("LimitFSIZE=300", r#"exec prlimit --fsize=300 "$@""#, Refused("ulimit -f")),
    row("LimitAS=64M", r#"exec prlimit --as=67108864 "$@""#, Held),
    row("TasksMax=2", r#"tasks 2; exec "$@""#, Refused("pids.max")),
    row("TasksMax=3", r#"tasks 3; exec "$@""#, HeldButOpens),
    row("closed standard descriptors", r#"exec "$@" <&- >&- 2>&-"#, Held),
    row(
        "the working directory is removed",
        r#"mkdir gone; cd gone; rmdir ../gone; exec "$@""#,
        Held,
    ),
    row("UMask=0077", r#"umask 0077; exec $NOBODY "$@""#, Held),
    // Other sandboxes.
    row("a chroot to a directory", r#"plain root; exec chroot root "$@""#, Held),
    landlocked("Landlock", r#"landlock / "$PLACE" -- "$@""#, HeldButOpenat2),
    landlocked(
        "Landlock without /sys",
        r#"landlock "$SEEN:/proc" "$PLACE" -- "$@""#,
        HeldButOpenat2,
    ),
    landlocked("Landlock without /proc", r#"landlock "$SEEN" "$PLACE" -- "$@""#, Refused("/proc")),
    SandboxRow {
        needs: &BWRAP,
        ..row("bubblewrap", r#"exec bwrap $BWRAP --unshare-all "$@""#, Held)
    },
    SandboxRow {
        needs: &BWRAP,
        ..row("bubblewrap of a user", r#"exec $NOBODY bwrap $BWRAP --unshare-all "$@""#, Held)
    },
    SandboxRow {
        needs: &BWRAP,
        ..row(
            "bubblewrap without /proc",
            r#"exec bwrap $BWRAP --tmpfs /proc "$@""#,
            Refused("/proc"),
        )
    },
    // Root without CAP_SYS_PTRACE, and a writer of another user.
    SandboxRow {
        writer: &AS_NOBODY,
        ..row(
            "the capabilities of a container, another user",
            r#"exec setpriv --bounding-set="-all,$DOCKER" -- "$@""#,
            Unseen,
        )
    },
    row(
        "the capabilities of a container, root",
        r#"exec setpriv --bounding-set="-all,$DOCKER" -- "$@""#,
        Held,
    ),
    // Profiles and settings of Kubernetes, Podman and older engines.
    // libseccomp before 2.3.3 knows no statx(2), so Docker's profile refuses the call.
    filtered(
        "a profile without statx",
        r#"filter deny EPERM statx -- "$@""#,
        Refused("seccomp=unconfined"),
    ),
    filtered(
        "a profile without syncfs",
        r#"filter deny ENOSYS syncfs -- "$@""#,
        Refused("seccomp=unconfined"),
    ),
    filtered(
        "a profile without ioctl",
        r#"filter deny EACCES ioctl -- "$@""#,
        Refused("seccomp=unconfined"),
    ),
    filtered(
        "a profile without waitid",
        r#"filter deny EACCES waitid -- "$@""#,
        Refused("seccomp=unconfined"),
    ),
    filtered("a profile without prlimit64", r#"filter deny EPERM prlimit64 -- "$@""#, Held),
    filtered(
        "a profile without ptrace, root",
        r#"filter deny EPERM ptrace -- setpriv --bounding-set="-all,$DOCKER" -- "$@""#,
        HeldButOpens,
    ),
    SandboxRow {
        writer: &AS_NOBODY,
        ..filtered(
            "a profile without ptrace, another user",
            r#"filter deny EPERM ptrace -- setpriv --bounding-set="-all,$DOCKER" -- "$@""#,
            Unseen,
        )
    },
    row(
        "Kubernetes' restricted profile",
        r#"exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \
            --bounding-set=-all --no-new-privs -- "$@""#,
        Held,
    ),
    row(
        "a root that podman run --rm makes",
        r#"volatile root; exec chroot root "$@""#,
        Refused("--no-commit"),
    ),
    SandboxRow { needs: &RUNC, ..row("runc, root", r#"container "$@""#, Held) },
    SandboxRow {
        needs: &RUNC,
        writer: &AS_NOBODY,
        ..row("runc, another user", r#"container "$@""#, Unseen)
    },
    SandboxRow {
        writer: &AS_NOBODY,
        ..row(
            "hidepid=2, another user",
            r#"mount -t proc -o hidepid=2 proc /proc
            exec setpriv --bounding-set=-sys_ptrace -- "$@""#,
            Unseen,
        )
    },
    SandboxRow { writer: &AS_NOBODY, ..row("another user", r#"exec "$@""#, Held) },
];
