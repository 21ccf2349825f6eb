//! What works in a run in a fresh Debian, and what docs/trees.md says does not.

use crate::site::Site;
use crate::users;
use libtest_mimic::Trial;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use synconce_testkit::harness::{Need, Place, debian, trial};

const NEEDS: [Need; 3] = [
    Need::Program("mmdebstrap", "mmdebstrap"),
    Need::Program("newuidmap", "uidmap"),
    Need::Linux(5, 11, "overlays in user namespaces"),
];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(what_does_not_work_in_a_fresh_root_is_documented, &NEEDS),
        // It downloads packages, and installs them for a quarter of a minute.
        trial(programs_of_packages_work, &NEEDS).with_ignored_flag(true),
    ]
}

/// For which users a probe succeeds.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Works {
    /// For each.
    Always,
    /// For root in the tree, also in the run of a user of the host without root.
    ForRoot,
    /// For root in the run of the host's root.
    ForRootOfTheHost,
    /// For none.
    Never,
}

/// What a build may do.
struct Probe {
    /// Its name in docs/trees.md.
    name: &'static str,
    /// A script of bash. `$T` is a directory of its own.
    script: &'static str,
    works: Works,
    /// A part of the message of root's failure; of another user's if it works for root.
    message: &'static str,
}

const fn always(name: &'static str, script: &'static str) -> Probe {
    Probe { name, script, works: Works::Always, message: "" }
}

const fn for_root(name: &'static str, script: &'static str, message: &'static str) -> Probe {
    Probe { name, script, works: Works::ForRoot, message }
}

const fn of_the_host(name: &'static str, script: &'static str, message: &'static str) -> Probe {
    Probe { name, script, works: Works::ForRootOfTheHost, message }
}

const fn never(name: &'static str, script: &'static str, message: &'static str) -> Probe {
    Probe { name, script, works: Works::Never, message }
}

const NOT_PERMITTED: &str = "Operation not permitted";
const DENIED: &str = "Permission denied";
const SUPERUSER: &str = "must be superuser to use mount";
const NO_FILE: &str = "No such file or directory";
const READ_ONLY: &str = "Read-only file system";

