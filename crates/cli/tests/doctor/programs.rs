//! `synconce doctor -- COMMAND`: causes beside the waits for syncs, and waits for syncs of
//! documentation. The planted cause is named first, and gone when its remedy was typed.

use crate::command::{calls, report};
use crate::support::findings;
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use synconce_testkit::harness::{Debian, Need, Place, finish, trial};
use synconce_testkit::rig::Latency;

pub fn trials() -> Vec<Trial> {
    let compilers = [
        Need::Program("gcc", "gcc libc6-dev"),
        Need::File("/usr/lib32/libc.a", "gcc-multilib"),
        Need::Program("unshare", "util-linux"),
    ];
    let emulator = Need::File("/usr/bin/qemu-aarch64-static", "qemu-user-static");
    vec![
        trial(
            waits_of_dpkg_that_a_remedy_saves_are_named_first,
            &[Need::Program("mmdebstrap", "mmdebstrap")],
        ),
        trial(a_program_of_another_architecture_is_named_first, &[emulator]),
        trial(static_32_bit_and_namespaced_programs_are_timed, &compilers),
    ]
}

/// Runs doctor with `options` for the command `words` in `root`, and returns the report.
fn examined(root: &Debian, options: &[&str], words: &[&str]) -> Value {
    let doctor = [&["synconce", "doctor", "--json=/report"], options, &["--"], words].concat();
    let ended = root.run(&doctor);
    assert!(ended.status.success(), "{ended:?}");
    serde_json::from_str(&fs::read_to_string(root.path("report")).unwrap()).unwrap()
}

/// Asserts that the first finding is `name`, and returns it.
fn first<'a>(report: &'a Value, name: &str) -> &'a Value {
    let finding = &report["findings"][0];
    assert_eq!(finding["name"], name, "{report:#}");
    finding
}

/// Types the remedy, or what takes it back.
fn type_line(root: &Debian, finding: &Value, line: &str) {
    root.sh(finding[line].as_str().unwrap());
}

/// Manual pages that the root has downloaded.
const PAGES: &str = "exec dpkg \"$@\" --install /var/cache/apt/archives/manpages_*.deb";
/// How many files of these pages are no links.
const COUNT: &str = "dpkg --listfiles manpages | xargs stat --format '%F %n' |
    grep -c '^regular file .*/man/.*\\.gz$'";
/// Makes pages that the index of man-db does not have.
const MORE_PAGES: &str = r"for number in $(seq 500); do
    printf '.TH X 1\n.SH NAME\nx%s \\- a page\n' $number >/usr/share/man/man1/x$number.1
done";
/// A package with a trigger, and two packages that need it.
const CACHES: &str = r#"
mkdir -p cache/DEBIAN one/DEBIAN one/usr/share/cached two/DEBIAN two/usr/share/cached
touch one/usr/share/cached/one two/usr/share/cached/two
for name in cache one two; do
    printf "Package: $name\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n" \
        >$name/DEBIAN/control
done
echo 'interest-noawait /usr/share/cached' >cache/DEBIAN/triggers
printf '#!/bin/sh\n[ "$1" != triggered ] || sleep 0.4\n' >cache/DEBIAN/postinst
chmod 755 cache/DEBIAN/postinst
for name in cache one two; do dpkg-deb --root-owner-group --build $name $name.deb; done
dpkg --install cache.deb
"#;

