//! `synconce setup apt` in a Debian root of its own, with its apt and dpkg.

use super::place::{EndedCommand, SYNCONCE, manifest_of};
use std::fs;
use std::process::Command;
use synconce_testkit::harness::{
    Debian, Place, StartedCommand, eventually, isolated, without_foreign_syncs, without_seccomp,
};
use synconce_testkit::manifest;

const PRERM: &str = include_str!("../../../../packaging/debian/synconce.prerm");

/// Installs two packages that are downloaded, of 3,500 syncs.
const INSTALL: &str = "apt-get install -y -qq --no-download --no-install-recommends manpages-dev";

/// Makes packages below /root: `daemon`, whose scripts call dpkg and start a daemon that syncs
/// later; `gains`, whose script executes a setuid program as a user; `environment`, whose script
/// writes variables and how its dpkg was called; `waits`, whose script waits for a file; `broken`,
/// whose script fails; `slow`, whose script ends its dpkg by a signal and waits for that end, as
/// dpkg could otherwise be done first; and two versions of a `tasksel`.
const PACKAGES: &str = r#"
cd /root
package() {
    mkdir -p "$1/DEBIAN" "$1/usr/bin"
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n' \
        "${1%-*}" "${1#*-}" >"$1/DEBIAN/control"
    printf '#!/bin/sh\nset -e\n%s\n' "$2" >"$1/DEBIAN/postinst"
    chmod 755 "$1/DEBIAN/postinst"
    [ -z "$3" ] || { printf '#!/bin/sh\necho "%s $*"\n' "$3" >"$1/usr/bin/${1%-*}"; chmod 755 "$1/usr/bin/${1%-*}"; }
    dpkg-deb --build "$1" "/root/$1.deb" >/dev/null
}
package daemon-1 'dpkg --compare-versions 1 lt 2
dpkg --print-architecture >/root/architecture
dpkg -l dpkg >/root/list
perl /root/daemon.pl'
package waits-1 'touch /root/waiting
until [ -e /root/go-on ]; do sleep 0.05; done'
package broken-1 'exit 3'
package environment-1 'echo "$name $real $synconce $reason $word" >/root/environment
tr "\0" " " </proc/$PPID/cmdline >/root/caller'
package slow-1 'victim=$(cat /root/victim)
rm /root/victim
kill -TERM $victim
while kill -0 $PPID; do sleep 0.05; done'
package gains-1 'setpriv --reuid=1000 --regid=1000 --clear-groups /usr/bin/gains -u >/root/gained'
package tasksel-1 : one
package tasksel-2 : two
"#;

/// Makes the synconce that is there a package with the scripts of ours, and installs it.
const OWN_PACKAGE: &str = r#"
cd /root
mkdir -p synconce-1/DEBIAN synconce-1/usr/bin synconce-1/usr/lib/synconce
mv /usr/bin/synconce synconce-1/usr/bin/
touch synconce-1/usr/lib/synconce/rig
cp prerm synconce-1/DEBIAN/prerm
chmod 755 synconce-1/DEBIAN/prerm
printf 'Package: synconce\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n' \
    >synconce-1/DEBIAN/control
dpkg-deb -Znone --build synconce-1 synconce-1.deb >/dev/null
dpkg -i synconce-1.deb >/dev/null
"#;

/// A daemon that writes, once a file is there, whether its sync was held.
const DAEMON: &str = r#"
use strict; use POSIX ();
exit if fork; POSIX::setsid();
open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null");
select(undef, undef, undef, 0.01) until -e "/root/go";
my $value = syscall(SYNC_FILE_RANGE, -1, 0, 0, 0x53594e43);
open(my $file, ">", "/root/said.new") or die; print $file $value == 0x51 ? "held\n" : "real\n";
close $file; rename "/root/said.new", "/root/said";
"#;

/// Returns a root with those packages, in which apt is set up.
fn root(place: &Place) -> Debian {
    let root = Debian::new(&place.path("root"));
    let daemon = DAEMON.replace("SYNC_FILE_RANGE", &libc::SYS_sync_file_range.to_string());
    fs::write(root.path("root/daemon.pl"), daemon).unwrap();
    fs::write(root.path("root/prerm"), PRERM).unwrap();
    root.sh(PACKAGES);
    root.sh(
        "setpriv --reuid=1000 --regid=1000 --clear-groups synconce setup apt --check 2>/root/check \
         && exit 9 || [ $? = 1 ]; grep -qx '.* by sudo synconce setup apt' /root/check",
    );
    root.sh("synconce setup apt --quiet && synconce setup apt --check");
    root
}

