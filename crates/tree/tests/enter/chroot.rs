//! What a command finds in a tree, and what it leaves there.

use crate::support::{
    bind, bind_read_only, entered, isolated, manifest, output, root, script, write,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

pub fn everything_a_builder_expects_is_there() {
    isolated(|place| {
        let root = root(place, "root");
        let inside = "
            for node in null zero full random urandom tty console; do
                [ -c /dev/$node ] || echo no $node
            done
            [ \"$(stat -c %a:%t:%T /dev/null)\" = 666:1:3 ] || stat /dev/null
            echo x >/dev/null && [ -d /dev/pts ] && [ -c /dev/ptmx ] && [ -e /dev/stdin ]
            echo shm >/dev/shm/f && [ \"$(stat -c %a /dev/shm)\" = 1777 ] || echo no shm
            [ -e /sys/kernel ] || echo no sys
            ! touch /sys/kernel/x 2>/dev/null || echo sys is writable
            [ \"$(readlink /proc/self)\" -gt 1 ] && [ -r /proc/1/comm ] || echo no proc
            cat /etc/resolv.conf
            echo $HOME $USER $LOGNAME $SHELL $PWD";
        let output = output(&script(&root, inside));
        let resolver = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        assert_eq!(output, format!("{resolver}/root root root /bin/sh /\n"));
    });
}

pub fn no_mount_or_mount_point_is_left_in_the_tree() {
    isolated(|place| {
        let root = root(place, "root");
        let before = manifest(&root);
        let output = output(&script(&root, "echo x >/dev/shm/y; mkdir /dev/new; echo fine"));
        assert_eq!(output, "fine\n");
        assert_eq!(manifest(&root), before);
    });
}

/// Programs that unpack archives set the times of directories last.
pub fn a_time_that_a_command_gives_a_directory_stays() {
    isolated(|place| {
        let root = root(place, "root");
        let _ = fs::remove_file(root.join("etc/resolv.conf"));
        let made = root.join("dev");
        let _ = fs::remove_dir(&made);
        let text = "touch -d @1000000000 /etc /; stat -c %Y /etc /";
        assert_eq!(output(&script(&root, text)), "1000000000\n1000000000\n");
        assert!(!made.exists() && !root.join("etc/resolv.conf").exists());
        for path in ["etc", "."] {
            let time = fs::metadata(root.join(path)).unwrap().mtime();
            assert_eq!(time, 1_000_000_000, "{path}");
        }
    });
}

pub fn the_resolver_is_the_hosts_whatever_the_tree_has() {
    isolated(|place| {
        write(Path::new("/run/resolver"), "nameserver 192.0.2.1\n");
        // The host's own file is not changed: the test has a mount namespace of its own.
        rustix::mount::mount_bind("/run/resolver", "/etc/resolv.conf").expect("a bind mount");
        type Prepare = fn(&Path);
        let prepared: [(&str, Prepare); 6] = [
            ("file", |root| write(&root.join("etc/resolv.conf"), "old")),
            ("missing", |_| {}),
            ("dangling", |root| {
                symlink("../run/systemd/resolve/stub", root.join("etc/resolv.conf")).unwrap();
            }),
            ("absolute", |root| symlink("/run/stub", root.join("etc/resolv.conf")).unwrap()),
            ("outside", |root| {
                symlink("../../../../../run/x", root.join("etc/resolv.conf")).unwrap();
            }),
            ("no-etc", |root| fs::remove_dir_all(root.join("etc")).unwrap()),
        ];
        for (name, prepare) in prepared {
            let root = root(place, name);
            prepare(&root);
            let before = manifest(&root);
            let inside = "cat /etc/resolv.conf; ! echo x 2>/dev/null >/etc/resolv.conf";
            assert_eq!(output(&script(&root, inside)), "nameserver 192.0.2.1\n", "{name}");
            assert_eq!(manifest(&root), before, "{name}");
        }
        assert!(!Path::new("/run/x").exists() && !Path::new("/run/stub").exists());
    });
}

pub fn missing_places_are_made_and_removed() {
    isolated(|place| {
        let root = root(place, "root");
        let source = place.join("source");
        fs::create_dir(&source).unwrap();
        write(&source.join("f"), "bound\n");
        let before = manifest(&root);
        let mut spec = script(&root, "cat /srv/a/b/f /etc/one/file; echo kept >/srv/mine");
        spec.binds =
            vec![bind(&source, "/srv/a/b"), bind_read_only(&source.join("f"), "/etc/one/file")];
        assert_eq!(output(&spec), "bound\nbound\n");
        let after = manifest(&root);
        let added: Vec<_> =
            after.entries.keys().filter(|path| !before.entries.contains_key(*path)).collect();
        // A directory with a file that the command wrote is kept.
        assert_eq!(added, ["srv", "srv/mine"]);
        assert_eq!(after.entries["etc"], before.entries["etc"]);
    });
}

pub fn binds_are_seen_inside_and_may_be_read_only() {
    isolated(|place| {
        let root = root(place, "root");
        for name in ["one", "two"] {
            fs::create_dir(place.join(name)).unwrap();
        }
        let inside = "echo x >/one/f; ! echo x >/two/f; [ -c /dev/extra ] && mkdir /one/in/x";
        let mut spec = script(&root, inside);
        spec.binds = vec![
            bind(&place.join("one"), "/one"),
            bind_read_only(&place.join("two"), "/two"),
            bind(&place.join("two"), "/one/in"),
            bind(Path::new("/dev/null"), "/dev/extra"),
        ];
        let finished = entered(&spec);
        assert!(finished.status.success(), "{finished:?}");
        assert!(finished.stderr.contains("Read-only file system"), "{finished:?}");
        assert_eq!(fs::read_to_string(place.join("one/f")).unwrap(), "x\n");
        assert!(!place.join("two/f").exists() && place.join("two/x").exists());
    });
}

pub fn a_link_in_the_tree_leads_nowhere_outside() {
    isolated(|place| {
        let root = root(place, "root");
        let outside = place.join("outside");
        fs::create_dir(&outside).unwrap();
        symlink(&outside, root.join("proc")).unwrap();
        symlink("../../../../..", root.join("up")).unwrap();
        let mut spec = script(&root, "[ -r /proc/1/comm ]; [ -d /up/x ]; ls -d /up/bin");
        spec.binds = vec![bind(&outside, "/up/x")];
        assert_eq!(output(&spec), "/up/bin\n");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert!(!Path::new("/x").exists());
    });
}

pub fn the_hosts_mounts_are_not_seen_and_not_changed() {
    isolated(|place| {
        let root = root(place, "root");
        let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
        let before = mounts();
        let inside = "cat /proc/self/mountinfo; mount -t tmpfs none /tmp && echo x >/tmp/f";
        let output = output(&script(&root, inside));
        assert_eq!(mounts(), before);
        assert!(!root.join("tmp/f").exists());
        let point = place.to_str().unwrap();
        let seen: Vec<_> = output.lines().map(|line| line.split(' ').nth(4).unwrap()).collect();
        assert!(
            seen.iter().all(|seen| !seen.starts_with(point) && !seen.contains("synconce")),
            "{seen:?}"
        );
        assert!(seen.contains(&"/"), "{seen:?}");
    });
}

pub fn the_hosts_file_has_localhost_and_the_host_name_whatever_the_tree_has() {
    isolated(|place| {
        write(Path::new("/run/hosts"), "192.0.2.1 mirror");
        rustix::mount::mount_bind("/run/hosts", "/etc/hosts").expect("a bind mount");
        type Prepare = fn(&Path);
        let prepared: [(&str, Prepare); 3] = [
            ("file", |root| write(&root.join("etc/hosts"), "old")),
            ("missing", |_| {}),
            ("link", |root| symlink("../../run/hosts", root.join("etc/hosts")).unwrap()),
        ];
        for (name, prepare) in prepared {
            let root = root(place, name);
            prepare(&root);
            let before = manifest(&root);
            let mut spec = script(&root, "cat /etc/hosts; echo more >>/etc/hosts; ls /dev");
            spec.hostname = Some("box".into());
            let output = output(&spec);
            let hosts = "192.0.2.1 mirror\n127.0.0.1 localhost\n\
                         ::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 box\n";
            assert!(output.starts_with(hosts) && !output.contains("hosts\n"), "{name}: {output}");
            assert_eq!(manifest(&root), before, "{name}");
        }
        assert_eq!(fs::read_to_string("/etc/hosts").unwrap(), "192.0.2.1 mirror");
    });
}

pub fn names_and_queues_of_the_host_are_not_changed() {
    isolated(|place| {
        let root = root(place, "root");
        let name = "/proc/sys/kernel/hostname";
        let host = fs::read_to_string(name).unwrap();
        let inside = format!(
            "cat {name}; echo zzz >{name}; cat {name}; readlink /proc/self/ns/ipc /proc/self/ns/uts"
        );
        let output = output(&script(&root, &inside));
        let rest = output.strip_prefix(&format!("{host}zzz\n")).expect(&output);
        for space in rest.lines() {
            let kind = space.split(':').next().unwrap();
            let ours = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
            assert_ne!(ours, Path::new(space));
        }
        assert_eq!(fs::read_to_string(name).unwrap(), host);
    });
}
