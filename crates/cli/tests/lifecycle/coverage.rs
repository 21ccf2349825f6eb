//! The commit covers every call that was held.
//!
//! The oracle is the image of a loop-mounted disk: data that is not in the image when the run
//! has ended with 0 would not survive a power cut.

use synconce_testkit::harness::{Place, binary, finish, isolated, without_stalls};

/// Makes `NAME.img`, an ext4 that writes nothing back by itself for a while, and mounts it at
/// `NAME`.
pub(super) fn disk(place: &Place, name: &str) {
    let script = format!(
        "truncate -s 24M {name}.img && mkfs.ext4 -q {name}.img && mkdir {name} && \
         mount -o loop,commit=300 {name}.img {name}"
    );
    let made = finish(place.command("sh").args(["-c", &script]));
    assert!(made.status.success(), "{made:?}");
}

/// Runs `script` held; expects exit code 0 and `MAGIC` in the image of `name`.
fn assert_durable(place: &Place, name: &str, options: &[&str], script: &str) {
    let run = place.run(options, &["sh", "-c", script]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let image = std::fs::read(place.path(&format!("{name}.img"))).unwrap();
    let found = image.windows(8).any(|window| window == b"MAGIC-01");
    assert!(found, "exit code 0, and the data are not on the disk: {run:?}");
}

/// Prints the magic text from two parts, so that the script itself does not contain it.
pub(super) const SAY: &str = "say() { printf 'MAGIC-%02d\\n' 1; }; ";

#[test]
fn what_is_written_after_a_lazy_unmount_is_committed() {
    isolated(|place| {
        disk(place, "l");
        let script = format!(
            "{SAY} exec 9>>l/f; sync l/f; umount -l l; say >&9; sync /proc/self/fd/9; exit 0"
        );
        assert_durable(place, "l", &[], &script);
    });
}

/// No list of mounts shows the disk. What the command never syncs is committed as well.
#[test]
fn a_disk_that_was_unmounted_lazily_before_is_committed() {
    isolated(|place| {
        for (name, make) in [("e", "mkfs.ext4 -q"), ("b", "mkfs.btrfs -q -M")] {
            let script = format!(
                "truncate -s 120M {name}.img && {make} {name}.img && mkdir {name} && \
                 mount -o loop,commit=300 {name}.img {name} && cd {name} && umount -l ../{name} && \
                 \"$SYNCONCE\" run -- sh -c '{SAY} say >u; : >f; sync f' && \
                 grep -q MAGIC-01 \"$OLDPWD/{name}.img\""
            );
            let run = finish(place.command("sh").args(["-c", &script]).env("SYNCONCE", binary()));
            assert!(run.status.success(), "{name}: {run:?}");
        }
    });
}

#[test]
fn an_unmount_that_fails_does_not_end_the_commit_of_its_disk() {
    isolated(|place| {
        disk(place, "m");
        for options in [&[][..], &["--commit-only", "m"]] {
            let script = format!(
                "{SAY} cd m; echo 1 >z; sync z; umount ../m 2>/dev/null && exit 9; say >f; sync f"
            );
            assert_durable(place, "m", options, &script);
        }
    });
}

#[test]
fn a_disk_that_only_another_namespace_sees_is_committed() {
    isolated(|place| {
        let script = format!(
            "{SAY} truncate -s 24M n.img && mkfs.ext4 -q n.img && mkdir n && \
             mount -o loop,commit=300 n.img n && say >n/f && sync n/f && \
             (sleep 5 >/dev/null 2>&1 &)"
        );
        let inside = ["unshare", "-m", "sh", "-c", &script];
        let run = place.run(&[], &inside);
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        let image = std::fs::read(place.path("n.img")).unwrap();
        assert!(image.windows(8).any(|window| window == b"MAGIC-01"), "{run:?}");
    });
}

#[test]
fn a_disk_in_a_namespace_that_outlives_its_processes_is_committed() {
    isolated(|place| {
        for (name, options) in [("n", &[][..]), ("s", &["--sealed"])] {
            let inside = format!(
                "{SAY} mount -o loop,commit=300 {name}.img {name} && say >{name}/f && \
                 sync {name}/f && touch {name}.made; until [ -e {name}.kept ]; do sleep 0.01; done"
            );
            place.write("inside", &inside);
            let script = format!(
                "truncate -s 24M {name}.img && mkfs.ext4 -q {name}.img && mkdir {name} || exit; \
                 unshare -m sh inside & until [ -e {name}.made ] || ! kill -0 $!; do sleep 0.01; done; \
                 exec 5</proc/$!/ns/mnt && touch {name}.kept && wait; (sleep 5 >/dev/null 2>&1 &)"
            );
            assert_durable(place, name, options, &script);
        }
    });
}

/// Defines a function that runs a command in which a mount namespace can be bound to a file. The
/// kernel refuses a bind mount of a mount namespace with a lower number than the caller's has
/// (`mnt_ns_loop`). In Linux 6.18 each processor counts for itself, so only one is used.
const ON_ONE_PROCESSOR: &str =
    "on_one_processor() { taskset -c $(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') \"$@\"; }; ";

#[test]
fn a_disk_in_a_namespace_that_only_a_bind_mount_keeps_is_committed() {
    isolated(|place| {
        for (name, options) in [("n", &[][..]), ("s", &["--sealed"])] {
            let inside = format!(
                "{SAY} mount -o loop,commit=300 {name}.img {name} && say >{name}/f && sync {name}/f"
            );
            place.write("inside", &inside);
            let keep = format!(
                ": >{name}.kept && unshare --mount={name}.kept sh inside && \
                 (sleep 5 >/dev/null 2>&1 &)"
            );
            let script = format!(
                "{ON_ONE_PROCESSOR} truncate -s 24M {name}.img && mkfs.ext4 -q {name}.img && \
                 mkdir {name} && on_one_processor unshare -m sh -c '{keep}'"
            );
            assert_durable(place, name, options, &script);
        }
    });
}

#[test]
fn outside_commit_only_a_file_is_synced_for_real() {
    isolated(|place| {
        disk(place, "m");
        disk(place, "n");
        let script = format!("{SAY} say >n/f; sync n/f");
        assert_durable(place, "n", &["--commit-only", "m"], &script);
    });
}

#[test]
fn a_user_who_cannot_open_a_mount_point_gets_a_real_sync() {
    isolated(|place| {
        let _lock = without_stalls();
        disk(place, "m");
        let script = "mkdir m/u && chown 65534 m/u && chmod 711 m && mkdir -m 777 us";
        assert!(finish(place.command("sh").args(["-c", script])).status.success());
        let script = format!("{SAY} say >m/u/f; sync");
        let mut command = place.command("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", binary(), "run"]);
        command.env("SYNCONCE_STATE_DIR", place.path("us")).args(["--", "sh", "-c", &script]);
        let run = finish(&mut command);
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        let image = std::fs::read(place.path("m.img")).unwrap();
        assert!(image.windows(8).any(|window| window == b"MAGIC-01"), "{run:?}");
    });
}