fn flushes(root: &Debian) -> u64 {
    root.rig.disk().stats().unwrap().flushes
}

#[test]
fn an_install_is_one_run_with_one_commit_and_gives_the_files_of_a_plain_one() {
    isolated(|place| {
        let _barrier = without_foreign_syncs();
        let (plain, ours) = (Debian::new(&place.path("plain")), Debian::new(&place.path("ours")));
        let untouched = manifest_of(&ours, &[]);
        ours.sh("synconce setup apt");
        ours.sh("synconce setup apt --undo");
        assert_eq!(manifest::diff(&untouched, &manifest_of(&ours, &[])), []);

        ours.sh("synconce setup apt");
        let count = |root: &Debian| {
            let before = flushes(root);
            root.sh(INSTALL);
            flushes(root) - before
        };
        let (real, held) = (count(&plain), count(&ours));
        println!("{real} flushes plain, {held} with the set-up");
        assert!(real > 1000 && held < 40, "{real} plain, {held} with the set-up");
        ours.sh("synconce status && synconce setup apt --undo");
        assert_eq!(manifest::diff(&manifest_of(&plain, &[]), &manifest_of(&ours, &[])), []);
        // apt writes to its history how it was called.
        for list in [
            "dpkg-divert --list | sort; dpkg -V | sort; dpkg --audit",
            "grep Commandline /var/log/apt/history.log",
        ] {
            assert_eq!(plain.sh(list), ours.sh(list));
        }
        plain.down();
        ours.down();
    });
}

#[test]
fn exit_codes_signals_scripts_and_daemons_are_those_of_the_real_programs() {
    isolated(|place| {
        let root = root(place);
        let code = |words: &str| root.run(&["sh", "-c", words]).status.code();
        assert_eq!(code("apt-get install -y /root/broken-1.deb"), Some(100));
        assert_eq!(code("dpkg --purge broken"), Some(0));
        assert_eq!(code("dpkg -i /root/broken-1.deb"), Some(1));
        assert_eq!(code("dpkg -P broken"), Some(0));
        assert_eq!(code("dpkg -i /root/none.deb"), Some(2));
        assert_eq!(code("apt-get install none"), Some(100));
        assert_eq!(code("dpkg --compare-versions 2 lt 1"), Some(1));
        // The script of the package sends the signal to dpkg.
        let killed = "sh -c 'echo $$ >/root/victim; exec dpkg -i /root/slow-1.deb' || echo $?";
        let said = root.sh(killed);
        assert!(said.ends_with("143\n"), "{said}");
        assert_eq!(code("dpkg --configure -a"), Some(1));
        assert_eq!(code("dpkg --purge slow"), Some(0));

        // Within a run of the user's own, the run is that one.
        let inside = "synconce run --stats --json=/root/json -- apt-get remove -y daemon";
        let script = format!(
            "apt-get install -y /root/daemon-1.deb; touch /root/go
             until [ -e /root/said ]; do sleep 0.05; done; cat /root/said; {inside}"
        );
        let said = root.sh(&script);
        assert!(said.contains("\nreal\n"), "{said}");
        assert_eq!(root.sh("cat /root/architecture"), root.sh("dpkg --print-architecture"));
        let json = fs::read_to_string(root.path("root/json")).unwrap();
        assert!(json.contains("\"outcome\":\"committed\""), "{json}");

        // A failed commit is said, and fails the call.
        let mut command = root.command(&["dpkg", "-i", "/root/waits-1.deb"]);
        let install = StartedCommand::new(&mut command);
        eventually("its script waits", || root.path("root/waiting").exists());
        root.rig.disk().fail_flushes(1_000_000).unwrap();
        fs::write(root.path("root/go-on"), "").unwrap();
        let (status, said) = (install.end(), install.text());
        root.rig.disk().fail_flushes(0).unwrap();
        assert_eq!(status.code(), Some(125), "{said}");
        assert!(said.contains("synconce: not durable: / ("), "{said}");
    });
}

