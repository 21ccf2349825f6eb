//! `--only` and `--except`: the file that a descriptor leads to decides, not the way to it.

use serde_json::Value;
use std::fs;
use synconce_testkit::harness::{Place, binary, finish, isolated, perl};
use synconce_testkit::rig::{FsKind, Rig};

pub(super) fn rig(kind: FsKind) -> Rig {
    let commit = if kind == FsKind::Xfs { "" } else { "commit=300" };
    Rig::builder().fs(kind).size(320 << 20).mount_options(commit).up().unwrap()
}

/// Removes what a case left on the disk, and makes `db`, `other` and `mnt`.
pub(super) fn clean(rig: &Rig) {
    for entry in fs::read_dir(rig.path()).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() || path.is_symlink() {
            fs::remove_file(path).unwrap();
        } else if !path.ends_with("lost+found") {
            fs::remove_dir_all(path).unwrap();
        }
    }
    for name in ["db/sub", "other", "mnt"] {
        fs::create_dir_all(rig.path().join(name)).unwrap();
    }
    rustix::fs::syncfs(fs::File::open(rig.path()).unwrap()).unwrap();
}

/// Calls of the kinds that a sync goes through: held, and passed.
type HeldAndPassed = [u64; 2];

/// Runs a perl script in the directory of the rig, and asserts what was held and what passed,
/// and that a call that passed has flushed the disk. That a held call does not flush it is shown
/// in `routes`.
pub(super) fn check(
    place: &Place,
    rig: &Rig,
    options: &[&str],
    script: &str,
    expected: HeldAndPassed,
) {
    let options = [&["--no-commit", "--stats", "--json"], options].concat();
    let tools = TOOLS.replace("SENDMSG", &libc::SYS_sendmsg.to_string());
    let tools = tools.replace("RECVMSG", &libc::SYS_recvmsg.to_string());
    let words = perl(&format!("{tools} {script}"));
    clean(rig);
    let before = rig.disk().stats().unwrap().flushes;
    let ran = finish(place.held(&options, &words).current_dir(rig.path()));
    let after = rig.disk().stats().unwrap().flushes;
    assert!(ran.status.success(), "{script}: {ran:?}");
    let stats: Value = serde_json::from_str(&ran.stderr).unwrap_or_else(|_| panic!("{ran:?}"));
    let sum = |key: &str| -> u64 {
        stats["calls"].as_object().unwrap().values().map(|it| it[key].as_u64().unwrap()).sum()
    };
    assert_eq!([sum("held"), sum("passed")], expected, "{options:?} {script}: {ran:?}");
    // sync_file_range(2) writes, and flushes nothing.
    let range = format!("syscall({}", libc::SYS_sync_file_range);
    let flushes = expected[1] > 0 && !script.contains(&range);
    assert!(after > before || !flushes, "{options:?} {script}: the flushes of the disk");
}

/// `at(PATH)` opens a file for writing; `real($file)` writes to it and syncs it; `give` and
/// `take` pass a descriptor through a socket (unix(7)).
const TOOLS: &str = r#"use Fcntl; use Socket;
sub at { open(my $file, '+>>', $_[0]) or die "$_[0]: $!"; return $file; }
sub fsync { my $file = $_[0]; print $file "data\n"; $file->flush; $file->sync or die "sync: $!"; }
sub run { system(@_) == 0 or die "@_"; }
sub message { my $data = 'x'; my $part = pack('PQ', $data, 1);
    my $header = pack('Q L x4 P Q P Q i x4', 0, 0, $part, 1, $_[0], 24, 0);
    return ($header, $part, $data); }
sub give { my ($socket, $file) = @_; my $control = pack('Qiii x4', 20, 1, 1, fileno($file));
    my ($header, @keep) = message($control);
    syscall(SENDMSG, fileno($socket), $header, 0) == 1 or die "sendmsg: $!"; }
sub take { my $control = "\0" x 24; my ($header, @keep) = message($control);
    syscall(RECVMSG, fileno($_[0]), $header, 0) == 1 or die "recvmsg: $!";
    open(my $file, '>>&=', (unpack('Qiii', $control))[3]) or die "descriptor: $!"; return $file; }
"#;

