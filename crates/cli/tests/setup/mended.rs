//! An install that was cut short, and the command that `synconce status` prints.

use super::place::manifest_of;
use synconce_testkit::harness::{Debian, isolated};
use synconce_testkit::manifest;

/// cron has conffiles, and chrony one that ucf keeps.
const INSTALL: &str = "apt-get install -y -qq --no-install-recommends cron chrony";
const AGAIN: &str = r#"dpkg-query --show --showformat='${binary:Package}\n' |
    xargs apt-get install -qq --reinstall --yes"#;

/// A configuration file that its user edited, and a file whose mode is not its package's.
const OWN: &str = r#"
sed -i 's/^UMASK.*/UMASK 027/' /etc/login.defs
dpkg-statoverride --update --add root root 0700 /usr/bin/chage
"#;

/// Kills the supervisor of the run when dpkg has installed the package, and loses the content
/// of what the run wrote as file systems do, in dpkg's own directory, too. Account files are
/// left alone: they are replaced by renames, after which ext4 writes the content soon. Of dpkg's
/// list of packages there is no copy, as in containers. Of the diversions, and of the owners and
/// modes, there are only the daily copies.
///
/// The start of a run is known by the second: the root's own empty files have an earlier one.
const CUT: &str = r#"
second=$(date +%s); until [ $(date +%s) -gt $second ]; do sleep 0.05; done
touch /root/start
mkdir -p /var/backups
for list in diversions statoverride; do
    cp /var/lib/dpkg/$list /var/backups/dpkg.$list.0
done
echo 'DPkg::Post-Invoke {"kill -9 $(grep -o supervisor.*[0-9] /run/synconce/$SYNCONCE_RUN.json | grep -o [0-9]*)";};' \
    >/etc/apt/apt.conf.d/kill
INSTALL || echo "ended $?"
rm /etc/apt/apt.conf.d/kill
{
    find /etc /usr /var/lib/dpkg -xdev -cnewer /root/start -type f \
        ! -name 'passwd*' ! -name 'group*' ! -name '*shadow*'
    find /var/lib/dpkg/diversions* /var/lib/dpkg/statoverride*
} >/root/lost
xargs truncate -s 0 </root/lost
"#;

/// Keeps the command that `status` prints. The command changes nothing while another process has
/// dpkg's lock, and ends where apt fails. Then the disk loses the files again.
const FAIL: &str = r#"
synconce status >/root/said && exit 9
sed -n 's/^      \(synconce status --mend \)/\1/p' /root/said >/root/mend
perl -e 'use Fcntl; open(my $lock, "+<", "/var/lib/dpkg/lock-frontend");
    my $whole = pack("s s x4 q q i", F_WRLCK, 0, 0, 0, 0);
    fcntl($lock, F_SETLK, $whole) or die;
    exit(system("sh", "/root/mend") >> 8)' 2>&1 && exit 9
test -s /etc/crontab && exit 9
echo 'DPkg::Pre-Invoke {"false";};' >/etc/apt/apt.conf.d/fail
code=0; sh /root/mend </dev/null >/root/ended 2>&1 || code=$?
rm /etc/apt/apt.conf.d/fail
tail -n 2 /root/ended; echo "ended $code"
xargs truncate --no-create -s 0 </root/lost
"#;

/// Types what is printed, and ends at the first command that fails.
const MEND: &str = r#"
sh -ex /root/mend </dev/null >/root/ended
tail -n 2 /root/ended | sed 's/^then: //' >/root/rest
sh -ex /root/rest </dev/null && synconce status
"#;

/// Files of the home directory, backups, what ucf knows, and the package's text of an edited file.
const NOISE: [&str; 6] = [
    "root/**",
    "etc/*-",
    "etc/*.org",
    "var/lib/ucf/hashfile.?",
    "var/backups",
    "etc/login.defs.dpkg-dist",
];

/// Takes long: every package of the root is installed again.
#[test]
fn an_install_that_lost_its_files_is_mended_by_the_command_that_status_prints() {
    isolated(|place| {
        let root = Debian::new(&place.path("root"));
        root.sh(&format!("synconce setup apt\n{OWN}"));
        let cut = root.sh(&CUT.replace("INSTALL", INSTALL));
        assert!(cut.contains("ended 125\n"), "{cut}");
        let lost = root.sh("cat /root/lost");
        for file in ["/etc/crontab\n", "/etc/chrony/chrony.conf\n"] {
            assert!(lost.contains(file), "configuration is lost");
        }
        assert_eq!(root.sh("find /usr/sbin/cron -empty"), "/usr/sbin/cron\n");
        let failed = root.sh(FAIL);
        assert!(failed.contains(": apt or dpkg is locked by perl (pid "), "{failed}");
        let message =
            "synconce: cannot install every package again: exit code 123\nsynconce: hint: ";
        assert!(failed.contains(message) && failed.ends_with("\nended 123\n"), "{failed}");
        let ended = root.run(&["sh", "-ec", MEND]);
        assert!(ended.status.success(), "{ended:?}");
        println!("{}", ended.stdout);
        let mended =
            (manifest_of(&root, &NOISE), root.sh("dpkg --audit; dpkg-divert --list | sort"));
        root.down();

        let plain = Debian::new(&place.path("plain"));
        plain.sh(&format!("synconce setup apt\n{OWN}\n{INSTALL}; {AGAIN}"));
        let wanted =
            (manifest_of(&plain, &NOISE), plain.sh("dpkg --audit; dpkg-divert --list | sort"));
        plain.down();
        assert_eq!(manifest::diff(&wanted.0, &mended.0), []);
        assert_eq!(wanted.1, mended.1);
    });
}