/// The probes. None may change the host: of a right that root must not have, its absence is tested.
const PROBES: &[Probe] = &[
    // Terminals.
    never("`tty` without a terminal", "tty", "not a tty"),
    never("`/dev/tty` without a terminal", ": </dev/tty", "No such device or address"),
    always("script", "SHELL=/bin/sh script -qec tty /dev/null"),
    always("ptmx", r#"perl -e 'open my $m, "+<", "/dev/ptmx" or die $!'"#),
    always("setsid", "setsid --wait true"),
    // Devices.
    always("/dev/full", "! dash -c 'echo x >/dev/full'"),
    always("/dev/fd", "bash -c 'cat <(echo x)'"),
    always("random numbers", "head -c 1 /dev/random /dev/urandom /dev/zero >/dev/null"),
    never("`/dev/loop-control` and loop devices", "ls /dev/loop-control", NO_FILE),
    never("`/dev/fuse`", "ls /dev/fuse", NO_FILE),
    never("`/dev/kvm`", "ls /dev/kvm", NO_FILE),
    never("`/dev/net/tun`", "ls /dev/net/tun", NO_FILE),
    never("`/dev/log`", "logger --socket-errors=on x", NO_FILE),
    of_the_host("device nodes", "mknod $T/n c 1 3 && echo x >$T/n", NOT_PERMITTED),
    always("fifos", "mkfifo $T/n"),
    // Names.
    always("users", "getent passwd root"),
    always("localhost", "getent ahostsv4 localhost"),
    always("own name", r#"getent ahostsv4 "$(cat /proc/sys/kernel/hostname)""#),
    always("resolver", "test -e /etc/resolv.conf"),
    for_root("`hostname NAME`", "hostname zzz && test $(hostname) = zzz", "you must be root"),
    for_root("`domainname NAME`", "domainname zzz", "you must be root"),
    never("`sed -i` of `/etc/hosts`", "sed -i s/x/x/ /etc/hosts", "Device or resource busy"),
    never("`mv FILE /etc/hosts`", "touch $T/f; mv $T/f /etc/hosts", "Device or resource busy"),
    for_root(
        "a line more in `/etc/hosts`",
        "echo 192.0.2.1 a >>/etc/hosts; getent hosts a",
        DENIED,
    ),
    // Environment.
    always("clean environment", r#"test "$HOME" -a "$PATH" -a "$LANG" = C.UTF-8"#),
    always("character set", "test $(locale charmap) = UTF-8"),
    always("limits", "ulimit -n 512"),
    always("own processes alone", "test -r /proc/1/status && ! ls /proc/100000"),
    always("kernel settings, read", "cat /proc/sys/kernel/osrelease"),
    // Communication between processes.
    always("shared memory", "echo x >/dev/shm/p-$$ && rm /dev/shm/p-$$"),
    always("System V IPC", "ipcmk -M 4096 -S 1 -Q"),
    for_root("mounts of mqueue", "mkdir $T/m && mount -t mqueue none $T/m", SUPERUSER),
    always(
        "ports",
        r#"perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 1, LocalAddr =>
        "127.0.0.1") or die $!; IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort =>
        $s->sockport) or die $!'"#,
    ),
    always(
        "sockets in files",
        r#"perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "$ENV{T}/s", Listen => 1)
        or die $!'"#,
    ),
    always(
        "abstract sockets",
        r#"perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => "\0probe-$$", Listen => 1)
        or die $!'"#,
    ),
    of_the_host(
        "raw sockets, such as ping's",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_RAW, 1) or die $!'",
        NOT_PERMITTED,
    ),
    // Users.
    for_root("`su USER`", "su games -s /bin/sh -c 'id -u'", "Authentication failure"),
    for_root("`setpriv --reuid`", "setpriv --reuid 1 --regid 1 --clear-groups true", NOT_PERMITTED),
    always("setpriv --no-new-privs", "setpriv --no-new-privs true"),
    // Mounts and roots.
    for_root("mounts of tmpfs", "mkdir $T/m && mount -t tmpfs none $T/m", SUPERUSER),
    for_root("bind mounts", "mkdir $T/m && mount --bind /usr $T/m", SUPERUSER),
    for_root("mounts of proc", "mkdir $T/m && mount -t proc proc $T/m", SUPERUSER),
    for_root(
        "mounts of devpts",
        "mkdir $T/m && mount -t devpts -o newinstance none $T/m",
        SUPERUSER,
    ),
    of_the_host("mounts of sysfs", "mkdir $T/m && mount -t sysfs sysfs $T/m", "permission denied"),
    for_root(
        "overlays on tmpfs",
        "mount -t tmpfs none $T && cd $T && mkdir l u w m && \
         mount -t overlay -o lowerdir=l,upperdir=u,workdir=w none m",
        SUPERUSER,
    ),
    never(
        "overlays on a tree that is an overlay",
        "cd $T && mkdir l u w m && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w none m",
        "wrong fs type",
    ),
    for_root("chroot", "chroot / true", NOT_PERMITTED),
    for_root(
        "`pivot_root`",
        "unshare --mount sh -ec 'mount --bind / /mnt; cd /mnt; pivot_root . tmp'",
        NOT_PERMITTED,
    ),
    never("writes below `/sys`", "touch /sys/kernel/probe", READ_ONLY),
    never("control groups below `/sys/fs/cgroup`", "mkdir /sys/fs/cgroup/probe", READ_ONLY),
    // Namespaces.
    for_root("`unshare --mount`", "unshare --mount true", NOT_PERMITTED),
    for_root("`unshare --uts`", "unshare --uts hostname zzz", NOT_PERMITTED),
    for_root("`unshare --ipc`", "unshare --ipc true", NOT_PERMITTED),
    for_root("`unshare --net`", "unshare --net true", NOT_PERMITTED),
    for_root("`unshare --pid`", "unshare --pid --fork --mount-proc true", NOT_PERMITTED),
    for_root("`unshare --cgroup`", "unshare --cgroup true", NOT_PERMITTED),
    for_root("`unshare --time`", "unshare --time true", NOT_PERMITTED),
    never("`unshare --time --boottime N`", "unshare --time --boottime 5 true", NOT_PERMITTED),
    always("unshare --user", "unshare --user --map-root-user true"),
    always("offsets of clocks", "unshare --user --map-root-user --time --boottime 5 true"),
    always(
        "unshare of all",
        "unshare --user --map-root-user --mount --pid --fork --net --ipc --uts --cgroup \
         --mount-proc true",
    ),
    for_root("`nsenter --target 1`", "nsenter --target 1 --mount true", DENIED),
    // Files.
    of_the_host("`chattr +i`", "touch $T/a && chattr +i $T/a && chattr -i $T/a", NOT_PERMITTED),
    for_root("`chown` to another user", "touch $T/a && chown 5:6 $T/a", NOT_PERMITTED),
    always("setuid programs", "cp /bin/true $T/t && chmod 4755 $T/t && $T/t"),
    always("times", "touch -d @1 $T/a && test $(stat -c %Y $T/a) = 1"),
    always("hard links", "touch $T/a && ln $T/a $T/b"),
    for_root(
        "`mv` of a directory of the base",
        "mv /usr/share/base-files $T/m && mv $T/m /usr/share/base-files",
        DENIED,
    ),
    always("holes", "fallocate -l 1M $T/f && fallocate -p -o 0 -l 4096 $T/f"),
    always("locks of files", "flock $T/f true"),
    // Processes. Containers, groups of real-time processes and limits.conf(5) decide on these, too.
    of_the_host("`renice -n -5`", "renice -n -5 $$", DENIED),
    of_the_host("`chrt --fifo`", "chrt -f 1 true", NOT_PERMITTED),
    of_the_host("`ionice -c 1`", "ionice -c 1 true", NOT_PERMITTED),
    always("processors", "taskset -p $$"),
    always("fixed addresses", "setarch -R true"),
    always("32-bit names", "test $(setarch linux32 uname -m) != x86_64"),
    // The act itself could set the host's clock. This is the error of settimeofday(2) without the
    // right.
    never(
        "`date --set`",
        "setpriv --dump | grep -q 'bounding set:.*sys_time' || { echo Operation not permitted; exit 1; }",
        NOT_PERMITTED,
    ),
    // Packages.
    always("apt-get", "apt-get -s -qq check"),
    always("dpkg", "dpkg --audit"),
    for_root("`ldconfig`", "ldconfig", DENIED),
    for_root("`useradd`", "useradd -r probe && userdel probe", "cannot lock /etc/passwd"),
    always("update-alternatives", "update-alternatives --query awk"),
    never("`systemctl`", "systemctl --version", "command not found"),
];

