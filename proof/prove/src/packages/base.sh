# Makes a small Debian root in $1: the machine's own dpkg, apt and shell, three packages, and a
# repository with them. Libraries and other tools are mounted by enter.sh.
cd "$1"
mkdir -p usr/bin usr/sbin usr/lib/apt "usr/lib/$(uname -m)-linux-gnu" usr/share/dpkg tools
# Programs name their loader by a path in /lib64 on amd64, and in /lib on arm64.
[ ! -d /usr/lib64 ] || mkdir usr/lib64
for loader in /usr/lib/ld-linux-*.so.*; do [ ! -e "$loader" ] || cp -P "$loader" usr/lib; done
mkdir -p proc dev run tmp root repo etc/apt/apt.conf.d etc/apt/preferences.d etc/dpkg/dpkg.cfg.d var/log
mkdir -p var/lib/dpkg/info var/lib/dpkg/updates var/lib/dpkg/alternatives var/lib/apt/lists/partial
mkdir -p var/cache/apt/archives/partial
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
cp /usr/bin/dash usr/bin/sh
for name in dpkg dpkg-deb dpkg-divert dpkg-query dpkg-split apt-get apt; do
	cp "/usr/bin/$name" usr/bin/
done
: >usr/bin/synconce
: >var/lib/dpkg/status
: >var/lib/dpkg/diversions
echo 'root:x:0:0:root:/root:/bin/sh' >etc/passwd
echo 'root:x:0:' >etc/group
cat >etc/apt/apt.conf.d/own <<-'END'
	APT::Sandbox::User "root";
	Dpkg::Use-Pty "false";
	DPkg::Path "/usr/sbin:/usr/bin:/tools";
	quiet "2";
END
echo 'deb [trusted=yes] file:/repo ./' >etc/apt/sources.list

# package NAME DEPENDS SCRIPT: files of different sizes, a configuration file, a script.
package() {
	mkdir -p "tmp/$1/DEBIAN" "tmp/$1/usr/share/$1" "tmp/$1/etc"
	printf '%s: %s\n' Package "$1" Version 1 Architecture all Maintainer 'x <x@x>' \
		Depends "$2" Description x | sed '/: $/d' >"tmp/$1/DEBIAN/control"
	echo "setting of $1" >"tmp/$1/etc/$1.conf"
	echo "/etc/$1.conf" >"tmp/$1/DEBIAN/conffiles"
	printf '#!/bin/sh\nset -e\n%s\n' "$3" >"tmp/$1/DEBIAN/postinst"
	chmod 755 "tmp/$1/DEBIAN/postinst"
	for size in 1 2 3 4 5 6 7 8 9 10 11 12; do
		yes "$1 $size" | head -c $((size * size * 700)) >"tmp/$1/usr/share/$1/$size"
	done
	dpkg-deb -Zgzip --build "tmp/$1" "repo/$1.deb" >/dev/null
	rm -r "tmp/$1"
	{
		dpkg-deb --field "repo/$1.deb"
		echo "Filename: ./$1.deb"
		echo "Size: $(stat -c %s "repo/$1.deb")"
		echo "SHA256: $(sha256sum "repo/$1.deb" | cut -d ' ' -f 1)"
		echo
	} >>repo/Packages
}
package alpha '' 'dpkg-query --show alpha >/dev/null'
package beta alpha 'dpkg --print-architecture >/usr/share/beta/architecture'
package gamma '' 'echo made >/usr/share/gamma/made'
