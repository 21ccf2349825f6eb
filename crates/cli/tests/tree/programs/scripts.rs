//! The scripts of each program, for the base and for the clone.

use super::{ProgramRoot, TestedProgram};

pub const GIT: TestedProgram = TestedProgram {
    root: ProgramRoot::Small,
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
    // The index has inode numbers and times: files that were clean must still be clean.
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

pub const RSYNC: TestedProgram = TestedProgram {
    root: ProgramRoot::Small,
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

pub const TAR: TestedProgram = TestedProgram {
    root: ProgramRoot::Small,
    prepare: r#"
mkdir -p tree/a/b
cd tree; for n in 1 2 3 4 5 6 7 8 9; do seq 1 $n >a/$n; ln a/$n a/b/$n; done; chmod 000 a/3
cd ..
tar -cf archive.tar --xattrs --acls --numeric-owner tree
"#,
    // tar extracts over existing files: it unlinks them, or writes to them.
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
    // The archives and the snapshot contain times.
    ignored: &["data/*.tar", "data/snapshot"],
};

pub const MAKE: TestedProgram = TestedProgram {
    root: ProgramRoot::Small,
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
    // make must remake only what was changed since the base was made.
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

pub const RPM: TestedProgram = TestedProgram {
    root: ProgramRoot::Small,
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
    // The database of rpm has the times of installs.
    ignored: &["root/.rpmdb", "var/lib/rpm", "root/.rpmdb*"],
};

pub const DPKG: TestedProgram = TestedProgram {
    root: ProgramRoot::Small,
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

pub const APT: TestedProgram = TestedProgram {
    root: ProgramRoot::Debian,
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

pub const BOOTSTRAP: TestedProgram = TestedProgram {
    root: ProgramRoot::Small,
    prepare: "",
    // Without the network: a root of one package, in the mode that does not call chroot(8).
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

pub const BUILDAH: TestedProgram = TestedProgram {
    root: ProgramRoot::Small,
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

pub const PODMAN: TestedProgram = TestedProgram {
    root: ProgramRoot::Small,
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