/// Probes of programs that [`PACKAGES`] contain.
const OF_PACKAGES: &[Probe] = &[
    for_root("`sudo`", "sudo -n id -u", "a password is required"),
    always("ssh-keygen", "ssh-keygen -q -t ed25519 -N '' -f $T/key"),
    always(
        "locks of multiprocessing",
        "python3 -c 'import multiprocessing as m; p = m.Process(target=m.Lock().acquire); \
         p.start(); p.join(); exit(p.exitcode)'",
    ),
    always(
        "message queues",
        r#"python3 -c 'import ctypes as c; l = c.CDLL(None, use_errno=True)
q = l.mq_open(b"/probe", 0o102, 0o600, None); exit(q < 0 and str(c.get_errno()))'"#,
    ),
    always("pty", "python3 -c 'import os; os.ttyname(os.openpty()[1])'"),
    always(
        "gpg",
        "export GNUPGHOME=$T/g; mkdir -m 700 $T/g; gpg --batch --passphrase '' \
         --quick-generate-key probe default default never && echo x | gpg --batch --sign | \
         gpg --verify",
    ),
    always(
        "tmux",
        "export TMUX_TMPDIR=$T SHELL=/bin/sh; \
         tmux new-session -d 'tty >$T/o; tmux wait-for -S d; sleep 9'; \
         tmux wait-for d; tmux kill-server; grep /dev/pts/ $T/o",
    ),
    always(
        "screen",
        "export SCREENDIR=$T/d SHELL=/bin/sh; mkdir -m 700 $T/d; screen -Dm sh -c 'tty >$T/o'; \
         grep /dev/pts/ $T/o",
    ),
    always("ping", "unshare -Urn sh -ec 'ip link set lo up; ping -c 1 127.0.0.1'"),
    always("bwrap", "bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp true"),
    always("bwrap alone", "bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc true"),
    always("strace", "strace -f -o $T/o true"),
    always("gdb", "SHELL=/bin/sh gdb -batch -ex run -ex 'quit $_exitcode' /bin/true"),
    always(
        "gdb of a process",
        "sleep 9 & gdb -batch -p $! -ex detach; code=$?; kill $!; exit $code",
    ),
    always(
        "fakeroot",
        "fakeroot sh -ec \"touch $T/f; chown 1:2 $T/f; mknod $T/n c 1 3; \
         stat -c %u:%g $T/f | grep 1:2\"",
    ),
    for_root("`setcap`", "cp /bin/true $T/t && setcap cap_net_raw+ep $T/t", NOT_PERMITTED),
    always("access lists", "setfacl -m u:1234:rw $T"),
    of_the_host("`ip netns add`", "ip netns add p && ip netns del p", NOT_PERMITTED),
    never(
        "`systemd-nspawn`",
        "mkdir $T/r; mount --bind / $T/r; \
         systemd-nspawn --quiet --register=no --keep-unit -D $T/r true",
        "Failed to",
    ),
];