#[test]
fn dpkg_apt_and_others_are_upgraded_and_removed_below_their_wrappers() {
    isolated(|place| {
        let root = root(place);
        let untouched = "synconce setup apt --undo; dpkg-divert --list; dpkg -V | sort";
        // From a machine without dpkg, such as an installer.
        for words in [&["--undo"][..], &["--undo"], &[], &["--check"]] {
            let mut outside = Command::new(SYNCONCE);
            outside.args(["setup", "apt", "--root"]).arg(root.path("")).args(words);
            let ended = EndedCommand::run(outside.env("PATH", "/usr/sbin"));
            assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
        }
        root.sh("synconce setup apt --check");
        // Not installed at the set-up, so not diverted.
        assert_eq!(root.sh("dpkg -i /root/tasksel-1.deb >/dev/null; tasksel x"), "one x\n");
        root.sh("synconce setup apt");
        assert!(root.sh("cat /usr/bin/tasksel").contains("Written by `synconce"));
        assert_eq!(
            root.sh("apt-get install -y /root/tasksel-2.deb >/dev/null; tasksel x"),
            "two x\n"
        );
        assert!(root.sh("cat /usr/bin/tasksel").contains("Written by `synconce"));
        let removed = root.run(&["sh", "-c", "dpkg -r tasksel >/dev/null; tasksel x"]);
        assert_eq!(removed.status.code(), Some(127), "{removed:?}");
        let line =
            "tasksel is not installed any more: /usr/lib/synconce/diverted/tasksel is not there";
        assert!(removed.stderr.contains(line), "{removed:?}");
        root.sh("synconce setup apt; ! [ -e /usr/bin/tasksel ]");

        root.sh("apt-get install -y -qq --reinstall dpkg apt && synconce setup apt --check");
        root.sh("apt-get --version && apt --version && dpkg --version");
        let after = root.sh(untouched);
        assert!(!after.contains("synconce"), "{after}");
        root.sh("! [ -e /usr/lib/synconce ] && apt-get install -y -qq --reinstall dpkg apt");
        assert_eq!(root.sh(untouched), after);

        // The package's own removal, by the apt that it wraps.
        root.sh(OWN_PACKAGE);
        root.sh("synconce setup apt && apt-get remove -y synconce && ! [ -e /usr/bin/synconce ]");
        root.sh("! [ -e /usr/lib/synconce ] && apt-get --version && dpkg --version");
        assert!(!root.sh("dpkg-divert --list").contains("synconce"));
        root.down();
    });
}

#[test]
fn where_no_run_can_be_started_the_program_is_started_once_without_and_a_line_says_so() {
    isolated(|place| {
        let root = root(place);
        let install = "dpkg -i /root/tasksel-1.deb";
        let words = |errno| without_seccomp(errno).map(|word| word.replace('\'', "'\\''"));
        let [perl, option, filter] = words(libc::ENOSYS);
        root.sh("cp /usr/bin/synconce /root/kept");
        for (break_it, reason) in [
            ("rm /usr/bin/synconce", "/usr/bin/synconce is not there"),
            (": >/usr/bin/synconce", "damaged, or of another architecture"),
            ("head -c 9000 /root/kept >/usr/bin/synconce", "/usr/bin/synconce fails"),
            // The header of an aarch64 program, and a program of another kind.
            (
                "printf '\\267\\000' | dd of=/usr/bin/synconce bs=1 seek=18 conv=notrunc 2>/dev/null",
                "damaged, or of another architecture",
            ),
            ("printf '#!/bin/sh\nexit 0\n' >/usr/bin/synconce", "of another architecture"),
            ("cp /bin/true /usr/bin/synconce", "/usr/bin/synconce fails"),
            ("cp /bin/false /usr/bin/synconce", "/usr/bin/synconce fails"),
            ("umount /proc", "proc"),
            (&format!("exec {perl} {option} '{filter}' sh -c '{install}; echo ended $?'"), ""),
        ] {
            let script = format!("{break_it}; {install}; echo ended $?");
            let ended = root.run(&["sh", "-c", &script]);
            root.sh("cp --remove-destination /root/kept /usr/bin/synconce");
            let said = format!("{break_it}: {ended:?}");
            assert!(ended.stdout.ends_with("ended 0\n"), "{said}");
            assert_eq!(ended.stdout.matches("Setting up tasksel").count(), 1, "{said}");
            let lines: Vec<_> = ended.stderr.lines().collect();
            assert_eq!(lines.len(), 1, "{said}");
            assert!(lines[0].starts_with("synconce: dpkg runs without a hold: "), "{said}");
            assert!(lines[0].contains(reason), "{said}");
        }
        for option in ["", "--check"] {
            let ended = root.run(&["sh", "-c", "umount /proc; synconce setup apt $0", option]);
            let said = "synconce: but here apt runs without a hold: cannot start /proc/self/exe: \
                        /proc is not mounted\nsynconce: hint: mount -t proc proc /proc\n";
            assert!(ended.status.success() && ended.stderr.ends_with(said), "{ended:?}");
        }
        // One line for apt and each dpkg that it starts, also where the script finds no program.
        for before in ["rm /usr/bin/synconce;", "PATH=/nonexistent"] {
            let words = "/usr/bin/apt-get install -y --reinstall /root/tasksel-1.deb";
            let ended = root.run(&["sh", "-c", &format!("{before} {words}")]);
            root.sh("cp --remove-destination /root/kept /usr/bin/synconce");
            assert!(ended.status.success(), "{ended:?}");
            assert_eq!(ended.stderr.matches("synconce: ").count(), 1, "{ended:?}");
            assert!(!ended.stderr.contains("not found"), "{ended:?}");
        }
        root.down();
    });
}