/// Runs each case, `(script, held, passed)`, with `--except db` and, on a fresh disk, with `--only
/// db`, where the same calls are answered the other way round.
fn both_ways(place: &Place, rig: &Rig, cases: &[(&str, u64, u64)]) {
    for (script, outside, inside) in cases {
        check(place, rig, &["--except", "db"], script, [*outside, *inside]);
        check(place, rig, &["--only", "db"], script, [*inside, *outside]);
    }
}

#[test]
fn a_file_is_decided_on_by_its_present_place() {
    isolated(|place| {
        for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
            let rig = rig(kind);
            both_ways(
                place,
                &rig,
                &[
                    ("sync_file('db/a'); sync_file('db/sub/a');", 0, 2),
                    ("sync_file('other/a'); sync_file('dbx');", 2, 0),
                    // A rename of the file, then of a directory above.
                    (
                        "my $f = at('db/a'); fsync($f); rename('db/a', 'other/a'); fsync($f); \
                         rename('other/a', 'db/b'); fsync($f);",
                        1,
                        2,
                    ),
                    (
                        "my $f = at('db/sub/a'); fsync($f); rename('db/sub', 'other/sub'); \
                         fsync($f); rename('other/sub', 'db/new'); fsync($f);",
                        1,
                        2,
                    ),
                    // Unlinked, and never named: O_TMPFILE.
                    ("my $f = at('db/a'); unlink('db/a'); fsync($f);", 0, 1),
                    ("my $f = at('other/a'); unlink('other/a'); fsync($f);", 1, 0),
                    ("sysopen(my $f, 'db/sub', 020200000 | O_RDWR) or die $!; fsync($f);", 0, 1),
                    ("sysopen(my $f, 'other', 020200000 | O_RDWR) or die $!; fsync($f);", 1, 0),
                    // A directory.
                    (
                        "close at('db/sub/a'); open(my $d, '<', 'db/sub') or die; $d->sync or die;",
                        0,
                        1,
                    ),
                    (
                        "close at('other/a'); open(my $d, '<', 'other') or die; $d->sync or die;",
                        1,
                        0,
                    ),
                    // Opened again by /proc.
                    ("my $f = at('db/a'); fsync(at('/proc/self/fd/' . fileno($f)));", 0, 1),
                    ("my $f = at('other/a'); fsync(at('/proc/self/fd/' . fileno($f)));", 1, 0),
                ],
            );
            rig.down().unwrap();
        }
    });
}

#[test]
fn a_file_is_decided_on_alike_in_each_mount_and_root() {
    isolated(|place| {
        let rig = rig(FsKind::Ext4);
        let cases = [
            // A bind mount that is made in the run, of the directory and of a file.
            (
                "run('mount', '--bind', 'db', 'mnt'); sync_file('mnt/a'); run('umount', 'mnt');",
                0,
                1,
            ),
            (
                "close at('db/a'); close at('mnt/a'); run('mount', '--bind', 'db/a', 'mnt/a'); \
                 sync_file('mnt/a'); run('umount', 'mnt/a');",
                0,
                1,
            ),
            (
                "run('mount', '--bind', 'other', 'mnt'); sync_file('mnt/a'); run('umount', 'mnt');",
                1,
                0,
            ),
            // A chroot, and a descriptor from outside.
            ("chroot('.') or die; sync_file('/db/a'); sync_file('/other/a');", 1, 1),
            ("chroot('db') or die; sync_file('/sub/a');", 0, 1),
            (
                "my $f = at('db/a'); my $g = at('other/a'); chroot('mnt') or die; fsync($f); fsync($g);",
                1,
                1,
            ),
            (
                "socketpair(my $one, my $two, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die; \
                 if (!fork) { chroot('mnt'); fsync(take($one)); fsync(take($one)); exit; } \
                 give($two, at('db/a')); give($two, at('other/a')); wait; die if $?;",
                1,
                1,
            ),
        ];
        both_ways(place, &rig, &cases);
        rig.down().unwrap();
    });
}