fn waits_of_dpkg_that_a_remedy_saves_are_named_first(place: &Place) {
    let root = Debian::new(&place.path("root"));
    root.sh("apt-get install --yes --quiet=2 --no-install-recommends man-db");
    // The trigger also reads these: its time is worth a finding on an idle machine, too.
    root.sh(MORE_PAGES);
    let pages = ["sh", "-c", PAGES, "sh"];

    let without_syncs = [&pages[..], &["--force-unsafe-io"]].concat();
    let report = examined(&root, &[], &without_syncs);
    let man_db = first(&report, "man-db-trigger");
    let verdict = report["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("sh: man-db-trigger costs at least "), "{verdict}");
    let trigger = &report["triggers"][0];
    assert_eq!((&trigger["package"], &trigger["runs"]), (&"man-db".into(), &1.into()));
    assert!(man_db["seconds"].as_f64() < report["seconds"].as_f64(), "{report:#}");
    type_line(&root, man_db, "remedy");

    root.rig.disk().set_latency(Latency::of_flush(Duration::from_millis(4))).unwrap();
    let report = examined(&root, &[], &pages);
    let unread = first(&report, "unread-files");
    // Each page is synced for itself.
    let calls = unread["evidence"].as_str().unwrap().split(' ').next().unwrap().replace(',', "");
    let calls: u32 = calls.parse().unwrap();
    let count = root.sh(COUNT);
    assert!(calls >= count.trim().parse().unwrap(), "{calls} {count}");
    type_line(&root, unread, "remedy");
    root.sh("dpkg --purge manpages");
    assert_eq!(findings(&examined(&root, &[], &pages)), [""; 0]);
    assert!(
        root.sh("find /usr/share/man/man7 -type f").is_empty()
            && root.path("usr/share/doc/manpages/copyright").exists()
    );
    // The packages of Java and PostgreSQL do this in their scripts. It fails without the directory.
    root.sh("update-alternatives --install /usr/bin/editing editing /bin/sed 1 \
        --slave /usr/share/man/man7/editing.7 editing.7 /etc/debian_version");
    root.rig.disk().set_latency(Latency::of_flush(Duration::ZERO)).unwrap();

    // After the undo of the remedy, the database is kept up to date again.
    type_line(&root, man_db, "undo");
    assert!(root.path("var/lib/man-db/auto-update").exists());
    root.sh("debconf-show man-db | grep -q 'man-db/auto-update: true'");

    root.sh(CACHES);
    let each = ["sh", "-ec", "for name in one two; do dpkg --install /root/$name.deb; done"];
    let report = examined(&root, &[], &each);
    let again = first(&report, "repeated-triggers");
    assert!(again["seconds"].as_f64() > Some(0.2), "{report:#}");
    let report = examined(&root, &["--ignore", "repeated-triggers"], &each);
    assert_eq!(report["ignored"], serde_json::json!(["repeated-triggers"]), "{report:#}");
    assert_eq!(findings(&report), [""; 0], "{report:#}");
    let once = ["dpkg", "--install", "/root/one.deb", "/root/two.deb"];
    assert_eq!(findings(&examined(&root, &[], &once)), [""; 0]);
    root.down();
}

/// Returns a program for arm64 that computes for a moment, and ends.
fn arm64_program() -> Vec<u8> {
    const CODE: [u32; 6] = [
        0xd2a1_0001, // mov x1, #0x8000000
        0xf100_0421, // subs x1, x1, #1
        0x54ff_ffe1, // b.ne to the line before
        0xd280_0ba8, // mov x8, #93 (exit)
        0xd280_0000, // mov x0, #0
        0xd400_0001, // svc #0
    ];
    const START: u64 = 0x40_0000;
    const HEADERS: u64 = 120;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xb7\0\x01\0\0\0".to_vec();
    let size = HEADERS + 4 * CODE.len() as u64;
    elf.extend([START + HEADERS, 64, 0].iter().flat_map(|it| it.to_le_bytes()));
    elf.extend(b"\0\0\0\0\x40\0\x38\0\x01\0\0\0\0\0\0\0\x01\0\0\0\x05\0\0\0");
    elf.extend([0, START, START, size, size, 0x1_0000].iter().flat_map(|it| it.to_le_bytes()));
    elf.extend(CODE.iter().flat_map(|it| it.to_le_bytes()));
    elf
}

fn a_program_of_another_architecture_is_named_first(place: &Place) {
    let program = place.path("program");
    fs::write(&program, arm64_program()).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let words = ["/usr/bin/qemu-aarch64-static", program.to_str().unwrap()];
    let (report, ended) = report(place, &place.path(""), &words);
    assert!(ended.status.success(), "{ended:?}");
    let finding = first(&report, "emulated");
    assert_eq!((findings(&report).len(), &finding["seconds"]), (1, &Value::Null), "{report:#}");
    let emulated = &report["emulated"][0];
    assert_eq!(emulated["by"], "qemu-aarch64-static");
    assert!(emulated["looks"].as_u64() > Some(5), "{report:#}");
    let verdict = report["verdict"].as_str().unwrap();
    assert!(verdict.contains(": emulated: qemu-aarch64-static does at least "), "{verdict}");
}

/// Makes five calls of fsync, and three of fdatasync.
const SYNCS: &str = r#"
#include <fcntl.h>
#include <unistd.h>
int main(void) {
    int file = open("file", O_CREAT | O_WRONLY, 0600), failed = file < 0;
    for (int at = 0; at < 8; at++)
        failed |= write(file, "text", 4) != 4 || (at < 5 ? fsync(file) : fdatasync(file));
    return failed;
}
"#;

fn static_32_bit_and_namespaced_programs_are_timed(place: &Place) {
    place.write("syncs.c", SYNCS);
    for (name, option) in [("static", "-static"), ("compat", "-m32"), ("both", "-m32 -static")] {
        let build = format!("gcc {option} -o {name} syncs.c");
        let built = finish(place.command("sh").args(["-c", &build]));
        assert!(built.status.success(), "{built:?}");
    }
    let directory = place.path("");
    let root = directory.to_str().unwrap();
    let unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--net"];
    let inside = [&unshare[..], &["--root", root, "/both"]].concat();
    for words in [&["./static"][..], &["./compat"], &inside] {
        let (report, ended) = report(place, &directory, words);
        assert!(ended.status.success(), "{words:?}: {ended:?}");
        let made = [("fdatasync".to_owned(), 3), ("fsync".to_owned(), 5)];
        assert_eq!(calls(&report), made, "{words:?}: {report:#}");
        let waited = report["waits"]["by_program"][0]["name"].as_str().unwrap();
        assert!(words.last().unwrap().ends_with(waited), "{words:?}: {report:#}");
    }
}