/// Without CAP_SYS_ADMIN a run sets no_new_privs. Then a script's `su user -c sudo` fails, and so
/// does each sudo below a daemon that the script starts.
#[test]
fn a_script_whose_user_gains_privileges_works_where_a_run_would_take_them() {
    isolated(|place| {
        let root = root(place);
        root.sh("cp /usr/bin/id /usr/bin/gains && chmod u+s /usr/bin/gains");
        let install = "dpkg -P gains >/dev/null; dpkg -i /root/gains-1.deb && cat /root/gained";
        let without = "setpriv --bounding-set=-sys_admin";
        let line = "synconce: dpkg runs without a hold: a run sets no_new_privs here";
        for (before, lines, gained) in [
            ("", 0, "0\n"),
            (without, 2, "0\n"),
            // no_new_privs is set anyway: by the caller, or by the caller's own run.
            ("setpriv --no-new-privs", 0, "1000\n"),
            (&format!("{without} synconce run --"), 0, "1000\n"),
        ] {
            let script = format!("rm -f /root/gained; {before} sh -c '{install}'");
            let ended = root.run(&["sh", "-c", &script]);
            assert!(ended.stdout.ends_with(gained), "{before}: {ended:?}");
            assert_eq!(ended.stderr.matches(line).count(), lines, "{before}: {ended:?}");
            assert_eq!(ended.stderr.contains("without a hold"), lines > 0, "{before}: {ended:?}");
            let check = format!("{before} synconce setup apt --check");
            let check = root.run(&["sh", "-c", &check]);
            let fault = "synconce: but here apt runs without a hold: a run sets no_new_privs here";
            assert_eq!(check.stderr.contains(fault), lines > 0, "{before}: {check:?}");
            assert!(check.status.success(), "{before}: {check:?}");
        }
        root.down();
    });
}