/// Leaves two packages in dpkg's list: one that apt can fetch from a small repository, and one of
/// which apt knows no version. Then a run is interrupted, and its ID kept. Its script has another
/// name than dpkg. The disk loses the list of packages that apt has fetched. Before, the user has
/// emptied a configuration file. The start times of a run and of the commands have the resolution
/// of a second.
const FEW: &str = r#"
in_a_second_after() { until test "$(find "$1" ! -newerct @$(date +%s))"; do sleep 0.05; done; }
grep -qx /etc/cron.daily/dpkg /var/lib/dpkg/info/dpkg.conffiles
: >/etc/cron.daily/dpkg
rm -r /etc/apt/sources.list* /var/lib/apt/lists
cp /var/lib/dpkg/status /root/all
: >/var/lib/dpkg/status
mkdir /srv/repo
for name in known local; do
    mkdir -p /root/$name/DEBIAN /root/$name/usr/share/$name /root/$name/etc
    printf 'Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n' \
        $name >/root/$name/DEBIAN/control
    echo x >/root/$name/usr/share/$name/file
    echo /etc/$name.conf | tee /root/$name/DEBIAN/conffiles >/root/$name/etc/$name.conf
    dpkg-deb --root-owner-group --build /root/$name /srv/repo/$name.deb
done
cd /srv/repo
{
    dpkg-deb --field known.deb
    echo "Filename: ./known.deb"
    echo "Size: $(stat -c %s known.deb)"
    echo "SHA256: $(sha256sum known.deb | cut -d ' ' -f 1)"
} >Packages
echo 'deb [trusted=yes] copy:/srv/repo ./' >/etc/apt/sources.list
cat >/root/provision <<'END'
apt-get update
dpkg --install known.deb local.deb
: | tee /var/lib/apt/lists/*_Packages
sync /root/all
kill -9 $PPID
END
in_a_second_after /etc/cron.daily/dpkg
synconce run -- sh /root/provision || echo "ended $?"
until id=$(synconce status | sed -n 's/ interrupted .*//p'); test -n "$id"; do :; done
echo "$id" >/root/id
in_a_second_after /var/lib/dpkg/info/local.list
synconce status || :
"#;