/// The packages of [`OF_PACKAGES`].
const PACKAGES: &str = "sudo openssh-client python3-minimal libpython3-stdlib bubblewrap strace \
                        gdb-minimal fakeroot libcap2-bin acl iproute2 systemd-container gpg gpg-agent \
                        tmux screen iputils-ping";

/// The probes that also fail for root of some hosts. They change no host.
const HOST_DECIDES: [&str; 3] = ["`renice -n -5`", "`chrt --fifo`", "`ionice -c 1`"];

/// Prints a line for each call: the name, the exit code and what was printed, with tabs between
/// them. No user may raise priorities (setrlimit(2)); root may.
const RUNNER: &str = r#"ulimit -e 0; ulimit -r 0; probe() {
    T=$(mktemp -d); export T
    timeout -k 1 60 bash -c "$2" >/tmp/said 2>&1 </dev/null; code=$?
    printf '%s\t%s\t%s\n' "$1" $code "$(tr '\n\t' '  ' </tmp/said)"
}
"#;

/// Returns a script that does `probes`.
fn script(probes: &[Probe]) -> String {
    let mut script = RUNNER.to_owned();
    for Probe { name, script: one, .. } in probes {
        let quoted = [name, one].map(|word| format!("'{}'", word.replace('\'', r"'\''")));
        writeln!(script, "probe {}", quoted.join(" ")).unwrap();
    }
    script
}

/// A user, in the run of the host's root or of another user of the host.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Caller {
    Root,
    UserOfTheTree,
    RootWithoutRoot,
}

/// Returns how the results in `printed` are not what `probes` have for `caller`.
fn differences(probes: &[Probe], caller: Caller, printed: &str) -> Vec<String> {
    let results: Vec<Vec<_>> = printed.lines().map(|line| line.splitn(3, '\t').collect()).collect();
    assert_eq!(results.len(), probes.len(), "{caller:?}: {printed}");
    let wrong = probes.iter().zip(&results).filter_map(|(probe, result)| {
        let works = match probe.works {
            Works::Always => true,
            Works::ForRoot => caller != Caller::UserOfTheTree,
            Works::ForRootOfTheHost => caller == Caller::Root && works_on_the_host(probe),
            Works::Never => false,
        };
        // The user of the tree may be refused for an earlier reason.
        let says = probe.works == Works::ForRoot || caller != Caller::UserOfTheTree;
        let ends = (result[1] == "0") == works;
        let right = ends && (works || !says || result[2].contains(probe.message));
        (!right).then(|| format!("{caller:?}: {result:?}, not {:?} {}", probe.works, probe.message))
    });
    wrong.collect()
}

