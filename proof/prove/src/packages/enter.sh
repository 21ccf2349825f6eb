# Enters the root $1, with $2 as its synconce, and executes the script $3. If the directory $4 is given,
# which has the scripts of the udeb, executes $3 in an installer, whose /target is the root.
mount --bind "$1" "$1"
cd "$1"
mount --types proc proc proc
mount --rbind /dev dev
mount --types tmpfs run run
mkdir -p run/lock .host
# The directories that base.sh made.
for path in usr/sbin usr/lib/apt usr/lib/*-linux-gnu usr/lib64 usr/share/dpkg; do
	[ -d "$path" ] || continue
	mount --bind "/$path" "$path"
	mount --options remount,bind,ro "$path"
done
mount --bind /usr/bin tools
mount --options remount,bind,ro tools
mount --bind "$2" usr/bin/synconce
if [ -n "${4:-}" ]; then
	# An installer has everything but /target in memory.
	mount --types tmpfs installer /mnt
	cd /mnt
	mkdir -p usr upper work proc dev run tmp root target var/lib .host
	for name in bin sbin lib lib64; do ln -s usr/$name $name; done
	mount --types overlay --options lowerdir=/usr,upperdir=/mnt/upper,workdir=/mnt/work overlay usr
	mkdir -p usr/lib/synconce
	cp "$4"/* usr/lib/synconce
	: >usr/bin/synconce
	mount --bind "$2" usr/bin/synconce
	printf '#!/bin/sh\nexec chroot /target "$@"\n' >usr/bin/in-target
	# The machine's syslog is not the installer's.
	printf '#!/bin/sh\n' >usr/bin/logger
	chmod 755 usr/bin/in-target usr/bin/logger
	mount --types proc proc proc
	mount --rbind /dev dev
	mount --types tmpfs run run
	mount --rbind "$1" target
fi
pivot_root . .host
umount --lazy /.host
rmdir /.host
cd /root
[ ! -e /target ] || /usr/lib/synconce/wrap
exec /usr/bin/sh -euc "$3"