#[test]
fn an_install_whose_marker_cannot_be_written_in_the_middle_goes_on_with_real_syncs() {
    isolated(|place| {
        let _barrier = without_foreign_syncs();
        let root = root(place);
        let state = "/var/lib/synconce";
        root.sh("dpkg -i /root/tasksel-1.deb");
        let (unheld, real) = ("dpkg runs without a hold", "the command runs with real syncs");
        // The disk is full before the start; the others fail after it.
        let full = format!("mount -t tmpfs -o size=4k none {state}; echo >{state}/file; dpkg");
        let fixed = format!("dpkg --pre-invoke='chattr +i {state}/runs'");
        let mount = format!("mount --bind {state} {state}; dpkg");
        let read_only = format!("{mount} --pre-invoke='mount -o remount,bind,ro {state}'");
        for (dpkg, line, reason) in [
            (&full, unheld, "No space left on device"),
            (&fixed, real, "Operation not permitted"),
            (&read_only, real, "Read-only file system"),
        ] {
            for (package, code) in [("tasksel-1", 0), ("broken-1", 1)] {
                let before = flushes(&root);
                let script = format!("{dpkg} -i /root/{package}.deb");
                let ended = root.run(&["sh", "-c", &script]);
                let flushes = flushes(&root) - before;
                root.sh(&format!("chattr -i {state}/runs && synconce status"));
                let said = format!("{script}: {flushes} flushes, {ended:?}");
                assert_eq!(ended.status.code(), Some(code), "{said}");
                assert_eq!(ended.stdout.matches("Setting up").count(), 1, "{said}");
                let line = format!("synconce: {line}: cannot ");
                assert_eq!(ended.stderr.matches(&line).count(), 1, "{said}");
                assert!(ended.stderr.contains(reason), "{said}");
                assert!(flushes > 20, "{said}");
            }
        }
        root.down();
    });
}

#[test]
fn what_the_trial_of_a_run_prints_is_no_reason_for_real_syncs() {
    isolated(|place| {
        let root = root(place);
        let killed =
            "dd if=/dev/zero of=/root/file bs=1 count=1 conv=fsync 2>/dev/null; kill -9 $PPID";
        let run =
            StartedCommand::new(&mut root.command(&["synconce", "run", "--", "sh", "-c", killed]));
        run.end();
        root.sh("! synconce status >/dev/null 2>&1");
        // The variables of the caller, as a script of a package sees them.
        let script = "export name=mine real=r synconce=s reason=because word=w \
                      LD_PRELOAD=libeatmydata.so; dpkg -i /root/environment-1.deb";
        let ended = root.run(&["sh", "-c", script]);
        assert!(ended.status.success(), "{ended:?}");
        assert_eq!(ended.stderr.matches("an earlier run was interrupted").count(), 1, "{ended:?}");
        assert!(!ended.stderr.contains("without a hold"), "{ended:?}");
        assert!(ended.stderr.contains("libeatmydata.so, which drops syncs"), "{ended:?}");
        assert_eq!(root.sh("cat /root/environment"), "mine r s because w\n");
        // The same path as without the wrapper: scripts look for it, such as `pkill -f
        // ^/usr/bin/dpkg`.
        assert_eq!(root.sh("cat /root/caller"), "/usr/bin/dpkg -i /root/environment-1.deb ");
        root.down();
    });
}

#[test]
fn calls_that_change_nothing_and_calls_of_ordinary_users_are_as_before() {
    isolated(|place| {
        let root = root(place);
        let calls = [
            "apt list dpkg 2>/dev/null",
            "apt-get --print-uris -qq --yes install manpages-dev",
            "apt-get -s install manpages-dev",
            "dpkg -l dpkg",
            "dpkg --print-architecture",
            "dpkg -L dpkg | head -n 3",
            "dpkg -i /root/tasksel-1.deb",
            "apt-get install -y manpages-dev",
            "apt-config dump Binary; apt moo",
        ];
        let user = |call: &str| {
            let call = call.replace('\'', "'\\''");
            format!("setpriv --reuid=1000 --regid=1000 --clear-groups sh -c '{call}'")
        };
        root.sh("chmod 755 /root");
        let said = || -> Vec<_> {
            let ended = calls.iter().map(|call| root.run(&["sh", "-c", &user(call)]));
            ended.map(|it| (it.status.code(), it.stdout, it.stderr)).collect()
        };
        let with = said();
        let as_root = root.run(&["sh", "-c", "apt list dpkg; dpkg -l dpkg; apt-get -s upgrade"]);
        assert!(!as_root.stderr.contains("synconce"), "{as_root:?}");
        // apt reads its configuration by the name of the program.
        let own = "apt -o Binary::apt::APT::Get::Show-Versions=true -s install manpages-dev";
        let shown = root.sh(own);
        root.sh("synconce setup apt --undo --quiet");
        assert_eq!(shown, root.sh(own));
        assert_eq!(with, said());
        assert!(with.iter().all(|(_, _, stderr)| !stderr.contains("synconce")), "{with:?}");
        root.down();
    });
}
