# Runs WAY, commands that write to a disk and unmount it; then copies the image of the disk.
# usage: sh -c TEXT sh WAY, in a directory with the attached image of a disk. The variable
# `device` is its loop device, and `umount2` the number of that call.
put() { echo "$1" >"$2" && sync "$2"; }
# Calls umount2(2) with MNT_EXPIRE, which is not in umount(8): the first call marks the mount and fails,
# the second unmounts it. The second is repeated, as a path lookup of any process removes the mark.
expire() {
	perl -MCwd -e '
		sub expire { my $path = getcwd() . "/mnt"; return syscall($ENV{umount2} + 0, $path, 4); }
		print expire(), " ";
		for (1 .. 100) { last if ($second = expire()) == 0; }
		print "$second ";'
}
# A mount namespace can be bound to a file in an older namespace only (`mnt_ns_loop`). Linux 6.18 compares
# numbers that each processor counts for itself: both namespaces have to be made on one processor.
on_one_processor() { taskset -c $(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') "$@"; }
eval "$1"
echo "the way ended with $?"
# Another process may have the device by now: only the device of this image is looked at.
device_of_image() { losetup --noheadings --output NAME --associated image; }
losetup --detach $(device_of_image) 2>/dev/null
# The end of a mount namespace lets go of its mounts a moment after its last process has ended.
tries=0
while [ -n "$(device_of_image)" ] && [ $tries -lt 200 ]; do
	sleep 0.05
	tries=$((tries + 1))
done
[ -z "$(device_of_image)" ] || echo "the device is in use"
[ -e copy ] || cp --sparse=always image copy