/// The port is closed. That is no error of `apt-get update`: it ends with 0.
const NO_NETWORK: &str = r#"
: | tee /var/lib/apt/lists/*_Packages
mv /etc/apt/sources.list /root/sources
echo 'deb [trusted=yes] http://127.0.0.1:9 ./' >/etc/apt/sources.list
echo 'Acquire::Retries "0"; Acquire::http::Proxy "DIRECT";' >/etc/apt/apt.conf.d/network
"#;

/// Ends as `status --mend` ends.
const MEND_FEW: &str = "synconce status --mend $(cat /root/id) 2>&1 </dev/null";

#[test]
fn what_is_not_mended_is_said() {
    isolated(|place| {
        let root = Debian::new(&place.path("root"));
        let status = root.sh(FEW);
        assert!(status.contains("\n      synconce status --mend 2"), "{status}");
        let fails = |code: i32, error: &str| {
            let ended = root.run(&["sh", "-c", MEND_FEW]);
            assert_eq!(ended.status.code(), Some(code), "{ended:?}");
            let message = format!("\nsynconce: cannot {error}: exit code {code}\nsynconce: hint: ");
            assert!(ended.stdout.contains(&message), "{ended:?}");
            assert!(!ended.stdout.contains("every package is installed again"), "{ended:?}");
            ended.stdout
        };
        root.sh("cd /var/lib/dpkg; cp status /root/few; : >status; : >status-old");
        root.sh(": >/usr/share/known/file; mv /var/lib/dpkg/info /root/; mkdir /var/lib/dpkg/info");
        root.sh("cd /var/lib/dpkg; : >diversions; rm -f diversions-old");
        let said = fails(1, "list the installed packages");
        for list in ["status", "diversions"] {
            let lost = format!("\nlost, without a copy: /var/lib/dpkg/{list}\n");
            assert!(said.contains(&lost), "{said}");
        }
        root.sh("rmdir /var/lib/dpkg/info; mv /root/info /var/lib/dpkg");
        // The next call finds the copy that Debian makes each day.
        root.sh("mkdir -p /var/backups; mv /root/few /var/backups/dpkg.status.0");
        root.sh("echo changed >/etc/new; : >/etc/empty");

        // A grep that cannot start, and one that cannot read files.
        root.sh("mv /usr/bin/grep /root/grep");
        fails(127, "remove empty files in /etc");
        assert_eq!(root.sh("cat /etc/new; ls /etc/empty"), "changed\n/etc/empty\n");
        root.sh(
            "printf '#!/bin/sh\ntest $# -lt 3 || exit 2\nexec /root/grep \"$@\"\n' >/usr/bin/grep",
        );
        root.sh("chmod 755 /usr/bin/grep");
        root.sh(NO_NETWORK);
        let said = fails(100, "fetch the lists of packages");
        assert!(!said.contains("/var/lib/dpkg/info"), "nothing else is removed: {said}");
        root.sh("mv /root/sources /etc/apt/sources.list");
        fails(1, "restore every package");
        assert_eq!(root.sh("cat /etc/new; ls /etc/empty"), "changed\n/etc/empty\n");
        // dpkg's own, and a file of a user's. Neither has content.
        root.sh("cd /etc; printf '\\0\\0\\n' | tee known.conf.dpkg-new >own.conf.dpkg-new");
        root.sh("mv /root/grep /usr/bin/grep");

        let said = fails(1, "restore every package");
        assert!(said.contains("\n/etc/empty\n"), "{said}");
        assert!(said.contains("\n/etc/known.conf.dpkg-new\n"), "{said}");
        assert_eq!(root.sh("ls /etc/*.dpkg-new"), "/etc/own.conf.dpkg-new\n");
        assert!(said.contains("\nnot installed again: local\n"), "{said}");
        assert!(!said.contains("not installed again: known"), "{said}");
        assert_eq!(root.sh("cat /usr/share/known/file"), "x\n");
        assert_eq!(root.sh("cat /etc/new; test -e /etc/empty || echo gone"), "changed\ngone\n");
        root.sh("test -e /etc/cron.daily/dpkg");
        // dpkg keeps the list of a removed package that has configuration files left.
        root.sh("dpkg --remove local; test -e /etc/local.conf");
        let ended = root.sh(MEND_FEW);
        assert!(ended.contains("\nevery package is installed again; "), "{ended}");
        root.down();
    });
}

/// Moves the package that apt does not know into a second repository, which cannot be reached yet.
/// apt kills all processes once it has the lists of the first one.
const LATE: &str = r#"
mkdir /root/late
mv /srv/repo/local.deb /root/late
cd /root/late
{
    dpkg-deb --field local.deb
    echo "Filename: ./local.deb"
    echo "Size: $(stat -c %s local.deb)"
    echo "SHA256: $(sha256sum local.deb | cut -d ' ' -f 1)"
} >Packages
echo 'deb [trusted=yes] copy:/srv/late ./' >>/etc/apt/sources.list
echo 'APT::Update::Post-Invoke {"kill -9 -1";};' >/etc/apt/apt.conf.d/kill
: >/usr/share/local/file
"#;

#[test]
fn a_mend_that_was_killed_goes_on_with_whole_lists() {
    isolated(|place| {
        let root = Debian::new(&place.path("root"));
        root.sh(FEW);
        root.sh(LATE);
        // cp is killed by a limit of 512 bytes: the copy has every package of the root.
        root.sh("cd /var/lib/dpkg; cp status /root/few; : >status; : >status-old");
        root.sh("mkdir -p /var/backups; cp /root/all /var/backups/dpkg.status.0");
        let killed = root.run(&["sh", "-c", &format!("(ulimit -f 1; {MEND_FEW}) | cat")]);
        let restoring = "\nsynconce: cannot restore dpkg's lists: exit code ";
        assert!(killed.stdout.contains(restoring), "{killed:?}");
        assert_eq!(root.sh("cd /var/lib/dpkg; cat status status-old"), "");
        root.sh("mv /root/few /var/backups/dpkg.status.0");

        let killed = root.run(&["sh", "-c", MEND_FEW]);
        assert_eq!(killed.status.code(), Some(137), "{killed:?}");
        let lists = "ls /var/lib/apt/lists | grep _Packages";
        assert_eq!(root.sh(lists), "_srv_repo_._Packages\n");
        root.sh("rm /etc/apt/apt.conf.d/kill; mv /root/late /srv");
        let ended = root.run(&["sh", "-c", MEND_FEW]);
        assert!(ended.stdout.contains("\nevery package is installed again; "), "{ended:?}");
        assert_eq!(root.sh(lists), "_srv_late_._Packages\n_srv_repo_._Packages\n");
        assert_eq!(root.sh("cat /usr/share/local/file"), "x\n");
        assert_eq!(root.sh("test ! -e /var/lib/apt/lists/torn; ls /var/lib/dpkg/*-new || :"), "");
        root.down();
    });
}
