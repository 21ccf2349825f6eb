# Enters the root $1, with $2 as its synconce, and executes the script $3.
mount --bind "$1" "$1"
cd "$1"
mount --types proc proc proc
mount --rbind /dev dev
mount --types tmpfs run run
mkdir -p run/lock .host
for path in usr/sbin usr/lib/apt usr/lib/x86_64-linux-gnu usr/lib64 usr/share/dpkg; do
	mount --bind "/$path" "$path"
	mount --options remount,bind,ro "$path"
done
mount --bind /usr/bin tools
mount --options remount,bind,ro tools
mount --bind "$2" usr/bin/synconce
pivot_root . .host
umount --lazy /.host
rmdir /.host
cd /root
exec /usr/bin/sh -euc "$3"
