//! Programs that are known to mind what they run on: each in a clone, by each strategy,
//! and in a plain copy of the same root; they must leave and say the same.

use crate::harness::{Need, trial};
use crate::roots;
use crate::site::{Site, for_each_strategy, limit, same, times};
use crate::support::Place;
use libtest_mimic::Trial;
use std::fs;
use std::path::Path;
use synconce_testkit::manifest::{Manifest, Options};
use synconce_testkit::process::{self, Finished};
use synconce_testkit::rig::FsKind;

const BUSYBOX: Need = Need::File("/bin/busybox", "busybox-static");
const MMDEBSTRAP: Need = Need::Program("mmdebstrap", "mmdebstrap");

/// A program's test, on each file system.
macro_rules! on_each {
    ($($module:ident: $program:expr, $needs:expr;)*) => {
        pub fn trials() -> Vec<Trial> {
            vec![
                $(
                    trial($module::on_ext4, &$needs),
                    trial($module::on_xfs, &$needs),
                    trial($module::on_btrfs, &$needs),
                )*
            ]
        }
        $(
            mod $module {
                use super::*;

                pub fn on_ext4(place: &Place) {
                    compare(place, FsKind::Ext4, &$program);
                }

                pub fn on_xfs(place: &Place) {
                    compare(place, FsKind::Xfs, &$program);
                }

                pub fn on_btrfs(place: &Place) {
                    compare(place, FsKind::Btrfs, &$program);
                }
            }
        )*
    };
}

on_each! {
    git: GIT, [Need::Program("git", "git"), BUSYBOX];
    rsync: RSYNC, [Need::Program("rsync", "rsync"), BUSYBOX];
    tar: TAR, [Need::Program("tar", "tar"), BUSYBOX];
    make: MAKE, [Need::Program("make", "make"), Need::Program("cc", "gcc libc6-dev"), BUSYBOX];
    rpm: RPM, [Need::Program("rpm", "rpm"), Need::Program("rpmbuild", "rpm"), BUSYBOX];
    dpkg: DPKG, [Need::Program("dpkg", "dpkg"), Need::Program("dpkg-deb", "dpkg"), BUSYBOX];
    apt: APT, [MMDEBSTRAP, Need::Program("dpkg-deb", "dpkg")];
    mmdebstrap_inside: BOOTSTRAP, [MMDEBSTRAP, BUSYBOX];
    buildah_inside: BUILDAH, [Need::Program("buildah", "buildah"), BUSYBOX];
    podman_inside: PODMAN, [Need::Program("podman", "podman"), BUSYBOX];
}

/// What runs where, and what of it is compared.
struct Program {
    root: Root,
    /// In the root; the first stands in the base, the second runs in the clone. The
    /// directory `/mnt` is the host's `shared`, and is there for both.
    prepare: &'static str,
    script: &'static str,
    /// Paths, as globs, that differ from run to run.
    ignored: &'static [&'static str],
}

/// Which root a program runs in.
#[derive(Clone, Copy, PartialEq)]
enum Root {
    /// A small one, with the programs of the host bound to it.
    Small,
    /// A minimal Debian.
    Debian,
}

/// Directories of the host that a small root is given, to read.
const HOSTS: [&str; 7] = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/etc/alternatives"];

const ENVIRONMENT: &str = "export LC_ALL=C.UTF-8 HOME=/root TMPDIR=/tmp PATH=/usr/local/sbin:\
                           /usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin DEBIAN_FRONTEND=noninteractive\n\
                           unset XDG_RUNTIME_DIR; umask 022; cd /data\n";

/// Those of them that this host has.
fn hosts() -> impl Iterator<Item = &'static str> {
    HOSTS.into_iter().filter(|path| Path::new(path).is_dir())
}