#[test]
fn a_run_that_outlives_a_sealed_one_refuses_to_promise() {
    isolated(|place| {
        let late = "touch begun; until [ -e go ]; do sleep 0.01; done; \
                    \"$SYNCONCE\" run -- true 2>said; echo $? >code";
        place.write("late", late);
        // The end of the run kills what is in the process group still, as before setsid(1).
        let script = "setsid sh late >/dev/null 2>&1 & \
                      until [ -e begun ]; do sleep 0.01; done; exit 0";
        let mut command = place.held(&["--sealed"], &["sh", "-c", script]);
        let run = finish(command.env("SYNCONCE", binary()));
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        place.write("go", "");
        synconce_testkit::harness::eventually("the survivor has tried", || {
            place.path("code").exists()
        });
        synconce_testkit::harness::eventually("and reported it", || {
            std::fs::read_to_string(place.path("code")).unwrap() == "125\n"
        });
        let message = std::fs::read_to_string(place.path("said")).unwrap();
        assert!(message.contains("answers syncs without doing them"), "{message}");
        let hint = "\nsynconce: hint: use --no-commit when the result is thrown away, or start \
                    synconce outside\n";
        assert!(message.ends_with(hint), "{message}");
    });
}

#[test]
fn a_disk_is_named_as_outside_of_the_chroot_whose_process_syncs() {
    isolated(|place| {
        disk(place, "c");
        let point = place.text("c");
        for enter in ["chroot", "unshare --mount chroot"] {
            let script = format!(
                "mkdir -p c/usr; mount --bind /usr c/usr; for n in bin lib lib64; do \
                     ln -sfn usr/$n c/$n; done; echo a >c/f; {enter} c sync /f; umount c/usr"
            );
            let run = place.run(&["--stats"], &["sh", "-ec", &script]);
            assert!(run.status.success(), "{run:?}");
            assert!(run.stderr.contains(&format!("commit {point} (ext4)")), "{run:?}");
        }
    });
}

/// Detaches the loop devices of `d.img`, if the test fails before the run does.
struct Detached<'a>(&'a Place);

impl Drop for Detached<'_> {
    fn drop(&mut self) {
        let script = "losetup -n -O NAME -j d.img | xargs -r losetup --detach";
        let _ = self.0.command("sh").args(["-c", script]).status();
    }
}

/// The kernel fails what a loop device has to write after LOOP_CLR_FD.
#[test]
fn what_a_sync_was_to_write_to_a_loop_device_is_in_its_file_after_the_detachment() {
    isolated(|place| {
        let _detached = Detached(place);
        let made = "truncate -s 8M d.img && losetup --find --show d.img";
        let made = finish(place.command("sh").args(["-c", made]));
        let device = made.stdout.trim();
        let script = format!(
            "use Fcntl; sysopen(my $disk, '{device}', O_RDWR) or die $!; \
             syswrite($disk, sprintf('MAGIC-%02d', 1) x 4096) == 32768 or die $!; \
             syscall({}) == 0 or die $!; ioctl($disk, 0x4C01, 0) // die $!; close $disk;",
            libc::SYS_sync
        );
        let run = place.run(&[], &["perl", "-e", &script]);
        assert_eq!((run.status.code(), &run.stderr[..]), (Some(0), ""), "{run:?}");
        let image = std::fs::read(place.path("d.img")).unwrap();
        assert!(image.starts_with(b"MAGIC-01"), "exit code 0, and the data are lost");
    });
}