/// Returns whether `probe` works for root without a run, as far as the host decides on it.
fn works_on_the_host(probe: &Probe) -> bool {
    let on_the_host = || Command::new("bash").args(["-c", probe.script]).output().unwrap();
    !HOST_DECIDES.contains(&probe.name) || on_the_host().status.success()
}

/// Returns the rows of docs/trees.md for `works`: a message, and what fails with the message.
fn rows(works: Works) -> Vec<String> {
    let mut rows: Vec<(&str, Vec<&str>)> = Vec::new();
    for probe in PROBES.iter().chain(OF_PACKAGES).filter(|probe| probe.works == works) {
        match rows.iter_mut().find(|row| row.0 == probe.message) {
            Some(row) => row.1.push(probe.name),
            None => rows.push((probe.message, vec![probe.name])),
        }
    }
    rows.iter().map(|(message, names)| format!("| `{message}` | {} |", names.join(", "))).collect()
}

fn what_does_not_work_in_a_fresh_root_is_documented(place: &Place) {
    let site = Site::plain(place);
    // The directory of the build may be closed to other users.
    let tar = place.path("base.tar");
    fs::copy(debian::base(), &tar).unwrap();
    site.import("base", &tar);
    assert_as_expected(&site, PROBES, &tar);
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/trees.md");
    let document = fs::read_to_string(document).unwrap();
    let devices =
        document.lines().find_map(|line| line.strip_prefix("| `/dev` | ")).expect("a row");
    let devices: Vec<_> = devices.split('`').skip(1).step_by(2).collect();
    assert_eq!(site.from("base", "ls /dev").lines().collect::<Vec<_>>(), devices);
    let section = document.split_once("### What does not work").expect("the section").1;
    let section = section.split_once("\n### ").expect("another section").0;
    let documented: Vec<_> = section.lines().filter(|line| line.starts_with("| `")).collect();
    let known = [Works::Never, Works::ForRootOfTheHost, Works::ForRoot].map(rows).concat();
    assert_eq!(documented, known, "the tables should be\n{}", known.join("\n"));
}

fn programs_of_packages_work(place: &Place) {
    let site = Site::plain(place);
    site.import("debian", &debian::base());
    let install = format!(
        "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; \
         apt-get -qq install --no-install-recommends {PACKAGES}"
    );
    site.keep("debian", "base", &["/bin/sh", "-ec", &install]);
    let tar = place.path("base.tar");
    let mut export = site.tree(&["export", "base"]);
    assert!(export.stdout(File::create(&tar).unwrap()).status().unwrap().success());
    assert_as_expected(&site, OF_PACKAGES, &tar);
}

/// Does `probes` in the tree `base`, of which `tar` is an archive.
fn assert_as_expected(site: &Site<'_>, probes: &[Probe], tar: &Path) {
    let script = script(probes);
    let end = ["--", "/bin/bash", "-c", &script];
    let run =
        |options: &[&str]| site.well(&[&["run", "--from", "base"], options, &end].concat()).stdout;
    let mut wrong = differences(probes, Caller::Root, &run(&[]));
    wrong.extend(differences(probes, Caller::UserOfTheTree, &run(&["--user", "nobody"])));
    users::subordinate(site.place, "nobody:100000:65536\n");
    users::well(site.place, &["import", "base", tar.to_str().unwrap()]);
    let printed = users::well(site.place, &[&["run", "--from", "base"], &end[..]].concat());
    wrong.extend(differences(probes, Caller::RootWithoutRoot, &printed));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