#[test]
fn a_file_is_found_after_pivot_root_has_moved_the_root_of_the_run() {
    isolated(|place| {
        let rig = rig(FsKind::Ext4);
        ["db", "other"].iter().for_each(|name| fs::create_dir(place.path(name)).unwrap());
        let new = rig.path().to_str().unwrap();
        let script = format!(
            "my $here = '{here}'; sync_file(\"$here/db/a\"); sync_file(\"$here/other/a\"); \
             mkdir '{new}/old'; mkdir '{new}/proc'; system('mount', '--bind', '/proc', '{new}/proc') \
             and die; my ($to, $old) = ('{new}', '{new}/old'); syscall({pivot}, $to, $old) == 0 or die \"pivot_root: $!\"; \
             sync_file(\"/old/$here/db/a\"); sync_file(\"/old/$here/other/a\");",
            here = place.text(""),
            pivot = libc::SYS_pivot_root
        );
        let words = perl(&script);
        let mut command = place.command("unshare");
        command.args(["--mount", binary(), "run", "--no-commit", "--stats", "--json"]);
        let ran = finish(command.args(["--except", "db", "--"]).args(&words));
        let stats: Value = serde_json::from_str(&ran.stderr).unwrap_or_else(|_| panic!("{ran:?}"));
        let fsync = &stats["calls"]["fsync"];
        assert_eq!([&fsync["held"], &fsync["passed"]], [2, 2], "{ran:?}");
        rig.down().unwrap();
    });
}

/// Returns a script that starts `unshare AROUND perl`, which runs `path` to set `$p`, and syncs
/// that file.
fn unshared(around: &str, path: &str) -> String {
    format!(
        "mkdir 'sub'; run('unshare', {around} 'perl', '-e', 'use IO::Handle; {path}; \
         open(my $f, q(>>), $p) or die qq($p: $!); print $f 1; $f->flush; $f->sync or die');"
    )
}

#[test]
fn a_file_is_decided_on_alike_in_each_namespace() {
    isolated(|place| {
        let rig = rig(FsKind::Ext4);
        for (around, make) in [
            ("'--mount',", "my $p = q(PLACE/a)"),
            ("'--mount',", "system(qw(mount --bind PLACE mnt)) and die; my $p = q(mnt/a)"),
            ("'--mount',", "chroot(q(.)) or die; my $p = q(/PLACE/a)"),
            ("'--mount',", "chroot(q(PLACE)) or die; chdir(q(/)); my $p = q(/a)"),
            (
                "'--mount',",
                "system(qw(mount --bind . mnt)) and die; chdir q(mnt) or die; \
                 system(qw(pivot_root . sub)) and die; my $p = q(/PLACE/a)",
            ),
            (
                "'--mount',",
                "my $r = q(/PLACE); system(qw(mount --bind . mnt)) and die; \
                 open(my $g, q(>>), q(mnt/PLACE/b)); $g->sync; close $g; chdir q(mnt) or die; \
                 system(qw(pivot_root . sub)) and die; my $p = q(/PLACE/a)",
            ),
            ("'--mount', '--user', '--map-root-user',", "my $p = q(PLACE/a)"),
            (
                "'--mount', '--user', '--map-root-user',",
                "system(qw(mount --bind PLACE mnt)) and die; my $p = q(mnt/a)",
            ),
        ] {
            // The sixth way syncs two files.
            let calls = 1 + u64::from(make.contains("$g->sync"));
            let db = unshared(around, &make.replace("PLACE", "db"));
            let other = unshared(around, &make.replace("PLACE", "other"));
            both_ways(place, &rig, &[(&db, 0, calls), (&other, calls, 0)]);
        }
        rig.down().unwrap();
    });
}

#[test]
fn a_file_with_several_hard_links_is_held_only_where_no_name_can_matter() {
    isolated(|place| {
        let rig = rig(FsKind::Ext4);
        let link = "close at('db/a'); link('db/a', 'other/a') or die; sync_file('PATH');";
        for name in ["db/a", "other/a"] {
            for option in ["--except", "--only"] {
                let script = link.replace("PATH", name);
                check(place, &rig, &[option, "db"], &script, [0, 1]);
            }
        }
        // The name by which the file was opened is gone.
        let renamed = "my $f = at('other/a'); link('other/a', 'db/a') or die; unlink('other/a'); \
                       fsync($f);";
        check(place, &rig, &["--except", "db"], renamed, [0, 1]);
        // All names are on a file system with one answer.
        let here = rig.path().to_str().unwrap();
        let two = "close at('db/a'); link('db/a', 'other/a') or die; sync_file('other/a');";
        check(place, &rig, &["--only", here], two, [1, 0]);
        let away = place.text("away");
        fs::create_dir(&away).unwrap();
        check(place, &rig, &["--except", &away], two, [1, 0]);
        rig.down().unwrap();
    });
}