/// A root for `program`, without what the clone is to do.
fn root_of(place: &Place, program: &Program) -> std::path::PathBuf {
    let root = place.path("source");
    match program.root {
        Root::Debian => roots::unpack(&roots::debian(), &root),
        Root::Small => {
            roots::small(place, "source");
            fs::remove_dir_all(root.join("bin")).unwrap();
            for directory in hosts().chain(["/var/lib", "/var/tmp", "/run", "/etc/containers"]) {
                fs::create_dir_all(root.join(&directory[1..])).unwrap();
            }
            let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
            fs::write(root.join("etc/containers/policy.json"), policy).unwrap();
            fs::set_permissions(
                root.join("tmp"),
                std::os::unix::fs::PermissionsExt::from_mode(0o1777),
            )
            .unwrap();
        }
    }
    for directory in ["mnt", "data"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    root
}

/// What a root is given of the host, as `FROM TO MODE`.
fn binds(place: &Place, program: &Program) -> Vec<(String, String, &'static str)> {
    let mut binds = vec![(place.text("shared"), "/mnt".to_owned(), "rw")];
    if program.root == Root::Small {
        binds.extend(hosts().map(|path| (path.to_owned(), path.to_owned(), "ro")));
    }
    binds
}

/// Runs `script` in the directory `root` with plain chroot(8).
fn in_a_chroot(place: &Place, program: &Program, root: &Path, script: &str) -> Finished {
    // Some programs want the root to be a mount.
    let mut words = "set -e; r=$1; mount --rbind $r $r; cd $r; mount -t proc proc $r/proc; mount --rbind /dev $r/dev; \
                     mount --rbind /sys $r/sys; "
        .to_owned();
    for (from, to, mode) in binds(place, program) {
        words += &format!("mount --bind {from} $r{to}; mount -o remount,bind,{mode} $r{to}; ");
    }
    words += "exec chroot $r /bin/sh -ec \"$2\"";
    let mut command = place.command("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
    command.args(["sh", "-c", &words, "sh"]).arg(root).arg(format!("{ENVIRONMENT}{script}"));
    process::run(&mut command, limit()).unwrap()
}

/// Runs `script` in the tree `name` of `site`.
fn in_a_clone(site: &Site<'_>, program: &Program, name: &str, script: &str) -> Finished {
    let binds = binds(site.place, program);
    let binds: Vec<_> =
        binds.iter().map(|(from, to, mode)| format!("{from}:{to}{}", mode_of(mode))).collect();
    let mut words = vec!["run", name];
    binds.iter().for_each(|bind| words.extend(["--bind", bind]));
    let script = format!("{ENVIRONMENT}{script}");
    words.extend(["--", "/bin/sh", "-ec", &script]);
    site.ends(&words)
}

fn mode_of(mode: &str) -> &'static str {
    if mode == "ro" { ":ro" } else { "" }
}

/// The manifest without what `program` says differs.
fn comparable(program: &Program, manifest: Manifest) -> Manifest {
    let options = program
        .ignored
        .iter()
        .fold(Options::default(), |options, glob| options.ignore(glob).expect("a glob of ours"));
    let mut manifest = manifest.without_ignored(&options);
    // Of two runs, not one after the other.
    manifest.entries.values_mut().for_each(|entry| entry.mtime = None);
    manifest
}

fn assert_well(what: &str, finished: &Finished) {
    assert!(finished.status.success(), "{what}: {finished:?}");
}

fn compare(place: &Place, kind: FsKind, program: &Program) {
    let shared = place.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::copy("/bin/busybox", shared.join("busybox")).ok();
    for version in ["1", "2"] {
        let repository = shared.join(version);
        if program.script.contains("synconce-made") {
            roots::package(place, &repository, "synconce-made", version);
        }
    }
    let source = root_of(place, program);
    if !program.prepare.is_empty() {
        assert_well("the base", &in_a_chroot(place, program, &source, program.prepare));
    }
    let base = times(&source);
    let plain = place.path("plain");
    let copied = place.bare(&["cp", "-a", source.to_str().unwrap(), plain.to_str().unwrap()]);
    assert_well("a copy", &copied);
    let wanted = in_a_chroot(place, program, &plain, program.script);
    assert_well("in a plain root", &wanted);
    let left = comparable(program, times(&plain));
    for_each_strategy(place, kind, 4 << 30, |site| {
        let how = site.strategy();
        site.import("base", &source);
        let before = site.layers();
        site.clone_of("base", "clone");
        let done = in_a_clone(site, program, "clone", program.script);
        assert_well(how, &done);
        assert_eq!(done.stdout, wanted.stdout, "{how}: {}", done.stderr);
        same(&format!("what it left, {how}"), &left, &comparable(program, site.content("clone")));
        site.well(&["commit", "clone"]);
        site.well(&["squash", "clone"]);
        same(&format!("kept, {how}"), &left, &comparable(program, site.exported("clone")));
        site.assert_unharmed("the program", "base", &before);
        same(&format!("the base, {how}"), &base, &site.content("base"));
        for name in ["clone", "base"] {
            site.remove(name);
        }
        site.well(&["gc", "--wait"]);
    });
}

const GIT: Program = Program {
    root: Root::Small,
    prepare: r#"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@invalid GIT_AUTHOR_DATE='@1700000000 +0000'
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@invalid GIT_COMMITTER_DATE='@1700000000 +0000'
git config --global init.defaultBranch main
git config --global gc.auto 0
git config --global pack.threads 1
git init -q repository
cd repository
for n in 1 2 3 4 5 6 7 8; do
    mkdir -p dir-$n
    for file in 1 2 3 4 5; do seq $n $((n * file + 300)) >dir-$n/$file; done
    git add .
    git commit -q -m "commit $n"
    git tag -a -m "tag $n" tag-$n
done
"#,
    // The index has numbers of inodes and times: what was clean must be clean.
    script: r#"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@invalid GIT_AUTHOR_DATE='@1700000000 +0000'
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@invalid GIT_COMMITTER_DATE='@1700000000 +0000'
cd repository
git status --porcelain
git diff-index HEAD
git clone -q --local . ../local
git clone -q --no-local . ../copied
git clone -q --shared . ../shared
git mv dir-1 renamed
git rm -q -r dir-2
echo more >>dir-3/1
git commit -q -a -m changed
git gc -q --aggressive --prune=now
git fsck --full --strict --no-progress
git stash -q 2>&1 || :
git checkout -q tag-4
git checkout -q main
git worktree add -q ../worktree tag-2
for repository in . ../local ../copied ../shared ../worktree; do
    git -C $repository status --porcelain
    git -C $repository rev-list --objects --all
    git -C $repository show-ref
done
"#,
    ignored: &["**/.git/index", "**/.git/worktrees/*/index", "**/.git/objects", "**/.git/logs"],
};

const RSYNC: Program = Program {
    root: Root::Small,
    prepare: r#"
mkdir from
cd from
seq 1 10000 >large; ln large hard; mkdir below; ln large below/hard; ln -s large link
mkfifo fifo; mknod null c 1 3; truncate -s 8M holes; echo x >>holes
setfacl -m u:1234:rwx large; setfattr -n user.name -v value below; chmod 4711 large
chown 12:34 below; touch -d @1234567890.123456789 large
rsync -aHAXS /data/from/ /data/to/
"#,
    script: r#"
changes() { sed '/^\.d\.\.t/d'; }
rsync -aHAXSi --delete from/ to/
cmp from/large to/large
echo changed >>from/below/hard; rm from/link; mkdir from/new; echo new >from/new/file
rsync -aHAXSi --delete --inplace from/ to/ | changes
rsync -aHAXSi --delete from/ to/
rsync -aHAXi --link-dest=/data/to from/ linked/ | sort
stat -c '%n %h %a %u %g %s' to/large to/below/hard linked/large
"#,
    ignored: &[],
};

const TAR: Program = Program {
    root: Root::Small,
    prepare: r#"
mkdir -p tree/a/b
cd tree; for n in 1 2 3 4 5 6 7 8 9; do seq 1 $n >a/$n; ln a/$n a/b/$n; done; chmod 000 a/3
cd ..
tar -cf archive.tar --xattrs --acls --numeric-owner tree
"#,
    // Over what is there: tar unlinks, or writes to what it finds.
    script: r#"
tar --compare -f archive.tar
tar -xpf archive.tar
echo changed >tree/a/5
tar -xpf archive.tar --overwrite
tar -xpf archive.tar --unlink-first --recursive-unlink
tar --compare -f archive.tar
tar -C / -cf again.tar --sort=name --mtime=@0 data/tree
tar -tvf again.tar
tar --update -f archive.tar tree
tar -cf one.tar --listed-incremental=snapshot tree
echo new >tree/new
tar -cf two.tar --listed-incremental=snapshot tree
tar -tf two.tar
"#,
    // Times of archives and of the snapshot.
    ignored: &["data/*.tar", "data/snapshot"],
};

const MAKE: Program = Program {
    root: Root::Small,
    prepare: r#"
mkdir src
for n in 1 2 3 4 5 6; do
    printf 'int part_%s(void) { return %s; }\n' $n $n >src/part-$n.c
done
cat >src/main.c <<'END'
#include <stdio.h>
int part_1(void), part_2(void), part_3(void), part_4(void), part_5(void), part_6(void);
int main(void)
{
	return printf("%d\n", part_1() + part_2() + part_3() + part_4() + part_5() + part_6()) < 0;
}
END
cat >Makefile <<'END'
objects = $(patsubst src/%.c,out/%.o,$(wildcard src/*.c))
program: $(objects)
	cc -o $@.new $(sort $^)
	mv $@.new $@
out/%.o: src/%.c | out
	@echo compiling $<
	@cc -c -o $@ $<
out:
	mkdir $@
END
make -s -j2 >/dev/null
"#,
    // What was made in the base is not made again, but for what is changed.
    script: r#"
make -q && echo 'nothing to do'
make
./program
touch src/part-1.c
echo 'int part_2(void) { return 20; }' >src/part-2.c
make
./program
make -q
mv src moved; mv moved src
make
rm -rf out program
make -s -j4 | sort
./program
"#,
    ignored: &[],
};

const RPM: Program = Program {
    root: Root::Small,
    prepare: r#"
mkdir -p spec; cd spec
for version in 1 2; do
cat >made.spec <<END
Name: made
Version: $version
Release: 1
Summary: made
License: none
BuildArch: noarch
%description
made
%install
mkdir -p %{buildroot}/usr-made/deep %{buildroot}/etc-made
for n in 1 2 3 4 5; do echo $version \$n >%{buildroot}/usr-made/\$n; done
ln %{buildroot}/usr-made/1 %{buildroot}/usr-made/linked
ln -s 1 %{buildroot}/usr-made/symlink
echo $version >%{buildroot}/usr-made/deep/only-$version
echo $version >%{buildroot}/etc-made/conf
%files
/usr-made
%config(noreplace) /etc-made/conf
END
rpmbuild -bb --quiet --define "_topdir /data/rpm" --define "_buildhost made" \
    --define "use_source_date_epoch_as_buildtime 1" --define "_build_id_links none" made.spec >/dev/null 2>&1
done
rpm --initdb
rpm -i --nodeps --noscripts /data/rpm/RPMS/noarch/made-1-1.noarch.rpm
"#,
    script: r#"
rpm -qa
rpm -V --nodeps made
rpm -U --nodeps /data/rpm/RPMS/noarch/made-2-1.noarch.rpm
rpm -qa
rpm -ql made
rpm -V --nodeps made
cat /usr-made/1 /usr-made/linked /etc-made/conf
ls /usr-made/deep
rpm -e --nodeps made
rpm -qa
rpm -i --nodeps /data/rpm/RPMS/noarch/made-1-1.noarch.rpm
rpm -V --nodeps made
rpm --rebuilddb
rpm -qa
"#,
    // Its database has times of installs.
    ignored: &["root/.rpmdb", "var/lib/rpm", "root/.rpmdb*"],
};

const DPKG: Program = Program {
    root: Root::Small,
    prepare: r#"
mkdir -p /var/lib/dpkg/updates /var/lib/dpkg/info /var/log /var/lib/dpkg/triggers
: >/var/lib/dpkg/status; : >/var/lib/dpkg/available
mkdir -p /made/var/lib/dpkg/updates /made/var/lib/dpkg/info /made/bin /made/var/log
: >/made/var/lib/dpkg/status
cp /mnt/busybox /made/bin/sh
dpkg --root=/made --log=/dev/null -i /mnt/1/synconce-made_1_all.deb >/dev/null
"#,
    script: r#"
dpkg --root=/made --log=/dev/null -l synconce-made | tail -n 1
dpkg --root=/made --log=/dev/null --force-confnew -i /mnt/2/synconce-made_2_all.deb
dpkg --root=/made --verify
cat /made/etc/synconce-made.conf
ls -R /made/usr/share
dpkg --root=/made --log=/dev/null -r synconce-made
dpkg --root=/made --log=/dev/null --force-downgrade -i /mnt/1/synconce-made_1_all.deb
dpkg --root=/made --log=/dev/null -P synconce-made
dpkg --root=/made --log=/dev/null --audit
"#,
    ignored: &["var/log"],
};

const APT: Program = Program {
    root: Root::Debian,
    prepare: r#"
rm -f /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/mnt/1 ./' >/etc/apt/sources.list
apt-get -q update >/dev/null
apt-get -qq install synconce-made >/dev/null
"#,
    script: r#"
echo 'deb [trusted=yes] file:/mnt/2 ./' >/etc/apt/sources.list
apt-get -q update >/dev/null
apt-get -qq upgrade >/dev/null
dpkg-query -W synconce-made
dpkg --audit
apt-get -qq remove synconce-made >/dev/null
apt-get -qq --no-download --no-install-recommends install /var/cache/apt/archives/manpages*.deb >/dev/null
apt-get -qq purge synconce-made >/dev/null
dpkg --audit
dpkg --verify
dpkg-query -W | wc -l
apt-get -qq check
"#,
    ignored: &[
        "var/log",
        "var/cache/apt/*.bin",
        "var/cache/debconf",
        "var/cache/ldconfig",
        "var/lib/apt/lists",
        "var/lib/apt/extended_states",
        "tmp",
    ],
};

const BOOTSTRAP: Program = Program {
    root: Root::Small,
    prepare: "",
    // Without the network: a root of one package, by the mode that calls no chroot(8).
    script: r#"
mkdir -p /etc/apt /var/lib/dpkg
export SOURCE_DATE_EPOCH=1700000000
mmdebstrap --quiet --mode=chrootless --variant=custom --include=synconce-made --architectures=all \
    --dpkgopt=path-exclude=/nothing '' /data/made 'deb [trusted=yes] copy:/mnt/1 ./' 2>&1 || echo "failed $?"
mmdebstrap --quiet --mode=root --variant=extract --include=synconce-made \
    '' /data/made.tar 'deb [trusted=yes] copy:/mnt/1 ./' 2>&1 || echo "failed $?"
tar -tf /data/made.tar | sort
"#,
    ignored: &["data/made/var", "data/made.tar", "data/made/etc", "data/made/tmp", "tmp"],
};

const BUILDAH: Program = Program {
    root: Root::Small,
    prepare: "",
    script: r#"
mkdir context
cp /mnt/busybox context/busybox
cat >context/Dockerfile <<'END'
FROM scratch
COPY busybox /bin/busybox
COPY busybox /bin/sh
RUN ["/bin/sh", "-c", "mkdir /made && echo made >/made/file && ln /made/file /made/hard"]
RUN ["/bin/sh", "-c", "rm /made/hard && mv /made /moved && chmod 4755 /moved/file"]
END
b() { buildah --storage-driver vfs --root /data/storage --runroot /run/made "$@"; }
b bud --quiet --isolation chroot --network host --timestamp 0 --tag made context >/dev/null
b images --format '{{.Name}}'
c=$(b from made)
m=$(b mount $c)
(cd $m && find . | sort && cat moved/file)
b rm $c >/dev/null
"#,
    ignored: &["data/storage", "run"],
};

const PODMAN: Program = Program {
    root: Root::Small,
    prepare: "",
    script: r#"
mkdir -p image/bin
cp /mnt/busybox image/bin/busybox; cp /mnt/busybox image/bin/sh
p() { podman --storage-driver vfs --root /data/storage --runroot /run/made --cgroup-manager cgroupfs "$@"; }
tar -C image -c . | p import --quiet - made >/dev/null
p images --format '{{.Repository}}'
p create --cgroups disabled --network none --name one made /bin/sh -c 'echo inside' >/dev/null
p ps -a --format '{{.Names}} {{.Status}}'
p cp one:/bin/busybox /data/copied
cmp /data/copied /mnt/busybox
p rm one
p rmi --force made >/dev/null
p images --quiet
"#,
    ignored: &["data/storage", "run", "var/lib/containers", "var/lib/cni", "etc/cni"],
};