#[test]
fn each_way_into_a_sync_follows_the_rules() {
    isolated(|place| {
        let rig = rig(FsKind::Ext4);
        let calls = [
            ("fdatasync", format!("syscall({}, fileno($f)) == 0 or die $!;", libc::SYS_fdatasync)),
            (
                "range",
                format!(
                    "syscall({}, fileno($f), 0, 0, 7) == 0 or die $!;",
                    libc::SYS_sync_file_range
                ),
            ),
            (
                "RWF_DSYNC",
                format!(
                    "my $x = 'x'; my $part = pack('PQ', $x, 1); \
                     syscall({}, fileno($f), $part, 1, 0, 0, 2) == 1 or die $!;",
                    libc::SYS_pwritev2
                ),
            ),
            (
                "msync",
                format!(
                    "truncate($f, 4096); my $m = syscall({}, 0, 4096, 3, 1, fileno($f), 0); \
                     $m > 0 or die $!; syscall({}, $m, 4096, 4) == 0 or die $!;",
                    libc::SYS_mmap,
                    libc::SYS_msync
                ),
            ),
            (
                "aio",
                format!(
                    "my $c = pack('Q', 0); syscall({0}, 1, $c) == 0 or die $!; \
                     my $r = pack('Q L l S s l Q Q q Q L L', 0, 0, 0, 2, 0, fileno($f), 0, 0, 0, 0, 0, 0); \
                     my $rs = pack('P', $r); syscall({1}, unpack('Q', $c), 1, $rs) == 1 or die $!; \
                     my $e = \"\\0\" x 32; syscall({2}, unpack('Q', $c), 1, 1, $e, 0) == 1 or die $!;",
                    libc::SYS_io_setup,
                    libc::SYS_io_submit,
                    libc::SYS_io_getevents
                ),
            ),
        ];
        for (_, call) in &calls {
            let script =
                |path: &str| format!("my $f = at('{path}'); print $f 'x'; $f->flush; {call}");
            both_ways(place, &rig, &[(&script("db/a"), 0, 1), (&script("other/a"), 1, 0)]);
        }
        // An open of a file that exists, and of a new one, also through a link.
        for script in [
            "close at('PLACE/a'); sysopen(my $f, 'PLACE/a', O_WRONLY | O_SYNC) or die; syswrite($f, 'x');",
            "sysopen(my $f, 'PLACE/a', O_WRONLY | O_CREAT | O_SYNC) or die; syswrite($f, 'x');",
            "symlink('PLACE/a', 'mnt/l'); symlink('../PLACE/a', 'mnt/l2'); \
             sysopen(my $f, 'mnt/l2', O_WRONLY | O_CREAT | O_SYNC) or die; syswrite($f, 'x');",
        ] {
            let [db, other] = ["db", "other"].map(|name| script.replace("PLACE", name));
            both_ways(place, &rig, &[(&db, 0, 1), (&other, 1, 0)]);
        }
        rig.down().unwrap();
    });
}

#[test]
fn a_sync_of_everything_is_real_unless_all_of_it_is_held() {
    isolated(|place| {
        let rig = rig(FsKind::Ext4);
        let sync = format!("close at('other/a'); syscall({}) == 0 or die;", libc::SYS_sync);
        let syncfs = format!(
            "my $f = at('other/a'); syscall({}, fileno($f)) == 0 or die;",
            libc::SYS_syncfs
        );
        let away = place.text("away");
        fs::create_dir(&away).unwrap();
        let here = rig.path().to_str().unwrap();
        for options in
            [["--except", "db"], ["--only", "db"], ["--except", &away], ["--only", &away]]
        {
            check(place, &rig, &options, &sync, [0, 1]);
            check(place, &rig, &options, &syncfs, [0, 1]);
        }
        check(place, &rig, &["--only", here], &sync, [0, 1]);
        check(place, &rig, &["--only", here], &syncfs, [1, 0]);
        check(place, &rig, &["--only", here, "--except", "db"], &syncfs, [0, 1]);
        rig.down().unwrap();
    });
}
